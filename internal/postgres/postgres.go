// Package postgres opens a pool, runs a function in a transaction, and says what an error of
// the database means.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// ServiceRole is the role under which the service runs. It owns nothing.
const ServiceRole = "paymentsd_service"

// Config says how to reach the database.
type Config struct {
	URL string
	// Role is taken on every connection (SET ROLE); empty keeps the login role.
	Role string
	// MaxConns bounds the pool; 0 takes the URL's own or pgx's default.
	MaxConns int32
	// StatementTimeout ends any statement that takes longer; 0 means 5 s.
	StatementTimeout time.Duration
	// Name shows in pg_stat_activity.
	Name string
	// Tracer sees every statement, if set.
	Tracer pgx.QueryTracer
}

// Open makes a pool and proves that the database answers within ctx.
func Open(ctx context.Context, c Config) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(c.URL)
	if err != nil {
		return nil, fmt.Errorf("the database URL cannot be used: %w", err)
	}
	if c.MaxConns > 0 {
		config.MaxConns = c.MaxConns
	}
	if c.StatementTimeout == 0 {
		c.StatementTimeout = 5 * time.Second
	}
	set := config.ConnConfig.RuntimeParams
	set["timezone"] = "UTC"
	set["statement_timeout"] = fmt.Sprint(c.StatementTimeout.Milliseconds())
	set["idle_in_transaction_session_timeout"] = fmt.Sprint((2 * c.StatementTimeout).Milliseconds())
	if c.Role != "" {
		set["role"] = c.Role
	}
	if c.Name != "" {
		set["application_name"] = c.Name
	}
	config.ConnConfig.Tracer = c.Tracer
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open the database pool: %w", err)
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, fmt.Errorf("reach the database: %w", err)
	}
	return pool, nil
}

// DB is what a query needs: a pool, a connection or a transaction.
type DB interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Beginner is what can begin a transaction: a pool or a connection.
type Beginner interface {
	BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
}

// deadlockTries bounds how often a transaction that lost a deadlock is run again.
const deadlockTries = 4

// InTx runs do in a READ COMMITTED transaction of one merchant, or of control tables only: one that
// loses a deadlock is run again from the start, so do must have no effect outside tx.
func InTx(ctx context.Context, db Beginner, do func(tx pgx.Tx) error) error {
	for try := 1; ; try++ {
		err := pgx.BeginTxFunc(ctx, db, pgx.TxOptions{}, do)
		if err == nil || !IsDeadlock(err) || try == deadlockTries {
			return err
		}
	}
}

// SQLState is the SQLSTATE of an error that the server raised, "" if it did not come from the server.
func SQLState(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	return ""
}

// IsDeadlock reports a transaction that the server ended to break a deadlock (40P01).
func IsDeadlock(err error) bool { return SQLState(err) == "40P01" }

// Rejected reports that the server understood the statement and refused its content (classes 22, 23,
// 42 and our own PD): trying again cannot help, and nothing was written.
func Rejected(err error) bool {
	state := SQLState(err)
	return len(state) == 5 && (state[:2] == "22" || state[:2] == "23" || state[:2] == "42" || state[:2] == "PD")
}

// Unavailable reports that the database could not be asked, or gave up, for a reason that may pass:
// no connection, shutting down, too many connections, a time limit. A write may have been committed all
// the same: run it again only if it recognises what it wrote, or read it back.
func Unavailable(err error) bool {
	return err != nil && !Rejected(err) && !errors.Is(err, pgx.ErrNoRows)
}

// Package migrations is the schema and nothing else: embedded SQL files, applied by golang-migrate.
package migrations

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/golang-migrate/migrate/v4"
	_ "github.com/golang-migrate/migrate/v4/database/pgx/v5" // the driver behind the pgx5:// scheme
	"github.com/golang-migrate/migrate/v4/source/iofs"
)

// FS holds the migration files, NNNNNN_name.up.sql and NNNNNN_name.down.sql.
//
//go:embed *.sql
var FS embed.FS

// Bounds on what a migration may take: golang-migrate itself would wait for its lock for ever.
const (
	lockWaitMax      = 30 * time.Second
	statementTimeMax = 5 * time.Minute
)

// Up applies every migration that the database lacks. Applying none is no error.
func Up(ctx context.Context, databaseURL string) error {
	return run(ctx, databaseURL, func(m *migrate.Migrate) error { return m.Up() })
}

// Down takes every migration back, newest first. It destroys all data.
func Down(ctx context.Context, databaseURL string) error {
	return run(ctx, databaseURL, func(m *migrate.Migrate) error { return m.Down() })
}

// Version reports the newest applied migration, 0 if none, and whether one failed half-way.
func Version(ctx context.Context, databaseURL string) (version uint, dirty bool, err error) {
	err = run(ctx, databaseURL, func(m *migrate.Migrate) error {
		version, dirty, err = m.Version()
		if errors.Is(err, migrate.ErrNilVersion) {
			return nil
		}
		return err
	})
	return version, dirty, err
}

func run(ctx context.Context, databaseURL string, do func(*migrate.Migrate) error) error {
	source, err := iofs.New(FS, ".")
	if err != nil {
		return fmt.Errorf("read the embedded migrations: %w", err)
	}
	target, err := driverURL(databaseURL)
	if err != nil {
		return err
	}
	m, err := migrate.NewWithSourceInstance("iofs", source, target)
	if err != nil {
		return fmt.Errorf("connect to migrate the database: %w", err)
	}
	m.LockTimeout = lockWaitMax
	stop := context.AfterFunc(ctx, func() { m.GracefulStop <- true })
	defer stop()
	err = do(m)
	sourceErr, databaseErr := m.Close()
	if err != nil && !errors.Is(err, migrate.ErrNoChange) {
		return fmt.Errorf("migrate the database: %w", err)
	}
	return errors.Join(sourceErr, databaseErr)
}

// driverURL rewrites postgres:// to golang-migrate's scheme for pgx and bounds each statement.
func driverURL(databaseURL string) (string, error) {
	u, err := url.Parse(databaseURL)
	if err != nil || (u.Scheme != "postgres" && u.Scheme != "postgresql") {
		return "", errors.New("the database URL must have the form postgres://user@host:port/name")
	}
	query := u.Query()
	query.Set("x-statement-timeout", fmt.Sprint(statementTimeMax.Milliseconds()))
	u.RawQuery = query.Encode()
	return "pgx5" + strings.TrimPrefix(u.String(), u.Scheme), nil
}

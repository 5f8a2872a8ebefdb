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
	"github.com/golang-migrate/migrate/v4/source"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	"github.com/jackc/pgx/v5"
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

// Latest is the newest migration that this build knows.
func Latest() (uint, error) {
	entries, err := FS.ReadDir(".")
	if err != nil {
		return 0, fmt.Errorf("read the embedded migrations: %w", err)
	}
	var latest uint
	for _, entry := range entries {
		m, err := source.DefaultParse(entry.Name())
		if err == nil {
			latest = max(latest, m.Version)
		}
	}
	return latest, nil
}

const readVersion = `select v.version, v.dirty from schema_migrations v`

// Check reports whether the database has exactly the schema of this build, and what to do if not. It
// needs no more than the service's own rights.
func Check(ctx context.Context, db interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}) error {
	latest, err := Latest()
	if err != nil {
		return err
	}
	var version uint
	var dirty bool
	switch err := db.QueryRow(ctx, readVersion).Scan(&version, &dirty); {
	case err != nil:
		return fmt.Errorf("the database has no schema of ours (run paymentsd migrate up): %w", err)
	case dirty:
		return fmt.Errorf("migration %d failed half-way: mend the database by hand, then set its version", version)
	case version < latest:
		return fmt.Errorf("the schema is at migration %d, this build needs %d: run paymentsd migrate up", version, latest)
	}
	return nil // a newer schema is fine: functions carry versions, and columns are only added
}

func run(ctx context.Context, databaseURL string, do func(*migrate.Migrate) error) error {
	files, err := iofs.New(FS, ".")
	if err != nil {
		return fmt.Errorf("read the embedded migrations: %w", err)
	}
	target, err := driverURL(databaseURL)
	if err != nil {
		return err
	}
	m, err := migrate.NewWithSourceInstance("iofs", files, target)
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

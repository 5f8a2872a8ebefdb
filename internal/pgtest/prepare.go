package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"paymentsd/internal/sqllint"
)

// PrepareAll has Postgres plan every SQL constant of the package in dir (usually ".") against the
// migrated schema: a misspelt column fails here and not at three in the morning. It fails, too, if
// there is none, since then it looked in the wrong place.
func PrepareAll(t *testing.T, dir string) {
	t.Helper()
	abs, err := filepath.Abs(dir)
	if err != nil {
		t.Fatal(err)
	}
	root, err := moduleRoot(abs)
	if err != nil {
		t.Fatal(err)
	}
	statements, err := sqllint.InPackage(root, abs)
	if err != nil {
		t.Fatal(err)
	}
	if len(statements) == 0 {
		t.Fatalf("no SQL constant in %s", abs)
	}
	conn := New(t).Owner()
	for _, s := range statements {
		t.Run(s.Name, func(t *testing.T) {
			if err := prepare(t.Context(), conn, s.SQL); err != nil {
				t.Errorf("%s: %v", s, err)
			}
		})
	}
}

func prepare(ctx context.Context, conn *pgx.Conn, sql string) error {
	plain, _, err := pgx.NamedArgs{}.RewriteQuery(ctx, conn, sql, nil)
	if err != nil {
		return err
	}
	_, err = conn.PgConn().Prepare(ctx, "", plain, nil)
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Position > 0 {
		at := min(int(pgErr.Position)-1, len(plain))
		return fmt.Errorf("%w\n  at: %.60s", err, plain[at:])
	}
	return err
}

// moduleRoot is the folder of go.mod, at dir or above it.
func moduleRoot(dir string) (string, error) {
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, "go.mod")); err == nil {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("no go.mod at or above %s", dir)
		}
	}
}

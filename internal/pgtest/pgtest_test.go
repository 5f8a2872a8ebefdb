package pgtest

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const databaseThere = `select exists (select 1 from pg_database where datname = $1)`

func TestDatabase(t *testing.T) {
	t.Parallel()
	t.Run("each test has its own, migrated, as the service's role", func(t *testing.T) {
		t.Parallel()
		a, b := New(t), New(t)
		var role, name string
		if err := a.Pool.QueryRow(t.Context(), `select current_user, current_database()`).Scan(&role, &name); err != nil {
			t.Fatal(err)
		}
		if role != "paymentsd_service" || (a.OwnerURL() == b.OwnerURL()) != a.Shared {
			t.Errorf("role %q in %q, other database %q", role, name, b.OwnerURL())
		}
		var charges int
		if err := a.Pool.QueryRow(t.Context(), `select count(*) from charges where merchant_id = $1`, a.Merchant()).Scan(&charges); err != nil || charges != 0 {
			t.Errorf("%d charges, %v; want an empty table", charges, err)
		}
	})
	t.Run("the service may not touch what is append-only, the owner may", func(t *testing.T) {
		t.Parallel()
		db := New(t)
		const wipe = `delete from ledger_transfers where merchant_id = 1`
		_, err := db.Pool.Exec(t.Context(), wipe)
		if pgErr, ok := errors.AsType[*pgconn.PgError](err); !ok || pgErr.Code != "42501" {
			t.Errorf("the service's delete: %v; want insufficient_privilege", err)
		}
		if _, err := db.Owner().Exec(t.Context(), wipe); err != nil {
			t.Errorf("the owner's delete: %v", err)
		}
	})
	t.Run("the service's address takes its role", func(t *testing.T) {
		t.Parallel()
		conn, err := pgx.Connect(t.Context(), New(t).ServiceURL())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.Background())
		var role string
		if err := conn.QueryRow(t.Context(), `select current_user`).Scan(&role); err != nil || role != "paymentsd_service" {
			t.Errorf("role %q, %v", role, err)
		}
	})
	t.Run("merchants differ", func(t *testing.T) {
		t.Parallel()
		db := New(t)
		if a, b := db.Merchant(), db.Merchant(); a == b || min(a, b) < 0 || max(a, b) > 738197503 {
			t.Errorf("merchants %d and %d", a, b)
		}
	})
}

// failed stands in for a test whose outcome we choose.
type failed struct {
	testing.TB
	failed bool
	logs   []string
	clean  []func()
}

func (f *failed) Failed() bool               { return f.failed }
func (f *failed) Cleanup(do func())          { f.clean = append(f.clean, do) }
func (f *failed) Logf(s string, args ...any) { f.logs = append(f.logs, s) }
func (f *failed) finish() {
	for i := len(f.clean) - 1; i >= 0; i-- {
		f.clean[i]()
	}
}

func TestDatabaseIsDroppedOnlyAfterSuccess(t *testing.T) {
	t.Parallel()
	for name, kept := range map[string]bool{"dropped when the test passed": false, "kept when it failed": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inner := &failed{TB: t, failed: kept}
			db := open(inner, plainServer)
			u, err := url.Parse(db.OwnerURL())
			if err != nil {
				t.Fatal(err)
			}
			inner.finish()
			var there bool
			if err := open(t, plainServer).Owner().QueryRow(t.Context(), databaseThere, strings.TrimPrefix(u.Path, "/")).Scan(&there); err != nil || there != kept {
				t.Errorf("the database is there: %v (%v), want %v", there, err, kept)
			}
			if kept != (len(inner.logs) == 1) {
				t.Errorf("logs %q", inner.logs)
			}
			inner.failed = false
			db.drop(server(t))
		})
	}
}

func TestPrepareNamesTheMistake(t *testing.T) {
	t.Parallel()
	conn := New(t).Owner()
	if err := prepare(t.Context(), conn, `select amount from charges where merchant_id = @merchant and charge_id = @charge`); err != nil {
		t.Errorf("a good statement: %v", err)
	}
	err := prepare(t.Context(), conn, `select amuont from charges where merchant_id = @merchant`)
	if err == nil || !strings.Contains(err.Error(), "amuont") {
		t.Errorf("a misspelt column: %v", err)
	}
}

// plainServer is the environment without TEST_CITUS_URL: what is tested with it is about templates.
func plainServer(name string) string {
	if name == "TEST_CITUS_URL" {
		return ""
	}
	return os.Getenv(name)
}

func server(t *testing.T) string {
	t.Helper()
	u, err := serverURL(plainServer, ".")
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestServerURL(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	pkg := filepath.Join(root, "a", "b")
	if err := errors.Join(os.MkdirAll(pkg, 0o755), os.WriteFile(filepath.Join(root, "go.mod"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	nothing := func(string) string { return "" }
	if _, err := serverURL(nothing, pkg); err == nil || !strings.Contains(err.Error(), "make test") {
		t.Errorf("no server: %v; want the command to run", err)
	}
	if err := os.WriteFile(filepath.Join(root, URLFile), []byte("postgres://kept\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := serverURL(nothing, pkg); err != nil || got != "postgres://kept" {
		t.Errorf("make db runs: %q, %v", got, err)
	}
	if got, err := serverURL(func(string) string { return "postgres://set" }, pkg); err != nil || got != "postgres://set" {
		t.Errorf("the environment names one: %q, %v", got, err)
	}
}

// TestSharedDatabase goes the way of TEST_CITUS_URL; any empty database will do for that.
func TestSharedDatabase(t *testing.T) {
	t.Parallel()
	name := "paymentsd_shared_" + strings.ToLower(rand.Text()[:8])
	if _, err := open(t, plainServer).Owner().Exec(t.Context(), "create database "+name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := withConn(context.Background(), server(t), func(c *pgx.Conn) error {
			_, err := c.Exec(context.Background(), "drop database if exists "+name+" with (force)")
			return err
		}); err != nil {
			t.Error(err)
		}
	})
	dsn, err := withDatabase(server(t), name)
	if err != nil {
		t.Fatal(err)
	}
	errs := make(chan error, 4)
	for range cap(errs) { // all at once: one of them migrates
		go func() { errs <- prepareShared(t.Context(), dsn) }()
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	if db := open(t, func(string) string { return dsn }); !db.Shared || db.OwnerURL() != dsn {
		t.Errorf("shared %v, %s", db.Shared, db.OwnerURL())
	}
}

// TestTemplateIsMadeOnce has many processes' worth of tests come to a server that has no template.
func TestTemplateIsMadeOnce(t *testing.T) {
	t.Parallel()
	sum := sha256.Sum256([]byte(t.Name() + rand.Text()))
	template := "paymentsd_template_selftest_" + strings.ToLower(rand.Text()[:8])
	errs := make(chan error, 5)
	for range cap(errs) {
		go func() {
			errs <- withConn(t.Context(), server(t), func(conn *pgx.Conn) error {
				return makeTemplate(t.Context(), conn, server(t), template, sum)
			})
		}()
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	err := withConn(t.Context(), server(t), func(conn *pgx.Conn) error {
		_, err := conn.Exec(t.Context(), "alter database "+template+" with is_template false")
		if err == nil {
			_, err = conn.Exec(t.Context(), "drop database "+template)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

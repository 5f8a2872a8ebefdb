package pgtest

import (
	"context"
	"errors"
	"net/url"
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
		if role != "paymentsd_service" || a.OwnerURL() == b.OwnerURL() {
			t.Errorf("role %q in %q, other database %q", role, name, b.OwnerURL())
		}
		var charges int
		if err := a.Pool.QueryRow(t.Context(), `select count(*) from charges`).Scan(&charges); err != nil || charges != 0 {
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
			db := New(inner)
			u, err := url.Parse(db.OwnerURL())
			if err != nil {
				t.Fatal(err)
			}
			inner.finish()
			var there bool
			if err := New(t).Owner().QueryRow(t.Context(), databaseThere, strings.TrimPrefix(u.Path, "/")).Scan(&there); err != nil || there != kept {
				t.Errorf("the database is there: %v (%v), want %v", there, err, kept)
			}
			if kept != (len(inner.logs) == 1) {
				t.Errorf("logs %q", inner.logs)
			}
			inner.failed = false
			db.drop(serverURL(t))
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

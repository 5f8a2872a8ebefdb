package migrations_test

import (
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"paymentsd/internal/pgtest"
	"paymentsd/migrations"
)

// catalogue lists everything in the schema: columns, constraints, indexes, functions and rights.
func catalogue(t *testing.T, conn *pgx.Conn) []string {
	t.Helper()
	rows, err := conn.Query(t.Context(), `
		select 'column ' || c.table_name || '.' || c.column_name || ' ' || c.data_type || ' ' || c.is_nullable || ' ' || coalesce(c.column_default, '')
		  from information_schema.columns c where c.table_schema = 'public'
		union all select 'constraint ' || k.conrelid::regclass || ' ' || k.conname || ' ' || pg_get_constraintdef(k.oid)
		  from pg_constraint k where k.connamespace = 'public'::regnamespace
		union all select i.indexdef from pg_indexes i where i.schemaname = 'public'
		union all select pg_get_functiondef(p.oid) || coalesce(p.proacl::text, '') from pg_proc p where p.pronamespace = 'public'::regnamespace
		union all select 'grant ' || g.grantee || ' ' || g.privilege_type || ' ' || g.table_name
		  from information_schema.role_table_grants g where g.table_schema = 'public'
		order by 1`)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestUpAndDown(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ctx, owner := t.Context(), db.Owner()
	latest, err := migrations.Latest()
	if err != nil || latest == 0 {
		t.Fatalf("%d, %v", latest, err)
	}
	wantVersion := func(want uint) {
		t.Helper()
		if version, dirty, err := migrations.Version(ctx, db.OwnerURL()); err != nil || dirty || version != want {
			t.Fatalf("version %d, dirty %v, %v; want %d", version, dirty, err, want)
		}
	}
	fresh := catalogue(t, owner)
	wantVersion(latest)
	if err := migrations.Check(ctx, db.Pool); err != nil { // with the service's rights
		t.Error(err)
	}
	if err := migrations.Up(ctx, db.OwnerURL()); err != nil {
		t.Fatalf("up a second time: %v", err)
	}
	if diff := cmp.Diff(fresh, catalogue(t, owner)); diff != "" {
		t.Error(diff)
	}
	for range 2 { // the second finds nothing to take back
		if err := migrations.Down(ctx, db.OwnerURL()); err != nil {
			t.Fatalf("down: %v", err)
		}
	}
	wantVersion(0)
	for _, left := range catalogue(t, owner) {
		if !strings.Contains(left, "schema_migrations") {
			t.Errorf("down leaves %s", left)
		}
	}
	if err := migrations.Check(ctx, owner); err == nil || !strings.Contains(err.Error(), "migrate up") {
		t.Errorf("an empty database: %v", err)
	}
	if err := migrations.Up(ctx, db.OwnerURL()); err != nil {
		t.Fatalf("up again: %v", err)
	}
	wantVersion(latest)
	if diff := cmp.Diff(fresh, catalogue(t, owner)); diff != "" {
		t.Errorf("up, down and up is another schema: %s", diff)
	}
}

func TestUpByManyReplicasAtOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	if err := migrations.Down(t.Context(), db.OwnerURL()); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if err := migrations.Up(t.Context(), db.OwnerURL()); err != nil {
				t.Errorf("%v", err)
			}
		})
	}
	all.Wait()
	if err := migrations.Check(t.Context(), db.Owner()); err != nil {
		t.Error(err)
	}
}

func TestCheckSaysWhatToDo(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	owner := db.Owner()
	latest, err := migrations.Latest()
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		version uint
		dirty   bool
		says    string // nothing: it is fine
	}{
		"a schema that is behind": {latest - 1, false, "migrate up"},
		"a migration that failed": {latest, true, "by hand"},
		"a schema that is ahead":  {latest + 1, false, ""},
	} {
		if _, err := owner.Exec(t.Context(), `update schema_migrations set version = $1, dirty = $2`, tc.version, tc.dirty); err != nil {
			t.Fatal(err)
		}
		if err := migrations.Check(t.Context(), db.Pool); (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := owner.Exec(t.Context(), `update schema_migrations set version = $1, dirty = true`, latest); err != nil {
		t.Fatal(err)
	}
	if err := migrations.Up(t.Context(), db.OwnerURL()); err == nil {
		t.Error("a dirty schema was migrated on")
	}
	for _, url := range []string{"", "mysql://x/y", "://", "host=localhost"} {
		if err := migrations.Up(t.Context(), url); err == nil || !strings.Contains(err.Error(), "postgres://") {
			t.Errorf("%q: %v", url, err)
		}
	}
}

func TestEveryMigrationGoesBothWays(t *testing.T) {
	t.Parallel()
	names, err := fs.Glob(migrations.FS, "*.sql")
	if err != nil {
		t.Fatal(err)
	}
	ways := map[string]int{}
	for _, name := range names {
		base, isUp := strings.CutSuffix(name, ".up.sql")
		if !isUp {
			base = strings.TrimSuffix(name, ".down.sql")
		}
		ways[base]++
	}
	// Numbers may be left out, but each is of one migration.
	numbers := map[string]string{}
	for base, n := range ways {
		if n != 2 {
			t.Errorf("%s goes %d ways", base, n)
		}
		number, _, _ := strings.Cut(base, "_")
		if other, taken := numbers[number]; taken {
			t.Errorf("%s and %s have one number", base, other)
		}
		numbers[number] = base
	}
	if latest, err := migrations.Latest(); err != nil || numbers[fmt.Sprintf("%06d", latest)] == "" {
		t.Errorf("the latest is %d, %v", latest, err)
	}
}

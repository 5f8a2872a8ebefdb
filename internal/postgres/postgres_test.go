package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"paymentsd/internal/pgtest"
	"paymentsd/internal/postgres"
)

// TestWhatAnErrorMeans has what each kind of error says about a statement.
func TestWhatAnErrorMeans(t *testing.T) {
	t.Parallel()
	state := func(code string) error { return fmt.Errorf("write: %w", &pgconn.PgError{Code: code}) }
	for name, tc := range map[string]struct {
		err                   error
		rejected, unavailable bool
	}{
		"a value that is too long":         {state("22001"), true, false},
		"a check that fails":               {state("23514"), true, false},
		"a right that is missing":          {state("42501"), true, false},
		"one of our own":                   {state("PD002"), true, false},
		"a deadlock":                       {state("40P01"), false, true},
		"a statement that took too long":   {state("57014"), false, true},
		"a standby":                        {state("25006"), false, true},
		"too many connections":             {state("53300"), false, true},
		"a lost connection, by the server": {state("08006"), false, true},
		"an administrator ended it":        {state("57P01"), false, true},
		"a crash of another backend":       {state("57P02"), false, true},
		"an internal error":                {state("XX000"), false, true},
		"a lost connection":                {io.ErrUnexpectedEOF, false, true},
		"a deadline":                       {context.DeadlineExceeded, false, true},
		"no row":                           {pgx.ErrNoRows, false, false},
		"no error":                         {nil, false, false},
	} {
		if got := postgres.Rejected(tc.err); got != tc.rejected {
			t.Errorf("%s: rejected %v", name, got)
		}
		if got := postgres.Unavailable(tc.err); got != tc.unavailable {
			t.Errorf("%s: unavailable %v", name, got)
		}
	}
}

func TestConnectionRefusedIsUnavailable(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err := postgres.Open(ctx, postgres.Config{URL: "postgres://nobody@127.0.0.1:1/x?sslmode=disable"})
	if !postgres.Unavailable(err) || postgres.Rejected(err) {
		t.Errorf("%v", err)
	}
	if _, err := postgres.Open(ctx, postgres.Config{URL: "postgres://%zz"}); err == nil {
		t.Error("a URL that is none is accepted")
	}
}

func TestOpenSetsWhatItIsTold(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	pool, err := postgres.Open(t.Context(), postgres.Config{
		URL: db.OwnerURL(), Role: postgres.ServiceRole, MaxConns: 3, StatementTimeout: 1500 * time.Millisecond, Name: "by name",
	})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for setting, want := range map[string]string{
		"role": postgres.ServiceRole, "statement_timeout": "1500ms", "idle_in_transaction_session_timeout": "3s", "timezone": "UTC", "application_name": "by name",
	} {
		var got string
		if err := pool.QueryRow(t.Context(), `select current_setting($1)`, setting).Scan(&got); err != nil || got != want {
			t.Errorf("%s is %q, %v; want %q", setting, got, err, want)
		}
	}
	if n := pool.Config().MaxConns; n != 3 {
		t.Errorf("%d connections", n)
	}
	if _, err := pool.Exec(t.Context(), `select pg_sleep(30)`); postgres.SQLState(err) != "57014" {
		t.Errorf("%v", err)
	}
}

// TestInTx: the loser of a deadlock is run again, and anything else is not.
func TestInTx(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	t.Run("two transactions that lock in crossed order both end", func(t *testing.T) {
		t.Parallel()
		var met, all sync.WaitGroup
		met.Add(2)
		tries := make([]int, 2)
		for i, order := range [][2]int{{1, 2}, {2, 1}} {
			all.Go(func() {
				err := postgres.InTx(t.Context(), db.Pool, func(tx pgx.Tx) error {
					tries[i]++
					if _, err := tx.Exec(t.Context(), `select pg_advisory_xact_lock($1)`, order[0]); err != nil {
						return err
					}
					if tries[i] == 1 { // both hold their first lock before either asks for its second
						met.Done()
						met.Wait()
					}
					_, err := tx.Exec(t.Context(), `select pg_advisory_xact_lock($1)`, order[1])
					return err
				})
				if err != nil {
					t.Errorf("%v", err)
				}
			})
		}
		all.Wait()
		if tries[0]+tries[1] != 3 {
			t.Errorf("run %v times", tries)
		}
	})
	t.Run("an error of ours ends it, and so does a panic, and nothing is written", func(t *testing.T) {
		t.Parallel()
		wrong := errors.New("wrong")
		tries := 0
		add := func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), `insert into api_keys (key_id, secret_hash, role, name, created_at) values ('000000000000', $1, 'ops', 'x', now())`, make([]byte, 32))
			return err
		}
		err := postgres.InTx(t.Context(), db.Pool, func(tx pgx.Tx) error {
			tries++
			return errors.Join(add(tx), wrong)
		})
		if !errors.Is(err, wrong) || tries != 1 {
			t.Errorf("%v after %d tries", err, tries)
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic was swallowed")
				}
			}()
			_ = postgres.InTx(t.Context(), db.Pool, func(tx pgx.Tx) error {
				_ = add(tx)
				panic("lost")
			})
		}()
		var rows int
		if err := db.Pool.QueryRow(t.Context(), `select count(*) from api_keys`).Scan(&rows); err != nil || rows != 0 {
			t.Errorf("%d rows, %v", rows, err)
		}
	})
	t.Run("a deadlock that does not end is given up", func(t *testing.T) {
		t.Parallel()
		tries := 0
		err := postgres.InTx(t.Context(), db.Pool, func(pgx.Tx) error {
			tries++
			return &pgconn.PgError{Code: "40P01"}
		})
		if !postgres.IsDeadlock(err) || tries != 4 {
			t.Errorf("%v after %d tries", err, tries)
		}
	})
}

// TestInOneFlight: all or nothing, in one transaction, and the connection is of use afterwards.
func TestInOneFlight(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn := db.Owner()
	if _, err := conn.Exec(t.Context(), `create table t (n int primary key)`); err != nil {
		t.Fatal(err)
	}
	insert := func(n int) postgres.Statement {
		return postgres.Statement{SQL: `insert into t values ($1) returning pg_current_xact_id()::text, current_setting('lock_timeout')`, Args: []any{n}}
	}
	fly := func(hurry bool, statements ...postgres.Statement) (xids, waits map[string]bool, err error) {
		xids, waits = map[string]bool{}, map[string]bool{}
		for i := range statements {
			statements[i].Read = func(rows pgx.Rows) error {
				var xid, wait string
				for rows.Next() {
					if err := rows.Scan(&xid, &wait); err != nil {
						return err
					}
					xids[xid], waits[wait] = true, true
				}
				return rows.Err()
			}
		}
		sent := false
		err = postgres.InOneFlight(t.Context(), conn, statements, hurry, func() { sent = true })
		if !sent {
			t.Error("nobody was told that all is sent")
		}
		return xids, waits, err
	}
	count := func() (n int) {
		if err := conn.QueryRow(t.Context(), `select count(*) from t`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if _, _, err := fly(false, insert(1)); err != nil || count() != 1 {
		t.Errorf("one: %v, %d rows", err, count())
	}
	xids, waits, err := fly(true, insert(2), insert(3), insert(4))
	if err != nil || len(xids) != 1 || !waits[postgres.Patience.String()] || len(waits) != 1 || count() != 4 {
		t.Errorf("three: %v, transactions %v, waits %v, %d rows", err, xids, waits, count())
	}
	if _, waits, err = fly(false, insert(5), insert(6)); err != nil || !waits["0"] {
		t.Errorf("without hurry: %v, waits %v", err, waits)
	}
	if _, _, err := fly(true, insert(7), insert(1), insert(8)); postgres.SQLState(err) != "23505" || count() != 6 {
		t.Errorf("one of three refused: %v, %d rows", err, count())
	}
	if _, _, err := fly(true, insert(7), insert(8)); err != nil || count() != 8 {
		t.Errorf("after that: %v, %d rows", err, count())
	}
	if citus, err := postgres.IsCitus(t.Context(), conn); err != nil || citus != db.Shared {
		t.Errorf("Citus: %v, %v", citus, err)
	}
}

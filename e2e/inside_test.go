package e2e

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// inside is a statement in whose middle the service dies: a lock of ours holds it up in Postgres.
type inside struct {
	crash
	// lock is taken before, by its own connection, and stands in the statement's way.
	lock string
	// waiting is how pg_stat_activity shows the statement that is held up.
	waiting string
	// begin brings the service to the statement; it calls block when the lock no longer hinders what
	// comes before. It waits for no answer.
	begin func(w *world, s *service, pay order, block func())
	// lost: the dead service's backend dies with it. Otherwise it carries the statement out to the end.
	lost bool
	// attempts is how many attempts are on record in the end.
	attempts int
}

// The lock modes let a statement read and write other tables, so that it is stopped half way.
const (
	lockCharges     = `lock table charges in share mode`
	lockLedger      = `lock table ledger_transfers in share mode`
	lockAttempts    = `lock table attempts in share mode`
	lockResolutions = `lock table resolutions in share mode`
	lockOutbox      = `lock table outbox in share mode`
)

func insides() []inside {
	unknown, ok := http.StatusAccepted, http.StatusCreated
	const t1, t2, failover = "%charge_begin_v%", "%charge_finish_v%", "%charge_failover_v1%"
	captured := func(name string, retried int, token string) crash {
		return crash{name: name, pay: with(token), retried: retried, ends: "captured", at: "north"}
	}
	open := func(name, token string) crash {
		return crash{name: name, pay: with(token), retried: unknown, ends: "unknown"}
	}
	sweep := captured("sweep", unknown, "tok_ok")
	sweep.prepare = diedAfterCapture
	return []inside{
		{crash: open("T1, carried out by Postgres", "tok_ok"), lock: lockCharges, waiting: t1, begin: beginPost, attempts: 1},
		// Nothing of it is left: the retry is the first request.
		{crash: captured("T1, lost", ok, "tok_ok"), lock: lockCharges, waiting: t1, begin: beginPost, lost: true, attempts: 1},
		{crash: captured("T2, carried out by Postgres", ok, "tok_ok"), lock: lockLedger, waiting: t2, begin: beginPost, attempts: 1},
		{crash: captured("T2, lost", unknown, "tok_ok"), lock: lockLedger, waiting: t2, begin: beginPost, lost: true, attempts: 1},
		{crash: open("failover, carried out by Postgres", "tok_unprocessed"), lock: lockAttempts, waiting: failover, begin: beginFailover, attempts: 2},
		{crash: open("failover, lost", "tok_unprocessed"), lock: lockAttempts, waiting: failover, begin: beginFailover, lost: true, attempts: 1},
		// A transaction of several round trips is rolled back, whatever becomes of its last statement.
		{
			crash: captured("resolve", unknown, "tok_error_captured"), lock: lockResolutions, waiting: "%insert into resolutions%",
			begin: beginDecision, attempts: 1,
		},
		{crash: sweep, lock: lockOutbox, waiting: "%insert into outbox%", begin: beginSweep, attempts: 1},
	}
}

// The process is killed while a statement of it is under way in Postgres.
func TestCrashInsideAStatement(t *testing.T) {
	t.Parallel()
	for _, c := range insides() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, options{limits: ordinary()}) // the kill comes before the statement's own time limit
			if c.prepare != nil {
				c.prepare(w)
			}
			s := w.start()
			tx, err := w.ownerConn().Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			c.begin(w, s, c.pay, func() {
				if _, err := tx.Exec(t.Context(), c.lock); err != nil {
					t.Fatal(err)
				}
			})
			backend := w.heldUp(c.waiting)
			s.kill(t)
			if c.lost {
				w.terminate(backend)
			}
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			w.backendGone(backend)
			w.leasesPass()
			w.recover(c.crash)
			if n := w.attempts(w.row(retriedKey)); n != c.attempts {
				t.Errorf("%d attempts are on record, want %d", n, c.attempts)
			}
			if n := w.south.Stats().Requests; n != 0 {
				t.Errorf("south was asked %d times", n)
			}
		})
	}
}

func beginPost(w *world, s *service, pay order, block func()) {
	block()
	w.shop(s).lose(w.t.Context(), retriedKey, pay)
}

// beginFailover blocks while north asks for a second's patience: T1 writes an attempt, too.
func beginFailover(w *world, s *service, pay order, block func()) {
	w.t.Helper()
	w.shop(s).lose(w.t.Context(), retriedKey, pay)
	until(w.t, "north is not asked", func() bool { return w.north.Stats().Requests > 0 })
	block()
}

func beginDecision(w *world, s *service, pay order, block func()) {
	w.t.Helper()
	w.shop(s).charge(w.t, retriedKey, pay).want(w.t, http.StatusAccepted, "unknown")
	decide := w.decision(s, w.only())
	block()
	go decide() // its answer is lost with the service
}

func beginSweep(w *world, _ *service, _ order, block func()) {
	w.t.Helper()
	block()
	w.leasesPass()
}

// ownerConn is a connection that sees and may do everything.
func (w *world) ownerConn() *pgx.Conn {
	w.t.Helper()
	conn, err := pgx.Connect(w.t.Context(), w.owner)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

const waitingBackend = `
select coalesce(max(a.pid), 0) from pg_stat_activity a
 where a.datname = current_database() and a.wait_event_type = 'Lock' and a.query ilike $1`

// heldUp waits until a statement hangs on a lock, and gives the process of Postgres that works on it.
func (w *world) heldUp(statement string) (backend int) {
	w.t.Helper()
	conn := w.ownerConn()
	until(w.t, statement+" is not held up", func() bool {
		if err := conn.QueryRow(w.t.Context(), waitingBackend, statement).Scan(&backend); err != nil {
			w.t.Fatal(err)
		}
		return backend != 0
	})
	return backend
}

func (w *world) terminate(backend int) {
	w.t.Helper()
	if _, err := w.ownerConn().Exec(w.t.Context(), `select pg_terminate_backend($1)`, backend); err != nil {
		w.t.Fatal(err)
	}
}

// backendGone waits until Postgres is done with what a dead service asked for.
func (w *world) backendGone(backend int) {
	w.t.Helper()
	conn := w.ownerConn()
	until(w.t, "the dead service's backend is still there", func() bool {
		var there bool
		if err := conn.QueryRow(w.t.Context(), `select exists (select 1 from pg_stat_activity where pid = $1)`, backend).Scan(&there); err != nil {
			w.t.Fatal(err)
		}
		return !there
	})
}

// leasesPass lets the time of every lease be over.
func (w *world) leasesPass() {
	w.t.Helper()
	const pass = `update idempotency_keys set lease_until = now() - interval '1 second' where merchant_id = $1 and state = 'in_flight'`
	if _, err := w.pool.Exec(w.t.Context(), pass, w.merchant.ID); err != nil {
		w.t.Fatal(err)
	}
}

// trustPasses waits for the inquiry of the one unknown charge to be planned, and brings it forward.
func (w *world) trustPasses() {
	w.t.Helper()
	const planned = `update errands e set due_at = now(), wake_at = now() where e.merchant_id = $1 and e.kind = 'inquiry'`
	const older = `update attempts a set started_at = a.started_at - interval '2 hours', finished_at = a.finished_at - interval '2 hours' where a.merchant_id = $1`
	if _, err := w.pool.Exec(w.t.Context(), older, w.merchant.ID); err != nil {
		w.t.Fatal(err)
	}
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		tag, err := w.pool.Exec(w.t.Context(), planned, w.merchant.ID)
		if err != nil {
			w.t.Fatal(err)
		}
		if tag.RowsAffected() > 0 {
			return
		}
	}
	w.t.Fatal("no inquiry is planned")
}

func (w *world) attempts(charge row) (n int) {
	w.t.Helper()
	const count = `select count(*) from attempts a where a.merchant_id = $1 and a.charge_id = $2`
	if err := w.pool.QueryRow(w.t.Context(), count, w.merchant.ID, charge.ID).Scan(&n); err != nil {
		w.t.Fatal(err)
	}
	return n
}

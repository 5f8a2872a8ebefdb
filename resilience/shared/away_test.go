package shared

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"paymentsd/internal/pgtest"
	"paymentsd/resilience"
)

// onWire is a replica whose way to Postgres can be cut.
func onWire(tb testing.TB, db *pgtest.DB, cfg resilience.BreakerConfig) (*Shared, *pgtest.Wire) {
	tb.Helper()
	w, url := pgtest.NewWire(tb, db.ServiceURL())
	return open(tb, config(url, cfg)), w
}

func TestStoreAway(t *testing.T) {
	t.Parallel()
	for name, state := range map[string]pgtest.WireState{"refuses connections": pgtest.Cut, "swallows everything": pgtest.Blocked} {
		t.Run("the store "+name+": closed stays closed, and no call waits for it", func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			s, w := onWire(t, db, quick())
			w.Set(state)
			eventually(t, "it is seen", func() bool { return north(s).Snapshot().Sharing.StoreError != "" })
			if made := record(north(s), resilience.Success, 100_000); made != 100_000 {
				t.Errorf("%d calls passed", made)
			}
			w.Set(pgtest.Whole)
			eventually(t, "what was counted meanwhile arrives, once", func() bool {
				return query[int64](t, db, `select coalesce(sum(attempts), 0) from outcome_windows`) == 100_000
			})
		})
		t.Run("the store "+name+": failures open here; when it is back, the sums decide", func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			s, w := onWire(t, db, shut())
			other := open(t, config(db.ServiceURL(), shut()))
			w.Set(state)
			eventually(t, "it opens here", func() bool {
				record(north(s), resilience.Failure, 10)
				return north(s).Snapshot().Sharing.HeldBack != ""
			})
			if got := mustRefuse(t, north(s)); !strings.Contains(got.Detail, "while the store does not answer") || got.RetryAfter <= 0 {
				t.Errorf("refused with %v", got)
			}
			if got := north(other).Snapshot().State; got != resilience.Closed {
				t.Errorf("the other is %s", got)
			}
			w.Set(pgtest.Whole)
			inState(t, resilience.Open, other)
			eventually(t, "it is open for all, and not for this one alone", func() bool {
				got := north(s).Snapshot()
				return got.State == resilience.Open && got.Sharing.HeldBack == ""
			})
			if got := query[int](t, db, `select count(*) from breaker_events`); got != 1 {
				t.Errorf("%d events, want 1", got)
			}
		})
		t.Run("the store "+name+": no probe without a lease, and no retry without a grant", func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			s, w := onWire(t, db, quick())
			trip(t, s)
			w.Set(state)
			eventually(t, "the open time ends", func() bool { return north(s).phase.Load().refuse(north(s).now()) == nil })
			for range 20 {
				if got := mustRefuse(t, north(s)); got.RetryAfter <= 0 {
					t.Errorf("refused with %v", got)
				}
			}
			if got := mustRefuse(t, north(s)).Detail; !strings.Contains(got, "no probe without a lease") {
				t.Errorf("detail %q", got)
			}
			refused := s.Budget("north").Take(t.Context())
			if refused == nil || refused.Reason != resilience.BudgetSpent || !strings.Contains(refused.Detail, "no retry without a grant") {
				t.Errorf("the budget: %v", refused)
			}
			w.Set(pgtest.Whole)
			north(s).Done(takeProbe(t, s), resilience.Success) // nobody had to help
			inState(t, resilience.Closed, s)
		})
	}
	t.Run("resilience case 22: the store fails while a probe captures: the caller gets the capture, and the closing is stored later", func(t *testing.T) {
		t.Parallel()
		db := pgtest.New(t)
		cfg := quick()
		cfg.ProbeLease = time.Minute
		s, w := onWire(t, db, cfg)
		trip(t, s)
		chain, captured := chainOf(t, s), 0
		var report resilience.Report
		eventually(t, "a call is the probe", func() bool {
			report = chain.Do(t.Context(), resilience.Critical, func(context.Context, int) resilience.Verdict {
				captured++
				w.Set(pgtest.Cut) // between the acquirer's answer and the breaker's
				return resilience.Verdict{Outcome: resilience.Success}
			})
			return captured == 1
		})
		if report.Refused != nil || report.Panic != nil || report.Last.Outcome != resilience.Success {
			t.Errorf("report %+v", report)
		}
		if got := query[string](t, db, `select state from breakers`); got != "half_open" {
			t.Errorf("state %s with the store away", got)
		}
		mustRefuse(t, north(s))
		w.Set(pgtest.Whole)
		inState(t, resilience.Closed, s)
		if got := query[int](t, db, `select count(*) from breaker_events where to_state = 'half_open'`); got != 1 {
			t.Errorf("%d probes, want the one", got)
		}
	})
	t.Run("the store stays away past the lease: the probe's result is let go, and the next probe decides", func(t *testing.T) {
		t.Parallel()
		db := pgtest.New(t)
		cfg := quick()
		cfg.ProbeLease, cfg.ProbeMargin = 500*time.Millisecond, 100*time.Millisecond
		s, w := onWire(t, db, cfg)
		other := open(t, config(db.ServiceURL(), cfg))
		trip(t, s, other)
		p := takeProbe(t, s)
		w.Set(pgtest.Blocked)
		north(s).Done(p, resilience.Success)
		next := takeProbe(t, other)
		eventually(t, "the first is let go", func() bool {
			north(s).mu.Lock()
			defer north(s).mu.Unlock()
			return north(s).held == probe{}
		})
		w.Set(pgtest.Whole)
		north(other).Done(next, resilience.Failure)
		eventually(t, "the other's result counts", func() bool { return transitions(t, db, resilience.HalfOpen, resilience.Open) == 1 })
		if got := transitions(t, db, resilience.HalfOpen, resilience.Closed); got != 0 {
			t.Error("the lost success closed it")
		}
	})
	t.Run("a locked row: nobody waits for it longer than a moment", func(t *testing.T) {
		t.Parallel()
		db, all := cluster(t, 1, quick())
		trip(t, all[0])
		tx, err := db.Pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback(context.Background()) //nolint:errcheck // ends with the connection
		if _, err := tx.Exec(t.Context(), `select 1 from breakers for update`); err != nil {
			t.Fatal(err)
		}
		eventually(t, "a claim gives up", func() bool {
			return strings.Contains(mustRefuse(t, north(all[0])).Detail, "no probe without a lease")
		})
		flushes(t, all[0]) // reads past the lock
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		north(all[0]).Done(takeProbe(t, all[0]), resilience.Success)
		inState(t, resilience.Closed, all[0])
	})
}

// TestOutage has three replicas under load while Postgres is away for ten seconds.
func TestOutage(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	cfg := quick()
	cfg.ProbeLease, cfg.ProbeMargin = 1500*time.Millisecond, 300*time.Millisecond
	type seat struct {
		*Shared
		*pgtest.Wire
	}
	var seats []seat
	for range 3 {
		s, w := onWire(t, db, cfg)
		seats = append(seats, seat{s, w})
	}
	trip(t, seats[0].Shared, seats[1].Shared, seats[2].Shared)
	var stop, away, healthy atomic.Bool
	var sentAway, lost, called atomic.Int64
	var load sync.WaitGroup
	for _, s := range seats {
		chain := chainOf(t, s.Shared)
		for range 4 {
			load.Go(func() {
				for !stop.Load() {
					began := away.Load()
					report := chain.Do(t.Context(), resilience.Critical, func(ctx context.Context, _ int) resilience.Verdict {
						called.Add(1)
						if began {
							sentAway.Add(1) // a probe, and nobody could have given it
						}
						if healthy.Load() {
							return resilience.Verdict{Outcome: resilience.Success}
						}
						return resilience.Verdict{Outcome: resilience.Failure}
					})
					if report.Calls != 1 && report.Refused == nil || report.Calls == 1 && report.Refused != nil {
						lost.Add(1)
					}
					time.Sleep(time.Millisecond) // the pace of the load
				}
			})
		}
	}
	eventually(t, "probes go out and fail", func() bool { return transitions(t, db, resilience.HalfOpen, resilience.Open) > 2 })
	for _, s := range seats {
		s.Set(pgtest.Cut)
	}
	for _, s := range seats {
		eventually(t, "every replica sees it", func() bool { return north(s.Shared).Snapshot().Sharing.StoreError != "" })
	}
	eventually(t, "the last lease ends", func() bool {
		return query[bool](t, db, `select state = 'open' or probe_until <= clock_timestamp() from breakers`)
	})
	away.Store(true)
	before := query[int](t, db, `select count(*) from breaker_events`)
	time.Sleep(10 * time.Second) // the outage
	if got := sentAway.Load(); got != 0 {
		t.Errorf("%d calls sent without a lease", got)
	}
	if got := query[int](t, db, `select count(*) from breaker_events`); got != before {
		t.Errorf("%d transitions while nobody could reach the store", got-before)
	}
	away.Store(false)
	healthy.Store(true)
	for _, s := range seats {
		s.Set(pgtest.Whole)
	}
	for _, s := range seats {
		inState(t, resilience.Closed, s.Shared)
	}
	stop.Store(true)
	load.Wait()
	if lost.Load() != 0 {
		t.Errorf("%d of %d results were not the call's own", lost.Load(), called.Load())
	}
}

func TestListen(t *testing.T) {
	t.Parallel()
	t.Run("resilience case 36: the listening connection is lost and found; what changed in the gap is read", func(t *testing.T) {
		t.Parallel()
		db, all := cluster(t, 2, shut())
		const deafen = `select count(pg_terminate_backend(a.pid)) from pg_stat_activity a
		  where a.datname = current_database() and a.application_name = 'paymentsd resilience listener'`
		var ended int
		if err := db.Owner().QueryRow(t.Context(), deafen).Scan(&ended); err != nil || ended != 2 {
			t.Fatalf("%d listeners ended, %v", ended, err)
		}
		// By hand, without a notification: nobody is told.
		const gap = `update breakers set epoch = epoch + 1, state = 'open', mode = 'forced_open', reason = 'in the gap'`
		if _, err := db.Pool.Exec(t.Context(), gap); err != nil {
			t.Fatal(err)
		}
		inState(t, resilience.Open, all...)
		for _, s := range all {
			eventually(t, "it listens again", func() bool { return s.listening.Load() })
		}
		if err := north(all[0]).Force(t.Context(), order(resilience.ForcedClosed, "heard")); err != nil {
			t.Fatal(err)
		}
		inState(t, resilience.Closed, all...)
	})
	t.Run("a notification alone is enough: it carries the whole row", func(t *testing.T) {
		t.Parallel()
		db, all := cluster(t, 1, shut())
		trip(t, all[0])
		payload := query[string](t, db, `select breaker_row_v1(b, clock_timestamp()) from breakers b`)
		deaf := alone(resilience.Closed)
		deaf.shared.accounts = []*account{{breaker: deaf}}
		deaf.shared.heard(payload)
		deaf.shared.heard(payload) // a notification that is repeated changes nothing
		if got := mustRefuse(t, deaf); got.Detail != "failure rate 1.00 over 10 attempts" || got.RetryAfter > time.Hour || got.RetryAfter < 59*time.Minute {
			t.Errorf("refused with %+v", got)
		}
		if got := deaf.Snapshot(); got.Epoch != 2 || got.State != resilience.Open {
			t.Errorf("snapshot %+v", got)
		}
	})
	t.Run("a listener that hears nothing of its own notices, and says why", func(t *testing.T) {
		t.Parallel()
		_, all := cluster(t, 1, shut())
		conn, err := pgx.ConnectConfig(t.Context(), all[0].listenConfig)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.Background()) //nolint:errcheck // the end of the test
		// It listens to nothing, as behind a transaction pooler.
		if err := all[0].hear(conn, "paymentsd_hello_nobody"); !errors.Is(err, errDeaf) {
			t.Errorf("after silence: %v, want %v", err, errDeaf)
		}
	})
	t.Run("without any notification, as behind a transaction pooler, polling finds out", func(t *testing.T) {
		t.Parallel()
		db, all := cluster(t, 2, shut())
		const quietly = `update breakers set epoch = epoch + 1, state = 'open', mode = 'forced_open', reason = 'quietly'`
		if _, err := db.Pool.Exec(t.Context(), quietly); err != nil {
			t.Fatal(err)
		}
		inState(t, resilience.Open, all...)
	})
	t.Run("resilience case 37: only transitions notify, and none of them is in a charge's transaction", func(t *testing.T) {
		t.Parallel()
		db := pgtest.New(t)
		const notifying = `select string_agg(p.proname, ',' order by p.proname) from pg_proc p
		  where p.pronamespace = current_schema()::regnamespace and p.prosrc ~* 'pg_notify|\mnotify\M'`
		if got := query[string](t, db, notifying); got != "breaker_enter_v1" {
			t.Errorf("functions that notify: %s", got)
		}
		const callers = `select string_agg(p.proname, ',' order by p.proname) from pg_proc p
		  where p.pronamespace = current_schema()::regnamespace and p.prosrc ~ 'breaker_enter_v1'`
		if got, want := query[string](t, db, callers), "breaker_claim_v1,breaker_finish_v1,breaker_force_v1,breaker_open_v1,breakers_flush_v1"; got != want {
			t.Errorf("functions that make transitions: %s, want %s", got, want)
		}
	})
}

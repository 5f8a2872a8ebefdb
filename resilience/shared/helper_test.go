package shared

import (
	"context"
	"crypto/rand"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"paymentsd/internal/pgtest"
	"paymentsd/resilience"
)

// patience bounds every wait for a condition: far more than it takes, for a machine that is busy.
const patience = 30 * time.Second

// quick is the default policy at a pace for tests.
func quick() resilience.BreakerConfig {
	c := resilience.DefaultBreaker()
	c.MinAttempts = 10
	c.OpenFor, c.OpenMax, c.OpenJitterPercent = 100*time.Millisecond, 100*time.Millisecond, 0
	c.ProbeLease, c.ProbeMargin = 2*time.Second, 500*time.Millisecond
	c.Ramp = nil
	return c
}

// shut is quick, but stays open for the length of a test.
func shut() resilience.BreakerConfig {
	c := quick()
	c.OpenFor, c.OpenMax = time.Hour, time.Hour
	return c
}

func config(url string, breaker resilience.BreakerConfig) Config {
	return Config{
		URL: url, Replica: "test", Log: slog.New(slog.DiscardHandler),
		Acquirers: []Acquirer{{Name: "north", Breaker: breaker, Budget: resilience.DefaultBudget()}},
	}
}

func open(tb testing.TB, c Config) *Shared {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var s *Shared
	// A statement's quarter of a second can be too short on a busy machine: a process would start again.
	eventually(tb, "a replica joins", func() bool {
		var err error
		if s, err = Open(ctx, c); err != nil {
			tb.Log(err)
		}
		return err == nil
	})
	tb.Cleanup(s.Close)
	return s
}

// cluster is n replicas on one database.
func cluster(tb testing.TB, n int, breaker resilience.BreakerConfig) (*pgtest.DB, []*Shared) {
	tb.Helper()
	db := pgtest.New(tb)
	all := make([]*Shared, n)
	for i := range all {
		all[i] = open(tb, config(db.ServiceURL(), breaker))
	}
	return db, all
}

func north(s *Shared) *Breaker { return s.Breaker("north") }

// eventually waits for a condition.
func eventually(tb testing.TB, what string, holds func() bool) {
	tb.Helper()
	for began := time.Now(); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Since(began) > patience {
			tb.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// inState waits until every replica is in a state.
func inState(tb testing.TB, want resilience.State, all ...*Shared) {
	tb.Helper()
	for _, s := range all {
		eventually(tb, "every replica is "+string(want), func() bool { return north(s).Snapshot().State == want })
	}
}

// record makes up to n calls that are over at once, and stops if one is refused.
func record(b *Breaker, o resilience.Outcome, n int) (made int) {
	for range n {
		p, refused := b.Acquire(context.Background())
		if refused != nil {
			return made
		}
		b.Done(p, o)
		made++
	}
	return made
}

// trip opens the breaker by way of one replica, and waits until all know.
func trip(tb testing.TB, by *Shared, all ...*Shared) {
	tb.Helper()
	record(north(by), resilience.Failure, north(by).cfg.MinAttempts)
	for _, s := range append(all, by) {
		eventually(tb, "the breaker has opened", func() bool { return north(s).Snapshot().State != resilience.Closed })
	}
}

// takeProbe waits for the probe to be due and takes it.
func takeProbe(tb testing.TB, s *Shared) resilience.Permit {
	tb.Helper()
	var p resilience.Permit
	eventually(tb, "a probe is granted", func() bool {
		var refused *resilience.Rejection
		p, refused = north(s).Acquire(context.Background())
		if refused == nil && !p.Probe {
			tb.Fatalf("permit %+v of %v, want a probe", p, north(s).phase.Load())
		}
		return refused == nil
	})
	return p
}

// flushes waits until each replica has sent what it had counted before.
func flushes(tb testing.TB, all ...*Shared) {
	tb.Helper()
	for _, s := range all {
		for range 2 { // the first to end may have begun before
			heard := s.health.Load().heard
			eventually(tb, "a flush", func() bool {
				s.flushNow()
				return s.health.Load().heard > heard
			})
		}
	}
}

// order is a person's, each an act of its own.
func order(mode resilience.Mode, why string) resilience.Order {
	return resilience.Order{Mode: mode, Why: why, Actor: "test", Act: rand.Text()}
}

func mustRefuse(tb testing.TB, b *Breaker) *resilience.Rejection {
	tb.Helper()
	p, refused := b.Acquire(context.Background())
	if refused == nil {
		tb.Fatalf("admitted: %+v", p)
	}
	if refused.Reason != resilience.CircuitOpen {
		tb.Fatalf("refused by %v", refused)
	}
	return refused
}

// query reads one value.
func query[T any](tb testing.TB, db *pgtest.DB, sql string, args ...any) (v T) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := db.Pool.QueryRow(ctx, sql, args...).Scan(&v); err != nil {
		tb.Fatalf("%s: %v", sql, err)
	}
	return v
}

func transitions(tb testing.TB, db *pgtest.DB, from, to resilience.State) int {
	tb.Helper()
	return query[int](tb, db, `select count(*) from breaker_events where from_state = $1 and to_state = $2`, from, to)
}

// statements sees every statement.
type statements struct {
	mu  sync.Mutex
	all []string
}

func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, data.SQL)
	return ctx
}

func (s *statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (s *statements) seen() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.all...)
}

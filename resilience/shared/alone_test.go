package shared

import (
	"bytes"
	"context"
	"runtime"
	"runtime/pprof"
	"testing"
	"time"

	"paymentsd/internal/pgtest"
	"paymentsd/resilience"
)

// These tests run alone: they count what the whole process does.

func TestClosedCallsAskNothing(t *testing.T) {
	db := pgtest.New(t)
	seen := &statements{}
	c := config(db.ServiceURL(), quick())
	c.Tracer = seen
	s := open(t, c)
	chain := chainOf(t, s)
	before, began := len(seen.seen()), time.Now()
	const calls = 200_000
	for range calls {
		report := chain.Do(t.Context(), resilience.Critical, func(context.Context, int) resilience.Verdict {
			return resilience.Verdict{Outcome: resilience.Success}
		})
		if report.Refused != nil {
			t.Fatal(report.Refused)
		}
	}
	took := time.Since(began)
	made := seen.seen()[before:]
	for _, sql := range made {
		if sql != flushOutcomes {
			t.Errorf("a statement of a closed call: %s", sql)
		}
	}
	// The flushes are there with and without calls: at most one in 0.8 s, the one under way, and the one
	// after joining.
	if most := int(took/(flushEvery*4/5)) + 2; len(made) > most {
		t.Errorf("%d statements in %v and %d calls, want at most %d flushes", len(made), took, calls, most)
	}
}

func TestAllocations(t *testing.T) {
	ctx := t.Context()
	closed, refusing := alone(resilience.Closed), alone(resilience.Open)
	for range 1000 {
		p, _ := closed.Acquire(ctx)
		closed.Done(p, resilience.Success)
	}
	for _, c := range []struct {
		name string
		most float64
		run  func()
	}{
		{"closed pass", 0, func() {
			p, _ := closed.Acquire(ctx)
			closed.Done(p, resilience.Success)
		}},
		{"closed pass of a failure that does not trip", 0, func() {
			p, _ := closed.Acquire(ctx)
			closed.Done(p, resilience.Failure)
		}},
		{"reject", 0, func() { _, _ = refusing.Acquire(ctx) }},
	} {
		if got := testing.AllocsPerRun(500, c.run); got > c.most {
			t.Errorf("%s: %v allocations, want at most %v", c.name, got, c.most)
		}
	}
}

// TestRefusalsShared sets the coarse clock by hand.
func TestRefusalsShared(t *testing.T) {
	const openFor = time.Hour
	b := alone(resilience.Open)
	opened := b.phase.Load().since
	refusal := func(coarse time.Duration) *resilience.Rejection {
		b.shared.clock.Store(int64(coarse))
		return b.refuse(b.phase.Load())
	}
	first := refusal(opened + time.Second)
	if first == nil || first.RetryAfter != openFor-time.Second {
		t.Fatalf("refused with %v", first)
	}
	if again := refusal(opened + time.Second); again != first {
		t.Error("within one tick, and another refusal was made")
	}
	if next := refusal(opened + time.Second + clockEvery); next.RetryAfter != first.RetryAfter-clockEvery {
		t.Errorf("a tick later: %v after %v", next, first)
	}
	if early := refusal(0); early.RetryAfter > openFor {
		t.Errorf("the clock is older than the opening: wait %v, open for %v", early.RetryAfter, openFor)
	}
	// The coarse clock may not end a phase. Here it is an hour ahead of the exact one.
	if last := refusal(opened + openFor - clockEvery); last == nil || last.RetryAfter < openFor/2 {
		t.Errorf("by the coarse clock it is nearly over: %v", last)
	}
	// Nor may what one phase refused outlive it.
	b.apply(row{Acquirer: "north", Epoch: 2, State: resilience.Open, Mode: resilience.Automatic, Reason: "another", OpenMS: 30_000})
	if other := refusal(opened + time.Second + clockEvery); other == nil || other.Epoch != 2 || other.Detail != "another" {
		t.Errorf("after the next opening: %+v", other)
	}
	b.apply(row{Acquirer: "north", Epoch: 3, State: resilience.Closed, Mode: resilience.Automatic, Reason: "closed"})
	if _, refused := b.Acquire(t.Context()); refused != nil {
		t.Errorf("closed, and refuses: %v", refused)
	}
}

// TestCloseLeavesNothing closes replicas in every state and counts what is left of them.
func TestCloseLeavesNothing(t *testing.T) {
	db := pgtest.New(t)
	connections := func() int {
		return query[int](t, db, `select count(*) from pg_stat_activity where datname = current_database() and application_name like 'paymentsd resilience%'`)
	}
	open(t, config(db.ServiceURL(), quick())).Close() // what a first use leaves in the runtime and in pgx
	before := runtime.NumGoroutine()
	w, url := pgtest.NewWire(t, db.ServiceURL())
	before += 1 // the wire's own
	fine, away := open(t, config(db.ServiceURL(), quick())), open(t, config(url, quick()))
	trip(t, fine, away)
	p := takeProbe(t, fine)
	w.Set(pgtest.Blocked)
	if _, refused := north(away).Acquire(t.Context()); refused == nil {
		t.Error("admitted")
	}
	if connections() == 0 || runtime.NumGoroutine() <= before {
		t.Fatalf("%d connections, %d goroutines: nothing to close", connections(), runtime.NumGoroutine())
	}
	for _, s := range []*Shared{fine, away} {
		began := time.Now()
		s.Close()
		s.Close() // twice does no harm
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("Close took %v", took)
		}
	}
	north(fine).Done(p, resilience.Success) // late, after Close: the lease is left to end
	if p, refused := north(fine).Acquire(t.Context()); refused == nil {
		t.Errorf("a closed replica took a probe: %+v", p)
	}
	w.Set(pgtest.Cut)
	eventually(t, "every connection and goroutine ends", func() bool { return connections() == 0 && runtime.NumGoroutine() <= before })
	if t.Failed() {
		var all bytes.Buffer
		_ = pprof.Lookup("goroutine").WriteTo(&all, 1)
		t.Log(all.String())
	}
	next := open(t, config(db.ServiceURL(), quick()))
	north(next).Done(takeProbe(t, next), resilience.Success) // after the lease
	inState(t, resilience.Closed, next)
}

package resilience

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// inBubble runs f in parallel with other tests, on fake time that starts at the
// bubble's beginning and passes only while everybody waits.
func inBubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, f)
	})
}

func mustBreaker(tb testing.TB, cfg BreakerConfig) *LocalBreaker {
	tb.Helper()
	b, err := NewLocalBreaker(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func mustBudget(tb testing.TB, cfg BudgetConfig) *LocalBudget {
	tb.Helper()
	b, err := NewLocalBudget(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func mustBulkhead(tb testing.TB, cfg BulkheadConfig) *Bulkhead {
	tb.Helper()
	b, err := NewBulkhead(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func mustChain(tb testing.TB, s Settings) *Chain {
	tb.Helper()
	c, err := NewLocal(s)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// steady is the default breaker with an open time of exactly 5 s.
func steady() BreakerConfig {
	cfg := DefaultBreaker()
	cfg.OpenJitterPercent = 0
	return cfg
}

// record makes n calls that are over at once.
func record(tb testing.TB, b Breaker, o Outcome, n int) {
	tb.Helper()
	for i := range n {
		b.Done(admit(tb, b), o)
		if i < n-1 && b.Snapshot().State != Closed {
			tb.Fatalf("left closed after %d of %d calls: %s", i+1, n, b.Snapshot().Reason)
		}
	}
}

// admit is a call that must be admitted.
func admit(tb testing.TB, b Breaker) Permit {
	tb.Helper()
	permit, refused := b.Acquire(context.Background())
	if refused != nil {
		tb.Fatalf("refused: %v", refused)
	}
	return permit
}

// refuse is a call that must be refused.
func refuse(tb testing.TB, b Breaker) *Rejection {
	tb.Helper()
	permit, refused := b.Acquire(context.Background())
	if refused == nil {
		tb.Fatalf("admitted: %+v", permit)
	}
	if refused.Reason != CircuitOpen {
		tb.Fatalf("refused with %q, want %q", refused.Reason, CircuitOpen)
	}
	return refused
}

func wantState(tb testing.TB, b Breaker, want State) {
	tb.Helper()
	if s := b.Snapshot(); s.State != want {
		tb.Fatalf("state %s (%s), want %s", s.State, s.Reason, want)
	}
}

// trip fails the least number of calls.
func trip(tb testing.TB, b *LocalBreaker) {
	tb.Helper()
	record(tb, b, Failure, b.cfg.MinAttempts)
	wantState(tb, b, Open)
}

// probe trips the breaker, waits and takes the probe.
func probe(tb testing.TB, b *LocalBreaker) Permit {
	tb.Helper()
	trip(tb, b)
	time.Sleep(b.cfg.OpenMax)
	permit := admit(tb, b)
	if !permit.Probe {
		tb.Fatalf("permit %+v is no probe", permit)
	}
	return permit
}

func succeed(context.Context, int) Verdict { return Verdict{Outcome: Success} }

func fail(context.Context, int) Verdict { return Verdict{Outcome: Failure, Retry: true} }

func wantRefusal(tb testing.TB, refused *Rejection, want Reason) {
	tb.Helper()
	if refused == nil {
		tb.Fatalf("not refused, want %q", want)
	}
	if refused.Reason != want {
		tb.Fatalf("refused by %v, want %q", refused, want)
	}
}

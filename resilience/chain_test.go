package resilience

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// plain has waits and open times without chance: 1 s, 2 s, 4 s, 5 s.
func plain() Settings {
	s := DefaultSettings()
	s.Breaker = steady()
	s.Retry.Backoff = Backoff{Jitter: JitterNone, Base: time.Second, Cap: 5 * time.Second}
	return s
}

// within gives a deadline in d.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestChainRetry(t *testing.T) {
	t.Parallel()
	inBubble(t, "a blip is absorbed by the third of three tries", func(t *testing.T) {
		chain, start := mustChain(t, plain()), time.Now()
		var tries []int
		report := chain.Do(within(t, 20*time.Second), Critical, func(_ context.Context, try int) Verdict {
			tries = append(tries, try)
			return Verdict{Outcome: Outcome(try / 3), Retry: try < 3} // Failure, Failure, Success
		})
		want := Report{Calls: 3, Last: Verdict{Outcome: Success}}
		if diff := cmp.Diff(want, report); diff != "" || len(tries) != 3 || tries[2] != 3 || time.Since(start) != 3*time.Second {
			t.Errorf("tries %v in %v, report (-want +got):\n%s", tries, time.Since(start), diff)
		}
	})
	inBubble(t, "three failures are the end, and nobody refused", func(t *testing.T) {
		chain := mustChain(t, plain())
		want := Report{Calls: 3, Last: Verdict{Outcome: Failure, Retry: true}}
		if diff := cmp.Diff(want, chain.Do(t.Context(), Critical, fail)); diff != "" {
			t.Errorf("report (-want +got):\n%s", diff)
		}
	})
	inBubble(t, "what may not be retried is called once", func(t *testing.T) {
		report := mustChain(t, plain()).Do(t.Context(), Critical, func(context.Context, int) Verdict {
			return Verdict{Outcome: Failure, RetryAfter: time.Second}
		})
		if report.Calls != 1 || report.Refused != nil {
			t.Errorf("report %+v", report)
		}
	})
	inBubble(t, "the wait after Retry-After is never shorter than asked, nor in step", func(t *testing.T) {
		waits := map[time.Duration]bool{}
		for range 50 {
			chain, start := mustChain(t, DefaultSettings()), time.Now()
			chain.Do(within(t, 20*time.Second), Critical, func(_ context.Context, try int) Verdict {
				return Verdict{Outcome: Success, Retry: try == 1, RetryAfter: 3 * time.Second}
			})
			wait := time.Since(start)
			if wait < 3*time.Second || wait > 3250*time.Millisecond {
				t.Fatalf("waited %v, want 3s and up to 250ms", wait)
			}
			waits[wait] = true
		}
		if len(waits) < 40 {
			t.Errorf("only %d different waits of 50", len(waits))
		}
	})
}

func TestChainDeadline(t *testing.T) {
	t.Parallel()
	inBubble(t, "resilience case 27: a backoff that does not fit stops now, with the last answer", func(t *testing.T) {
		chain, start := mustChain(t, plain()), time.Now()
		report := chain.Do(within(t, 2999*time.Millisecond), Critical, fail)
		wantRefusal(t, report.Refused, DeadlineTooShort)
		if report.Calls != 1 || time.Since(start) != 0 || !report.Last.Retry {
			t.Errorf("%+v after %v", report, time.Since(start))
		}
		if want := "2.999s left, a retry needs 2s and a wait of 1s"; report.Refused.Detail != want {
			t.Errorf("detail %q, want %q", report.Refused.Detail, want)
		}
	})
	inBubble(t, "resilience case 27: a Retry-After that does not fit is passed on", func(t *testing.T) {
		chain, start := mustChain(t, plain()), time.Now()
		report := chain.Do(within(t, 20*time.Second), Critical, func(context.Context, int) Verdict {
			return Verdict{Outcome: Success, Retry: true, RetryAfter: 19 * time.Second}
		})
		wantRefusal(t, report.Refused, RetryAfterTooLong)
		if report.Refused.RetryAfter != 19*time.Second || report.Calls != 1 || time.Since(start) != 0 {
			t.Errorf("%+v after %v", report, time.Since(start))
		}
	})
	inBubble(t, "exactly enough time is enough", func(t *testing.T) {
		report := mustChain(t, plain()).Do(within(t, 3*time.Second), Critical, fail)
		if report.Calls != 2 {
			t.Errorf("%d calls, want 2", report.Calls)
		}
	})
	inBubble(t, "too little time for the first call", func(t *testing.T) {
		report := mustChain(t, plain()).Do(within(t, 999*time.Millisecond), Critical, fail)
		wantRefusal(t, report.Refused, DeadlineTooShort)
		if report.Calls != 0 || report.Refused.Detail != "999ms left, a call needs 1s" {
			t.Errorf("report %+v, %v", report, report.Refused)
		}
	})
	inBubble(t, "the start-by limit stops a retry, and cuts off no call", func(t *testing.T) {
		ctx := WithStartBy(within(t, 30*time.Second), time.Now().Add(4*time.Second))
		report := mustChain(t, plain()).Do(ctx, Critical, func(ctx context.Context, _ int) Verdict {
			time.Sleep(5 * time.Second)
			return Verdict{Outcome: Failure, Retry: ctx.Err() == nil}
		})
		wantRefusal(t, report.Refused, DeadlineTooShort)
		if report.Calls != 1 || !report.Last.Retry {
			t.Errorf("report %+v", report)
		}
	})
	inBubble(t, "nobody starts work for a caller who has gone", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		report := mustChain(t, plain()).Do(ctx, Critical, succeed)
		wantRefusal(t, report.Refused, CallerGone)
		if report.Calls != 0 {
			t.Errorf("%d calls", report.Calls)
		}
	})
	inBubble(t, "a caller who goes during the call gets no retry, and keeps the answer", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		report := mustChain(t, plain()).Do(ctx, Critical, func(context.Context, int) Verdict {
			cancel()
			return Verdict{Outcome: Failure, Retry: true}
		})
		wantRefusal(t, report.Refused, CallerGone)
		if report.Calls != 1 || !report.Last.Retry {
			t.Errorf("report %+v", report)
		}
	})
	inBubble(t, "resilience case 29: 10,000 cancelled backoffs return at once and leave nothing", func(t *testing.T) {
		s := plain()
		s.Bulkhead.Slots = 10_000
		chain := mustChain(t, s)
		_ = chain.Breaker().Force(t.Context(), Order{Mode: ForcedClosed, Why: "only the waits matter here"})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		var left atomic.Int64
		for range 10_000 {
			wg.Go(func() {
				if r := chain.Do(ctx, Critical, fail); r.Refused != nil && r.Refused.Reason == CallerGone && r.Calls == 1 {
					left.Add(1)
				}
			})
		}
		synctest.Wait()
		time.Sleep(500 * time.Millisecond)
		start := time.Now()
		cancel()
		wg.Wait()
		if left.Load() != 10_000 || time.Since(start) != 0 {
			t.Errorf("%d returned after %v", left.Load(), time.Since(start))
		}
	})
}

func TestChainBreaker(t *testing.T) {
	t.Parallel()
	inBubble(t, "resilience case 23: the breaker opens during a backoff: the loop stops at that moment", func(t *testing.T) {
		chain, start := mustChain(t, plain()), time.Now()
		go func() {
			time.Sleep(300 * time.Millisecond)
			trip19(t, chain.Breaker())
		}()
		report := chain.Do(t.Context(), Critical, fail)
		wantRefusal(t, report.Refused, CircuitOpen)
		if report.Calls != 1 || time.Since(start) != 300*time.Millisecond {
			t.Errorf("%d calls in %v, want 1 in 300ms", report.Calls, time.Since(start))
		}
	})
	inBubble(t, "resilience case 23: a call that trips its own breaker does not sleep", func(t *testing.T) {
		chain, start := mustChain(t, plain()), time.Now()
		record(t, chain.Breaker(), Failure, 19)
		report := chain.Do(t.Context(), Critical, func(context.Context, int) Verdict {
			return Verdict{Outcome: Failure, Retry: true, RetryAfter: 7 * time.Second}
		})
		wantRefusal(t, report.Refused, CircuitOpen)
		if report.Calls != 1 || time.Since(start) != 0 {
			t.Errorf("%d calls in %v, want 1 at once", report.Calls, time.Since(start))
		}
		if report.Refused.RetryAfter != 7*time.Second {
			t.Errorf("retry after %v: the acquirer asked for more than the breaker", report.Refused.RetryAfter)
		}
	})
	inBubble(t, "resilience case 7: a probe that panics reopens the breaker and loses no permit", func(t *testing.T) {
		chain := mustChain(t, plain())
		record(t, chain.Breaker(), Failure, 20)
		time.Sleep(5 * time.Second)
		report := chain.Do(t.Context(), Critical, func(context.Context, int) Verdict { panic("nil map") })
		if report.Panic == nil || report.Panic.Value != "nil map" || report.Calls != 1 || len(report.Panic.Stack) == 0 {
			t.Errorf("report %+v", report)
		}
		wantState(t, chain.Breaker(), Open)
		if n := chain.Snapshot().Bulkhead.InFlight; n != 0 {
			t.Errorf("%d slots lost", n)
		}
		time.Sleep(5 * time.Second)
		if report := chain.Do(t.Context(), Critical, succeed); report.Refused != nil {
			t.Errorf("after the panic: %v", report.Refused)
		}
		wantState(t, chain.Breaker(), Closed)
	})
	inBubble(t, "a call that ends its goroutine counts as nothing and loses no permit", func(t *testing.T) {
		chain := mustChain(t, plain())
		record(t, chain.Breaker(), Failure, 20)
		time.Sleep(5 * time.Second)
		go chain.Do(t.Context(), Critical, func(context.Context, int) Verdict { runtime.Goexit(); return Verdict{} })
		synctest.Wait()
		if s := chain.Snapshot(); s.Breaker.State != HalfOpen || s.Breaker.ProbeInFlight || s.Bulkhead.InFlight != 0 {
			t.Errorf("snapshot %+v", s)
		}
	})
	inBubble(t, "resilience case 22: a listener's fault does not touch the answer of the call", func(t *testing.T) {
		s := plain()
		s.Breaker.Listeners = []func(Event){func(Event) { panic("store unavailable") }}
		chain := mustChain(t, s)
		record(t, chain.Breaker(), Failure, 20)
		time.Sleep(5 * time.Second)
		want := Report{Calls: 1, Last: Verdict{Outcome: Success}}
		if diff := cmp.Diff(want, chain.Do(t.Context(), Critical, succeed)); diff != "" {
			t.Errorf("report (-want +got):\n%s", diff)
		}
	})
	inBubble(t, "a probe outlives its client, but not its lease nor its own deadline", func(t *testing.T) {
		for _, test := range []struct{ deadline, want time.Duration }{{time.Minute, 14 * time.Second}, {9 * time.Second, 9 * time.Second}} {
			chain := mustChain(t, plain())
			record(t, chain.Breaker(), Failure, 20)
			time.Sleep(5 * time.Second)
			ctx, cancel := context.WithTimeout(t.Context(), test.deadline)
			start := time.Now()
			chain.Do(ctx, Critical, func(ctx context.Context, _ int) Verdict {
				cancel()
				<-ctx.Done()
				return Verdict{Outcome: Failure}
			})
			if got := time.Since(start); got != test.want {
				t.Errorf("the probe ended after %v, want %v", got, test.want)
			}
		}
	})
	inBubble(t, "a call that waited for a slot is not sent if the breaker opened meanwhile", func(t *testing.T) {
		s := plain()
		s.Bulkhead = BulkheadConfig{Slots: 1, Wait: time.Second, Queue: 1}
		chain := mustChain(t, s)
		fill(t, chain.bulkhead, 1)
		go func() {
			time.Sleep(100 * time.Millisecond)
			record(t, chain.Breaker(), Failure, 20)
			chain.bulkhead.Release()
		}()
		report := chain.Do(t.Context(), Critical, succeed)
		wantRefusal(t, report.Refused, CircuitOpen)
		if report.Calls != 0 || chain.Snapshot().Bulkhead.InFlight != 0 {
			t.Errorf("report %+v, %+v", report, chain.Snapshot().Bulkhead)
		}
	})
	inBubble(t, "a full bulkhead refuses, and gives the probe back", func(t *testing.T) {
		s := plain()
		s.Bulkhead = BulkheadConfig{Slots: 1}
		chain := mustChain(t, s)
		fill(t, chain.bulkhead, 1)
		record(t, chain.Breaker(), Failure, 20)
		time.Sleep(5 * time.Second)
		wantRefusal(t, chain.Do(t.Context(), Critical, succeed).Refused, BulkheadFull)
		chain.bulkhead.Release()
		if report := chain.Do(t.Context(), Critical, succeed); report.Refused != nil {
			t.Errorf("the probe was lost: %v", report.Refused)
		}
	})
}

// trip19 fails the 19 calls that are missing to 20.
func trip19(t *testing.T, b Breaker) {
	t.Helper()
	record(t, b, Failure, 19)
	wantState(t, b, Open)
}

func TestChainBudget(t *testing.T) {
	t.Parallel()
	inBubble(t, "resilience case 32: a spent budget keeps the answer and says that we refused", func(t *testing.T) {
		chain := mustChain(t, plain())
		takeAll(t, chain.budget)
		start := time.Now()
		report := chain.Do(t.Context(), Critical, fail)
		wantRefusal(t, report.Refused, BudgetSpent)
		if report.Calls != 1 || report.Last != (Verdict{Outcome: Failure, Retry: true}) || time.Since(start) != 0 {
			t.Errorf("%+v after %v", report, time.Since(start))
		}
	})
	inBubble(t, "resilience case 30: 1,000 fast failures in a row make 10 retries a minute", func(t *testing.T) {
		s := DefaultSettings()
		chain := mustChain(t, s)
		_ = chain.Breaker().Force(t.Context(), Order{Mode: ForcedClosed, Why: "the budget alone"})
		start, calls := time.Now(), 0
		for range 1000 {
			calls += chain.Do(t.Context(), Critical, fail).Calls
			time.Sleep(50 * time.Millisecond)
		}
		if took := time.Since(start); took > time.Minute || calls > 1010 || calls < 1005 {
			t.Errorf("%d calls in %v, want at most 1010 in a minute", calls, took)
		}
	})
	inBubble(t, "resilience case 34: retries count when sent, so 100 backoffs that end together let one out", func(t *testing.T) {
		s := plain()
		s.Bulkhead.Slots = 100
		chain := mustChain(t, s)
		_ = chain.Breaker().Force(t.Context(), Order{Mode: ForcedClosed, Why: "the budget alone"})
		var calls, spent atomic.Int64
		storm(100, func() {
			report := chain.Do(context.Background(), Critical, fail)
			calls.Add(int64(report.Calls))
			if report.Refused != nil && report.Refused.Reason == BudgetSpent {
				spent.Add(1)
			}
		})
		if calls.Load() > 102 || spent.Load() < 99 {
			t.Errorf("%d calls, %d refused for the budget", calls.Load(), spent.Load())
		}
	})
	inBubble(t, `"come back later" from a working acquirer earns no retries`, func(t *testing.T) {
		chain := mustChain(t, plain())
		for range 100 {
			chain.Do(t.Context(), Critical, func(context.Context, int) Verdict { return Verdict{Outcome: Success, Retry: true} })
			chain.Do(t.Context(), Critical, succeed)
		}
		if got := chain.Snapshot().Budget.Successes60s; got > 100 {
			t.Errorf("%d successes counted, want at most 100", got)
		}
	})
}

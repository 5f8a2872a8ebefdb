package resilience

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestRetryNextProperty(t *testing.T) {
	t.Parallel()
	r := DefaultRetry()
	rapid.Check(t, func(t *rapid.T) {
		asked := time.Duration(rapid.Int64().Draw(t, "retry after"))
		remaining := time.Duration(rapid.Int64().Draw(t, "remaining"))
		tries := rapid.Int().Draw(t, "tries")
		wait, backoff, refused := r.Next(tries, 0, Verdict{RetryAfter: asked}, remaining, nil)
		if backoff < 0 || backoff > r.Backoff.Cap {
			t.Fatalf("backoff %v", backoff)
		}
		if refused != nil {
			if remaining >= r.CallP99 && remaining-r.CallP99 >= addSaturating(max(asked, 0), r.Backoff.Cap) {
				t.Fatalf("refused though everything fits: %v", refused)
			}
			return
		}
		if wait < asked || wait < 0 || wait > remaining-r.CallP99 {
			t.Fatalf("wait %v, asked %v, remaining %v", wait, asked, remaining)
		}
	})
}

// Regression: a wait that no deadline holds seemed to fit into one that is as far away as a time can be.
func TestRetryThatNobodyLivesToSee(t *testing.T) {
	t.Parallel()
	r := DefaultRetry()
	if wait, _, refused := r.Next(0, 0, Verdict{RetryAfter: forever}, forever, nil); refused == nil || refused.Reason != RetryAfterTooLong {
		t.Errorf("wait %v, refused %v", wait, refused)
	}
}

func TestSettings(t *testing.T) {
	t.Parallel()
	t.Run("the defaults are usable", func(t *testing.T) {
		t.Parallel()
		if err := errors.Join(DefaultSettings().Validate(), DefaultShedder().Validate()); err != nil {
			t.Error(err)
		}
	})
	t.Run("every problem is named at once, with field and value", func(t *testing.T) {
		t.Parallel()
		s := DefaultSettings()
		s.Breaker.Failures = Share{Num: 1, Den: 1}
		s.Breaker.WindowCount = 10
		s.Breaker.ProbeMargin = s.Breaker.ProbeLease
		s.Breaker.Ramp = []int{50, 25}
		s.Budget.Percent = 101
		s.Bulkhead.Slots = 0
		s.Retry.Attempts = 11
		s.Retry.Backoff = Backoff{Jitter: "some", Base: time.Minute, Cap: time.Second}
		_, err := NewLocal(s)
		want := `resilience: unusable settings
breaker.min_attempts is 20: want at most window_count (10), or it never opens
breaker.failures is 1/1: want a share below 1, or it never opens
breaker.probe_margin is 15s: want 0 to less than probe_lease (15s)
breaker.ramp is [50 25]: want rising percentages
budget.percent is 101: want 0 to 100
bulkhead.slots is 0: want 1 to 100000
retry.attempts is 11: want 1 to 10
retry.jitter is some: want none, equal, full or decorrelated
retry.base is 1m0s: want at most cap (1s)`
		var configError *ConfigError
		if !errors.As(err, &configError) || len(configError.Problems) != 9 {
			t.Fatalf("error %v", err)
		}
		if diff := cmp.Diff(want, err.Error()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
	t.Run("every part refuses its own bad settings", func(t *testing.T) {
		t.Parallel()
		_, breaker := NewLocalBreaker(BreakerConfig{})
		_, budget := NewLocalBudget(BudgetConfig{Floor: -1})
		_, bulkhead := NewBulkhead(BulkheadConfig{})
		_, shedder := NewShedder(ShedderConfig{}, 1)
		_, chain := NewChain(ChainConfig{})
		for name, err := range map[string]error{
			"breaker": breaker, "budget": budget, "bulkhead": bulkhead, "shedder": shedder, "chain": chain, "retry": Retry{}.Validate(),
		} {
			var configError *ConfigError
			if !errors.As(err, &configError) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
	t.Run("they are frozen at construction", func(t *testing.T) {
		t.Parallel()
		cfg := DefaultBreaker()
		b := mustBreaker(t, cfg)
		cfg.Ramp[0] = 99
		if got := b.cfg.RampPercent(0); got != 25 {
			t.Errorf("ramp %d %%, want 25", got)
		}
	})
}

func TestRemaining(t *testing.T) {
	t.Parallel()
	inBubble(t, "the earlier of deadline and start-by holds", func(t *testing.T) {
		in := func(d time.Duration) time.Time { return time.Now().Add(d) }
		if got := Remaining(t.Context()); got != math.MaxInt64 {
			t.Errorf("no limit: %v", got)
		}
		deadline, cancel := context.WithDeadline(t.Context(), in(8*time.Second))
		defer cancel()
		for _, test := range []struct {
			ctx  context.Context
			want time.Duration
		}{
			{deadline, 8 * time.Second},
			{WithStartBy(deadline, in(2*time.Second)), 2 * time.Second},
			{WithStartBy(deadline, in(9*time.Second)), 8 * time.Second},
			{WithStartBy(WithStartBy(t.Context(), in(time.Second)), in(5*time.Second)), time.Second},
			{WithStartBy(WithStartBy(t.Context(), in(5*time.Second)), in(time.Second)), time.Second},
			{WithStartBy(t.Context(), in(-time.Second)), -time.Second},
		} {
			if got := Remaining(test.ctx); got != test.want {
				t.Errorf("remaining %v, want %v", got, test.want)
			}
		}
	})
}

func TestWords(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		Failure.String(): "failure", Success.String(): "success", Ignored.String(): "ignored", Outcome(9).String(): "outcome(9)",
		Low.String(): "low", Normal.String(): "normal", Critical.String(): "critical",
		(&Rejection{Reason: CircuitOpen, Detail: "d", RetryAfter: 1500 * time.Millisecond}).Error(): "circuit_open: d; try again in 1.5s",
		(&Rejection{Reason: CallerGone, Detail: "d"}).Error():                                       "caller_gone: d",
		(&Panic{Value: "x"}).Error():                                                                "panic in a call: x",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if (Verdict{}).Outcome != Failure || Priority(0) != Normal {
		t.Error("a forgotten outcome must be a failure, and a forgotten priority normal")
	}
}

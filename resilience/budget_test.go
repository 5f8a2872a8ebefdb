package resilience

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// noBurst is the minute rule alone.
func noBurst() BudgetConfig {
	cfg := DefaultBudget()
	cfg.BurstFloor = 1_000_000
	return cfg
}

// takeAll takes until it is refused.
func takeAll(tb testing.TB, b Budget) (granted int, refused *Rejection) {
	tb.Helper()
	for granted < 1_000_000 {
		if refused = b.Take(context.Background()); refused != nil {
			return granted, refused
		}
		granted++
	}
	tb.Fatal("the budget never ends")
	return 0, nil
}

func succeeded(b Budget, n int) {
	for range n {
		b.Succeeded()
	}
}

func TestBudget(t *testing.T) {
	t.Parallel()
	inBubble(t, "resilience case 31: cold, exactly 10 a minute, and again in the next", func(t *testing.T) {
		b := mustBudget(t, DefaultBudget())
		for minute := range 3 {
			granted := 0
			for range 60 {
				n, _ := takeAll(t, b)
				granted += n
				time.Sleep(time.Second)
			}
			if granted != 10 {
				t.Errorf("minute %d: %d retries, want 10", minute, granted)
			}
		}
	})
	inBubble(t, "resilience case 31: it refills with the successes after a recovery", func(t *testing.T) {
		b := mustBudget(t, noBurst())
		takeAll(t, b)
		succeeded(b, 1000)
		if granted, _ := takeAll(t, b); granted != 90 {
			t.Errorf("%d more, want 10 %% of 1000 less the 10 taken", granted)
		}
	})
	inBubble(t, "resilience case 33: taken by many at once, never over the limit", func(t *testing.T) {
		for _, successes := range []int{0, 1000, 4800} {
			b := mustBudget(t, noBurst())
			succeeded(b, successes)
			var granted atomic.Int64
			storm(12, func() {
				n, _ := takeAll(t, b)
				granted.Add(int64(n))
			})
			if want := int64(max(10, successes/10)); granted.Load() != want {
				t.Errorf("%d successes: %d retries, want %d", successes, granted.Load(), want)
			}
		}
	})
	inBubble(t, "80 a second, then an outage: 8 a second leave and not 480 at once", func(t *testing.T) {
		b := mustBudget(t, DefaultBudget())
		for range 60 * 80 {
			b.Succeeded()
			time.Sleep(time.Second / 80)
		}
		granted, refused := takeAll(t, b)
		if granted < 7 || granted > 8 || refused.Detail != "8 of 8 retries in 1s used" && refused.Detail != "7 of 7 retries in 1s used" {
			t.Errorf("%d at once (%v), want 8", granted, refused)
		}
		time.Sleep(10 * time.Second)
		if granted, _ := takeAll(t, b); granted != 1 {
			t.Errorf("%d at once after 10 s without success, want 1", granted)
		}
	})
	inBubble(t, "a refusal has the numbers and the time", func(t *testing.T) {
		b := mustBudget(t, noBurst())
		takeAll(t, b)
		time.Sleep(20 * time.Second)
		succeeded(b, 50)
		refused := b.Spent()
		wantRefusal(t, refused, BudgetSpent)
		if refused.Detail != "10 of 10 retries in 60s used, 50 successes" || refused.RetryAfter != 41*time.Second {
			t.Errorf("refused with %v", refused)
		}
		time.Sleep(refused.RetryAfter)
		if refused := b.Spent(); refused != nil {
			t.Errorf("still refused after the time given: %v", refused)
		}
	})
	inBubble(t, "Spent spends nothing", func(t *testing.T) {
		b := mustBudget(t, DefaultBudget())
		for range 100 {
			if refused := b.Spent(); refused != nil {
				t.Fatal(refused)
			}
		}
	})
}

// TestBudgetProperty holds every grant against the rule, over exact windows.
func TestBudgetProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		now := testNow
		cfg := DefaultBudget()
		cfg.Now = func() time.Time { return now }
		b, err := NewLocalBudget(cfg)
		if err != nil {
			t.Fatal(err)
		}
		var successes, grants []time.Time
		since := func(times []time.Time, ago time.Duration) (n int) {
			for _, at := range times {
				if now.Sub(at) < ago {
					n++
				}
			}
			return n
		}
		for range rapid.IntRange(1, 150).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0:
				now = now.Add(time.Duration(rapid.Int64Range(1, 3e9).Draw(t, "short")))
			case 1:
				now = now.Add(time.Duration(rapid.Int64Range(1, 1e8).Draw(t, "instant")))
			case 2:
				for range rapid.IntRange(1, 60).Draw(t, "successes") {
					b.Succeeded()
					successes = append(successes, now)
				}
			case 3:
				for b.Take(context.Background()) == nil {
					grants = append(grants, now)
					if n, limit := since(grants, time.Minute), max(10, since(successes, time.Minute)/10); n > limit {
						t.Fatalf("%d retries in 60 s, limit %d", n, limit)
					}
					if n, limit := since(grants, time.Second), max(1, since(successes, 5*time.Second)/50); n > limit {
						t.Fatalf("%d retries in 1 s, limit %d", n, limit)
					}
				}
			}
		}
	})
}

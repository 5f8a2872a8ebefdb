package resilience

import (
	"context"
	"testing"
	"time"
)

// seed001 are the settings of the article on the retry loop: the last ten
// outcomes, judged once there are ten, at a rate of one half or more; 30 s of
// cooldown; probesToClose successes in a row.
func seed001(probesToClose int) BreakerConfig {
	return BreakerConfig{
		Window: time.Minute, WindowCount: 10, MinAttempts: 10,
		Failures: Share{Num: 1, Den: 2, OrEqual: true},
		OpenFor:  30 * time.Second, OpenMax: 30 * time.Second,
		ProbesToClose: probesToClose, ProbeLease: 15 * time.Second, ProbeMargin: time.Second,
	}
}

func TestSeed001(t *testing.T) {
	t.Parallel()
	inBubble(t, "stays closed while the failure rate is below threshold", func(t *testing.T) {
		b := mustBreaker(t, seed001(1))
		for range 50 {
			record(t, b, Success, 6)
			record(t, b, Failure, 4)
		}
		wantState(t, b, Closed)
	})
	inBubble(t, "trips open when the rate crosses the threshold", func(t *testing.T) {
		b := mustBreaker(t, seed001(1))
		record(t, b, Success, 5)
		record(t, b, Failure, 4)
		wantState(t, b, Closed) // nine outcomes: the window is not full
		record(t, b, Failure, 1)
		wantState(t, b, Open)
	})
	inBubble(t, "open circuit fails fast without touching the network", func(t *testing.T) {
		s := DefaultSettings()
		s.Breaker = seed001(1)
		chain := mustChain(t, s)
		record(t, chain.Breaker(), Failure, 10)
		start := time.Now()
		report := chain.Do(t.Context(), Critical, func(context.Context, int) Verdict {
			t.Error("the network was touched")
			return Verdict{}
		})
		wantRefusal(t, report.Refused, CircuitOpen)
		if report.Calls != 0 || time.Since(start) != 0 || report.Refused.RetryAfter != 30*time.Second {
			t.Errorf("%d calls, %v, retry after %v", report.Calls, time.Since(start), report.Refused.RetryAfter)
		}
	})
	inBubble(t, "half-open probe success closes the circuit", func(t *testing.T) {
		b := mustBreaker(t, seed001(1))
		trip(t, b)
		time.Sleep(30*time.Second - 1)
		refuse(t, b)
		time.Sleep(time.Nanosecond)
		b.Done(admit(t, b), Success)
		wantState(t, b, Closed)
	})
	inBubble(t, "failed probe re-opens immediately", func(t *testing.T) {
		b := mustBreaker(t, seed001(2))
		p := probe(t, b)
		b.Done(p, Failure)
		wantState(t, b, Open)
		if got := refuse(t, b).RetryAfter; got != 30*time.Second {
			t.Errorf("retry after %v, want a whole cooldown", got)
		}
	})
	inBubble(t, "fallback is used instead of throwing", func(t *testing.T) {
		s := DefaultSettings()
		s.Breaker = seed001(1)
		chain := mustChain(t, s)
		record(t, chain.Breaker(), Failure, 10)
		answer := "from the network"
		if report := chain.Do(t.Context(), Critical, succeed); report.Refused != nil {
			answer = "from the fallback"
		}
		if answer != "from the fallback" {
			t.Errorf("answer %s", answer)
		}
	})
	inBubble(t, "the seeds' own settings: probesToClose successes close, one probe at a time", func(t *testing.T) {
		b := mustBreaker(t, seed001(3))
		p := probe(t, b)
		for i := range 3 {
			wantState(t, b, HalfOpen)
			refuse(t, b)
			b.Done(p, Success)
			if i < 2 {
				p = admit(t, b)
			}
		}
		wantState(t, b, Closed)
	})
	inBubble(t, "the seeds' own settings: a failure after one good probe starts again", func(t *testing.T) {
		b := mustBreaker(t, seed001(2))
		b.Done(probe(t, b), Success)
		b.Done(admit(t, b), Failure)
		wantState(t, b, Open)
		time.Sleep(30 * time.Second)
		b.Done(admit(t, b), Success)
		wantState(t, b, HalfOpen)
		b.Done(admit(t, b), Success)
		wantState(t, b, Closed)
	})
}

func TestSeed000Settings(t *testing.T) {
	t.Parallel()
	cooldown30 := steady()
	cooldown30.OpenFor, cooldown30.OpenMax = 30*time.Second, 30*time.Second
	inBubble(t, "more than half of at least 20 in 60 s opens, with the numbers in the reason", func(t *testing.T) {
		b := mustBreaker(t, cooldown30)
		record(t, b, Success, 2)
		record(t, b, Failure, 17)
		wantState(t, b, Closed)
		record(t, b, Failure, 1)
		if got, want := refuse(t, b).Detail, "failure rate 0.90 over 20 attempts"; got != want {
			t.Errorf("detail %q, want %q", got, want)
		}
	})
	inBubble(t, "a 40 s outage tripped at t+2 closes with the second probe at t+62", func(t *testing.T) {
		start := time.Now()
		healthy := func() bool { return time.Since(start) >= 40*time.Second }
		b := mustBreaker(t, cooldown30)
		time.Sleep(2 * time.Second)
		trip(t, b)
		var probes []time.Duration
		for b.Snapshot().State != Closed {
			if p, refused := b.Acquire(t.Context()); refused == nil {
				probes = append(probes, time.Since(start))
				outcome := Failure
				if healthy() {
					outcome = Success
				}
				b.Done(p, outcome)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if len(probes) != 2 || probes[0] != 32*time.Second || probes[1] != 62*time.Second {
			t.Errorf("probes at %v, want 32s and 62s", probes)
		}
	})
}

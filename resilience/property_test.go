package resilience

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestBreakerProperty plays any order of calls, answers and pauses, and holds
// the breaker to: never two live probes, no epoch twice, nothing but a probe
// while not closed, and never stuck.
func TestBreakerProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		now, random := testNow, rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		var lastEpoch uint64 = 1
		cfg := DefaultBreaker()
		cfg.MinAttempts = rapid.IntRange(1, 4).Draw(t, "min attempts")
		cfg.ProbesToClose = rapid.IntRange(1, 3).Draw(t, "probes to close")
		cfg.Now, cfg.Rand = func() time.Time { return now }, random.Float64
		cfg.Listeners = []func(Event){func(e Event) {
			if e.Epoch != lastEpoch+1 {
				t.Fatalf("epoch %d after %d", e.Epoch, lastEpoch)
			}
			lastEpoch = e.Epoch
		}}
		b, err := NewLocalBreaker(cfg)
		if err != nil {
			t.Fatal(err)
		}
		type call struct {
			Permit
			leaseEnds time.Time
		}
		var out []call
		live := func() (n int) {
			for _, c := range out {
				if c.Probe && now.Before(c.leaseEnds) {
					n++
				}
			}
			return n
		}
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0, 1, 2:
				closed := b.Snapshot().State == Closed
				permit, refused := b.Acquire(context.Background())
				if refused != nil {
					if closed || refused.RetryAfter <= 0 || refused.Epoch != lastEpoch {
						t.Fatalf("refused with %+v in %+v", refused, b.Snapshot())
					}
					continue
				}
				if permit.Probe == closed {
					t.Fatalf("permit %+v, closed %v", permit, closed)
				}
				out = append(out, call{permit, now.Add(cfg.ProbeLease)})
				if n := live(); n > 1 {
					t.Fatalf("%d probes are live", n)
				}
			case 3, 4:
				if len(out) == 0 {
					continue
				}
				i := rapid.IntRange(0, len(out)-1).Draw(t, "which")
				epoch := lastEpoch
				stale := out[i].Epoch != epoch
				b.Done(out[i].Permit, rapid.SampledFrom([]Outcome{Success, Failure, Ignored}).Draw(t, "outcome"))
				if stale && lastEpoch != epoch {
					t.Fatalf("a result of epoch %d changed epoch %d", out[i].Epoch, epoch)
				}
				out = append(out[:i], out[i+1:]...)
			case 5:
				now = now.Add(time.Duration(rapid.Int64Range(1, 20e9).Draw(t, "pause")))
			}
		}
		now = now.Add(cfg.OpenMax + cfg.ProbeLease)
		if _, refused := b.Acquire(context.Background()); refused != nil {
			t.Fatalf("stuck: %v", refused)
		}
	})
}

// TestBreakerConcurrently is for the race detector: real goroutines, short
// times, crashes, panicking and late callers; one live probe at most.
func TestBreakerConcurrently(t *testing.T) {
	t.Parallel()
	var events []uint64
	cfg := DefaultBreaker()
	cfg.MinAttempts = 5
	cfg.OpenFor, cfg.OpenMax = time.Millisecond, 2*time.Millisecond
	cfg.ProbeLease, cfg.ProbeMargin = time.Minute, time.Second                        // none ends here: each probe is told of
	cfg.Listeners = []func(Event){func(e Event) { events = append(events, e.Epoch) }} // one at a time, or the detector sees it
	b := mustBreaker(t, cfg)
	var live, most, probes atomic.Int64
	var wg sync.WaitGroup
	for worker := range 16 {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(worker), 7))
			for range 2000 {
				permit, refused := b.Acquire(context.Background())
				if refused != nil {
					b.Peek()
					if random.IntN(100) == 0 {
						time.Sleep(time.Millisecond) // a caller who comes back later, so that a probe comes due
					}
					continue
				}
				if permit.Probe {
					probes.Add(1)
					most.Store(max(most.Load(), live.Add(1)))
				}
				outcome := Outcome(random.IntN(3))
				if permit.Probe {
					live.Add(-1)
				}
				b.Done(permit, outcome)
			}
		})
	}
	wg.Wait()
	if most.Load() != 1 || probes.Load() == 0 {
		t.Errorf("%d probes, at most %d at once, want 1", probes.Load(), most.Load())
	}
	for i, epoch := range events {
		if epoch != uint64(i+2) {
			t.Fatalf("event %d is of epoch %d", i, epoch)
		}
	}
	if got := b.Snapshot().Epoch; got != uint64(len(events)+1) {
		t.Errorf("epoch %d after %d events", got, len(events))
	}
}

// TestWindowCountsExactly lets many count into one window.
func TestWindowCountsExactly(t *testing.T) {
	t.Parallel()
	for name, w := range map[string]window{"time": newTimeWindow(60, time.Second), "count": newCountWindow(50_000)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var second atomic.Int64
			storm(8, func() {
				for i := range 2000 {
					w.record(time.Duration(second.Add(1))*time.Millisecond, i%2 == 0, i%4 == 0)
				}
			})
			if got, want := w.tally(16*time.Second), (Tally{Attempts: 16_000, Failures: 8000, Slow: 4000}); got != want {
				t.Errorf("window %+v, want %+v", got, want)
			}
			if got := w.tally(200 * time.Second); name == "time" && got != (Tally{}) {
				t.Errorf("window %+v after it has passed", got)
			}
		})
	}
}

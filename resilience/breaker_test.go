package resilience

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestBreakerProbe(t *testing.T) {
	t.Parallel()
	inBubble(t, "resilience case 1: 1,000 calls while the probe is out: none passes", func(t *testing.T) {
		b := mustBreaker(t, steady())
		p := probe(t, b)
		var admitted atomic.Int64
		storm(1000, func() {
			if _, refused := b.Acquire(t.Context()); refused == nil {
				admitted.Add(1)
			}
		})
		if admitted.Load() != 0 {
			t.Errorf("%d calls passed beside the probe", admitted.Load())
		}
		if got := refuse(t, b); got.RetryAfter != probeRetryAfter || !strings.Contains(got.Detail, "a probe is out") {
			t.Errorf("refused with %v", got)
		}
		b.Done(p, Success)
		wantState(t, b, Closed)
	})
	inBubble(t, "resilience case 2: many cross the deadline together: one claims", func(t *testing.T) {
		b := mustBreaker(t, steady())
		trip(t, b)
		time.Sleep(5 * time.Second)
		var admitted atomic.Int64
		storm(50, func() {
			if p, refused := b.Acquire(t.Context()); refused == nil && p.Probe {
				admitted.Add(1)
			}
		})
		if admitted.Load() != 1 {
			t.Errorf("%d probes, want 1", admitted.Load())
		}
	})
	inBubble(t, "resilience case 2: whoever comes late to the lock finds the probe gone, or the breaker closed", func(t *testing.T) {
		b := mustBreaker(t, steady())
		trip(t, b)
		time.Sleep(5 * time.Second)
		now := b.clock.elapsed() // read by both before either has the lock
		p, refused := b.claim(now)
		if refused != nil {
			t.Fatal(refused)
		}
		_, refused = b.claim(now)
		wantRefusal(t, refused, CircuitOpen)
		b.Done(p, Success)
		if late, refused := b.claim(now); refused != nil || late.Probe || late.RampPercent != 25 {
			t.Errorf("permit %+v, %v, want a plain one at 25 %%", late, refused)
		}
	})
	inBubble(t, "resilience case 3: a probe whose owner is gone is replaced after its lease", func(t *testing.T) {
		b := mustBreaker(t, steady())
		lost := probe(t, b)
		time.Sleep(15*time.Second - 1)
		refuse(t, b)
		time.Sleep(time.Nanosecond)
		if p := admit(t, b); !p.Probe || p.Epoch != lost.Epoch+1 {
			t.Errorf("permit %+v after the one of epoch %d", p, lost.Epoch)
		}
		refuse(t, b)
	})
	for _, late := range []Outcome{Success, Failure, Ignored} {
		inBubble(t, "resilience case 4: a late "+late.String()+" of a hung probe changes nothing", func(t *testing.T) {
			b := mustBreaker(t, steady())
			hung := probe(t, b)
			time.Sleep(15 * time.Second)
			b.Done(hung, late) // the lease has ended, though nobody took it over
			wantState(t, b, HalfOpen)
			second := admit(t, b)
			b.Done(hung, late)
			refuse(t, b)
			if !b.Valid(second) || b.Valid(hung) {
				t.Error("the late answer touched the second probe")
			}
			b.Done(second, Success)
			wantState(t, b, Closed)
		})
	}
	inBubble(t, "resilience case 6: an ignored probe gives the lease back", func(t *testing.T) {
		b := mustBreaker(t, steady())
		p := probe(t, b)
		b.Done(p, Ignored)
		b.Done(p, Success) // too late: it has been given back
		wantState(t, b, HalfOpen)
		if next := b.Snapshot().NextProbe; next.After(time.Now()) {
			t.Errorf("next probe at %v, want now", next)
		}
		b.Done(admit(t, b), Success)
		wantState(t, b, Closed)
	})
	inBubble(t, "resilience case 17: a slow probe does not close", func(t *testing.T) {
		b := mustBreaker(t, steady())
		p := probe(t, b)
		time.Sleep(6 * time.Second)
		b.Done(p, Success)
		wantState(t, b, Open)
		want := "probe took 6s, slow is over 5s; opened by failure rate 1.00 over 20 attempts"
		if got := refuse(t, b).Detail; got != want {
			t.Errorf("detail %q, want %q", got, want)
		}
	})
}

// storm runs f in n goroutines at once.
func storm(n int, f func()) {
	var wg sync.WaitGroup
	for range n {
		wg.Go(f)
	}
	wg.Wait()
}

func TestBreakerEpochs(t *testing.T) {
	t.Parallel()
	for _, late := range []Outcome{Success, Failure} {
		inBubble(t, "resilience case 8: a "+late.String()+" begun while closed changes nothing in half-open", func(t *testing.T) {
			b := mustBreaker(t, steady())
			begun := admit(t, b)
			p := probe(t, b)
			before := b.Snapshot()
			b.Done(begun, late)
			if diff := cmp.Diff(before, b.Snapshot()); diff != "" {
				t.Errorf("changed (-before +after):\n%s", diff)
			}
			b.Done(p, Success)
			b.Done(begun, late)
			if got := b.Snapshot().Tally; got != (Tally{}) {
				t.Errorf("the new window has %+v", got)
			}
		})
	}
	inBubble(t, "resilience case 9: late failures while open neither prolong it nor open it again", func(t *testing.T) {
		var events []Event
		cfg := steady()
		cfg.Listeners = []func(Event){func(e Event) { events = append(events, e) }}
		b := mustBreaker(t, cfg)
		var begun []Permit
		for range 30 {
			begun = append(begun, admit(t, b))
		}
		trip(t, b)
		time.Sleep(3 * time.Second)
		for _, p := range begun {
			b.Done(p, Failure)
		}
		if got := refuse(t, b).RetryAfter; got != 2*time.Second {
			t.Errorf("retry after %v, want the 2s that were left", got)
		}
		if len(events) != 1 {
			t.Errorf("%d events, want 1: %+v", len(events), events)
		}
	})
	inBubble(t, "resilience case 10: many failures at once: one transition, one event, one epoch", func(t *testing.T) {
		var opened atomic.Int64
		cfg := steady()
		cfg.Listeners = []func(Event){func(Event) { opened.Add(1) }}
		b := mustBreaker(t, cfg)
		storm(200, func() {
			p, refused := b.Acquire(context.Background())
			time.Sleep(time.Millisecond) // until all have been admitted
			if refused == nil {
				b.Done(p, Failure)
			}
		})
		if s := b.Snapshot(); opened.Load() != 1 || s.State != Open || s.Epoch != 2 {
			t.Errorf("%d events, %+v", opened.Load(), s)
		}
	})
	inBubble(t, "resilience case 11: after a closing, the old failures do not trip it again", func(t *testing.T) {
		b := mustBreaker(t, steady())
		b.Done(probe(t, b), Success)
		record(t, b, Failure, 10) // with the 20 old ones: 30 of 30
		record(t, b, Success, 10)
		if s := b.Snapshot(); s.State != Closed || s.Tally != (Tally{Attempts: 20, Failures: 10}) {
			t.Errorf("snapshot %+v", s)
		}
	})
}

func TestBreakerRule(t *testing.T) {
	t.Parallel()
	inBubble(t, "exactly half stays closed, one more opens", func(t *testing.T) {
		b := mustBreaker(t, steady())
		record(t, b, Success, 500)
		record(t, b, Failure, 500)
		wantState(t, b, Closed)
		record(t, b, Failure, 1)
		wantState(t, b, Open)
	})
	inBubble(t, "resilience case 13: 1 of 1 and 19 of 19 after a quiet night stay closed", func(t *testing.T) {
		b := mustBreaker(t, steady())
		record(t, b, Success, 1000)
		time.Sleep(8 * time.Hour)
		record(t, b, Failure, 19)
		wantState(t, b, Closed)
		if got, want := b.Snapshot().Tally, (Tally{Attempts: 19, Failures: 19}); got != want {
			t.Errorf("window %+v, want %+v", got, want)
		}
		record(t, b, Failure, 1)
		wantState(t, b, Open)
	})
	inBubble(t, "resilience case 15: failures 3 s apart fill the window as well as a burst", func(t *testing.T) {
		b := mustBreaker(t, steady())
		for range 19 {
			record(t, b, Failure, 1)
			time.Sleep(3 * time.Second)
		}
		wantState(t, b, Closed)
		record(t, b, Failure, 1)
		wantState(t, b, Open)
	})
	inBubble(t, "what is older than the window is forgotten", func(t *testing.T) {
		b := mustBreaker(t, steady())
		record(t, b, Failure, 19)
		time.Sleep(60 * time.Second)
		record(t, b, Failure, 19)
		wantState(t, b, Closed)
	})
	inBubble(t, "resilience case 16: what the caller cut short does not count", func(t *testing.T) {
		b := mustBreaker(t, steady())
		record(t, b, Ignored, 100)
		if got := b.Snapshot().Tally; got != (Tally{}) {
			t.Errorf("window %+v, want nothing", got)
		}
	})
	inBubble(t, "resilience case 17: successes that take 6 s open by the slow rule, at 80 %", func(t *testing.T) {
		b := mustBreaker(t, steady())
		record(t, b, Success, 5)
		var slow []Permit
		for range 20 {
			slow = append(slow, admit(t, b))
		}
		time.Sleep(6 * time.Second)
		for _, p := range slow[:19] {
			b.Done(p, Success)
		}
		wantState(t, b, Closed) // 19 of 24
		b.Done(slow[19], Success)
		if got, want := refuse(t, b).Detail, "slow rate 0.80 over 25 attempts (over 5s)"; got != want {
			t.Errorf("detail %q, want %q", got, want)
		}
	})
	inBubble(t, "resilience case 34: calls longer than the window still count", func(t *testing.T) {
		cfg := steady()
		cfg.Window = 2 * time.Second
		b := mustBreaker(t, cfg)
		var begun []Permit
		for range 20 {
			begun = append(begun, admit(t, b))
		}
		time.Sleep(3 * time.Second)
		for _, p := range begun {
			b.Done(p, Failure)
		}
		wantState(t, b, Open)
	})
}

func TestBreakerFlapping(t *testing.T) {
	t.Parallel()
	inBubble(t, "resilience case 18: the open time grows while it flaps, and falls back after a quiet minute", func(t *testing.T) {
		var openFor []time.Duration
		cfg := steady()
		cfg.Listeners = []func(Event){func(e Event) {
			if e.To == Open {
				openFor = append(openFor, e.OpenFor)
			}
		}}
		b := mustBreaker(t, cfg)
		for range 5 {
			b.Done(probe(t, b), Success)
			time.Sleep(10 * time.Second)
		}
		time.Sleep(51 * time.Second)
		trip(t, b)
		want := []time.Duration{5e9, 10e9, 20e9, 30e9, 30e9, 5e9}
		if diff := cmp.Diff(want, openFor); diff != "" {
			t.Errorf("open times (-want +got):\n%s", diff)
		}
	})
	inBubble(t, "a failed probe keeps the open time: one probe is cheap", func(t *testing.T) {
		b := mustBreaker(t, steady())
		trip(t, b)
		for range 8 {
			time.Sleep(5 * time.Second)
			b.Done(admit(t, b), Failure)
			if got := refuse(t, b).RetryAfter; got != 5*time.Second {
				t.Fatalf("open for %v", got)
			}
		}
	})
	inBubble(t, "resilience case 18: after closing, 25 %, 50 %, then all, 2 s each", func(t *testing.T) {
		b := mustBreaker(t, steady())
		if got := admit(t, b).RampPercent; got != 100 {
			t.Errorf("%d %% at the start, want 100", got)
		}
		b.Done(probe(t, b), Success)
		for i, want := range []int{25, 25, 50, 50, 100, 100, 100} {
			if got := admit(t, b).RampPercent; got != want {
				t.Errorf("%d s after closing: %d %%, want %d", i, got, want)
			}
			time.Sleep(time.Second)
		}
	})
	t.Run("the open time is spread by 20 % and never over its limit", func(t *testing.T) {
		t.Parallel()
		cfg := DefaultBreaker()
		for reopenings, bounds := range [][2]time.Duration{{4e9, 6e9}, {8e9, 12e9}, {16e9, 24e9}, {24e9, 30e9}, {24e9, 30e9}} {
			seen := map[time.Duration]bool{}
			for range 500 {
				d := cfg.OpenTime(reopenings, nil)
				if d < bounds[0] || d > bounds[1] {
					t.Fatalf("reopening %d: %v, want %v", reopenings, d, bounds)
				}
				seen[d] = true
			}
			if len(seen) < 400 {
				t.Errorf("reopening %d: only %d different open times of 500", reopenings, len(seen))
			}
		}
	})
}

func TestBreakerListeners(t *testing.T) {
	t.Parallel()
	inBubble(t, "they hear everything in order, may call the breaker, and cannot harm it", func(t *testing.T) {
		var b *LocalBreaker
		var seen []uint64
		cfg := steady()
		cfg.Listeners = []func(Event){
			func(Event) { panic("a listener's own fault") },
			func(e Event) {
				seen = append(seen, e.Epoch)
				b.Snapshot() // would lock up if the breaker's lock were held
				if e.Epoch == 2 {
					_ = b.Force(t.Context(), Order{Mode: ForcedOpen, Why: "by a listener"})
				}
			},
		}
		b = mustBreaker(t, cfg)
		trip(t, b)
		_ = b.Force(t.Context(), Order{Mode: Automatic, Why: "back"})
		b.Done(admit(t, b), Success)
		if diff := cmp.Diff([]uint64{2, 3, 4, 5, 6}, seen); diff != "" {
			t.Errorf("epochs (-want +got):\n%s", diff)
		}
		if got := b.Snapshot().ListenerPanics; got != 5 {
			t.Errorf("%d panics counted, want 5", got)
		}
	})
	inBubble(t, "one that ends its goroutine does not end the delivery for ever", func(t *testing.T) {
		var seen atomic.Int64
		cfg := steady()
		cfg.Listeners = []func(Event){func(Event) {
			if seen.Add(1) == 1 {
				runtime.Goexit()
			}
		}}
		b := mustBreaker(t, cfg)
		go func() { _ = b.Force(context.Background(), Order{Mode: ForcedOpen, Why: "x"}) }()
		synctest.Wait()
		_ = b.Force(t.Context(), Order{Mode: Automatic, Why: "back"})
		if seen.Load() != 2 {
			t.Errorf("%d events heard, want 2", seen.Load())
		}
	})
}

func TestBreakerForce(t *testing.T) {
	t.Parallel()
	inBubble(t, "forced open refuses for ever, then the next call probes", func(t *testing.T) {
		b := mustBreaker(t, steady())
		begun := admit(t, b)
		_ = b.Force(t.Context(), Order{Mode: ForcedOpen, Why: "maintenance at north"})
		time.Sleep(1000 * time.Hour)
		b.Done(begun, Success)
		if got := refuse(t, b); got.Detail != "held open by a person's order" || got.RetryAfter != 0 {
			t.Errorf("refused with %+v", got)
		}
		if s := b.Snapshot(); !s.NextProbe.IsZero() || s.Mode != ForcedOpen {
			t.Errorf("snapshot %+v", s)
		}
		_ = b.Force(t.Context(), Order{Mode: Automatic, Why: "over"})
		if p := admit(t, b); !p.Probe {
			t.Errorf("permit %+v, want a probe", p)
		}
	})
	inBubble(t, "forced closed admits and counts, but never opens", func(t *testing.T) {
		b := mustBreaker(t, steady())
		trip(t, b)
		_ = b.Force(t.Context(), Order{Mode: ForcedClosed, Why: "we know better"})
		record(t, b, Failure, 100)
		if s := b.Snapshot(); s.State != Closed || s.Failures != 100 {
			t.Errorf("snapshot %+v", s)
		}
		_ = b.Force(t.Context(), Order{Mode: Automatic, Why: "we did not"})
		wantState(t, b, Closed)
		trip(t, b)
	})
	inBubble(t, "automatic on automatic changes nothing; an unknown mode is refused", func(t *testing.T) {
		b := mustBreaker(t, steady())
		if err := b.Force(t.Context(), Order{Mode: Automatic, Why: ""}); err != nil || b.Snapshot().Epoch != 1 {
			t.Errorf("err %v, epoch %d", err, b.Snapshot().Epoch)
		}
		if err := b.Force(t.Context(), Order{Mode: "sideways", Why: ""}); err == nil || b.Snapshot().Epoch != 1 {
			t.Errorf("err %v, epoch %d", err, b.Snapshot().Epoch)
		}
	})
}

package resilience

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// fixed is a shedder whose limit stays.
func fixed(tb testing.TB, limit int) *Shedder {
	tb.Helper()
	s, err := NewShedder(ShedderConfig{Min: limit, Max: limit, NormalPercent: 80, LowPercent: 50, Slowdown: 200}, 1)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// crowd lets requests in until one is refused.
func crowd(s *Shedder, p Priority) (in []*Visit, refused *Rejection) {
	for len(in) < 1000 {
		v := new(Visit)
		if refused = s.Enter(context.Background(), v, 0, p); refused != nil {
			return in, refused
		}
		in = append(in, v)
	}
	return in, nil
}

func wantInProgress(tb testing.TB, s *Shedder, want int64) {
	tb.Helper()
	if got := s.Snapshot().InProgress; got != want {
		tb.Errorf("%d in progress, want %d", got, want)
	}
}

func TestShedder(t *testing.T) {
	t.Parallel()
	t.Run("the least important stops first, and the last places are for checkout", func(t *testing.T) {
		t.Parallel()
		s := fixed(t, 10)
		var last *Visit
		for _, want := range []struct {
			priority Priority
			more     int
			reason   Reason
			detail   string
			wait     time.Duration
		}{
			{Low, 5, ShedLowPriority, "5 requests in progress, low stops at 5 of 10", 5 * time.Second},
			{Normal, 3, ShedNormalPriority, "8 requests in progress, normal stops at 8 of 10", 2 * time.Second},
			{Critical, 2, Overloaded, "10 requests in progress, critical stops at 10 of 10", time.Second},
		} {
			in, refused := crowd(s, want.priority)
			wantRefusal(t, refused, want.reason)
			if len(in) != want.more || refused.Detail != want.detail || refused.RetryAfter < want.wait || refused.RetryAfter > 2*want.wait {
				t.Errorf("%s: %d more, then %v", want.priority, len(in), refused)
			}
			last = in[0]
		}
		last.Leave(true)
		wantRefusal(t, s.Enter(context.Background(), new(Visit), 0, Normal), ShedNormalPriority)
		if refused := s.Enter(context.Background(), new(Visit), 0, Critical); refused != nil {
			t.Error(refused)
		}
		if n := s.Snapshot(); n.RefusedLow != 1 || n.RefusedNormal != 2 || n.RefusedCritical != 1 {
			t.Errorf("counted %+v", n)
		}
	})
	t.Run("a priority without a share of its own still gets one place", func(t *testing.T) {
		t.Parallel()
		s, err := NewShedder(ShedderConfig{Min: 1, Max: 1, Slowdown: 200}, 1)
		if err != nil {
			t.Fatal(err)
		}
		in, _ := crowd(s, Low)
		if len(in) != 1 {
			t.Errorf("%d let in", len(in))
		}
	})
	t.Run("who was refused together does not come back together", func(t *testing.T) {
		t.Parallel()
		s := fixed(t, 1)
		crowd(s, Critical)
		waits := map[time.Duration]bool{}
		for range 50 {
			waits[s.Enter(context.Background(), new(Visit), 0, Low).RetryAfter.Round(time.Second)] = true
		}
		if len(waits) < 3 {
			t.Errorf("50 waits, to the second: %v", waits)
		}
	})
	t.Run("switched off, it counts and lets in", func(t *testing.T) {
		t.Parallel()
		s, err := NewShedder(ShedderConfig{Off: true, Min: 1, Max: 1, Slowdown: 200}, 1)
		if err != nil {
			t.Fatal(err)
		}
		in, _ := crowd(s, Low)
		if len(in) != 1000 || in[0].Reweigh(Low) != nil {
			t.Errorf("%d let in", len(in))
		}
		wantInProgress(t, s, 1000)
	})
	inBubble(t, "what waited too long is dropped unprocessed", func(t *testing.T) {
		s := fixed(t, 10)
		ctx := within(t, time.Second)
		time.Sleep(time.Second)
		wantRefusal(t, s.Enter(ctx, new(Visit), 0, Critical), DeadlineTooShort)
		wantRefusal(t, s.Enter(WithStartBy(t.Context(), time.Now()), new(Visit), 0, Critical), DeadlineTooShort)
		wantInProgress(t, s, 0)
	})
	t.Run("together they never take more than there is", func(t *testing.T) {
		t.Parallel()
		s := fixed(t, 10)
		var in, most atomic.Int64
		storm(50, func() {
			for range 200 {
				var v Visit
				if s.Enter(context.Background(), &v, 0, Critical) != nil {
					continue
				}
				for n, top := in.Add(1), most.Load(); n > top && !most.CompareAndSwap(top, n); top = most.Load() {
				}
				in.Add(-1)
				v.Leave(true)
			}
		})
		if n := most.Load(); n > 10 || n == 0 {
			t.Errorf("%d at once", n)
		}
		wantInProgress(t, s, 0)
	})
}

func TestVisit(t *testing.T) {
	t.Parallel()
	enter := func(t *testing.T, s *Shedder) *Visit {
		t.Helper()
		v := new(Visit)
		if refused := s.Enter(context.Background(), v, 0, Critical); refused != nil {
			t.Fatal(refused)
		}
		return v
	}
	t.Run("who steps out gives the place away, and comes back whatever the limit says", func(t *testing.T) {
		t.Parallel()
		s := fixed(t, 1)
		first := enter(t, s)
		first.Outside(func() {
			first.Outside(func() { wantInProgress(t, s, 0) })
			enter(t, s)
		})
		wantInProgress(t, s, 2)
		wantRefusal(t, s.Enter(context.Background(), new(Visit), 0, Critical), Overloaded)
	})
	t.Run("whatever breaks, no place is lost", func(t *testing.T) {
		t.Parallel()
		s := fixed(t, 3)
		breakIn := func(do func(v *Visit)) {
			defer func() { _ = recover() }()
			v := enter(t, s)
			defer v.Leave(false)
			do(v)
		}
		for range 10 {
			breakIn(func(*Visit) { panic("inside") })
			breakIn(func(v *Visit) { v.Outside(func() { panic("outside") }) })
			breakIn(func(v *Visit) { v.StepOut(); panic("out, and never back") })
			breakIn(func(v *Visit) { v.Leave(true); v.StepOut(); v.StepIn(); panic("after it left") })
			breakIn(func(v *Visit) { v.StepIn() })
		}
		wantInProgress(t, s, 0)
	})
	t.Run("what nobody counts may do all the same", func(t *testing.T) {
		t.Parallel()
		s := fixed(t, 1)
		for _, v := range []*Visit{nil, new(Visit), VisitOf(t.Context())} {
			ran := false
			v.Outside(func() { ran = true })
			if refused := v.Reweigh(Low); refused != nil || !ran {
				t.Errorf("refused %v, ran %v", refused, ran)
			}
			v.Leave(true)
		}
		wantInProgress(t, s, 0)
	})
	t.Run("weighed again, it is refused as at the door, but not for its own place", func(t *testing.T) {
		t.Parallel()
		s := fixed(t, 10)
		v := enter(t, s)
		for range 4 {
			enter(t, s)
		}
		if refused := v.Reweigh(Low); refused != nil {
			t.Error(refused)
		}
		enter(t, s)
		wantRefusal(t, v.Reweigh(Low), ShedLowPriority)
		if refused := v.Reweigh(Normal); refused != nil {
			t.Error(refused)
		}
		v.Leave(false)
		wantInProgress(t, s, 5)
	})
	inBubble(t, "only the time in our own hands counts", func(t *testing.T) {
		s := fixed(t, 10)
		for range aloneEnough {
			v := enter(t, s)
			time.Sleep(4 * time.Millisecond)
			v.Outside(func() { time.Sleep(time.Second) })
			time.Sleep(2 * time.Millisecond)
			v.Leave(true)
		}
		if got := s.limiter.kinds[0].time(); got != 6*time.Millisecond {
			t.Errorf("it takes %v alone", got)
		}
	})
	t.Run("it travels with the context", func(t *testing.T) {
		t.Parallel()
		v := new(Visit)
		if got := VisitOf(context.WithoutCancel(WithVisit(t.Context(), v))); got != v {
			t.Errorf("%p, want %p", got, v)
		}
	})
}

// TestShedderProperty plays any order of arrivals, calls to others and endings, and holds the shedder to:
// nobody let in at or over the share of its priority, nobody refused under it, the limit within its
// bounds, and every place given back.
func TestShedderProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		now := testNow
		cfg := ShedderConfig{
			Min: rapid.IntRange(1, 8).Draw(t, "min"), NormalPercent: rapid.IntRange(0, 100).Draw(t, "normal"),
			Slowdown: rapid.IntRange(110, 400).Draw(t, "slowdown"), Now: func() time.Time { return now },
		}
		cfg.Max = cfg.Min + rapid.IntRange(0, 20).Draw(t, "more")
		cfg.LowPercent = rapid.IntRange(0, cfg.NormalPercent).Draw(t, "low")
		s, err := NewShedder(cfg, 3)
		if err != nil {
			t.Fatal(err)
		}
		type request struct {
			Visit
			out int
		}
		var all []*request
		inside := func() (n int64) {
			for _, r := range all {
				if r.out == 0 {
					n++
				}
			}
			return n
		}
		for range rapid.IntRange(1, 150).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.Int64Range(0, 40e6).Draw(t, "pause")))
			before, limit := inside(), s.Snapshot().Limit
			step := rapid.IntRange(0, 5).Draw(t, "step")
			if step > 2 && len(all) == 0 {
				continue
			}
			switch step {
			case 0, 1, 2:
				p := rapid.SampledFrom([]Priority{Low, Normal, Critical}).Draw(t, "priority")
				percent := map[Priority]int{Low: cfg.LowPercent, Normal: cfg.NormalPercent, Critical: 100}[p]
				r := new(request)
				refused := s.Enter(context.Background(), &r.Visit, rapid.IntRange(0, 2).Draw(t, "kind"), p)
				if share := max(limit*int64(percent)/100, 1); (refused == nil) != (before < share) {
					t.Fatalf("%s with %d in and a share of %d: %v", p, before, share, refused)
				}
				if refused == nil {
					all = append(all, r)
				} else if !strings.HasPrefix(refused.Detail, fmt.Sprintf("%d requests in progress, ", before)) || refused.RetryAfter < time.Second {
					t.Fatalf("refused with %d in: %v", before, refused)
				}
			case 3:
				r := rapid.SampledFrom(all).Draw(t, "who")
				r.StepOut()
				r.out++
			case 4:
				r := rapid.SampledFrom(all).Draw(t, "who")
				r.StepIn()
				r.out = max(r.out-1, 0)
			case 5:
				i := rapid.IntRange(0, len(all)-1).Draw(t, "which")
				all[i].Leave(rapid.Bool().Draw(t, "counts"))
				all = append(all[:i], all[i+1:]...)
			}
			if got := s.Snapshot(); got.InProgress != inside() || got.Limit < int64(cfg.Min) || got.Limit > int64(cfg.Max) {
				t.Fatalf("%+v, %d inside, limit %d to %d", got, inside(), cfg.Min, cfg.Max)
			}
		}
		for _, r := range all {
			r.Leave(true)
		}
		if n := s.Snapshot().InProgress; n != 0 {
			t.Fatalf("%d places are lost", n)
		}
	})
}

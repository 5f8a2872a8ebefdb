package resilience

import (
	"context"
	"testing"
	"time"
)

// limited is a shedder under a clock of its own, whose kind 0 takes 4 ms alone.
type limited struct {
	*Shedder
	t    *testing.T
	now  time.Time
	kind int // of what goes through
}

func newLimited(t *testing.T, cfg ShedderConfig) *limited {
	t.Helper()
	p := &limited{t: t, now: testNow}
	cfg.Now = func() time.Time { return p.now }
	var err error
	if p.Shedder, err = NewShedder(cfg, 2); err != nil {
		t.Fatal(err)
	}
	p.window(1, 2*aloneMemory, 4*time.Millisecond)
	p.window(5, 20, 4*time.Millisecond)
	return p
}

// window lets requests through, some at once, each of them taking the same time, and then time go by.
func (p *limited) window(atOnce, requests int, took time.Duration) {
	p.t.Helper()
	for n := (requests + atOnce - 1) / atOnce; n > 0; n-- {
		visits := make([]Visit, atOnce)
		for i := range visits {
			if refused := p.Enter(context.Background(), &visits[i], p.kind, Critical); refused != nil {
				p.t.Fatal(refused)
			}
		}
		p.now = p.now.Add(took)
		for i := range visits {
			if last := n == 1 && i == atOnce-1; last { // ends the window
				visits[i].StepOut()
				p.now = p.now.Add(limitWindow)
			}
			visits[i].Leave(true)
		}
	}
}

// through lets one request through, alone.
func (p *limited) through(kind int, took time.Duration) {
	var v Visit
	if refused := p.Enter(context.Background(), &v, kind, Critical); refused != nil {
		p.t.Fatal(refused)
	}
	p.now = p.now.Add(took)
	v.Leave(true)
}

// refuse has one refused.
func (p *limited) refuse() {
	p.t.Helper()
	in, _ := crowd(p.Shedder, Low)
	for _, v := range in {
		v.Leave(false)
	}
}

func (p *limited) want(limit int64) {
	p.t.Helper()
	if got := p.Snapshot().Limit; got != limit {
		p.t.Errorf("limit %d, want %d", got, limit)
	}
}

func TestLimiter(t *testing.T) {
	t.Parallel()
	cfg := ShedderConfig{Min: 10, Max: 100, NormalPercent: 50, LowPercent: 20, Slowdown: 200}
	t.Run("requests that take more than twice as long as alone bring it down at once, from what was in use", func(t *testing.T) {
		t.Parallel()
		p := newLimited(t, cfg)
		p.want(limitStart)
		p.window(30, 60, 9*time.Millisecond)
		p.want(27)
		p.window(20, 60, 9*time.Millisecond)
		p.want(18)
		p.window(10, 60, 9*time.Millisecond)
		p.want(10) // not below the least
	})
	t.Run("twice as long is still borne", func(t *testing.T) {
		t.Parallel()
		p := newLimited(t, cfg)
		p.window(30, 60, 8*time.Millisecond)
		p.want(limitStart)
	})
	t.Run("refusing while requests are quick lifts it, by a twentieth a window, up to its most", func(t *testing.T) {
		t.Parallel()
		p := newLimited(t, cfg)
		for _, limit := range []int64{67, 70, 73, 76, 79, 82, 86, 90, 94, 98, 100, 100} {
			p.refuse()
			p.window(5, 30, 4*time.Millisecond)
			p.want(limit)
		}
	})
	t.Run("nobody refused, nobody slow: it stays", func(t *testing.T) {
		t.Parallel()
		p := newLimited(t, cfg)
		for range 10 {
			p.window(5, 30, 4*time.Millisecond)
		}
		p.want(limitStart)
	})
	t.Run("a few requests say nothing", func(t *testing.T) {
		t.Parallel()
		p := newLimited(t, cfg)
		p.window(5, limitSamples-5, time.Second)
		p.want(limitStart)
	})
	t.Run("one that waited for a lock does not speak for the others", func(t *testing.T) {
		t.Parallel()
		p := newLimited(t, cfg)
		p.through(0, 5*time.Second)
		p.window(5, 30, 4*time.Millisecond)
		p.want(limitStart)
	})
	t.Run("what was not carried through says nothing", func(t *testing.T) {
		t.Parallel()
		p := newLimited(t, cfg)
		for range 100 {
			var v Visit
			_ = p.Enter(context.Background(), &v, 0, Critical)
			p.now = p.now.Add(time.Second)
			v.Leave(false)
		}
		p.want(limitStart)
	})
	t.Run("a store that has become slower is learnt when it is calm", func(t *testing.T) {
		t.Parallel()
		p := newLimited(t, cfg)
		for range 20 {
			p.window(1, aloneMemory, 9*time.Millisecond)
		}
		limit := p.Snapshot().Limit
		p.window(30, 60, 12*time.Millisecond)
		p.want(limit)
	})
	t.Run("nothing is learnt among others, nor soon after a refusal", func(t *testing.T) {
		t.Parallel()
		p := newLimited(t, cfg)
		p.window(5, 300, 7*time.Millisecond)
		p.refuse()
		p.window(1, 60, 7*time.Millisecond)
		if got := p.limiter.kinds[0].mean; got != 4*time.Millisecond {
			t.Errorf("alone it takes %v", got)
		}
		p.now = p.now.Add(calm)
		p.window(1, 60, 7*time.Millisecond)
		if got := p.limiter.kinds[0].mean; got < 5*time.Millisecond {
			t.Errorf("alone it takes %v", got)
		}
	})
	t.Run("started under traffic, requests are compared with the quickest of their kind", func(t *testing.T) {
		t.Parallel()
		p := newLimited(t, cfg)
		p.kind = 1 // of which none was alone
		p.window(5, 30, 30*time.Millisecond)
		p.window(30, 60, 50*time.Millisecond)
		p.want(limitStart)
		p.window(30, 30, 70*time.Millisecond)
		p.want(27)
	})
	t.Run("kinds are compared with themselves", func(t *testing.T) {
		t.Parallel()
		p := newLimited(t, cfg)
		for range 2 * aloneMemory {
			p.through(1, 40*time.Millisecond)
		}
		p.kind = 1
		p.window(5, 30, 44*time.Millisecond)
		p.want(limitStart)
		if got := p.limiter.kinds[0].mean; got != 4*time.Millisecond {
			t.Errorf("kind 0 takes %v alone", got)
		}
	})
}

package resilience

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
)

// Force implements Breaker. Back to Automatic, a breaker that was forced open
// lets the next call probe, and one that was forced closed starts with an empty
// window; on a breaker that is automatic already, it does nothing. The only
// error is an unknown mode.
func (b *LocalBreaker) Force(_ context.Context, o Order) error {
	defer b.events.deliver()
	b.mu.Lock()
	defer b.mu.Unlock()
	ph, now := b.phase.Load(), b.clock.elapsed()
	mode, why := o.Mode, o.Reason()
	next := phase{mode: mode, reason: why}
	switch {
	case mode == ForcedOpen:
		next.state, next.until, next.refusal = Open, forever, "held open by a person's order"
		b.cause = next.refusal
	case mode == ForcedClosed:
		next.state, next.window = Closed, b.newWindow()
	case mode != Automatic:
		return fmt.Errorf("resilience: no breaker mode %q: use %s, %s or %s", mode, Automatic, ForcedOpen, ForcedClosed)
	case ph.mode == Automatic:
		return nil
	case ph.mode == ForcedOpen:
		next.state, next.until, next.refusal = Open, now, why
	default:
		next.state, next.window = Closed, b.newWindow()
	}
	b.enter(now, next)
	return nil
}

// Snapshot implements Breaker.
func (b *LocalBreaker) Snapshot() BreakerSnapshot {
	b.mu.Lock()
	defer b.mu.Unlock()
	ph, now := b.phase.Load(), b.clock.elapsed()
	s := BreakerSnapshot{
		State: ph.state, Mode: ph.mode, Epoch: ph.epoch, Since: b.clock.at(ph.since), Reason: ph.reason,
		ProbeInFlight: ph.probing && now < ph.until, ProbeSuccesses: ph.successes,
		RampPercent: b.rampPercent(ph, now), Reopenings: b.reopenings,
		ListenerPanics: b.events.panics.Load(), Rule: b.cfg.Rule(),
	}
	if ph.window != nil {
		s.Tally = ph.window.tally(now)
	}
	switch {
	case ph.state == Closed || ph.mode == ForcedOpen:
	case ph.state == HalfOpen && !ph.probing:
		s.NextProbe = b.clock.at(now)
	default:
		s.NextProbe = b.clock.at(ph.until)
	}
	return s
}

// eventQueue hands events to listeners in the order in which they happened, one
// at a time, with no lock held: a listener may call the breaker.
type eventQueue struct {
	listeners []func(Event)
	panics    atomic.Int64

	mu         sync.Mutex
	waiting    []Event
	delivering bool
}

// push is called under the breaker's lock, which is what fixes the order.
func (q *eventQueue) push(e Event) {
	if len(q.listeners) == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, e)
}

// deliver empties the queue, unless another goroutine, or a listener further up
// this one's stack, is at it already and will.
func (q *eventQueue) deliver() {
	if !q.begin() {
		return
	}
	finished := false
	defer func() {
		if !finished { // a listener ended this goroutine
			q.mu.Lock()
			q.delivering = false
			q.mu.Unlock()
		}
	}()
	for {
		event, more := q.next()
		if !more {
			finished = true
			return
		}
		for _, listener := range q.listeners {
			q.call(listener, event)
		}
	}
}

func (q *eventQueue) begin() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.delivering || len(q.waiting) == 0 {
		return false
	}
	q.delivering = true
	return true
}

// next ends the delivery in the same step in which it finds the queue empty, so
// that no event is left behind for nobody.
func (q *eventQueue) next() (Event, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		q.delivering = false
		return Event{}, false
	}
	event := q.waiting[0]
	q.waiting = q.waiting[1:]
	return event, true
}

// call keeps a listener's panic away from the call whose result set it off.
func (q *eventQueue) call(listener func(Event), e Event) {
	defer func() {
		if recover() != nil {
			q.panics.Add(1)
		}
	}()
	listener(e)
}

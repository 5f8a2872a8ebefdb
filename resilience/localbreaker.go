package resilience

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// probeRetryAfter is what callers are told while a probe is out: its answer is
// near, but its lease says nothing about when.
const probeRetryAfter = time.Second

// phase is the breaker between two transitions. It is never changed, only
// replaced, so a caller who holds one sees a consistent whole without a lock.
type phase struct {
	state   State
	mode    Mode
	epoch   uint64
	since   time.Duration
	reason  string
	refusal string        // Rejection.Detail while open or half-open
	until   time.Duration // open: the next probe; half-open: the end of the lease
	window  window        // closed only
	left    chan struct{} // closed when the next epoch begins

	ramping   bool // closed by a probe, not by a start or by hand
	probing   bool
	successes int // probes in a row
}

// LocalBreaker is a Breaker within one process. While it is closed, admitting
// and counting a call takes no lock and no allocation.
type LocalBreaker struct {
	cfg   BreakerConfig
	clock clock
	phase atomic.Pointer[phase]

	mu         sync.Mutex // every replacement of phase, and what follows
	closedAt   time.Duration
	everClosed bool // by a probe
	reopenings int
	cause      string // why it opened first, kept through failed probes
	events     eventQueue
}

var _ Breaker = (*LocalBreaker)(nil)

// NewLocalBreaker starts closed, or gives a *ConfigError.
func NewLocalBreaker(cfg BreakerConfig) (*LocalBreaker, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	b := &LocalBreaker{cfg: cfg.frozen(), clock: newClock(cfg.Now)}
	b.events.listeners = b.cfg.Listeners
	b.phase.Store(&phase{
		state: Closed, mode: Automatic, epoch: 1, reason: "started",
		window: b.newWindow(), left: make(chan struct{}),
	})
	return b, nil
}

// Acquire implements Breaker; it never blocks, and ignores ctx.
func (b *LocalBreaker) Acquire(context.Context) (Permit, *Rejection) {
	ph, now := b.phase.Load(), b.clock.elapsed()
	if ph.state == Closed {
		return Permit{Epoch: ph.epoch, RampPercent: b.rampPercent(ph, now), Started: now}, nil
	}
	if rejection := ph.refuse(now); rejection != nil {
		return Permit{}, rejection
	}
	return b.claim(now)
}

// claim gives the probe to exactly one caller: the phase is read again under the lock.
func (b *LocalBreaker) claim(now time.Duration) (Permit, *Rejection) {
	defer b.events.deliver()
	b.mu.Lock()
	defer b.mu.Unlock()
	ph := b.phase.Load()
	if ph.state == Closed { // somebody else's probe has just closed it
		return Permit{Epoch: ph.epoch, RampPercent: b.rampPercent(ph, now), Started: now}, nil
	}
	if rejection := ph.refuse(now); rejection != nil {
		return Permit{}, rejection
	}
	reason := "probe, opened by " + b.cause
	switch {
	case ph.state == HalfOpen && ph.probing:
		reason = fmt.Sprintf("probe of epoch %d was not heard of for %v, another goes out", ph.epoch, b.cfg.ProbeLease)
	case ph.state == HalfOpen:
		reason = fmt.Sprintf("probe %d of %d", ph.successes+1, b.cfg.ProbesToClose)
	}
	next := b.enter(now, phase{
		state: HalfOpen, reason: reason, refusal: "a probe is out; opened by " + b.cause,
		until: now + b.cfg.ProbeLease, probing: true, successes: ph.successes,
	})
	return Permit{
		Epoch: next.epoch, Probe: true, RampPercent: 100, Started: now,
		ProbeTimeout: b.cfg.ProbeLease - b.cfg.ProbeMargin,
	}, nil
}

// refuse says whether a phase that is not closed refuses a call now.
func (ph *phase) refuse(now time.Duration) *Rejection {
	waiting := ph.until - now
	if waiting <= 0 || ph.state == HalfOpen && !ph.probing {
		return nil
	}
	if ph.state == HalfOpen {
		waiting = min(waiting, probeRetryAfter)
	}
	if ph.mode == ForcedOpen {
		waiting = 0 // nobody knows
	}
	return &Rejection{Reason: CircuitOpen, Detail: ph.refusal, RetryAfter: waiting, Epoch: ph.epoch}
}

// Valid implements Breaker.
func (b *LocalBreaker) Valid(p Permit) bool {
	ph := b.phase.Load()
	return ph.epoch == p.Epoch && (!p.Probe || ph.probing && b.clock.elapsed() < ph.until)
}

// Peek implements Breaker.
func (b *LocalBreaker) Peek() (*Rejection, <-chan struct{}) {
	ph := b.phase.Load()
	if ph.state == Closed {
		return nil, ph.left
	}
	return ph.refuse(b.clock.elapsed()), ph.left
}

// Done implements Breaker.
func (b *LocalBreaker) Done(p Permit, o Outcome) {
	ph := b.phase.Load()
	if ph.epoch != p.Epoch {
		return
	}
	now := b.clock.elapsed()
	if p.Probe {
		b.probed(p, o, now)
		return
	}
	if o == Ignored || ph.window == nil {
		return
	}
	tally := ph.window.record(now, o != Success, b.slow(now-p.Started))
	if ph.mode != Automatic || tally.Failures == 0 && tally.Slow == 0 {
		return
	}
	if reason, opens := b.cfg.Trips(tally); opens {
		b.trip(ph, now, reason)
	}
}

func (b *LocalBreaker) slow(took time.Duration) bool {
	return b.cfg.SlowCall > 0 && took > b.cfg.SlowCall
}

// trip opens the breaker if the phase that was judged is still the current one.
func (b *LocalBreaker) trip(judged *phase, now time.Duration, reason string) {
	defer b.events.deliver()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.phase.Load() != judged {
		return
	}
	if b.everClosed && now-b.closedAt <= b.cfg.ReopenWithin {
		b.reopenings++
	} else {
		b.reopenings = 0
	}
	b.cause = reason
	b.open(now, reason)
}

// open needs the lock.
func (b *LocalBreaker) open(now time.Duration, reason string) {
	openFor := b.cfg.OpenTime(b.reopenings, b.cfg.Rand)
	b.enter(now, phase{state: Open, reason: reason, refusal: reason, until: now + openFor})
}

// reopen is open after a probe. It needs the lock.
func (b *LocalBreaker) reopen(now time.Duration, probe string) {
	b.open(now, fmt.Sprintf("%s; opened by %s", probe, b.cause))
}

// probed takes the result of a probe.
func (b *LocalBreaker) probed(p Permit, o Outcome, now time.Duration) {
	defer b.events.deliver()
	b.mu.Lock()
	defer b.mu.Unlock()
	ph := b.phase.Load()
	if ph.epoch != p.Epoch || !ph.probing || now >= ph.until {
		return
	}
	took := now - p.Started
	switch {
	case o == Ignored:
		b.release(ph, ph.successes)
	case o != Success:
		b.reopen(now, fmt.Sprintf("probe failed after %v", took.Round(time.Millisecond)))
	case b.slow(took):
		b.reopen(now, fmt.Sprintf("probe took %v, slow is over %v", took.Round(time.Millisecond), b.cfg.SlowCall))
	case ph.successes+1 < b.cfg.ProbesToClose:
		b.release(ph, ph.successes+1)
	default:
		b.closedAt, b.everClosed = now, true
		b.enter(now, phase{
			state: Closed, window: b.newWindow(), ramping: true,
			reason: fmt.Sprintf("%d of %d probes succeeded", ph.successes+1, b.cfg.ProbesToClose),
		})
	}
}

// release takes the probe back for the next call, within the same epoch. It needs the lock.
func (b *LocalBreaker) release(ph *phase, successes int) {
	next := *ph
	next.probing, next.successes = false, successes
	b.phase.Store(&next)
}

// enter begins an epoch. It needs the lock.
func (b *LocalBreaker) enter(now time.Duration, next phase) *phase {
	last := b.phase.Load()
	next.epoch, next.since, next.left = last.epoch+1, now, make(chan struct{})
	if next.mode == "" {
		next.mode = Automatic
	}
	b.phase.Store(&next)
	close(last.left)
	event := Event{
		Epoch: next.epoch, From: last.state, To: next.state, Mode: next.mode,
		At: b.clock.at(now), Reason: next.reason,
	}
	if next.state == Open && next.mode == Automatic {
		event.OpenFor = next.until - now
	}
	b.events.push(event)
	return &next
}

func (b *LocalBreaker) rampPercent(ph *phase, now time.Duration) int {
	if !ph.ramping {
		return 100
	}
	return b.cfg.RampPercent(now - ph.since)
}

func (b *LocalBreaker) newWindow() window {
	if b.cfg.WindowCount > 0 {
		return newCountWindow(b.cfg.WindowCount)
	}
	buckets := (b.cfg.Window + time.Second - 1) / time.Second
	return newTimeWindow(int(buckets), time.Second)
}

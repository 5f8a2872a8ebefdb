package shared

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"paymentsd/resilience"
)

// Breaker is a resilience.Breaker that every replica shares. While it is closed, admitting and
// counting a call takes no lock, no allocation and no statement.
type Breaker struct {
	acquirer string
	cfg      resilience.BreakerConfig
	shared   *Shared
	start    time.Time
	phase    atomic.Pointer[phase]
	refused  atomic.Pointer[refused]
	view     atomic.Pointer[view]

	mu       sync.Mutex // every replacement of phase, and what follows
	held     probe
	claiming bool
	// claimAfter holds off claims for a moment when the store did not answer one.
	claimAfter time.Duration
}

var _ resilience.Breaker = (*Breaker)(nil)

// probe is the one that this replica has: from the claim until its result is stored or its lease ends.
type probe struct {
	epoch   uint64
	until   time.Duration
	started time.Duration
	ended   bool // its result is on its way to the store
}

// view is what the last flush showed: the window of all replicas and of this one, without what counts
// have counted since base.
type view struct {
	counts            *counts
	cluster, own      resilience.Tally
	base              resilience.Tally
	reporting, seeing int
}

func (b *Breaker) now() time.Duration { return time.Since(b.start) }

func (b *Breaker) at(t time.Duration) time.Time { return b.start.Add(t) }

// Acquire implements resilience.Breaker. It asks the store only for a probe that is due, and waits for
// it at most 100 ms, whatever ctx says: a claim whose answer is not awaited would keep the probe.
func (b *Breaker) Acquire(ctx context.Context) (resilience.Permit, *resilience.Rejection) {
	ph := b.phase.Load()
	if ph.pass {
		return b.admit(ph, b.now()), nil
	}
	if refused := b.refuse(ph); refused != nil {
		return resilience.Permit{}, refused
	}
	if ph.hold != nil {
		return b.try()
	}
	return b.claim(ctx)
}

// refused is one refusal for all who ask before the coarse clock ticks.
type refused struct {
	phase *phase
	at    int64 // on the coarse clock
	resilience.Rejection
}

// refuse says whether the phase refuses a call now. While an outage lasts this is what most calls ask, so
// only the last moments of a phase read the exact clock; before them the wait that is told may be too
// long by one tick, never too short.
func (b *Breaker) refuse(ph *phase) *resilience.Rejection {
	coarse := b.shared.clock.Load()
	if r := b.refused.Load(); r != nil && r.phase == ph && r.at == coarse {
		return &r.Rejection
	}
	at := max(time.Duration(coarse), ph.since)
	if ph.refuse(at+2*clockEvery) == nil {
		return ph.refuse(b.now())
	}
	r := &refused{phase: ph, at: coarse, Rejection: *ph.refuse(at)}
	b.refused.Store(r)
	return &r.Rejection
}

func (b *Breaker) admit(ph *phase, now time.Duration) resilience.Permit {
	percent := 100
	if ph.ramping {
		percent = b.cfg.RampPercent(now - ph.since)
	}
	return resilience.Permit{Epoch: ph.epoch, RampPercent: percent, Started: now}
}

// Valid implements resilience.Breaker.
func (b *Breaker) Valid(p resilience.Permit) bool {
	ph := b.phase.Load()
	switch {
	case ph.epoch != p.Epoch:
		return false
	case !p.Probe:
		return ph.pass
	case ph.hold != nil:
		return ph.hold.trying && ph.hold.started == p.Started && b.now() < ph.hold.lease
	}
	return ph.mine && b.now() < ph.until
}

// Peek implements resilience.Breaker.
func (b *Breaker) Peek() (*resilience.Rejection, <-chan struct{}) {
	ph := b.phase.Load()
	if ph.pass {
		return nil, ph.left
	}
	return ph.refuse(b.now()), ph.left
}

// Done implements resilience.Breaker. The result of a probe is stored beside the caller, who does not
// wait for it.
func (b *Breaker) Done(p resilience.Permit, o resilience.Outcome) {
	if p.Probe {
		b.probed(p, o)
		return
	}
	ph := b.phase.Load()
	if ph.epoch != p.Epoch || o == resilience.Ignored || ph.counts == nil {
		return
	}
	slow := b.slow(p)
	ph.counts.attempts.Add(1)
	if o != resilience.Success || slow {
		b.failed(ph, o, slow)
	}
}

// slow reads the clock only if the call may have been slow: reading it is most of what a closed pass costs.
func (b *Breaker) slow(p resilience.Permit) bool {
	if b.cfg.SlowCall == 0 || time.Duration(b.shared.clock.Load())-p.Started < b.cfg.SlowCall-clockLag {
		return false
	}
	return b.now()-p.Started > b.cfg.SlowCall
}

// failed counts, and flushes at once if this replica believes that the breaker has to open.
func (b *Breaker) failed(ph *phase, o resilience.Outcome, slow bool) {
	if o != resilience.Success {
		ph.counts.failures.Add(1)
	}
	if slow {
		ph.counts.slow.Add(1)
	}
	if ph.row.Mode != resilience.Automatic || !ph.pass {
		return
	}
	cluster, own := b.tallies(ph)
	if _, opens := b.cfg.Trips(cluster); opens {
		b.shared.flushNow()
	} else if _, opens = b.cfg.Trips(own); opens {
		b.shared.flushNow()
	}
}

// tallies are the window of all replicas and of this one, as far as this one knows.
func (b *Breaker) tallies(ph *phase) (cluster, own resilience.Tally) {
	c, v := ph.counts.load(), b.view.Load()
	if v == nil || v.counts != ph.counts {
		return c, c
	}
	c = minus(c, v.base)
	return plus(v.cluster, c), plus(v.own, c)
}

// Force implements resilience.Breaker: for every replica and with its record in the audit log, or an
// error and neither. An order says who gives it.
func (b *Breaker) Force(ctx context.Context, o resilience.Order) error {
	switch o.Mode {
	case resilience.Automatic, resilience.ForcedOpen, resilience.ForcedClosed:
	default:
		return fmt.Errorf("resilience: no breaker mode %q: use %s, %s or %s", o.Mode,
			resilience.Automatic, resilience.ForcedOpen, resilience.ForcedClosed)
	}
	if o.Actor == "" || o.Act == "" {
		return fmt.Errorf("resilience: an order to the breaker of %s without an actor or the name of the act cannot be audited", b.acquirer)
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeMax)
	defer cancel()
	r, err := b.shared.store.force(ctx, b.acquirer, o, b.phase.Load().epoch)
	if err != nil {
		return fmt.Errorf("the breaker of %s may not have been set to %s (look at it, and try again): %w", b.acquirer, o.Mode, err)
	}
	b.apply(r)
	return nil
}

// Snapshot implements resilience.Breaker. Tally is that of all replicas.
func (b *Breaker) Snapshot() resilience.BreakerSnapshot {
	ph, now := b.phase.Load(), b.now()
	s := resilience.BreakerSnapshot{
		State: ph.row.State, Mode: ph.row.Mode, Epoch: ph.epoch, Since: b.at(ph.since), Reason: ph.row.Reason,
		ProbeInFlight: ph.row.Probing && now < ph.until, ProbeSuccesses: ph.row.Successes,
		RampPercent: b.admit(ph, now).RampPercent, Reopenings: ph.row.Reopenings,
		ListenerPanics: b.shared.events.panics.Load(), Rule: b.cfg.Rule(), Sharing: b.sharing(ph),
	}
	switch {
	case ph.row.State == resilience.Closed:
		s.Tally, _ = b.tallies(ph)
	case ph.row.Mode == resilience.ForcedOpen:
	default:
		s.NextProbe = b.at(max(ph.until, ph.since))
	}
	if h := ph.hold; h != nil {
		s.State, s.Reason, s.ProbeInFlight = resilience.Open, h.why, h.trying
		if h.until != forever {
			s.NextProbe = b.at(h.until)
		}
	}
	return s
}

// sharing is how well this replica sees what the others do.
func (b *Breaker) sharing(ph *phase) *resilience.Sharing {
	s := &resilience.Sharing{Replica: b.shared.replica, Listening: b.shared.listening.Load()}
	if ph.hold != nil {
		s.HeldBack = ph.hold.why
	}
	if v := b.view.Load(); v != nil && v.counts == ph.counts {
		s.Reporting, s.Seeing = v.reporting, v.seeing
	}
	if h := b.shared.health.Load(); h != nil {
		s.Heard = b.at(h.heard)
		if h.err != nil {
			s.StoreError = h.err.Error()
		}
	}
	return s
}

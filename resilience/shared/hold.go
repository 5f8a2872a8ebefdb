package shared

import (
	"fmt"
	"time"

	"paymentsd/resilience"
)

// A replica holds itself back, alone, in two cases: its own calls fail while those of the others do
// not (it has lost its way to the acquirer, and must not shut it for all), or its calls fail while the
// store cannot be asked.

// quarantine refuses calls of this replica until one of its own trials succeeds.
func (b *Breaker) quarantine(judged *phase, reason string, f flushed) {
	b.hold(judged, &hold{
		why: fmt.Sprintf("this replica alone: %s, while %d of %d replicas see failures", reason, f.Seeing, f.Reporting),
		// Reopenings are the cluster's: a replica alone waits the first open time, always.
		until: b.now() + b.cfg.OpenTime(0, b.cfg.Rand),
	})
}

// holdAway opens for this replica until the store can be asked again. Nobody probes without a lease.
func (b *Breaker) holdAway(judged *phase, reason string) {
	b.hold(judged, &hold{why: reason + ", seen by this replica while the store does not answer", away: true, until: forever})
}

// hold sets or, with nil, ends the hold, unless the phase that was judged has been replaced.
func (b *Breaker) hold(judged *phase, h *hold) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.phase.Load() == judged {
		b.setHold(judged, h)
	}
}

// setHold needs the lock. What comes after a hold is counted afresh: the failures before it would bring
// it back at once.
func (b *Breaker) setHold(ph *phase, h *hold) {
	next := *ph
	next.hold, next.pass, next.left = h, h == nil, make(chan struct{})
	if h == nil {
		next.counts = &counts{}
		b.shared.log.Info("this replica calls again", "acquirer", b.acquirer, "after", ph.hold.why)
	} else if ph.hold == nil {
		b.shared.log.Warn("this replica holds itself back", "acquirer", b.acquirer, "why", h.why)
	}
	b.phase.Store(&next)
	close(ph.left)
}

// try admits the one trial of a replica that holds itself back.
func (b *Breaker) try() (resilience.Permit, *resilience.Rejection) {
	b.mu.Lock()
	defer b.mu.Unlock()
	ph, now := b.phase.Load(), b.now()
	if ph.pass {
		return b.admit(ph, now), nil
	}
	if refused := ph.refuse(now); refused != nil || ph.hold == nil {
		return resilience.Permit{}, b.refuseClaim(ph, now)
	}
	h := *ph.hold
	h.trying, h.started, h.lease = true, now, now+b.cfg.ProbeLease
	b.replaceHold(ph, &h)
	return resilience.Permit{
		Epoch: ph.epoch, Probe: true, RampPercent: 100, Started: now, ProbeTimeout: b.cfg.ProbeLease - b.cfg.ProbeMargin,
	}, nil
}

// tried takes the result of a trial, if it is that of the last one. It needs the lock.
func (b *Breaker) tried(ph *phase, p resilience.Permit, o resilience.Outcome, now time.Duration) {
	h := *ph.hold
	if !h.trying || h.started != p.Started || now >= h.lease {
		return
	}
	h.trying = false
	switch {
	case o == resilience.Ignored:
	case o == resilience.Success && !b.slow(p):
		b.setHold(ph, nil)
		return
	default:
		h.until = now + b.cfg.OpenTime(0, b.cfg.Rand)
	}
	b.replaceHold(ph, &h)
}

// replaceHold changes a hold that goes on. It needs the lock.
func (b *Breaker) replaceHold(ph *phase, h *hold) {
	next := *ph
	next.hold = h
	b.phase.Store(&next)
}

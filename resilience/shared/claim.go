package shared

import (
	"context"
	"fmt"
	"time"

	"paymentsd/resilience"
)

const (
	// claimPause is how long no claim is tried after one that the store did not answer.
	claimPause = 250 * time.Millisecond
	// reportPause is the wait before a probe's result is sent again.
	reportPause = 50 * time.Millisecond
)

// apply adopts what the database says, if it is news.
func (b *Breaker) apply(r row) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.adopt(r, b.now())
}

// adopt needs the lock. A row of an older epoch is either old news or what a failover has lost; the
// latter is mended by the next flush, which tells the database what epoch it should have.
func (b *Breaker) adopt(r row, now time.Duration) {
	current := b.phase.Load()
	switch {
	case current == nil || r.Epoch > current.epoch:
		b.enter(newPhase(r, now))
	case r.Epoch == current.epoch && !current.mine && current.counts == nil:
		next := *current
		next.row, next.until = r, newPhase(r, now).until
		b.phase.Store(&next)
	}
}

// enter begins an epoch with this replica. It needs the lock.
func (b *Breaker) enter(next *phase) {
	last := b.phase.Load()
	b.phase.Store(next)
	if last == nil {
		return
	}
	close(last.left)
	event := resilience.Event{
		Epoch: next.epoch, From: last.row.State, To: next.row.State, Mode: next.row.Mode,
		At: b.at(next.since), Reason: next.row.Reason, Replica: next.row.Replica,
	}
	if next.row.State == resilience.Open {
		event.OpenFor = next.row.openFor()
	}
	for _, listener := range b.cfg.Listeners {
		b.shared.events.push(func() { listener(event) })
	}
}

// claim asks the store for the probe, one call of this replica at a time; the others fail at once.
func (b *Breaker) claim(ctx context.Context) (resilience.Permit, *resilience.Rejection) {
	b.mu.Lock()
	ph, now := b.phase.Load(), b.now()
	if !ph.pass && (ph.refuse(now) != nil || ph.hold != nil || b.claiming || now < b.claimAfter) {
		refused := b.refuseClaim(ph, now)
		b.mu.Unlock()
		return resilience.Permit{}, refused
	}
	if ph.pass {
		b.mu.Unlock()
		return b.admit(ph, now), nil
	}
	b.claiming = true
	b.mu.Unlock()

	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), claimTimeMax)
	defer cancel()
	sent := b.now() // the lease is measured from before the claim was sent
	done, r, err := b.shared.store.claim(ctx, b.acquirer, b.cfg.ProbeLease, ph.epoch)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.claiming = false
	return b.claimed(sent, done, r, err)
}

// claimed needs the lock. A claim whose answer is not certain is not held: if the store gave it to us
// nevertheless, the next flush sees that and gives it back.
func (b *Breaker) claimed(sent time.Duration, done bool, r row, err error) (resilience.Permit, *resilience.Rejection) {
	now := b.now()
	if err != nil {
		b.claimAfter = now + claimPause
		b.shared.log.Warn("no probe: the claim was not answered", "acquirer", b.acquirer, "error", err)
		return resilience.Permit{}, b.refuseClaim(b.phase.Load(), now)
	}
	b.adopt(r, now)
	ph := b.phase.Load()
	if ph.pass {
		return b.admit(ph, now), nil
	}
	if !done || ph.epoch != r.Epoch {
		return resilience.Permit{}, b.refuseClaim(ph, now)
	}
	until := sent + b.cfg.ProbeLease
	b.held = probe{epoch: r.Epoch, until: until, started: now}
	if now >= until-b.cfg.ProbeMargin { // no time is left to probe in
		b.release(ph, "the claim took as long as the probe may")
		return resilience.Permit{}, b.refuseClaim(ph, now)
	}
	next := *ph
	next.mine, next.until = true, until
	b.phase.Store(&next)
	return resilience.Permit{
		Epoch: r.Epoch, Probe: true, RampPercent: 100, Started: now, ProbeTimeout: until - b.cfg.ProbeMargin - now,
	}, nil
}

// refuseClaim is the refusal of a call that might have been the probe. It needs the lock.
func (b *Breaker) refuseClaim(ph *phase, now time.Duration) *resilience.Rejection {
	if refused := ph.refuse(now); refused != nil {
		return refused
	}
	refused := &resilience.Rejection{
		Reason: resilience.CircuitOpen, RetryAfter: probeRetryAfter, Epoch: ph.epoch,
		Detail: "another call asks for the probe; opened by " + ph.row.why(),
	}
	if now < b.claimAfter {
		refused.Detail = "no probe without a lease, and the store did not answer; opened by " + ph.row.why()
	}
	return refused
}

// probed takes the result of a probe.
func (b *Breaker) probed(p resilience.Permit, o resilience.Outcome) {
	b.mu.Lock()
	defer b.mu.Unlock()
	ph, now := b.phase.Load(), b.now()
	if ph.hold != nil && ph.epoch == p.Epoch {
		b.tried(ph, p, o, now)
		return
	}
	if b.held.epoch != p.Epoch || b.held.started != p.Started || b.held.ended {
		return
	}
	if ph.epoch != p.Epoch || now >= b.held.until {
		b.held = probe{} // too late: the epoch has ended, or the lease
		return
	}
	next := *ph
	next.mine = false
	b.phase.Store(&next)
	b.finish(b.verdict(ph, o, now-p.Started))
}

// verdict is what a probe's result does to the breaker.
func (b *Breaker) verdict(ph *phase, o resilience.Outcome, took time.Duration) finish {
	f := finish{acquirer: b.acquirer, epoch: ph.epoch}
	reopen := func(why string) {
		f.result, f.openFor = "open", b.cfg.OpenTime(ph.row.Reopenings, b.cfg.Rand)
		f.reason = why + "; opened by " + ph.row.Cause
	}
	successes := ph.row.Successes + 1
	switch took := took.Round(time.Millisecond); {
	case o == resilience.Ignored:
		f.result, f.successes, f.reason = "release", ph.row.Successes, "the probe said nothing; opened by "+ph.row.Cause
	case o != resilience.Success:
		reopen(fmt.Sprintf("probe failed after %v", took))
	case b.cfg.SlowCall > 0 && took > b.cfg.SlowCall:
		reopen(fmt.Sprintf("probe took %v, slow is over %v", took, b.cfg.SlowCall))
	case successes < b.cfg.ProbesToClose:
		f.result, f.successes = "release", successes
		f.reason = fmt.Sprintf("%d of %d probes succeeded", successes, b.cfg.ProbesToClose)
	default:
		f.result, f.reason = "close", fmt.Sprintf("%d of %d probes succeeded", successes, b.cfg.ProbesToClose)
	}
	return f
}

// release gives a probe back that was not sent. It needs the lock.
func (b *Breaker) release(ph *phase, why string) {
	b.finish(finish{acquirer: b.acquirer, epoch: b.held.epoch, result: "release", successes: ph.row.Successes, reason: why})
}

// finish stores the end of the probe that is held, beside the caller. It needs the lock.
func (b *Breaker) finish(f finish) {
	b.held.ended = true
	until := b.held.until
	if !b.shared.spawn(func() { b.report(f, until) }) {
		b.held = probe{} // closing: the lease ends by itself
	}
}

// report sends the end of a probe until the store has it or the lease has ended; then the next probe
// decides.
func (b *Breaker) report(f finish, until time.Duration) {
	for {
		ctx, cancel := context.WithTimeout(context.Background(), storeTimeMax)
		done, r, err := b.shared.store.finish(ctx, f)
		cancel()
		if err == nil {
			b.reported(f, &r)
			if !done {
				b.shared.log.Info("a probe's result came too late", "acquirer", b.acquirer, "epoch", f.epoch, "result", f.result)
			}
			return
		}
		if b.now() >= until || !b.shared.pause(reportPause) {
			b.shared.log.Warn("a probe's result was not stored", "acquirer", b.acquirer, "epoch", f.epoch, "result", f.result, "error", err)
			b.reported(f, nil)
			return
		}
	}
}

func (b *Breaker) reported(f finish, r *row) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.held.epoch == f.epoch {
		b.held = probe{}
	}
	if r != nil {
		b.adopt(*r, b.now())
	}
}

// reclaim gives back a probe that the database says is ours and that no call of ours has: the answer to
// its claim was lost. Without that nobody would probe until its lease ends.
func (b *Breaker) reclaim(r row) {
	b.mu.Lock()
	defer b.mu.Unlock()
	ph := b.phase.Load()
	if !r.Probing || r.Owner != b.shared.replica || b.claiming || b.held.epoch == r.Epoch || ph.epoch != r.Epoch {
		return
	}
	b.held = probe{epoch: r.Epoch, until: b.now() + r.lease()}
	b.release(ph, "the answer to the claim was lost")
}

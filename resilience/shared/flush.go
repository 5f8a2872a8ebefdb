package shared

import (
	"context"
	"math/rand/v2"
	"time"

	"paymentsd/resilience"
)

const (
	// flushEvery is the pace without failures, +/- 20 %, so that replicas do not flush in step. Every
	// flush reads the rows as well: it is the poll behind the notifications.
	flushEvery = time.Second
	// flushSoon is the pace while failures are seen, and while the store does not answer.
	flushSoon = 250 * time.Millisecond
	// flushGap is the least time between two flushes, however loud the alarm.
	flushGap = 15 * time.Millisecond
	// successLag is how old a success may be when it comes to count for the budget; older ones are lost.
	successLag = 2 * time.Second
)

// account is the flusher's own book of one acquirer.
type account struct {
	breaker *Breaker
	budget  *Budget
	seq     int64 // of the next row; the same again until the store has answered

	counts  *counts
	sent    resilience.Tally // what counts showed at the last flush
	acked   resilience.Tally // what the store has of it for certain
	history history

	successesSent, successesAcked int64
	ackedAt                       time.Duration
}

// prepare adds what this acquirer's part of a flush is.
func (a *account) prepare(out *batch, now time.Duration) {
	b := a.breaker
	var epoch uint64
	var c *counts
	if ph := b.phase.Load(); ph != nil {
		epoch, c = ph.epoch, ph.counts
	}
	if c != a.counts {
		a.counts, a.sent, a.acked, a.history = c, resilience.Tally{}, resilience.Tally{}, history{}
	}
	seen := c.load()
	a.history.add(now, b.cfg.Window, minus(seen, a.sent))
	a.sent = seen
	if now-a.ackedAt > successLag {
		a.successesAcked = a.successesSent
	}
	a.successesSent = a.budget.successes.Load()

	fresh := minus(seen, a.acked)
	window := b.cfg.Window
	if b.cfg.WindowCount > 0 {
		window = WindowMax // however old they are, within reason
	}
	out.acquirers = append(out.acquirers, b.acquirer)
	out.seqs = append(out.seqs, a.seq)
	out.epochs = append(out.epochs, int64(epoch))
	out.attempts = append(out.attempts, fresh.Attempts)
	out.failures = append(out.failures, fresh.Failures)
	out.slow = append(out.slow, fresh.Slow)
	out.successes = append(out.successes, a.successesSent-a.successesAcked)
	out.windows = append(out.windows, int32((window+time.Second-1)/time.Second))
	out.windowCounts = append(out.windowCounts, int32(b.cfg.WindowCount))
}

// alarmed says whether there are failures that the store does not know.
func (a *account) alarmed() bool {
	ph := a.breaker.phase.Load()
	if ph.counts == nil {
		return false
	}
	seen := ph.counts.load()
	if ph.counts == a.counts {
		seen = minus(seen, a.acked)
	}
	return seen.Failures > 0 || seen.Slow > 0
}

// settle takes the answer to a flush.
func (a *account) settle(ctx context.Context, f flushed, now time.Duration) {
	b := a.breaker
	a.seq++
	a.acked, a.successesAcked, a.ackedAt = a.sent, a.successesSent, now
	b.apply(f.row)
	a.budget.learn(f)
	b.reclaim(f.row)
	ph := b.phase.Load()
	if ph.epoch != f.row.Epoch || ph.counts == nil || ph.counts != a.counts {
		return // not the epoch that was counted
	}
	own := a.history.tally(b.cfg.WindowCount)
	b.view.Store(&view{counts: a.counts, cluster: f.tally(), own: own, base: a.sent, reporting: f.Reporting, seeing: f.Seeing})
	if ph.row.Mode == resilience.Automatic {
		b.judge(ctx, ph, f, own)
	}
}

// quorum says whether enough replicas see failures to open for all: two at least, and three in ten,
// where three or more report. One sick replica must not shut a healthy acquirer.
func (f flushed) quorum() bool {
	return f.Reporting < 3 || f.Seeing >= max(2, (f.Reporting*3+9)/10)
}

// judge decides on the sums of all replicas.
func (b *Breaker) judge(ctx context.Context, ph *phase, f flushed, own resilience.Tally) {
	reason, opens := b.cfg.Trips(f.tally())
	if opens && f.quorum() {
		b.open(ctx, f.row, reason)
		return
	}
	away := ph.hold != nil && ph.hold.away
	if ph.hold != nil && !away {
		return
	}
	if reason, opens = b.cfg.Trips(own); opens && f.Reporting >= 3 {
		b.quarantine(ph, reason, f)
	} else if away {
		b.hold(ph, nil)
	}
}

// open opens the breaker for all. If the store does not answer, the next flush comes here again.
func (b *Breaker) open(ctx context.Context, judged row, reason string) {
	reopenings := 0
	if judged.Closed && judged.sinceClosed() <= b.cfg.ReopenWithin {
		reopenings = judged.Reopenings + 1
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeMax)
	defer cancel()
	_, r, err := b.shared.store.open(ctx, b.acquirer, judged.Epoch, b.cfg.OpenTime(reopenings, b.cfg.Rand), reopenings, reason)
	if err != nil && b.shared.ctx.Err() != nil {
		return
	}
	if err != nil {
		b.shared.log.Warn("the breaker could not be opened for all", "acquirer", b.acquirer, "reason", reason, "error", err)
		b.shared.flushNow()
		return
	}
	b.apply(r)
}

// unanswered judges by this replica alone: closed may open here while the store is away.
func (a *account) unanswered() {
	b := a.breaker
	ph := b.phase.Load()
	if ph == nil || ph.row.Mode != resilience.Automatic || !ph.pass || ph.counts != a.counts {
		return
	}
	if reason, opens := b.cfg.Trips(a.history.tally(b.cfg.WindowCount)); opens {
		b.holdAway(ph, reason)
	}
}

// flush sends what was counted and takes what all have counted.
func (s *Shared) flush(ctx context.Context) error {
	now := s.now()
	var out batch
	for _, a := range s.accounts {
		a.prepare(&out, now)
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeMax)
	defer cancel()
	answers, err := s.store.flush(ctx, out)
	s.flushed(err)
	if err != nil {
		for _, a := range s.accounts {
			a.unanswered()
		}
		return err
	}
	now = s.now()
	for _, f := range answers {
		if a := s.account(f.row.Acquirer); a != nil {
			a.settle(s.ctx, f, now)
		}
	}
	return nil
}

// flushLoop flushes until the end, and then once more.
func (s *Shared) flushLoop() {
	ticker := time.NewTicker(flushSoon)
	defer ticker.Stop()
	next := s.now() + spread(flushEvery)
	failing := false
	for {
		select {
		case <-s.ctx.Done():
			_ = s.flush(context.WithoutCancel(s.ctx))
			return
		case <-s.kick:
		case <-ticker.C:
			if s.now() < next && !failing && !s.alarmed() {
				continue
			}
		}
		failing = s.flush(s.ctx) != nil
		next = s.now() + spread(flushEvery)
		s.pause(flushGap)
	}
}

func (s *Shared) alarmed() bool {
	for _, a := range s.accounts {
		if a.alarmed() {
			return true
		}
	}
	return false
}

// flushNow asks for a flush without waiting for it.
func (s *Shared) flushNow() {
	select {
	case s.kick <- struct{}{}:
	default: // one is asked for already
	}
}

// spread is a time of the given length, +/- 20 %.
func spread(d time.Duration) time.Duration { return d - d/5 + rand.N(d*2/5+1) }

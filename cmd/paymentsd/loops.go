package main

import (
	"context"
	"sync"
	"time"

	"paymentsd/idempotency"
	"paymentsd/ledger"
)

// loops are what a replica does beside serving. All of them may run on every replica at once.
type loops struct {
	cancel context.CancelFunc
	done   sync.WaitGroup
}

func (l *loops) stop() {
	l.cancel()
	l.done.Wait()
}

const (
	maintainEvery = time.Hour
	auditEvery    = time.Minute
	// forgottenEvery is how often unknown charges are looked for about which nobody means to ask.
	forgottenEvery = time.Minute
	// auditLookback is how long after an act its audit row is still made up for.
	auditLookback = 24 * time.Hour
	// rollUpLookback finds merchants with news; longer than an hour, so that a stop loses none.
	rollUpLookback = 26 * time.Hour
	loopTimeMax    = time.Minute
)

func (g *gateway) startLoops(ctx context.Context) *loops {
	ctx, cancel := context.WithCancel(ctx)
	l := &loops{cancel: cancel}
	run := func(name string, every time.Duration, do func(context.Context) error) {
		l.done.Go(func() { g.repeat(ctx, name, every, do) })
	}
	run("sweep", g.Charge.Sweep, g.sweep)
	run("handle events", eventsEvery, g.handleEvents)
	run("maintain answers", maintainEvery, func(ctx context.Context) error {
		_, _, err := idempotency.Maintain(ctx, g.pool, time.Now(), g.Retention)
		return err
	})
	run("roll up the ledger", maintainEvery, func(ctx context.Context) error {
		through := time.Now().Add(-ledger.RollupLag)
		_, err := ledger.RollUpAll(ctx, g.pool, through.Add(-rollUpLookback), through)
		return err
	})
	run("plan forgotten inquiries", forgottenEvery, func(ctx context.Context) error {
		_, err := g.service.PlanForgotten(ctx)
		return err
	})
	run("expire events", maintainEvery, g.expireEvents)
	run("purge the outbox", maintainEvery, g.purgeOutbox)
	run("complete the audit log", auditEvery, func(ctx context.Context) error {
		return g.service.CompleteAudit(ctx, time.Now().Add(-auditLookback))
	})
	return l
}

// repeat runs do at once and then every so often. A failure is logged and tried again the next time.
func (g *gateway) repeat(ctx context.Context, name string, every time.Duration, do func(context.Context) error) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		once, cancel := context.WithTimeout(ctx, loopTimeMax)
		if err := do(once); err != nil && ctx.Err() == nil {
			g.log.Error("a background task failed; it runs again", "task", name, "in", every, "error", err)
		}
		cancel()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// sweep goes on while there is more.
func (g *gateway) sweep(ctx context.Context) error {
	for {
		report, err := g.service.Sweep(ctx)
		if err != nil || !report.More {
			return err
		}
	}
}

// purgeOutbox deletes events that were relayed longer ago than answers are kept.
func (g *gateway) purgeOutbox(ctx context.Context) error {
	before := time.Now().Add(-g.Retention)
	for {
		more, err := g.service.PurgeEvents(ctx, before)
		if err != nil || !more {
			return err
		}
	}
}

package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"paymentsd/internal/benchkit"
	"paymentsd/internal/postgres"
	"paymentsd/resilience"
	"paymentsd/resilience/shared"
)

// ours is our side: a replica on a Postgres, and chains that know this process only. Every breaker
// exists twice, closed and open.
type ours struct {
	ctx    context.Context
	cancel context.CancelFunc
	db     *benchkit.Postgres
	shared *shared.Shared

	sharedClosed, sharedOpen, localClosed, localOpen *resilience.Chain
}

// settings are the production ones, but what is open stays open.
func settings() resilience.Settings {
	s := resilience.DefaultSettings()
	s.Breaker.OpenFor, s.Breaker.OpenMax = time.Hour, time.Hour
	return s
}

func start(ctx context.Context) (_ *ours, err error) {
	o := &ours{}
	// A deadline far away: looking at it is a part of every call.
	o.ctx, o.cancel = context.WithTimeout(ctx, time.Hour)
	defer func() {
		if err != nil {
			o.stop()
		}
	}()
	if o.db, err = benchkit.StartPostgres(ctx, nil); err != nil {
		return nil, err
	}
	s := settings()
	o.shared, err = shared.Open(ctx, shared.Config{
		URL: o.db.URL(), Role: postgres.ServiceRole, Replica: "bench", Log: slog.New(slog.DiscardHandler),
		Acquirers: []shared.Acquirer{{Name: "closed", Breaker: s.Breaker, Budget: s.Budget}, {Name: "open", Breaker: s.Breaker, Budget: s.Budget}},
	})
	if err != nil {
		return nil, err
	}
	for _, c := range []struct {
		chain    **resilience.Chain
		acquirer string // of the shared form; empty for the local one
		open     bool
	}{{&o.sharedClosed, "closed", false}, {&o.sharedOpen, "open", true}, {&o.localClosed, "", false}, {&o.localOpen, "", true}} {
		if *c.chain, err = o.chain(c.acquirer, s); err != nil {
			return nil, err
		}
		if c.open {
			if err = open(ctx, (*c.chain).Breaker()); err != nil {
				return nil, err
			}
		}
	}
	return o, nil
}

func (o *ours) chain(acquirer string, s resilience.Settings) (*resilience.Chain, error) {
	if acquirer == "" {
		return resilience.NewLocal(s)
	}
	bulkhead, err := resilience.NewBulkhead(s.Bulkhead)
	if err != nil {
		return nil, err
	}
	return resilience.NewChain(resilience.ChainConfig{
		Breaker: o.shared.Breaker(acquirer), Budget: o.shared.Budget(acquirer), Bulkhead: bulkhead, Retry: s.Retry,
	})
}

// open fails calls until the breaker refuses: the shared one by way of Postgres.
func open(ctx context.Context, b resilience.Breaker) error {
	for began := time.Now(); time.Since(began) < 10*time.Second; {
		p, refused := b.Acquire(ctx)
		if refused != nil {
			return nil
		}
		b.Done(p, resilience.Failure)
		time.Sleep(time.Millisecond)
	}
	return fmt.Errorf("a breaker did not open: %+v", b.Snapshot())
}

func (o *ours) stop() {
	o.cancel()
	if o.shared != nil {
		o.shared.Close()
	}
	if o.db != nil {
		o.db.Stop()
	}
}

// pass is one call of a closed breaker, counted as a success.
func (o *ours) pass(b resilience.Breaker) func() bool {
	return func() bool {
		p, refused := b.Acquire(o.ctx)
		if refused != nil {
			return false
		}
		b.Done(p, resilience.Success)
		return true
	}
}

func (o *ours) refuse(b resilience.Breaker) func() bool {
	return func() bool {
		_, refused := b.Acquire(o.ctx)
		return refused != nil
	}
}

// whole is a call under deadline, retry, budget, breaker and bulkhead.
func (o *ours) whole(c *resilience.Chain, refused bool) func() bool {
	return func() bool {
		report := c.Do(o.ctx, resilience.Critical, succeed)
		return (report.Refused != nil) == refused
	}
}

func succeed(context.Context, int) resilience.Verdict {
	return resilience.Verdict{Outcome: resilience.Success}
}

// groups are the contests. Ours come first, and the shared form before the local one: it is the one in
// production.
func (o *ours) groups() ([]group, error) {
	p, err := newPeers(o.ctx)
	if err != nil {
		return nil, err
	}
	closed, open := o.sharedClosed.Breaker(), o.sharedOpen.Breaker()
	localClosed, localOpen := o.localClosed.Breaker(), o.localOpen.Breaker()
	began := time.Now()
	return []group{
		{"the floor", []*contestant{
			{name: "time.Now", figure: "time_now", call: func() bool { return !time.Now().IsZero() }},
			{name: "time.Since", figure: "time_since", call: func() bool { return time.Since(began) >= 0 }},
		}},
		{"a closed breaker lets one call pass", []*contestant{
			{name: "ours, shared", figure: "closed", call: o.pass(closed)},
			{name: "ours, local", figure: "local_closed", call: o.pass(localClosed)},
			{name: "gobreaker, 60 buckets of 1 s", figure: "gobreaker", call: p.gobreakerPass(p.gobreakerClosed)},
			{name: "gobreaker, fixed window of 60 s", figure: "gobreaker_fixed", call: p.gobreakerPass(p.gobreakerFixed)},
			{name: "failsafe-go, rate in 60 s", figure: "failsafe", call: p.failsafePass(p.failsafeClosed)},
			{name: "failsafe-go, the same by hand", figure: "failsafe_permit", call: p.failsafePermit},
		}},
		{"the whole chain on success", []*contestant{
			{name: "ours, shared", figure: "chain", call: o.whole(o.sharedClosed, false)},
			{name: "ours, local", figure: "local_chain", call: o.whole(o.localClosed, false)},
			{name: "failsafe-go: retry, budget, breaker, bulkhead", figure: "failsafe_chain", call: p.failsafePass(p.failsafeChain)},
		}},
		{"an open breaker refuses", []*contestant{
			{name: "ours, shared", figure: "reject", call: o.refuse(open)},
			{name: "ours, local", figure: "local_reject", call: o.refuse(localOpen)},
			{name: "ours, shared, the whole chain", figure: "chain_reject", call: o.whole(o.sharedOpen, true)},
			{name: "gobreaker", figure: "gobreaker_reject", call: p.gobreakerRefuse},
			{name: "failsafe-go", figure: "failsafe_reject", call: p.failsafeRefuse},
		}},
	}, nil
}

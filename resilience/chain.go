package resilience

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"
)

// ChainConfig names the parts of a chain.
type ChainConfig struct {
	Breaker  Breaker
	Budget   Budget
	Bulkhead *Bulkhead
	Retry    Retry
	// Rand spreads the waits; nil means the runtime's own generator.
	Rand Rand
}

// Chain makes calls to one acquirer under all its policies. It is safe for
// concurrent use and fixed at construction.
type Chain struct {
	breaker  Breaker
	budget   Budget
	bulkhead *Bulkhead
	retry    Retry
	random   Rand
}

// NewChain composes the parts, or gives a *ConfigError.
func NewChain(cfg ChainConfig) (*Chain, error) {
	k := checker{prefix: "chain."}
	k.want(cfg.Breaker != nil, "breaker", nil, "a Breaker")
	k.want(cfg.Budget != nil, "budget", nil, "a Budget")
	k.want(cfg.Bulkhead != nil, "bulkhead", nil, "a Bulkhead")
	k.prefix = "retry."
	cfg.Retry.check(&k)
	if err := k.err(); err != nil {
		return nil, err
	}
	return &Chain{cfg.Breaker, cfg.Budget, cfg.Bulkhead, cfg.Retry, cfg.Rand.orDefault()}, nil
}

// Report is what became of one Do.
type Report struct {
	// Calls is how many calls were made.
	Calls int
	// Last is the verdict on the last call; meaningless if Calls is 0.
	Last Verdict
	// Refused is set when the chain refused the first or a further try. The
	// answer to the last call stands beside it.
	Refused *Rejection
	// Panic is set when the last call panicked: what it did is not known.
	Panic *Panic
}

// Panic is a panic of a call, kept from the rest of the program.
type Panic struct {
	Value any
	Stack []byte
}

// Error makes a panic reportable as an error.
func (p *Panic) Error() string { return fmt.Sprintf("panic in a call: %v", p.Value) }

// Breaker is the chain's breaker, for ops to look at and to force.
func (c *Chain) Breaker() Breaker { return c.breaker }

// Budget is the chain's retry budget, for callers whose retries the chain does not make itself.
func (c *Chain) Budget() Budget { return c.budget }

// Once is the same chain, with the same breaker, budget and bulkhead, without retries: for a caller that
// tries again by a schedule of its own, since retries at two layers multiply.
func (c *Chain) Once() *Chain {
	once := *c
	once.retry.Attempts = 1
	return &once
}

// ChainSnapshot is a chain at one moment.
type ChainSnapshot struct {
	Breaker  BreakerSnapshot
	Budget   BudgetSnapshot
	Bulkhead BulkheadSnapshot
}

// Snapshot gives the state of every part, one after the other.
func (c *Chain) Snapshot() ChainSnapshot {
	return ChainSnapshot{c.breaker.Snapshot(), c.budget.Snapshot(), c.bulkhead.Snapshot()}
}

// Do makes a call, and again where that can help. Call is told the number of
// the try, from 1, and keeps its own result.
//
// Ctx limits what is started, by its deadline and by WithStartBy, and is handed
// to the call. Its end stops any wait at once. A call that was sent should be
// finished, so hand in a context that is detached from the client. A probe is
// detached here, and gets a deadline before the end of its lease.
func (c *Chain) Do(ctx context.Context, priority Priority, call func(ctx context.Context, try int) Verdict) Report {
	var report Report
	if report.Refused = mayStart(ctx, c.retry.FirstMin); report.Refused != nil {
		return report
	}
	var backoff time.Duration
	for try := 1; ; try++ {
		if refused := c.attempt(ctx, priority, try, call, &report); refused != nil {
			return report.refusedBy(refused)
		}
		last := report.Last
		if last.Outcome == Success && !last.Retry { // "come back later" earns no retries
			c.budget.Succeeded()
		}
		if report.Panic != nil || !last.Retry || try >= c.retry.Attempts {
			return report
		}
		var refused *Rejection
		if backoff, refused = c.await(ctx, try, backoff, last); refused != nil {
			return report.refusedBy(refused)
		}
	}
}

// refusedBy passes the acquirer's own wish on, whoever refused. It changes a
// copy: a shared form may hand one refusal to many callers.
func (r Report) refusedBy(refusal *Rejection) Report {
	r.Refused = refusal
	if r.Last.RetryAfter > refusal.RetryAfter {
		longer := *refusal
		longer.RetryAfter = r.Last.RetryAfter
		r.Refused = &longer
	}
	return r
}

// await decides on a retry and waits for it. All who could refuse are asked
// before the wait, and the deadline and the budget once more after it.
func (c *Chain) await(ctx context.Context, tries int, previous time.Duration, v Verdict) (time.Duration, *Rejection) {
	if ctx.Err() != nil {
		return 0, gone(ctx)
	}
	wait, backoff, refused := c.retry.Next(tries, previous, v, Remaining(ctx), c.random)
	if refused != nil {
		return 0, refused
	}
	if refused = c.budget.Spent(); refused != nil && (refused.RetryAfter > wait || refused.RetryAfter == 0) {
		return 0, refused // a budget that refills during the wait is asked after it
	}
	if refused = c.sleep(ctx, wait); refused != nil {
		return 0, refused
	}
	if refused = mayStart(ctx, c.retry.CallP99); refused != nil {
		return 0, refused
	}
	return backoff, c.budget.Take(ctx)
}

// sleep waits, unless the breaker refuses now or comes to refuse meanwhile:
// then there is nothing to wait for.
func (c *Chain) sleep(ctx context.Context, wait time.Duration) *Rejection {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		refused, changed := c.breaker.Peek()
		if refused != nil {
			return refused
		}
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return gone(ctx)
		case <-changed:
		}
	}
}

// attempt makes one call, if breaker and bulkhead admit it. Both get back what
// they gave in every case, also when the call panics or ends its goroutine.
func (c *Chain) attempt(ctx context.Context, priority Priority, try int, call func(context.Context, int) Verdict, report *Report) *Rejection {
	permit, refused := c.breaker.Acquire(ctx)
	if refused != nil {
		return refused
	}
	outcome := Ignored
	defer func() { c.breaker.Done(permit, outcome) }()

	waited, refused := c.bulkhead.Acquire(ctx, priority, permit.RampPercent)
	if refused != nil {
		return refused
	}
	defer c.bulkhead.Release()
	if waited || permit.Probe {
		if refused = c.revalidate(permit); refused != nil {
			return refused
		}
	}
	if permit.Probe {
		var cancel context.CancelFunc
		ctx, cancel = probeContext(ctx, permit.ProbeTimeout)
		defer cancel()
	}
	report.Calls++
	defer func() {
		if value := recover(); value != nil {
			outcome = Failure
			report.Last = Verdict{Outcome: Failure}
			report.Panic = &Panic{Value: value, Stack: debug.Stack()}
		}
	}()
	report.Last = call(ctx, try)
	outcome = report.Last.Outcome
	return nil
}

// revalidate looks at the permit again, just before sending.
func (c *Chain) revalidate(permit Permit) *Rejection {
	if c.breaker.Valid(permit) {
		return nil
	}
	if refused, _ := c.breaker.Peek(); refused != nil {
		return refused
	}
	return &Rejection{Reason: CircuitOpen, Detail: "the breaker changed while the call waited for a slot", Epoch: permit.Epoch}
}

// probeContext ends before the probe's lease does, or at ctx's own deadline,
// and does not end because a client hung up: others wait for its result.
func probeContext(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if deadline, ok := ctx.Deadline(); ok {
		timeout = min(timeout, time.Until(deadline))
	}
	return context.WithTimeout(context.WithoutCancel(ctx), timeout)
}

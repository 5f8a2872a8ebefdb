package main

import (
	"context"
	"errors"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/budget"
	"github.com/failsafe-go/failsafe-go/bulkhead"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/retrypolicy"
	"github.com/sony/gobreaker/v2"
)

// peers are the others, under the same policy as ours as far as they can express it: more than half of at
// least 20 attempts in 60 s, three attempts with jitter, a tenth of the calls as retries, 64 slots.
type peers struct {
	gobreakerClosed, gobreakerFixed, gobreakerOpen *gobreaker.CircuitBreaker[int]
	failsafeBreaker                                circuitbreaker.CircuitBreaker[int]
	failsafeClosed, failsafeOpen, failsafeChain    failsafe.Executor[int]
}

var errAcquirer = errors.New("the acquirer failed")

func newPeers(ctx context.Context) (*peers, error) {
	p := &peers{
		gobreakerClosed: newGobreaker(time.Second), gobreakerFixed: newGobreaker(0), gobreakerOpen: newGobreaker(time.Second),
		failsafeBreaker: newFailsafeBreaker(),
	}
	for range 20 {
		_, _ = p.gobreakerOpen.Execute(func() (int, error) { return 0, errAcquirer })
	}
	shut := newFailsafeBreaker()
	shut.Open()
	if p.gobreakerOpen.State() != gobreaker.StateOpen || !shut.IsOpen() {
		return nil, errors.New("a peer's breaker did not open")
	}
	retry := retrypolicy.NewBuilder[int]().WithMaxAttempts(3).WithBackoff(250*time.Millisecond, 5*time.Second).WithJitterFactor(1).
		WithBudget(budget.NewBuilder().WithMaxRate(0.1).Build()).Build()
	slots := bulkhead.NewBuilder[int](64).WithMaxWaitTime(50 * time.Millisecond).Build()
	p.failsafeClosed = failsafe.With[int](p.failsafeBreaker).WithContext(ctx)
	p.failsafeOpen = failsafe.With[int](shut).WithContext(ctx)
	p.failsafeChain = failsafe.With[int](retry, newFailsafeBreaker(), slots).WithContext(ctx)
	return p, nil
}

// newGobreaker has a window of 60 s: in buckets, or in one piece.
func newGobreaker(bucket time.Duration) *gobreaker.CircuitBreaker[int] {
	return gobreaker.NewCircuitBreaker[int](gobreaker.Settings{
		Interval: time.Minute, BucketPeriod: bucket, Timeout: time.Hour,
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.Requests >= 20 && c.TotalFailures*2 > c.Requests },
	})
}

func newFailsafeBreaker() circuitbreaker.CircuitBreaker[int] {
	// It opens at a rate, ours above one.
	return circuitbreaker.NewBuilder[int]().WithFailureRateThreshold(0.501, 20, time.Minute).WithDelay(time.Hour).Build()
}

func answer() (int, error) { return 1, nil }

func (p *peers) gobreakerPass(b *gobreaker.CircuitBreaker[int]) func() bool {
	return func() bool {
		_, err := b.Execute(answer)
		return err == nil
	}
}

func (p *peers) gobreakerRefuse() bool {
	_, err := p.gobreakerOpen.Execute(answer)
	return errors.Is(err, gobreaker.ErrOpenState)
}

func (p *peers) failsafePass(e failsafe.Executor[int]) func() bool {
	return func() bool {
		_, err := e.Get(answer)
		return err == nil
	}
}

// failsafePermit is the cheapest way that failsafe-go has: without its executor.
func (p *peers) failsafePermit() bool {
	if !p.failsafeBreaker.TryAcquirePermit() {
		return false
	}
	p.failsafeBreaker.RecordSuccess()
	return true
}

func (p *peers) failsafeRefuse() bool {
	_, err := p.failsafeOpen.Get(answer)
	return errors.Is(err, circuitbreaker.ErrOpen)
}

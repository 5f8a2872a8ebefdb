package shared

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"paymentsd/resilience"
)

const (
	// chunkMax is the most retries that are asked for in one statement.
	chunkMax = 4
	// tokenLife is how long a granted retry may wait for who sends it.
	tokenLife = time.Second
	// denialLife is how long a denial stands for all of this replica.
	denialLife = 250 * time.Millisecond
	// learnedLife is how long the sums of a flush are believed.
	learnedLife = 2 * flushEvery
)

// Budget is a resilience.Budget that every replica shares. Both rules count what is granted, under one
// lock in the database, whoever asks.
//
// Retries are granted as they are wanted: those who ask while a statement is under way share the next
// one. What was granted for a caller who has left serves another within a second, or lapses.
type Budget struct {
	acquirer  string
	cfg       resilience.BudgetConfig
	shared    *Shared
	successes atomic.Int64
	learned   atomic.Pointer[learned]

	mu          sync.Mutex
	asking      chan struct{} // closed when the answer is there; nil if nobody asks
	waiting     int           // for that answer
	tokens      int64
	tokensUntil time.Duration
	denied      *resilience.Rejection
	deniedUntil time.Duration // for how long it stands
	deniedEnds  time.Duration // when a retry may be granted again
}

var _ resilience.Budget = (*Budget)(nil)

type learned struct {
	resilience.BudgetSnapshot
	at time.Duration
}

// Succeeded implements resilience.Budget. It counts for the rule once it is flushed, within a second.
func (b *Budget) Succeeded() { b.successes.Add(1) }

// Take implements resilience.Budget. It asks the store unless a grant is in hand or a denial still
// stands, and waits for it at most 250 ms. Without an answer there is no retry.
func (b *Budget) Take(ctx context.Context) *resilience.Rejection {
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		now := b.shared.now()
		if b.tokens > 0 && now < b.tokensUntil {
			b.tokens--
			return nil
		}
		if now < b.deniedUntil {
			return b.refusal(now)
		}
		if b.asking == nil {
			return b.ask(ctx)
		}
		if refused := b.await(ctx, b.asking); refused != nil {
			return refused
		}
	}
}

// await waits for somebody else's answer. It gives the lock away meanwhile.
func (b *Budget) await(ctx context.Context, answered <-chan struct{}) (refused *resilience.Rejection) {
	b.waiting++
	b.mu.Unlock()
	select {
	case <-answered:
	case <-ctx.Done():
		refused = &resilience.Rejection{Reason: resilience.CallerGone, Detail: "the caller cancelled while a retry was asked for"}
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			refused = &resilience.Rejection{Reason: resilience.DeadlineTooShort, Detail: "the deadline passed while a retry was asked for"}
		}
	}
	b.mu.Lock()
	b.waiting--
	return refused
}

// ask asks the store for as many retries as are wanted now. It gives the lock away meanwhile. The
// answer is awaited even if ctx ends: it is others', too.
func (b *Budget) ask(ctx context.Context) *resilience.Rejection {
	wanted := min(1+b.waiting, chunkMax)
	answered := make(chan struct{})
	b.asking = answered
	b.mu.Unlock()

	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), takeTimeMax)
	sent := b.shared.now()
	g, err := b.shared.store.take(ctx, b.acquirer, wanted, b.cfg)
	cancel()

	b.mu.Lock()
	b.asking = nil
	close(answered)
	now := b.shared.now()
	if err == nil && g.Granted > 0 {
		b.tokens, b.tokensUntil = g.Granted-1, sent+tokenLife
		return nil
	}
	b.deny(g, err, now)
	return b.refusal(now)
}

// deny needs the lock.
func (b *Budget) deny(g grant, err error, now time.Duration) {
	b.deniedUntil = now + denialLife
	b.deniedEnds = now + max(denialLife, time.Duration(g.WaitMS)*time.Millisecond)
	b.denied = &resilience.Rejection{Reason: resilience.BudgetSpent}
	switch {
	case err != nil:
		b.shared.log.Warn("no retry: the budget was not answered for", "acquirer", b.acquirer, "error", err)
		b.denied.Detail = "no retry without a grant, and the store of the budget did not answer"
		b.deniedEnds = now + time.Second
	case g.Retries60s >= g.Limit60s:
		b.denied.Detail = fmt.Sprintf("%d of %d retries in 60s used by all replicas, %d successes", g.Retries60s, g.Limit60s, g.Successes60s)
	default:
		b.denied.Detail = fmt.Sprintf("%d of %d retries in 1s used by all replicas", g.Retries1s, g.Limit1s)
	}
}

// refusal needs the lock.
func (b *Budget) refusal(now time.Duration) *resilience.Rejection {
	refused := *b.denied
	refused.RetryAfter = max(b.deniedEnds-now, time.Millisecond)
	return &refused
}

// Spent implements resilience.Budget, from the last denial and the last flush.
func (b *Budget) Spent() *resilience.Rejection {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.shared.now()
	if b.tokens > 0 && now < b.tokensUntil {
		return nil
	}
	if now < b.deniedUntil {
		return b.refusal(now)
	}
	if l := b.learned.Load(); l != nil && now-l.at < learnedLife && l.Retries60s >= l.Limit60s {
		return &resilience.Rejection{
			Reason: resilience.BudgetSpent, RetryAfter: max(b.deniedEnds-now, flushEvery),
			Detail: fmt.Sprintf("%d of %d retries in 60s used by all replicas, %d successes", l.Retries60s, l.Limit60s, l.Successes60s),
		}
	}
	return nil
}

// Snapshot implements resilience.Budget: all replicas', at the last flush.
func (b *Budget) Snapshot() resilience.BudgetSnapshot {
	if l := b.learned.Load(); l != nil {
		return l.BudgetSnapshot
	}
	return resilience.BudgetSnapshot{}
}

func (b *Budget) learn(f flushed) {
	l := &learned{at: b.shared.now(), BudgetSnapshot: resilience.BudgetSnapshot{
		Retries60s: f.Retries60s, Retries1s: f.Retries1s, Successes60s: f.Successes60s,
	}}
	l.Limit60s, l.Limit1s = b.cfg.Limits(f.Successes60s, f.Successes5s)
	b.learned.Store(l)
}

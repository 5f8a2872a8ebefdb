package resilience

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// BulkheadConfig is everything that can be set on a bulkhead.
type BulkheadConfig struct {
	// Slots is the most calls in flight to one acquirer from this process.
	Slots int
	// Wait is the longest wait for a slot. Low priority never waits.
	Wait time.Duration
	// Queue is the most callers that wait at once; 0 means nobody waits.
	Queue int
}

// DefaultBulkhead gives 64 slots and a queue of 64 for at most 50 ms.
func DefaultBulkhead() BulkheadConfig {
	return BulkheadConfig{Slots: 64, Wait: 50 * time.Millisecond, Queue: 64}
}

// Validate reports every setting that cannot be used, as a *ConfigError.
func (c BulkheadConfig) Validate() error {
	k := checker{prefix: "bulkhead."}
	c.check(&k)
	return k.err()
}

func (c BulkheadConfig) check(k *checker) {
	k.count("slots", c.Slots, 1, 100_000)
	k.between("wait", c.Wait, 0, time.Minute)
	k.count("queue", c.Queue, 0, 100_000)
}

// BulkheadSnapshot is a bulkhead at one moment.
type BulkheadSnapshot struct {
	InFlight, Waiting int
	// Limit is Slots, or less while the ramp after a closing lasts.
	Limit, Slots int
}

// Bulkhead bounds the calls in flight to one acquirer, so that one that hangs
// ties up its own slots and nothing else.
type Bulkhead struct {
	cfg BulkheadConfig

	mu       sync.Mutex
	inFlight int
	limit    int
	full     string    // Rejection.Detail at this limit
	waiting  []*waiter // by priority, then by arrival
}

type waiter struct {
	priority Priority
	granted  chan struct{}
}

// NewBulkhead starts empty, or gives a *ConfigError.
func NewBulkhead(cfg BulkheadConfig) (*Bulkhead, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	b := &Bulkhead{cfg: cfg}
	b.setLimit(100)
	return b, nil
}

// Acquire takes a slot, to be given back by Release, or refuses. RampPercent is
// the part of the slots in use now, as the breaker's permit says. Waited tells
// that time has passed and that the permit should be looked at again.
func (b *Bulkhead) Acquire(ctx context.Context, priority Priority, rampPercent int) (waited bool, refused *Rejection) {
	b.mu.Lock()
	b.setLimit(rampPercent)
	if b.inFlight < b.limit && len(b.waiting) == 0 {
		b.inFlight++
		b.mu.Unlock()
		return false, nil
	}
	if priority <= Low || b.cfg.Wait == 0 || len(b.waiting) >= b.cfg.Queue {
		refused = &Rejection{Reason: BulkheadFull, Detail: b.full, RetryAfter: time.Second}
		b.mu.Unlock()
		return false, refused
	}
	w := b.enqueue(priority)
	b.mu.Unlock()
	return true, b.wait(ctx, w)
}

// wait gives nil once the waiter has a slot.
func (b *Bulkhead) wait(ctx context.Context, w *waiter) *Rejection {
	timer := time.NewTimer(b.cfg.Wait)
	defer timer.Stop()
	select {
	case <-w.granted:
		return nil
	case <-ctx.Done():
		b.abandon(w)
		return gone(ctx)
	case <-timer.C:
	}
	if b.dequeue(w) {
		return &Rejection{
			Reason: BulkheadFull, RetryAfter: time.Second,
			Detail: fmt.Sprintf("%s, none came free in %v", b.detail(), b.cfg.Wait),
		}
	}
	return nil // granted in the same moment
}

// abandon gives the slot back if it was granted in the moment the caller left.
func (b *Bulkhead) abandon(w *waiter) {
	if !b.dequeue(w) {
		b.Release()
	}
}

// Release gives a slot back, to the most important caller that waits. A Release
// without an Acquire panics: it would let one call too many through for ever.
func (b *Bulkhead) Release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.inFlight == 0 {
		panic("resilience: Bulkhead.Release without Acquire")
	}
	b.inFlight--
	b.grant()
}

// grant needs the lock.
func (b *Bulkhead) grant() {
	for b.inFlight < b.limit && len(b.waiting) > 0 {
		close(b.waiting[0].granted)
		b.waiting = slices.Delete(b.waiting, 0, 1)
		b.inFlight++
	}
}

// setLimit needs the lock.
func (b *Bulkhead) setLimit(rampPercent int) {
	limit := max(b.cfg.Slots*min(rampPercent, 100)/100, 1)
	if limit == b.limit {
		return
	}
	b.limit = limit
	b.full = fmt.Sprintf("all %d slots in use", limit)
	if limit < b.cfg.Slots {
		b.full = fmt.Sprintf("all %d slots in use (of %d, after a closing)", limit, b.cfg.Slots)
	}
	b.grant()
}

// enqueue needs the lock.
func (b *Bulkhead) enqueue(priority Priority) *waiter {
	w := &waiter{priority: priority, granted: make(chan struct{})}
	place := len(b.waiting)
	for place > 0 && b.waiting[place-1].priority < priority {
		place--
	}
	b.waiting = slices.Insert(b.waiting, place, w)
	return w
}

// dequeue is false if the waiter has been granted a slot.
func (b *Bulkhead) dequeue(w *waiter) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	place := slices.Index(b.waiting, w)
	if place < 0 {
		return false
	}
	b.waiting = slices.Delete(b.waiting, place, place+1)
	return true
}

func (b *Bulkhead) detail() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.full
}

// Snapshot gives the slots in use now.
func (b *Bulkhead) Snapshot() BulkheadSnapshot {
	b.mu.Lock()
	defer b.mu.Unlock()
	return BulkheadSnapshot{InFlight: b.inFlight, Waiting: len(b.waiting), Limit: b.limit, Slots: b.cfg.Slots}
}

package resilience

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Budget bounds the retries that all callers of an acquirer make together, as a
// share of what succeeds. LocalBudget counts within one process; a shared form
// counts for every replica.
type Budget interface {
	// Take spends one retry, or refuses it. It is asked when the retry is about
	// to be sent, so that retries which wait out a backoff cannot pile up and
	// leave together. A shared form may use ctx to fetch tokens.
	Take(ctx context.Context) *Rejection
	// Spent is the refusal that Take would give now, without spending anything:
	// asked before the wait, so that nobody waits in vain for a budget whose
	// RetryAfter is longer. It does no I/O.
	Spent() *Rejection
	// Succeeded counts one success.
	Succeeded()
	// Snapshot gives what is used and what is allowed now.
	Snapshot() BudgetSnapshot
}

// BudgetConfig is everything that can be set on a budget. A minute's rule alone
// does not disable retries in a short outage, since the last minute's successes
// still count: at 80/s it lets 480 out at once. Hence the burst rule.
type BudgetConfig struct {
	// Floor is how many retries a minute are always allowed: without it, a
	// budget that reaches zero never recovers.
	Floor int
	// Percent of the successes of the last 60 s may be retries in 60 s, and of
	// the mean per second of the last 5 s in any one second.
	Percent int
	// BurstFloor is how many retries a second are always allowed.
	BurstFloor int
	// Now is for simulators; nil means the real clock.
	Now func() time.Time
}

// DefaultBudget allows max(10, 10 %) in 60 s and max(1, 10 %) in any second.
func DefaultBudget() BudgetConfig {
	return BudgetConfig{Floor: 10, Percent: 10, BurstFloor: 1}
}

// Validate reports every setting that cannot be used, as a *ConfigError.
func (c BudgetConfig) Validate() error {
	k := checker{prefix: "budget."}
	c.check(&k)
	return k.err()
}

func (c BudgetConfig) check(k *checker) {
	k.count("floor", c.Floor, 0, 1_000_000)
	k.count("percent", c.Percent, 0, 100)
	k.count("burst_floor", c.BurstFloor, 0, 1_000_000)
}

// Limits applies the rule: how many retries are allowed in 60 s and in 1 s,
// with that many successes in the last 60 s and in the last 5 s.
func (c BudgetConfig) Limits(successes60s, successes5s int64) (in60s, in1s int64) {
	return max(int64(c.Floor), successes60s*int64(c.Percent)/100),
		max(int64(c.BurstFloor), successes5s*int64(c.Percent)/(5*100))
}

// BudgetSnapshot is a budget at one moment.
type BudgetSnapshot struct {
	Retries60s, Limit60s int64
	Retries1s, Limit1s   int64
	Successes60s         int64
}

// LocalBudget is a Budget within one process.
//
// Successes are counted over windows that are at most as long as the rule's and
// retries over windows that are at least as long, by one bucket. So the bound
// holds for any 60 s and any second, not only for those that start on a tick.
type LocalBudget struct {
	cfg   BudgetConfig
	clock clock

	successes60s, successes5s *counter

	mu                    sync.Mutex // from reading the retries to adding one
	retries60s, retries1s *counter
}

var _ Budget = (*LocalBudget)(nil)

const burstBucket = 100 * time.Millisecond

// NewLocalBudget starts with no successes seen, or gives a *ConfigError.
func NewLocalBudget(cfg BudgetConfig) (*LocalBudget, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &LocalBudget{
		cfg:          cfg,
		clock:        newClock(cfg.Now),
		successes60s: newCounter(60, time.Second),
		successes5s:  newCounter(50, burstBucket),
		retries60s:   newCounter(61, time.Second),
		retries1s:    newCounter(11, burstBucket),
	}, nil
}

// Succeeded implements Budget.
func (b *LocalBudget) Succeeded() {
	now := b.clock.elapsed()
	b.successes60s.add(b.successes60s.bucketAt(now))
	b.successes5s.add(b.successes5s.bucketAt(now))
}

// Take implements Budget; it never blocks, and ignores ctx.
func (b *LocalBudget) Take(context.Context) *Rejection {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clock.elapsed()
	if rejection := b.spent(now); rejection != nil {
		return rejection
	}
	b.retries60s.add(b.retries60s.bucketAt(now))
	b.retries1s.add(b.retries1s.bucketAt(now))
	return nil
}

// Spent implements Budget.
func (b *LocalBudget) Spent() *Rejection {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.spent(b.clock.elapsed())
}

// spent needs the lock.
func (b *LocalBudget) spent(now time.Duration) *Rejection {
	s := b.read(now)
	switch {
	case s.Retries60s >= s.Limit60s:
		return &Rejection{
			Reason:     BudgetSpent,
			Detail:     fmt.Sprintf("%d of %d retries in 60s used, %d successes", s.Retries60s, s.Limit60s, s.Successes60s),
			RetryAfter: b.retries60s.oldestLeaves(now),
		}
	case s.Retries1s >= s.Limit1s:
		return &Rejection{
			Reason:     BudgetSpent,
			Detail:     fmt.Sprintf("%d of %d retries in 1s used", s.Retries1s, s.Limit1s),
			RetryAfter: b.retries1s.oldestLeaves(now),
		}
	}
	return nil
}

// Snapshot implements Budget.
func (b *LocalBudget) Snapshot() BudgetSnapshot {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.read(b.clock.elapsed())
}

// read needs the lock.
func (b *LocalBudget) read(now time.Duration) BudgetSnapshot {
	second, tenth := b.retries60s.bucketAt(now), b.retries1s.bucketAt(now)
	s := BudgetSnapshot{
		Retries60s:   b.retries60s.total(second),
		Retries1s:    b.retries1s.total(tenth),
		Successes60s: b.successes60s.total(second),
	}
	s.Limit60s, s.Limit1s = b.cfg.Limits(s.Successes60s, b.successes5s.total(tenth))
	return s
}

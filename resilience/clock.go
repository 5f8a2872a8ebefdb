package resilience

import (
	"math/rand/v2"
	"time"
)

// Rand gives a uniform number in [0, 1). A seeded one makes a simulation
// repeatable; nil stands for the runtime's own generator.
type Rand func() float64

func (r Rand) orDefault() Rand {
	if r == nil {
		return rand.Float64
	}
	return r
}

// scale gives a random part of n, in [0, n]. The product is compared before it
// becomes an integer: a float beyond int64 converts to a negative number.
func (r Rand) scale(n time.Duration) time.Duration {
	if n <= 0 {
		return 0
	}
	part := r() * float64(n)
	switch {
	case part >= float64(n):
		return n
	case part > 0:
		return time.Duration(part)
	}
	return 0 // also for NaN
}

// clock measures from its own start, on the monotonic clock: reading only that
// costs half of time.Now, and no step of the wall clock moves a window.
type clock struct {
	start time.Time
	now   func() time.Time
}

func newClock(now func() time.Time) clock {
	if now == nil {
		return clock{start: time.Now()}
	}
	return clock{start: now(), now: now}
}

func (c *clock) elapsed() time.Duration {
	if c.now == nil {
		return time.Since(c.start)
	}
	return c.now().Sub(c.start)
}

func (c *clock) at(elapsed time.Duration) time.Time {
	return c.start.Add(elapsed)
}

// addSaturating adds two waits; neither is negative.
func addSaturating(a, b time.Duration) time.Duration {
	if sum := a + b; sum >= a {
		return sum
	}
	return forever
}

// forever is a limit that never comes.
const forever = time.Duration(1<<63 - 1)

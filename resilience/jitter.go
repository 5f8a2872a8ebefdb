package resilience

import (
	"fmt"
	"time"
)

// Jitter is how a wait is spread, so that clients which failed together do not
// return together. See https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/.
type Jitter string

// The variants. Ceiling is min(cap, base x 2^(attempt-1)).
const (
	// JitterNone waits exactly the ceiling: every client returns at once.
	JitterNone Jitter = "none"
	// JitterEqual waits half the ceiling and a random part of the other half.
	JitterEqual Jitter = "equal"
	// JitterFull waits a random part of the ceiling.
	JitterFull Jitter = "full"
	// JitterDecorrelated waits between base and three times the previous wait.
	JitterDecorrelated Jitter = "decorrelated"
)

func (j Jitter) known() bool {
	switch j {
	case JitterNone, JitterEqual, JitterFull, JitterDecorrelated:
		return true
	}
	return false
}

// Backoff gives the wait between two tries.
type Backoff struct {
	Jitter Jitter
	// Base is the ceiling after the first attempt, Cap the most that is ever waited.
	Base, Cap time.Duration
}

// Ceiling is min(Cap, Base x 2^(attempt-1)), in integers: no attempt number
// overflows. Attempt is the one that just failed, from 1; less counts as 1,
// so that a miscounted attempt never makes a hot loop.
func (b Backoff) Ceiling(attempt int) time.Duration {
	doublings := max(attempt, 1) - 1
	if doublings >= 63 || b.Base > b.Cap>>doublings {
		return max(b.Cap, 0)
	}
	return max(b.Base<<doublings, 0)
}

// Delay is the wait after the given attempt (from 1): 0 <= delay <= Cap for
// every attempt number, and still random once the ceiling has reached Cap.
// Previous is the last delay, which only the decorrelated variant uses.
//
// The decorrelated variant caps the range and not the draw. The published form,
// min(cap, random(base, 3 x previous)), gives exactly the cap two times in three
// once it has been reached, which brings the clients back into step.
func (b Backoff) Delay(attempt int, previous time.Duration, random Rand) time.Duration {
	random = random.orDefault()
	ceiling := b.Ceiling(attempt)
	switch b.Jitter {
	case JitterNone:
		return ceiling
	case JitterEqual:
		return ceiling - ceiling/2 + random.scale(ceiling/2)
	case JitterDecorrelated:
		low := min(b.Base, b.Cap)
		high := b.Cap
		if previous = max(previous, low); previous <= b.Cap/3 {
			high = previous * 3
		}
		return low + random.scale(high-low)
	default:
		return random.scale(ceiling)
	}
}

func (b Backoff) check(c *checker) {
	c.want(b.Jitter.known(), "jitter", b.Jitter, "none, equal, full or decorrelated")
	c.between("base", b.Base, time.Millisecond, time.Hour)
	c.between("cap", b.Cap, time.Millisecond, time.Hour)
	c.want(b.Base <= b.Cap, "base", b.Base, fmt.Sprintf("at most cap (%v)", b.Cap))
}

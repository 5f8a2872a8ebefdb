package shared

import (
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"time"

	"paymentsd/resilience"
)

// forever is a limit that never comes.
const forever = time.Duration(math.MaxInt64)

// counts are what this replica saw in one closed epoch, for ever rising. Whoever comes late adds to
// counts that nobody reads any more.
type counts struct {
	attempts, failures, slow atomic.Int64
	_                        [40]byte // a cache line of its own
}

// load reads failures before attempts, so that no rate is too high.
func (c *counts) load() resilience.Tally {
	if c == nil {
		return resilience.Tally{}
	}
	failures, slow := c.failures.Load(), c.slow.Load()
	return resilience.Tally{Attempts: c.attempts.Load(), Failures: failures, Slow: slow}
}

func plus(a, b resilience.Tally) resilience.Tally {
	return resilience.Tally{Attempts: a.Attempts + b.Attempts, Failures: a.Failures + b.Failures, Slow: a.Slow + b.Slow}
}

func minus(a, b resilience.Tally) resilience.Tally {
	return resilience.Tally{Attempts: a.Attempts - b.Attempts, Failures: a.Failures - b.Failures, Slow: a.Slow - b.Slow}
}

// phase is where a breaker stands with this replica. It is never changed, only replaced, so that a
// caller sees a consistent whole without a lock. Times are on this process's own clock.
type phase struct {
	pass    bool // closed, and nothing holds this replica back
	ramping bool
	epoch   uint64
	since   time.Duration
	counts  *counts // closed only

	row     row           // as it was when it was learned
	until   time.Duration // open: the next probe; half-open: the end of the lease
	mine    bool          // the probe is this replica's
	refusal string
	hold    *hold
	left    chan struct{} // closed when the answer to a call may have changed
}

// hold is a refusal of this replica alone, while the breaker is closed for all.
type hold struct {
	why   string
	away  bool          // the store cannot be asked: until it can
	until time.Duration // the next trial
	// A trial is this replica's own probe. Its start is its fence: the epoch stays the same.
	trying  bool
	started time.Duration
	lease   time.Duration
}

func newPhase(r row, now time.Duration) *phase {
	ph := &phase{epoch: r.Epoch, row: r, since: now - r.age(), ramping: r.Ramping, left: make(chan struct{})}
	switch {
	case r.State == resilience.Closed:
		ph.pass, ph.counts = true, &counts{}
	case r.Mode == resilience.ForcedOpen:
		ph.until, ph.refusal = forever, heldOpen
	case r.State == resilience.Open:
		ph.until, ph.refusal = now+r.open(), r.Reason
	default:
		ph.refusal = "a probe is out; opened by " + r.why()
		if r.Probing {
			ph.until = now + r.lease()
		}
	}
	return ph
}

// heldOpen is what callers are told of a person's order. Who gave it and why is not for merchants.
const heldOpen = "held open by a person's order"

// why is what callers are told of how a breaker came to open.
func (r row) why() string {
	if strings.HasPrefix(r.Cause, "forced open: ") { // as breaker_force_v1 writes it
		return "a person's order"
	}
	return r.Cause
}

// probeRetryAfter is what callers are told while a probe is out: its answer is near, but its lease says
// nothing about when.
const probeRetryAfter = time.Second

// refuse says whether a phase refuses a call now; nil means that the call passes, or may try for the probe.
func (ph *phase) refuse(now time.Duration) *resilience.Rejection {
	if ph.pass {
		return nil
	}
	if ph.hold != nil {
		return ph.hold.refuse(ph.epoch, now)
	}
	waiting := ph.until - now
	if waiting <= 0 {
		return nil
	}
	switch {
	case ph.until == forever:
		waiting = 0 // nobody knows
	case ph.row.State == resilience.HalfOpen:
		waiting = min(waiting, probeRetryAfter)
	}
	return &resilience.Rejection{Reason: resilience.CircuitOpen, Detail: ph.refusal, RetryAfter: waiting, Epoch: ph.epoch}
}

func (h *hold) refuse(epoch uint64, now time.Duration) *resilience.Rejection {
	waiting := h.until - now
	if h.trying {
		waiting = h.lease - now
	}
	if waiting <= 0 {
		return nil
	}
	if h.trying || h.until == forever {
		waiting = min(waiting, probeRetryAfter)
	}
	return &resilience.Rejection{Reason: resilience.CircuitOpen, Detail: h.why, RetryAfter: waiting, Epoch: epoch}
}

func (ph *phase) String() string {
	return fmt.Sprintf("%s/%s epoch %d", ph.row.State, ph.row.Mode, ph.epoch)
}

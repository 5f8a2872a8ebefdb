package resilience

import (
	"context"
	"fmt"
	"time"
)

// Breaker stands between us and one acquirer. LocalBreaker decides within one
// process; a shared form agrees with every replica.
type Breaker interface {
	// Acquire admits one call or refuses it. Every permit must be given back
	// to Done exactly once. A shared form may use ctx to claim a probe, and may
	// hand one refusal to many callers: change a copy of it.
	Acquire(ctx context.Context) (Permit, *Rejection)
	// Valid says whether the permit still stands; ask again just before
	// sending if anything was waited for since Acquire.
	Valid(p Permit) bool
	// Done reports what came of the call. A result of another epoch, or of a
	// probe whose lease has ended, changes nothing.
	Done(p Permit, o Outcome)
	// Peek says whether a call would be refused now, without claiming the
	// probe. The channel is closed when the answer may have changed.
	Peek() (*Rejection, <-chan struct{})
	// Force holds the breaker open or closed until Automatic is ordered. A
	// shared form may fail to store it: then nothing was changed, or it says
	// that it does not know.
	Force(ctx context.Context, o Order) error
	// Snapshot is the state now, for ops and metrics.
	Snapshot() BreakerSnapshot
}

// Permit is the right to make one call, as a value: admitting a call allocates nothing.
type Permit struct {
	// Epoch is the breaker's epoch at admission, and the fence of the result.
	Epoch uint64
	// Probe marks the one call that a half-open breaker admits.
	Probe bool
	// RampPercent is the part of the bulkhead in use, below 100 after a closing.
	RampPercent int
	// Started is when the call was admitted, on the breaker's own clock.
	Started time.Duration
	// ProbeTimeout is how long a probe may take, so that it ends before its lease; 0 for others.
	ProbeTimeout time.Duration
}

// State is where a breaker stands.
type State string

// The states.
const (
	Closed   State = "closed"    // calls pass and are counted
	Open     State = "open"      // calls are refused
	HalfOpen State = "half_open" // one probe at a time passes
)

// Mode is who decides.
type Mode string

// The modes.
const (
	Automatic    Mode = "automatic"     // the outcomes decide
	ForcedOpen   Mode = "forced_open"   // ops: refuse everything, probes included
	ForcedClosed Mode = "forced_closed" // ops: admit everything, whatever comes of it
)

// Order is what a person tells a breaker.
type Order struct {
	Mode Mode
	Why  string
	// Actor is who orders it, and Act names the order in the audit log; the
	// same Act again is one act. A shared form writes the log together with
	// the state, both or neither. LocalBreaker has no log and needs neither.
	Actor, Act string
}

// Reason is the reason of the state that begins.
func (o Order) Reason() string {
	if o.Actor == "" {
		return o.Why
	}
	return fmt.Sprintf("by %s: %s", o.Actor, o.Why)
}

// Event is one transition. A half-open breaker that gives its lease to another
// probe goes from half-open to half-open.
type Event struct {
	Epoch    uint64 // the epoch that begins with it
	From, To State
	Mode     Mode
	At       time.Time
	OpenFor  time.Duration // until the next probe, for To == Open; 0 if forced
	Reason   string        // with the numbers
	Replica  string        // which brought it about; empty if the breaker is not shared
}

// BreakerSnapshot is a breaker at one moment.
type BreakerSnapshot struct {
	State  State
	Mode   Mode
	Epoch  uint64
	Since  time.Time
	Reason string // why it is in this state, with the numbers
	// Tally is the window of this closed epoch; zero in the other states.
	Tally
	// NextProbe is when a call may be the next probe: now or earlier means the
	// next one. Zero if closed or forced open.
	NextProbe      time.Time
	ProbeInFlight  bool
	ProbeSuccesses int // in a row, while half-open
	RampPercent    int
	// Reopenings is how often in a row it opened soon after closing.
	Reopenings int
	// ListenerPanics counts listeners that panicked; their panics stop there.
	ListenerPanics int64
	// Rule is when it opens, in words and numbers.
	Rule string
	// Sharing is nil for a breaker that this process has for itself.
	Sharing *Sharing
}

// Share is a part of a whole, compared in integers.
type Share struct {
	Num, Den int64
	OrEqual  bool // also at exactly Num/Den
}

func (s Share) reached(part, whole int64) bool {
	if s.Den == 0 {
		return false
	}
	if s.OrEqual {
		return part*s.Den >= whole*s.Num
	}
	return part*s.Den > whole*s.Num
}

// String is "more than 50 %", or "at least 1/3" where no percentage is exact.
func (s Share) String() string {
	part := fmt.Sprintf("%d/%d", s.Num, s.Den)
	if s.Den != 0 && s.Num*100%s.Den == 0 {
		part = fmt.Sprintf("%d %%", s.Num*100/s.Den)
	}
	if s.OrEqual {
		return "at least " + part
	}
	return "more than " + part
}

// Rule says in words and numbers what Trips applies.
func (c BreakerConfig) Rule() string {
	window := fmt.Sprintf("in %v", c.Window)
	if c.WindowCount > 0 {
		window = fmt.Sprintf("of the last %d", c.WindowCount)
	}
	rule := fmt.Sprintf("%v of at least %d attempts %s failed", c.Failures, c.MinAttempts, window)
	if c.SlowCall > 0 {
		rule += fmt.Sprintf(", or %v took over %v", c.Slow, c.SlowCall)
	}
	return rule
}

// Trips applies the opening rule to a tally, one replica's or the sum of all:
// whether to open, and why.
func (c BreakerConfig) Trips(t Tally) (reason string, opens bool) {
	if t.Attempts < int64(c.MinAttempts) {
		return "", false
	}
	if c.Failures.reached(t.Failures, t.Attempts) {
		return fmt.Sprintf("failure rate %.2f over %d attempts", float64(t.Failures)/float64(t.Attempts), t.Attempts), true
	}
	if c.SlowCall > 0 && c.Slow.reached(t.Slow, t.Attempts) {
		return fmt.Sprintf("slow rate %.2f over %d attempts (over %v)", float64(t.Slow)/float64(t.Attempts), t.Attempts, c.SlowCall), true
	}
	return "", false
}

// OpenTime is how long to stay open when it opened soon after closing the given
// number of times in a row: OpenFor doubled that often, at most OpenMax, spread
// by OpenJitterPercent so that replicas and acquirers do not probe in step.
func (c BreakerConfig) OpenTime(reopenings int, random Rand) time.Duration {
	nominal := Backoff{Base: c.OpenFor, Cap: c.OpenMax}.Ceiling(reopenings + 1)
	spread := nominal / 100 * time.Duration(c.OpenJitterPercent)
	low, high := nominal-spread, min(nominal+spread, c.OpenMax)
	return low + random.orDefault().scale(high-low)
}

// RampPercent is the part of the bulkhead to use so long after a closing.
func (c BreakerConfig) RampPercent(sinceClosing time.Duration) int {
	if c.RampStep <= 0 {
		return 100
	}
	if step := int64(sinceClosing / c.RampStep); step < int64(len(c.Ramp)) {
		return c.Ramp[max(step, 0)]
	}
	return 100
}

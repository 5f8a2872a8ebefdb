package resilience

import (
	"fmt"
	"time"
)

// Outcome is what a call says about the health of the acquirer, which is not
// what it says about the money: a decline is a success here, and a timeout is a
// failure here though the charge is unknown.
type Outcome uint8

// The outcomes. The zero value counts as a failure, so that a forgotten
// outcome is seen.
const (
	// Failure: our attempt timeout, a dial, DNS or TLS error, a 5xx.
	Failure Outcome = iota
	// Success: any answer of a working acquirer, declines and 4xx included.
	Success
	// Ignored: says nothing, as when the caller cancelled or shortened the call.
	Ignored
)

// String gives the outcome in lower case.
func (o Outcome) String() string {
	switch o {
	case Failure:
		return "failure"
	case Success:
		return "success"
	case Ignored:
		return "ignored"
	}
	return fmt.Sprintf("outcome(%d)", uint8(o))
}

// Verdict is what the caller of an acquirer makes of one answer.
type Verdict struct {
	Outcome Outcome
	// Retry says that another try could help and can do no harm.
	Retry bool
	// RetryAfter is the least wait that the acquirer asked for; 0 if none.
	RetryAfter time.Duration
}

// Priority orders work by what it costs to refuse it. The zero value is Normal.
type Priority int8

// The priorities.
const (
	// Low: batch work and reconciliation. Never waits, gives way first.
	Low Priority = -1
	// Normal: reads and refunds.
	Normal Priority = 0
	// Critical: checkout.
	Critical Priority = 1
)

// String gives the priority in lower case.
func (p Priority) String() string {
	switch {
	case p <= Low:
		return "low"
	case p >= Critical:
		return "critical"
	}
	return "normal"
}

package resilience

import (
	"fmt"
	"time"
)

// Reason names the mechanism that refused. The same word stands in the
// response, the log line and the metric label.
type Reason string

// The reasons of this package. Each says that we refused, not the acquirer.
const (
	// CircuitOpen: the breaker is open, or half-open with its one probe out.
	CircuitOpen Reason = "circuit_open"
	// BudgetSpent: retries have used their share of the traffic.
	BudgetSpent Reason = "budget_spent"
	// BulkheadFull: all slots for this acquirer are in use.
	BulkheadFull Reason = "bulkhead_full"
	// DeadlineTooShort: too little time is left for a call to end in.
	DeadlineTooShort Reason = "deadline_too_short"
	// RetryAfterTooLong: the acquirer asked for a longer wait than the deadline allows.
	RetryAfterTooLong Reason = "retry_after_too_long"
	// CallerGone: the caller cancelled before the call was made.
	CallerGone Reason = "caller_gone"
	// ShedLowPriority: overload; batch work and reconciliation give way first.
	ShedLowPriority Reason = "shed_low_priority"
	// ShedNormalPriority: overload; reads and refunds give way to checkout.
	ShedNormalPriority Reason = "shed_normal_priority"
	// Overloaded: every slot is taken by critical work.
	Overloaded Reason = "overloaded"
)

// Rejection is the record of one refusal. It is an error, so that it can travel
// as one, and it never replaces the answer to a call that was made.
type Rejection struct {
	Reason Reason
	// Detail carries the numbers: "failure rate 0.94 over 41 attempts".
	Detail string
	// RetryAfter is how long to wait before trying again; 0 if unknown.
	RetryAfter time.Duration
	// Epoch is the breaker's epoch at the refusal; 0 if no breaker was asked.
	Epoch uint64
}

// Error gives reason, numbers and the wait in one line.
func (r *Rejection) Error() string {
	if r.RetryAfter > 0 {
		return fmt.Sprintf("%s: %s; try again in %v", r.Reason, r.Detail, r.RetryAfter.Round(time.Millisecond))
	}
	return fmt.Sprintf("%s: %s", r.Reason, r.Detail)
}

// Package payment carries a charge from request to a certain outcome, once: the pipeline, the states,
// recovery after a crash, and the one way in which evidence closes an unknown.
package payment

import (
	"errors"
	"fmt"
	"time"

	"paymentsd/acquirer"
	"paymentsd/idempotency"
	"paymentsd/merchant"
	"paymentsd/money"
	"paymentsd/resilience"
)

// Charge is one intended capture of one amount for one merchant, and what became of it.
type Charge struct {
	Merchant        merchant.ID
	ID              string
	IdempotencyKey  string
	Generation      int // 0, and one more each time the key was freed and used again
	AcqRef          string
	Amount          money.Amount
	Reference       string // the merchant's order reference, may be empty
	AllowConcurrent bool
	PaymentMethod   string // a token
	Description     string
	Status          Status
	Acquirer        string   // the last one that was tried, or the one that captured
	CaptureID       string   // the acquirer's id, when captured
	DeclineCode     string   // when declined
	Reason          string   // which mechanism or answer ended it: circuit_open, rejected, not_captured, ...
	Detail          string   // one sentence for a person
	Evidence        Evidence // what closed it, if it was unknown once
	CreatedAt       time.Time
	UpdatedAt       time.Time
}

// Attempt is one acquirer that may have been reached for a charge.
type Attempt struct {
	N          int
	Acquirer   string
	State      string // "started" or an acquirer.Class
	Calls      int    // how many requests may have been sent to this acquirer
	HTTPStatus int    // of the last answer, 0 if none
	Code       string
	Reason     string
	Detail     string
	StartedAt  time.Time
	FinishedAt time.Time // zero while started
}

// Evidence is what changed our mind about an unknown.
type Evidence string

// The kinds of evidence.
const (
	LateAnswer Evidence = "late_answer"
	Inquiry    Evidence = "inquiry"
	Event      Evidence = "event"
	Settlement Evidence = "settlement"
	Operator   Evidence = "operator"
)

// Resolution is one piece of evidence about an unknown charge, applied or only noted.
type Resolution struct {
	ID        string // unique within the charge; the same evidence again has the same ID
	Evidence  Evidence
	Outcome   string // "captured", "failed" or "none"
	Applied   bool
	Finding   Finding // what an inquiry found; empty for other evidence
	Acquirer  string
	CaptureID string
	Amount    money.Amount // as the source has it; zero value if it says none
	Actor     string       // who: "settlement", "sweep", "key 1a2b..., J. Doe"
	Reason    string
	FileID    string // when Evidence is Settlement
	LineNo    int
	CreatedAt time.Time
}

// Request is one POST of a charge, already validated.
type Request struct {
	Merchant        merchant.Merchant
	Key             string
	Fingerprint     idempotency.Fingerprint
	Amount          money.Amount
	Reference       string
	PaymentMethod   string
	Description     string
	AllowConcurrent bool
	// Deadline is the caller's; zero if it gave none. It can only shorten what is started,
	// never cut off what is already sent.
	Deadline time.Time
	// Wait is how long to wait for the result of a key that is in flight (Prefer: wait=N).
	Wait     time.Duration
	Priority resilience.Priority
}

// Result is the answer to a Request that was not refused.
type Result struct {
	Charge Charge
	// Frozen are the stored bytes to answer with; nil while the charge is unknown, declined
	// or failed, which are rendered as they stand now.
	Frozen   *idempotency.Response
	Replayed bool
	// RetryAfter says when another try, or another look, makes sense; 0 if never.
	RetryAfter time.Duration
}

// The reasons why a request or an act is refused. Typed errors below carry more.
var (
	ErrNotFound         = errors.New("no such charge")
	ErrInFlight         = errors.New("the key is in flight")
	ErrReferenceOpen    = errors.New("another charge of this reference is open")
	ErrNotUnknown       = errors.New("the charge is not unknown")
	ErrUnavailable      = errors.New("the store is not available")
	ErrNotExecuted      = errors.New("nothing was sent to an acquirer")
	ErrAmount           = errors.New("no acquirer of this merchant can express the amount")
	ErrUnknownAcquirer  = errors.New("no such acquirer")
	ErrBreakerMode      = errors.New("no such breaker mode")
	ErrEvidenceConflict = errors.New("the evidence does not fit the charge")
	ErrInvalidCursor    = errors.New("the cursor is not one of ours")
)

// InFlightError says that another request with the same key is still running.
type InFlightError struct {
	ChargeID   string
	RetryAfter time.Duration
}

func (e *InFlightError) Error() string {
	return fmt.Sprintf("%v: charge %s", ErrInFlight, e.ChargeID)
}
func (e *InFlightError) Unwrap() error { return ErrInFlight }

// ExpiredKeyError names the charge whose key is past its retention.
type ExpiredKeyError struct{ ChargeID string }

func (e *ExpiredKeyError) Error() string {
	return fmt.Sprintf("%v: it named charge %s", idempotency.ErrExpired, e.ChargeID)
}
func (e *ExpiredKeyError) Unwrap() error { return idempotency.ErrExpired }

// MismatchError names the charge for which the key was used.
type MismatchError struct{ ChargeID string }

func (e *MismatchError) Error() string {
	return fmt.Sprintf("%v: charge %s", idempotency.ErrMismatch, e.ChargeID)
}
func (e *MismatchError) Unwrap() error { return idempotency.ErrMismatch }

// ReferenceOpenError names the open charge of the same order reference.
type ReferenceOpenError struct{ Reference, ChargeID string }

func (e *ReferenceOpenError) Error() string {
	return fmt.Sprintf("%v: charge %s of reference %q", ErrReferenceOpen, e.ChargeID, e.Reference)
}
func (e *ReferenceOpenError) Unwrap() error { return ErrReferenceOpen }

// NotExecutedError says that the request was refused before a row was written; the key stays free.
type NotExecutedError struct{ Rejection *resilience.Rejection }

func (e *NotExecutedError) Error() string {
	return fmt.Sprintf("%v: %v", ErrNotExecuted, e.Rejection)
}
func (e *NotExecutedError) Unwrap() []error { return []error{ErrNotExecuted, e.Rejection} }

// UnavailableError says that Postgres could not be asked; nothing was sent to an acquirer.
type UnavailableError struct{ Cause error }

func (e *UnavailableError) Error() string   { return fmt.Sprintf("%v: %v", ErrUnavailable, e.Cause) }
func (e *UnavailableError) Unwrap() []error { return []error{ErrUnavailable, e.Cause} }

// ResolvedError says that a charge was not unknown any more, and who closed it.
type ResolvedError struct {
	Charge Charge
	By     *Resolution // nil if it never was unknown
}

func (e *ResolvedError) Error() string {
	if e.By == nil {
		return fmt.Sprintf("%v: it is %s", ErrNotUnknown, e.Charge.Status)
	}
	return fmt.Sprintf("%v: it was resolved as %s by %s (%s)", ErrNotUnknown, e.By.Outcome, e.By.Actor, e.By.Evidence)
}
func (e *ResolvedError) Unwrap() error { return ErrNotUnknown }

// The words of package resilience that callers need too.
type (
	Priority  = resilience.Priority
	Rejection = resilience.Rejection
	// What each replica reported, and what its breaker went through.
	ReplicaReport = resilience.ReplicaReport
	Transition    = resilience.Transition
)

// Finding is what an inquiry found.
type Finding = acquirer.Found

// The findings of an inquiry.
const (
	FindingCaptured = acquirer.FoundCaptured
	FindingDeclined = acquirer.FoundDeclined
	FindingNotFound = acquirer.FoundNothing
	FindingPending  = acquirer.FoundPending
	FindingUnclear  = acquirer.FoundUnclear
)

// The priorities of a Request.
const (
	Low      = resilience.Low
	Normal   = resilience.Normal
	Critical = resilience.Critical
)

// ProvesNotExecuted reports whether the answer was taken as proof that nothing was executed, so that
// another acquirer could be asked.
func (a Attempt) ProvesNotExecuted() bool { return acquirer.Class(a.State).ProvesNotExecuted() }

// Render freezes the answer of a charge that is captured, or that was unknown and is resolved.
// The wiring provides it, so that requests, recovery and reconciliation freeze the same bytes.
type Render func(Charge) idempotency.Response

// ClassStarted is the state of an attempt whose answer is not known yet.
const ClassStarted acquirer.Class = "started"

// Package acquirer is the contract that every card acquirer meets, and the words for its answers.
//
// An outcome is data; an error is ignorance. An adapter therefore never returns a Go error from
// Capture or Lookup: it returns an Answer whose Class says what the answer proves, and the class
// of everything it does not recognise is Unclear.
package acquirer

import (
	"context"
	"time"

	"paymentsd/money"
)

// Acquirer is one acquirer's wire protocol. Implementations are safe for concurrent use.
type Acquirer interface {
	// Capture asks for one capture under req.Ref, which is idempotency key AND merchant
	// reference. It makes at most one attempt, within ctx's deadline, and never retries.
	Capture(ctx context.Context, req CaptureRequest) Answer
	// Lookup asks what became of the capture named ref. It moves no money.
	Lookup(ctx context.Context, ref string) Inquiry
	// Capabilities says what this acquirer promises about keys and inquiries.
	Capabilities() Capabilities
}

// CaptureRequest is one capture as an acquirer gets it. The same Ref, Amount and PaymentMethod
// are sent, byte for byte, on every try.
type CaptureRequest struct {
	Ref           string       // acq_ref: 20 upper-case Crockford characters
	Amount        money.Amount // positive
	PaymentMethod string       // a token, never a card number
	Description   string       // optional, at most 255 bytes
	// Left is how long our caller has patience; 0 if that is not known. What takes longer may still be
	// waited for, so that it does not become unclear.
	Left time.Duration
}

// Class is what an answer proves. The zero value is Unclear on purpose.
type Class string

// The classes of shared rule "what an answer proves" (docs/states.md).
const (
	Captured   Class = "captured"    // 2xx with our reference, amount and currency echoed equal
	Declined   Class = "declined"    // the issuer or acquirer refuses, for certain
	Rejected   Class = "rejected"    // our request or our credentials are wrong: 400, 401, 403, 404, 422
	NotSent    Class = "not_sent"    // no byte of the request left: dial, DNS, TLS, breaker, bulkhead
	Refused    Class = "refused"     // refused unprocessed: 429, a documented "not processed" 503
	InProgress Class = "in_progress" // 409 "still running" for our own key
	Unclear    Class = "unclear"     // everything else: it may have happened
)

// ProvesNotExecuted reports whether the class proves that no money moved by this attempt and
// another acquirer may be asked. Declined and Rejected prove it too, but end the charge.
func (c Class) ProvesNotExecuted() bool { return c == NotSent || c == Refused }

// Certain reports whether the class settles the attempt for good.
func (c Class) Certain() bool { return c == Captured || c == Declined || c == Rejected }

// Answer is what one capture attempt brought back.
type Answer struct {
	Class       Class
	CaptureID   string        // the acquirer's own id of the capture, when Captured
	DeclineCode string        // the acquirer's code, when Declined
	HTTPStatus  int           // 0 when there was no response
	Code        string        // the acquirer's machine-readable code, if it sent one
	Detail      string        // one sentence for a person: what was seen; no secrets, at most 500 bytes
	RetryAfter  time.Duration // what the acquirer asked for, 0 if nothing
	// Failure reports whether the breaker counts this answer as a failure of the acquirer
	// (our attempt timeout, dial/DNS/TLS errors, 5xx, resets, garbled bodies).
	Failure bool
}

// Found is what an inquiry proves.
type Found string

// The findings of an inquiry. The zero value is FoundUnclear.
const (
	FoundCaptured Found = "captured"  // a capture with our reference, amount and currency echoed
	FoundDeclined Found = "declined"  // the acquirer processed and refused it, for certain
	FoundNothing  Found = "not_found" // the acquirer does not know the reference: means something only after the trust delay
	FoundPending  Found = "pending"   // known, still running
	FoundUnclear  Found = "unclear"   // error, maintenance page, unknown shape: proves nothing
)

// Inquiry is the answer to a Lookup.
type Inquiry struct {
	Found       Found
	Amount      money.Amount // as the acquirer has it, when FoundCaptured
	CaptureID   string
	DeclineCode string
	HTTPStatus  int
	Detail      string
}

// Capabilities is what one acquirer promises; one policy for all acquirers would be wrong.
type Capabilities struct {
	// DeduplicatesByKey: a second request under the same key never charges twice.
	DeduplicatesByKey bool
	// KeyLifetime is how long the acquirer remembers a key; 0 means not published.
	KeyLifetime time.Duration
	// ForgetsFailures: a failed or unclear request is not stored, so that a same-key retry
	// really charges again. Such an acquirer is asked (Lookup) before any retry.
	ForgetsFailures bool
	// ReplaysServerErrors: a stored 5xx is replayed for the life of the key, so that a retry
	// after a 5xx tells nothing.
	ReplaysServerErrors bool
	// LooksUpByReference: Lookup is supported.
	LooksUpByReference bool
	// TrustDelay is how long after the attempt "not found" begins to mean something.
	TrustDelay time.Duration
	// Exponents overrides decimal places per currency on this acquirer's wire; a currency that
	// is not listed uses money.Exponent.
	Exponents map[money.Currency]int
}

// RetriesUnclear reports whether an unclear answer may be followed by the same key at the same
// acquirer: only where keys deduplicate and failures are not forgotten.
func (c Capabilities) RetriesUnclear() bool { return c.DeduplicatesByKey && !c.ForgetsFailures }

// Exponent is the number of decimals of currency on this acquirer's wire.
func (c Capabilities) Exponent(currency money.Currency) int {
	if e, ok := c.Exponents[currency]; ok {
		return e
	}
	return currency.Exponent()
}

// Expressible reports whether this acquirer's wire can carry a exactly. An amount that it cannot
// is refused before sending, never rounded.
func (c Capabilities) Expressible(a money.Amount) bool {
	_, err := a.Minor(c.Exponent(a.Currency()))
	return err == nil
}

// Config is what the wiring gives an adapter's factory.
type Config struct {
	Name     string        // the acquirer's name with us, e.g. "north"
	URL      string        // base URL of its API
	Secret   Secret        // credential, sent as the adapter's protocol asks
	Account  string        // our account at the acquirer, if it has such a thing
	Timeout  time.Duration // one attempt, default 8 s; ctx may be shorter
	Settings map[string]string
	// EventSecrets are the secrets that may have signed an event, the newest first; without any the
	// acquirer sends none. EventTolerance is how far its clock may be from ours, default 5 min.
	EventSecrets   []Secret
	EventTolerance time.Duration
}

// DefaultEventTolerance is the Config.EventTolerance of a configuration that has none.
const DefaultEventTolerance = 5 * time.Minute

// Factory builds an adapter from its configuration, or says which setting is wrong.
type Factory func(Config) (Acquirer, error)

// Secret is a credential that does not print itself.
type Secret string

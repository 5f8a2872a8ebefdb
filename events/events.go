// Package events takes in what acquirers tell of their own accord.
//
// An event is kept exactly as received before the acquirer is told that we have it. Then it is handled: it
// becomes evidence for payment's Resolve, an exception for a person, or nothing. What fails is not
// marked as handled and is tried again, on any replica; every effect may be repeated, so duplicates,
// events out of order and crashes between two steps change nothing.
package events

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"paymentsd/acquirer"
	"paymentsd/merchant"
	"paymentsd/payment"
	"paymentsd/reconcile"
)

// The reasons why an event is refused. Nothing of it is kept then.
var (
	ErrUnverified = errors.New("the event is not verified")
	ErrIDReused   = errors.New("the event's id was used for another body")
)

// Charges finds what events are about, and applies them as evidence. payment.Resolver is one.
type Charges interface {
	ByAcqRefs(ctx context.Context, m merchant.ID, refs []string) (map[string]payment.Charge, error)
	Attempts(ctx context.Context, m merchant.ID, chargeID string) ([]payment.Attempt, error)
	Resolutions(ctx context.Context, m merchant.ID, chargeID string) ([]payment.Resolution, error)
	Resolve(ctx context.Context, m merchant.ID, chargeID string, r payment.Resolution) (payment.Charge, error)
}

// Exceptions tells a person. reconcile.Reconciler is one.
type Exceptions interface {
	Raise(ctx context.Context, e reconcile.Exception, source string, distinct ...string) error
}

// Source is an acquirer that sends events.
type Source struct {
	acquirer.EventSource
	Capabilities acquirer.Capabilities
}

// Config is what a Service needs.
type Config struct {
	Pool       *pgxpool.Pool
	Sources    map[string]Source // by the acquirer's name; those that send none are left out
	Charges    Charges
	Exceptions Exceptions
	Now        func() time.Time
	Log        *slog.Logger
	// Lease is how long one handling may take before another replica takes the event for left lying;
	// 30 s if it is 0.
	Lease time.Duration
	// Observe counts what became of a request or an event, for metrics: received, replayed, refused,
	// applied, agreed, noted, exception, ignored, postponed, failed. It may be nil.
	Observe func(acquirer, result string)
	// Fault is only set by tests of crashes.
	Fault payment.Fault
}

// Service receives and handles events. It is safe for concurrent use.
type Service struct{ Config }

// New makes a Service.
func New(c Config) *Service {
	if c.Lease == 0 {
		c.Lease = 30 * time.Second
	}
	if c.Observe == nil {
		c.Observe = func(string, string) {}
	}
	if c.Fault == nil {
		c.Fault = func(string) {}
	}
	return &Service{c}
}

// moment is the one "now" of a write.
func (s *Service) moment() time.Time { return s.Now().UTC().Truncate(time.Microsecond) }

func (s *Service) fault(step string) { s.Fault(step) }

// The steps after which a process can be killed on purpose.
const (
	faultReceived = "event_received"
	faultApplied  = "event_applied"
	faultRaised   = "event_raised"
)

// FaultPoints lists every step, in order.
func FaultPoints() []payment.FaultPoint {
	return []payment.FaultPoint{
		{Name: faultReceived, When: "an acquirer's event is kept; the acquirer has no answer, nothing was done about it"},
		{Name: faultApplied, When: "the event is evidence; nothing says that it is handled"},
		{Name: faultRaised, When: "the exception is recorded; nothing says that the event is handled"},
	}
}

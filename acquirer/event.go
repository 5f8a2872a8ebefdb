package acquirer

import (
	"errors"
	"net/http"
	"time"

	"paymentsd/money"
)

// EventSource is what an adapter implements if its acquirer tells of captures of its own accord. Its
// methods are safe for concurrent use, and take what anybody on the network may send.
type EventSource interface {
	// VerifyEvent says which event a request is, if a secret of Config.EventSecrets signed its body and
	// the time of signing is within Config.EventTolerance of now. Everything else is
	// ErrEventUnverified, with the reason for our log.
	VerifyEvent(h http.Header, body []byte, now time.Time) (EventReceipt, error)
	// ReadEvent says what a verified body means. What it cannot read is an error; what is no news of a
	// capture, such as an event of a type that is not known, is FoundUnclear.
	ReadEvent(body []byte) (Event, error)
}

// ErrEventUnverified is a request that the acquirer did not send just now, as far as can be proved.
var ErrEventUnverified = errors.New("the event is not signed by the acquirer")

// EventReceipt names a verified event.
type EventReceipt struct {
	ID     string    // the acquirer's: 1 to 100 visible ASCII characters; the same event again has the same ID
	SentAt time.Time // of this sending
}

// Event is what an acquirer tells. It is about a capture that we asked for, by our reference, and never
// about an order.
type Event struct {
	Type        string // the acquirer's word, at most 100 bytes
	Found       Found  // captured, declined, pending; unclear if it is about something else
	Ref         string // our reference as received, unless Found is unclear
	Amount      money.Amount
	CaptureID   string
	DeclineCode string
	At          time.Time // when it happened, if the acquirer says so
}

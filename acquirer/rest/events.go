package rest

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"paymentsd/acquirer"
	"paymentsd/internal/webhook"
)

// eventSecrets are the secrets of Config in the form of Standard Webhooks.
func eventSecrets(cfg acquirer.Config) (webhook.Ring, error) {
	if cfg.EventTolerance < 0 {
		return nil, fmt.Errorf("tolerance: %s is negative", cfg.EventTolerance)
	}
	texts := make([]string, 0, len(cfg.EventSecrets))
	for _, secret := range cfg.EventSecrets {
		texts = append(texts, secret.Reveal())
	}
	return webhook.NewRing(texts...)
}

// VerifyEvent holds a request against Standard Webhooks; see acquirer.EventSource.
func (c *client) VerifyEvent(h http.Header, body []byte, now time.Time) (acquirer.EventReceipt, error) {
	m, err := c.secrets.Verify(h, body, now, c.tolerance)
	if err != nil {
		return acquirer.EventReceipt{}, fmt.Errorf("%w: %w", acquirer.ErrEventUnverified, err)
	}
	return acquirer.EventReceipt{ID: m.ID, SentAt: m.SentAt}, nil
}

// eventTypes are the types that are news of a capture, with the status that its data then has.
var eventTypes = map[string]string{
	"capture.captured": "captured", "capture.declined": "declined", "capture.pending": "pending",
}

const typeBytesMax = 100

// ReadEvent reads {"type", "timestamp", "data": a capture as an inquiry lists it}; see acquirer.EventSource.
func (c *client) ReadEvent(body []byte) (acquirer.Event, error) {
	o, err := acquirer.ReadObject(body)
	if err != nil {
		return acquirer.Event{}, err
	}
	e := acquirer.Event{Type: word(o.Text("type")), Found: acquirer.FoundUnclear}
	if e.Type == "" || len(e.Type) > typeBytesMax {
		return acquirer.Event{}, errors.New("type is not a short word")
	}
	status, known := eventTypes[e.Type]
	if !known {
		return e, nil
	}
	if at, err := time.Parse(time.RFC3339, o.Text("timestamp")); err == nil {
		e.At = at.UTC()
	}
	data, err := acquirer.ReadObject(o["data"])
	if err != nil {
		return acquirer.Event{}, fmt.Errorf("data: %w", err)
	}
	if data.Text("status") != status {
		return acquirer.Event{}, fmt.Errorf("data.status is %q in an event of type %s", word(data.Text("status")), e.Type)
	}
	if e.Ref = data.Text("reference"); !validRef(e.Ref) {
		return acquirer.Event{}, errors.New("data.reference is not one that was ever sent")
	}
	in := found(data, c.capabilities, 0)
	if in.Found == acquirer.FoundUnclear {
		return acquirer.Event{}, errors.New("data: " + in.Detail)
	}
	e.Found, e.Amount, e.CaptureID, e.DeclineCode = in.Found, in.Amount, in.CaptureID, in.DeclineCode
	return e, nil
}

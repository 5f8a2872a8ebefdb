// Package webhook signs messages and verifies signatures in the form of Standard Webhooks
// (https://www.standardwebhooks.com): HMAC-SHA256 over id, time and body, several secrets at once.
package webhook

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	standard "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// The headers of a signed message.
const (
	HeaderID        = standard.HeaderWebhookID
	HeaderTimestamp = standard.HeaderWebhookTimestamp
	HeaderSignature = standard.HeaderWebhookSignature
)

// ErrUnverified is a message that nobody with a secret of the ring signed just now.
var ErrUnverified = errors.New("the signature does not hold")

// Limits of the specification: a secret has 24 to 64 bytes. An id is bounded here.
const (
	secretPrefix   = "whsec_"
	secretBytesMin = 24
	secretBytesMax = 64
	idBytesMax     = 100
	signaturesMax  = 16
)

// Ring holds the secrets that are in use at one time: the newest first. While a secret is being changed
// both sign, and each of them verifies.
type Ring []*standard.Webhook

// NewRing reads secrets of the form whsec_BASE64. An error says which one is malformed, never what it is.
func NewRing(secrets ...string) (Ring, error) {
	ring := make(Ring, 0, len(secrets))
	for i, text := range secrets {
		encoded, ok := strings.CutPrefix(text, secretPrefix)
		key, err := base64.StdEncoding.DecodeString(encoded)
		if !ok || err != nil || len(key) < secretBytesMin || len(key) > secretBytesMax {
			return nil, fmt.Errorf("secret %d is not %s and the base64 of %d to %d bytes", i+1, secretPrefix, secretBytesMin, secretBytesMax)
		}
		one, err := standard.NewWebhookRaw(key)
		if err != nil {
			return nil, fmt.Errorf("secret %d: %w", i+1, err)
		}
		ring = append(ring, one)
	}
	return ring, nil
}

// Message is what the headers of a verified message say.
type Message struct {
	ID     string // the same again when the message is sent again
	SentAt time.Time
}

// Verify reads the headers of a message and holds body against them. Its time may be tolerance away from
// now, in either direction. Every secret is tried, however many signatures there are, and each comparison
// takes constant time.
func (r Ring) Verify(h http.Header, body []byte, now time.Time, tolerance time.Duration) (Message, error) {
	for _, name := range []string{HeaderID, HeaderTimestamp, HeaderSignature} {
		if len(h.Values(name)) != 1 {
			return Message{}, fmt.Errorf("%w: there is not exactly one header %s", ErrUnverified, name)
		}
	}
	id, text := h.Get(HeaderID), h.Get(HeaderTimestamp)
	if !ValidID(id) {
		return Message{}, fmt.Errorf("%w: %s is not 1 to %d visible ASCII characters", ErrUnverified, HeaderID, idBytesMax)
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil || text != strconv.FormatInt(seconds, 10) {
		return Message{}, fmt.Errorf("%w: %s is no number of seconds", ErrUnverified, HeaderTimestamp)
	}
	sent := time.Unix(seconds, 0).UTC()
	if sent.Before(now.Add(-tolerance)) || sent.After(now.Add(tolerance)) {
		return Message{}, fmt.Errorf("%w: %s is more than %v away from our clock", ErrUnverified, HeaderTimestamp, tolerance)
	}
	if strings.Count(h.Get(HeaderSignature), " ") >= signaturesMax {
		return Message{}, fmt.Errorf("%w: there are more than %d signatures", ErrUnverified, signaturesMax)
	}
	held := false
	for _, secret := range r {
		// The library's own check of the time reads the machine's clock and allows what it likes.
		held = secret.VerifyIgnoringTimestamp(body, h) == nil || held
	}
	if !held {
		return Message{}, fmt.Errorf("%w: no secret in use made any of the signatures", ErrUnverified)
	}
	return Message{ID: id, SentAt: sent}, nil
}

// ValidID reports whether id can name a message: visible ASCII without the dot that parts what is signed.
func ValidID(id string) bool {
	return id != "" && len(id) <= idBytesMax &&
		strings.IndexFunc(id, func(r rune) bool { return r <= ' ' || r > '~' || r == '.' }) < 0
}

// Sign sets the headers of a message, with one signature for each secret.
func (r Ring) Sign(h http.Header, id string, at time.Time, body []byte) error {
	signatures := make([]string, 0, len(r))
	for _, secret := range r {
		signature, err := secret.Sign(id, at, body)
		if err != nil {
			return fmt.Errorf("sign message %s: %w", id, err)
		}
		signatures = append(signatures, signature)
	}
	h.Set(HeaderID, id)
	h.Set(HeaderTimestamp, strconv.FormatInt(at.Unix(), 10))
	h.Set(HeaderSignature, strings.Join(signatures, " "))
	return nil
}

// Package rest speaks our documented JSON protocol for acquirers (docs/acquirer-protocol.md).
package rest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"paymentsd/acquirer"
	"paymentsd/internal/webhook"
)

const refBytesMax = 64

// client is one acquirer that speaks the protocol.
type client struct {
	wire         *acquirer.Wire
	captures     string // address of the captures collection
	secret       acquirer.Secret
	account      string
	capabilities acquirer.Capabilities
	secrets      webhook.Ring // of its events, the newest first
	tolerance    time.Duration
}

// New is the adapter's factory. Its errors name the setting, and leave it to the caller to name the acquirer. Config.URL is the base to which /v1/captures is added,
// Config.Secret goes out as a bearer token, Config.Account, if set, as Acquirer-Account.
func New(cfg acquirer.Config) (acquirer.Acquirer, error) {
	base, err := baseURL(cfg.URL)
	if err != nil {
		return nil, fmt.Errorf("url %w", err)
	}
	for name, value := range map[string]string{"secret": cfg.Secret.Reveal(), "account": cfg.Account} {
		if !headerSafe(value) {
			return nil, fmt.Errorf("%s: use visible ASCII characters only", name)
		}
	}
	if cfg.Timeout < 0 {
		return nil, fmt.Errorf("timeout: %s is negative", cfg.Timeout)
	}
	capabilities, err := capabilities(cfg.Settings)
	if err != nil {
		return nil, err
	}
	secrets, err := eventSecrets(cfg)
	if err != nil {
		return nil, fmt.Errorf("events: %w", err)
	}
	return &client{
		secrets:      secrets,
		tolerance:    cmp.Or(cfg.EventTolerance, acquirer.DefaultEventTolerance),
		wire:         acquirer.NewWire(cfg.Timeout),
		captures:     base.JoinPath("v1", "captures").String(),
		secret:       cfg.Secret,
		account:      cfg.Account,
		capabilities: capabilities,
	}, nil
}

func baseURL(raw string) (*url.URL, error) {
	const want = "write http(s)://host[:port][/path], such as https://api.north.example"
	base, err := url.Parse(raw)
	switch {
	case raw == "":
		return nil, errors.New("is missing: " + want)
	case err != nil: // which may repeat a password
		return nil, errors.New("cannot be read: " + want)
	case base.Scheme == "":
		return nil, errors.New("has no scheme: " + want)
	case base.Scheme != "http" && base.Scheme != "https":
		return nil, fmt.Errorf("has the scheme %q, which is not http or https: %s", base.Scheme, want)
	case base.Host == "":
		return nil, errors.New("has no host: " + want)
	case base.User != nil:
		return nil, errors.New("has credentials in it: they belong in the secret")
	case base.RawQuery != "" || base.Fragment != "":
		return nil, errors.New("has a query or a fragment, which are not allowed")
	}
	return base, nil
}

// Capabilities is what the settings say this acquirer promises.
func (c *client) Capabilities() acquirer.Capabilities { return c.capabilities }

// captureBody is the request on the wire. Its fields are in fixed order, so that every try under
// one reference sends the same bytes.
type captureBody struct {
	Reference     string `json:"reference"`
	AmountMinor   int64  `json:"amount_minor"`
	Currency      string `json:"currency"`
	PaymentMethod string `json:"payment_method"`
	Description   string `json:"description,omitempty"`
}

// Capture asks for one capture; see acquirer.Acquirer.
func (c *client) Capture(ctx context.Context, req acquirer.CaptureRequest) acquirer.Answer {
	if !validRef(req.Ref) {
		return unsendable("reference_invalid", fmt.Sprintf("the reference is not 1 to %d visible ASCII characters", refBytesMax))
	}
	minor, err := req.Amount.Minor(c.capabilities.Exponent(req.Amount.Currency()))
	if err != nil {
		return unsendable("amount_inexpressible", err.Error())
	}
	if minor <= 0 {
		return unsendable("amount_invalid", "the amount is not positive")
	}
	sent := captureBody{
		Reference:     req.Ref,
		AmountMinor:   minor,
		Currency:      string(req.Amount.Currency()),
		PaymentMethod: req.PaymentMethod,
		Description:   req.Description,
	}
	body, err := json.Marshal(sent)
	if err != nil {
		return unsendable("request_invalid", err.Error())
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.captures, bytes.NewReader(body))
	if err != nil {
		return unsendable("request_invalid", err.Error())
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", req.Ref)
	r.Header.Set("Request-Timeout", seconds(c.patience(req.Left)))
	c.sign(r)
	return captureAnswer(sent, c.wire.Do(ctx, r))
}

// patience is how long an answer is of use: not longer than we wait for it.
func (c *client) patience(left time.Duration) time.Duration {
	if left <= 0 {
		return c.wire.Timeout()
	}
	return min(left, c.wire.Timeout())
}

// seconds writes a time as a positive decimal, not longer than it is.
func seconds(d time.Duration) string {
	ms := max(d.Milliseconds(), 1)
	return fmt.Sprintf("%d.%03d", ms/1000, ms%1000)
}

// Lookup asks what became of the capture named ref; see acquirer.Acquirer.
func (c *client) Lookup(ctx context.Context, ref string) acquirer.Inquiry {
	if !c.capabilities.LooksUpByReference {
		return acquirer.Inquiry{Found: acquirer.FoundUnclear, Detail: "this acquirer answers no inquiries by reference"}
	}
	if !validRef(ref) {
		return acquirer.Inquiry{Found: acquirer.FoundUnclear, Detail: "the reference is not one that was ever sent"}
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.captures+"?"+url.Values{"reference": {ref}}.Encode(), nil)
	if err != nil {
		return acquirer.Inquiry{Found: acquirer.FoundUnclear, Detail: acquirer.Clip(err.Error())}
	}
	c.sign(r)
	return lookupAnswer(ref, c.capabilities, c.wire.Do(ctx, r))
}

func (c *client) sign(r *http.Request) {
	r.Header.Set("Accept", "application/json")
	r.Header.Set("User-Agent", "paymentsd")
	if c.secret != "" {
		r.Header.Set("Authorization", "Bearer "+c.secret.Reveal())
	}
	if c.account != "" {
		r.Header.Set("Acquirer-Account", c.account)
	}
}

// unsendable refuses a request that this protocol cannot carry, before anything is sent.
func unsendable(code, detail string) acquirer.Answer {
	return acquirer.Answer{Class: acquirer.Rejected, Code: code, Detail: acquirer.Clip("nothing was sent: " + detail)}
}

func validRef(s string) bool {
	return s != "" && len(s) <= refBytesMax && headerSafe(s)
}

// headerSafe accepts visible ASCII, which no proxy on the way rewrites.
func headerSafe(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) < 0
}

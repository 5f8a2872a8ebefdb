// Package rest speaks our documented JSON protocol for acquirers (docs/acquirer-protocol.md).
package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"paymentsd/acquirer"
)

const refBytesMax = 64

// client is one acquirer that speaks the protocol.
type client struct {
	wire         *acquirer.Wire
	captures     string // address of the captures collection
	secret       acquirer.Secret
	account      string
	capabilities acquirer.Capabilities
}

// New is the adapter's factory. Config.URL is the base to which /v1/captures is added,
// Config.Secret goes out as a bearer token, Config.Account, if set, as Acquirer-Account.
func New(cfg acquirer.Config) (acquirer.Acquirer, error) {
	base, err := baseURL(cfg.URL)
	if err != nil {
		return nil, fmt.Errorf("acquirer %s: url: %w", cfg.Name, err)
	}
	for name, value := range map[string]string{"secret": cfg.Secret.Reveal(), "account": cfg.Account} {
		if !headerSafe(value) {
			return nil, fmt.Errorf("acquirer %s: %s: use visible ASCII characters only", cfg.Name, name)
		}
	}
	if cfg.Timeout < 0 {
		return nil, fmt.Errorf("acquirer %s: timeout: %s is negative", cfg.Name, cfg.Timeout)
	}
	capabilities, err := capabilities(cfg.Settings)
	if err != nil {
		return nil, fmt.Errorf("acquirer %s: %w", cfg.Name, err)
	}
	return &client{
		wire:         acquirer.NewWire(cfg.Timeout),
		captures:     base.JoinPath("v1", "captures").String(),
		secret:       cfg.Secret,
		account:      cfg.Account,
		capabilities: capabilities,
	}, nil
}

func baseURL(raw string) (*url.URL, error) {
	base, err := url.Parse(raw)
	switch {
	case err != nil:
		return nil, fmt.Errorf("not a URL, want http(s)://host[:port][/path]")
	case base.Scheme != "http" && base.Scheme != "https":
		return nil, fmt.Errorf("scheme %q is not http or https", base.Scheme)
	case base.Host == "":
		return nil, fmt.Errorf("no host")
	case base.User != nil:
		return nil, fmt.Errorf("credentials belong in the secret, not in the URL")
	case base.RawQuery != "" || base.Fragment != "":
		return nil, fmt.Errorf("query and fragment are not allowed")
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
	c.sign(r)
	return captureAnswer(sent, c.wire.Do(ctx, r))
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

// Package acquirertest is the conformance suite of acquirer adapters: every class of answer from
// recorded exchanges, every fault of the network from live connections on loopback.
package acquirertest

import (
	"context"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"time"

	"paymentsd/acquirer"
	"paymentsd/money"
)

// What the suite asks adapters to send. Recorded exchanges are about these.
const (
	Ref           = "K7QF2ZREC0RDED000001"
	OtherRef      = "K7QF2ZREC0RDED000002"
	PaymentMethod = "tok_recorded"
	Secret        = "s3cret-0f-the-suite"
	patience      = 10 * time.Second // of an attempt that is expected to end by itself
	impatience    = 150 * time.Millisecond
)

// Options is what the suite has to know about one adapter.
type Options struct {
	// Exchanges holds NAME.txtar for every scenario of Scenarios: a section "request" that the
	// adapter must send, and a section "response" that it gets.
	Exchanges fs.FS
	// Events holds NAME.txtar for every scenario of EventScenarios, if the adapter is an
	// acquirer.EventSource: a section "secret", a section "at" (RFC 3339) and a section "request",
	// signed with that secret at that time.
	Events   fs.FS
	Settings map[string]string
	// Absent names scenarios that this protocol cannot have, each with the reason.
	Absent map[string]string
}

// Run holds one adapter against the contract. A scenario that is neither recorded nor excused fails.
func Run(t *testing.T, factory acquirer.Factory, opts Options) {
	t.Helper()
	s := suite{factory: factory, opts: opts}
	t.Run("every scenario is recorded", s.complete)
	t.Run("recorded", func(t *testing.T) {
		t.Parallel()
		for _, sc := range Scenarios() {
			if _, absent := opts.Absent[sc.Name]; !absent {
				t.Run(sc.Name, func(t *testing.T) { t.Parallel(); s.replay(t, sc) })
			}
		}
	})
	t.Run("live", func(t *testing.T) {
		t.Parallel()
		for _, f := range faults() {
			t.Run(f.name, func(t *testing.T) { t.Parallel(); f.run(t, s) })
		}
	})
	t.Run("events", s.events)
	t.Run("capabilities make sense", s.capabilities)
}

type suite struct {
	factory acquirer.Factory
	opts    Options
}

// adapter builds the adapter for an address.
func (s suite) adapter(t *testing.T, url string, timeout time.Duration) acquirer.Acquirer {
	t.Helper()
	a, err := s.factory(acquirer.Config{Name: "under-test", URL: url, Secret: Secret, Timeout: timeout, Settings: s.opts.Settings})
	if err != nil {
		t.Fatalf("the factory refuses %s: %v", url, err)
	}
	return a
}

func (s suite) complete(t *testing.T) {
	t.Parallel()
	var names []string
	for _, sc := range Scenarios() {
		names = append(names, sc.Name)
		_, err := fs.Stat(s.opts.Exchanges, sc.Name+".txtar")
		reason, absent := s.opts.Absent[sc.Name]
		switch {
		case absent && reason == "":
			t.Errorf("scenario %s is excused without a reason", sc.Name)
		case absent && err == nil:
			t.Errorf("scenario %s is excused, yet recorded", sc.Name)
		case !absent && err != nil:
			t.Errorf("scenario %s is missing: record %s.txtar, or excuse it with a reason", sc.Name, sc.Name)
		}
	}
	files, err := fs.Glob(s.opts.Exchanges, "*")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !slices.Contains(names, strings.TrimSuffix(file, ".txtar")) {
			t.Errorf("%s is no scenario of this suite", file)
		}
	}
	for name := range s.opts.Absent {
		if !slices.Contains(names, name) {
			t.Errorf("excused scenario %s does not exist", name)
		}
	}
}

func (s suite) capabilities(t *testing.T) {
	t.Parallel()
	c := s.adapter(t, "http://127.0.0.1:1", patience).Capabilities()
	if c.LooksUpByReference && c.TrustDelay <= 0 {
		t.Error("inquiries are answered, but nothing says from when on \"not found\" means anything")
	}
	if c.ReplaysServerErrors && c.ForgetsFailures {
		t.Error("failures are both replayed and forgotten")
	}
	for currency, decimals := range c.Exponents {
		if !currency.Known() || decimals < 0 || decimals > 4 {
			t.Errorf("exponent of %s: %d", currency, decimals)
		}
	}
}

// request is the capture that recorded exchanges are about, in a currency.
func request(t *testing.T, amount string, currency money.Currency) acquirer.CaptureRequest {
	t.Helper()
	a, err := money.Parse(amount, currency)
	if err != nil {
		t.Fatal(err)
	}
	return acquirer.CaptureRequest{Ref: Ref, Amount: a, PaymentMethod: PaymentMethod}
}

// capture asks an adapter for the standard capture.
func capture(ctx context.Context, t *testing.T, a acquirer.Acquirer) acquirer.Answer {
	t.Helper()
	return a.Capture(ctx, request(t, "49.99", "USD"))
}

// wantAnswer holds an answer against a class and what every answer owes.
func wantAnswer(t *testing.T, got acquirer.Answer, class acquirer.Class, failure bool) {
	t.Helper()
	if got.Class != class || got.Failure != failure {
		t.Errorf("got class %s, failure %t; want %s, %t (%s)", got.Class, got.Failure, class, failure, got.Detail)
	}
	if got.Detail == "" || len(got.Detail) > 500 || strings.Contains(got.Detail, Secret) {
		t.Errorf("the detail must be 1 to 500 bytes without secrets: %q", got.Detail)
	}
	if (got.CaptureID != "") != (class == acquirer.Captured) {
		t.Errorf("capture id %q in an answer of class %s", got.CaptureID, class)
	}
	if (got.DeclineCode != "") != (class == acquirer.Declined) {
		t.Errorf("decline code %q in an answer of class %s", got.DeclineCode, class)
	}
}

func wantFound(t *testing.T, got acquirer.Inquiry, found acquirer.Found) {
	t.Helper()
	if got.Found != found {
		t.Errorf("got %s, want %s (%s)", got.Found, found, got.Detail)
	}
	if got.Detail == "" || len(got.Detail) > 500 || strings.Contains(got.Detail, Secret) {
		t.Errorf("the detail must be 1 to 500 bytes without secrets: %q", got.Detail)
	}
	if (got.CaptureID != "") != (found == acquirer.FoundCaptured) {
		t.Errorf("capture id %q in a finding of %s", got.CaptureID, found)
	}
}

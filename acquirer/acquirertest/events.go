package acquirertest

import (
	"bufio"
	"bytes"
	"errors"
	"io/fs"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"

	"paymentsd/acquirer"
)

// EventScenario is one recorded event and what it has to say.
type EventScenario struct {
	Name       string
	Found      acquirer.Found
	Unreadable bool // it is signed, and nobody can make anything of it
}

// EventScenarios is the list that every adapter whose acquirer sends events has to have recorded. Events
// about a capture are about that of Scenarios.
func EventScenarios() []EventScenario {
	return []EventScenario{
		{Name: "captured", Found: acquirer.FoundCaptured},
		{Name: "declined", Found: acquirer.FoundDeclined},
		{Name: "unknown_type", Found: acquirer.FoundUnclear},
		{Name: "unreadable", Unreadable: true},
	}
}

// event is one recorded event.
type event struct {
	secret acquirer.Secret
	at     time.Time
	header http.Header
	body   []byte
}

func (s suite) loadEvent(t *testing.T, name string) event {
	t.Helper()
	data, err := fs.ReadFile(s.opts.Events, name+".txtar")
	if err != nil {
		t.Fatalf("event %s is not recorded: %v", name, err)
	}
	sections := map[string]string{}
	for _, f := range txtar.Parse(data).Files {
		sections[f.Name] = string(f.Data)
	}
	at, err := time.Parse(time.RFC3339, strings.TrimSpace(sections["at"]))
	if err != nil {
		t.Fatalf("%s: at: %v", name, err)
	}
	head, body := cutMessage([]byte(sections["request"]))
	request, err := http.ReadRequest(bufio.NewReader(strings.NewReader(head)))
	if err != nil {
		t.Fatalf("%s: request: %v", name, err)
	}
	return event{acquirer.Secret(strings.TrimSpace(sections["secret"])), at, request.Header, body}
}

// events holds an adapter whose acquirer sends events against the contract.
func (s suite) events(t *testing.T) {
	t.Parallel()
	if _, sends := s.adapter(t, "http://127.0.0.1:1", patience).(acquirer.EventSource); !sends {
		return
	}
	for _, sc := range EventScenarios() {
		t.Run(sc.Name, func(t *testing.T) {
			t.Parallel()
			e := s.loadEvent(t, sc.Name)
			source := s.source(t, e.secret)
			s.verify(t, source, e)
			got, err := source.ReadEvent(e.body)
			if sc.Unreadable {
				if err == nil {
					t.Errorf("read as %+v", got)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			wantEvent(t, got, sc.Found)
		})
	}
}

func (s suite) source(t *testing.T, secrets ...acquirer.Secret) acquirer.EventSource {
	t.Helper()
	a, err := s.factory(acquirer.Config{Name: "under-test", URL: "http://127.0.0.1:1", Timeout: patience, Settings: s.opts.Settings, EventSecrets: secrets})
	if err != nil {
		t.Fatalf("the factory refuses the recorded secret: %v", err)
	}
	return a.(acquirer.EventSource)
}

// verify changes one thing of a signed event at a time: only as it was sent, then and there, it holds.
func (s suite) verify(t *testing.T, source acquirer.EventSource, e event) {
	t.Helper()
	receipt, err := source.VerifyEvent(e.header, e.body, e.at)
	if err != nil || receipt.ID == "" || len(receipt.ID) > 100 {
		t.Fatalf("%+v, %v", receipt, err)
	}
	refused := func(what string, source acquirer.EventSource, h http.Header, body []byte, now time.Time) {
		t.Helper()
		if receipt, err := source.VerifyEvent(h, body, now); !errors.Is(err, acquirer.ErrEventUnverified) || receipt != (acquirer.EventReceipt{}) {
			t.Errorf("%s: %+v, %v", what, receipt, err)
		}
	}
	refused("an hour late", source, e.header, e.body, e.at.Add(time.Hour))
	refused("an hour early", source, e.header, e.body, e.at.Add(-time.Hour))
	refused("without headers", source, http.Header{}, e.body, e.at)
	refused("without a body", source, e.header, nil, e.at)
	refused("by an adapter without secrets", s.source(t), e.header, e.body, e.at)
	for i := range e.body {
		changed := bytes.Clone(e.body)
		changed[i] ^= 1
		refused("one bit of the body changed", source, e.header, changed, e.at)
	}
}

func wantEvent(t *testing.T, got acquirer.Event, found acquirer.Found) {
	t.Helper()
	if got.Found != found || got.Type == "" || len(got.Type) > 100 {
		t.Fatalf("%+v, want %s", got, found)
	}
	if (got.Ref == Ref) != (found != acquirer.FoundUnclear) {
		t.Errorf("reference %q", got.Ref)
	}
	if (got.CaptureID != "") != (found == acquirer.FoundCaptured) {
		t.Errorf("capture id %q in news of %s", got.CaptureID, found)
	}
	if found == acquirer.FoundCaptured && (got.Amount.String() != "49.99" || got.Amount.Currency() != "USD") {
		t.Errorf("amount %s %s, want 49.99 USD", got.Amount, got.Amount.Currency())
	}
}

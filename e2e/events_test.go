package e2e

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"paymentsd/acquirer/sim"
	"paymentsd/internal/webhook"
)

// eventsSecret signs the events of both acquirers.
var eventsSecret = "whsec_" + base64.StdEncoding.EncodeToString([]byte("the secret of both the acquirers"))

// secretFile keeps eventsSecret where the services' configuration names it.
func secretFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "events-secret")
	if err := os.WriteFile(path, []byte(eventsSecret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func eventsOf(s *service, acquirer string) string {
	return s.URL + "/v1/acquirers/" + acquirer + "/events"
}

// hear has the acquirers tell a service what they do.
func (w *world) hear(s *service, e sim.Events) {
	w.t.Helper()
	for name, a := range map[string]*acquirerSim{"north": w.north, "south": w.south} {
		e.URL, e.Secret = eventsOf(s, name), eventsSecret
		if err := a.SetEvents(e); err != nil {
			w.t.Fatal(err)
		}
	}
}

// tell is north's event about a charge that it captured, sent by hand. An error means that no whole
// answer came.
func (w *world) tell(s *service, charge row) (int, error) {
	w.t.Helper()
	var captureID string
	for _, theirs := range w.north.Captures() {
		if theirs.Reference == charge.AcqRef {
			captureID = theirs.ID
		}
	}
	body := fmt.Appendf(nil, `{"type":"capture.captured","timestamp":"2026-11-30T09:00:00Z","data":{"id":%q,"reference":%q,"amount_minor":4999,"currency":"USD","status":"captured"}}`, captureID, charge.AcqRef)
	request, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, eventsOf(s, "north"), bytes.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	ring, err := webhook.NewRing(eventsSecret)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := ring.Sign(request.Header, "evt_1", time.Now(), body); err != nil {
		w.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}

// eventsDue lets the waits of all events be over.
func (w *world) eventsDue() {
	w.t.Helper()
	if _, err := w.pool.Exec(w.t.Context(), `update acquirer_events set next_try_at = now() - interval '1 second' where state = 'received'`); err != nil {
		w.t.Fatal(err)
	}
}

// eventsHandled waits until no event is left to handle.
func (w *world) eventsHandled() {
	w.t.Helper()
	until(w.t, "an event is still to be handled", func() bool {
		w.eventsDue()
		var left int
		if err := w.pool.QueryRow(w.t.Context(), `select count(*) from acquirer_events where state = 'received'`).Scan(&left); err != nil {
			w.t.Fatal(err)
		}
		return left == 0
	})
}

func (w *world) exceptions() (n int) {
	w.t.Helper()
	if err := w.pool.QueryRow(w.t.Context(), `select count(*) from recon_exceptions`).Scan(&n); err != nil {
		w.t.Fatal(err)
	}
	return n
}

// eventCrash is a place at which a service that handles an event dies.
type eventCrash struct {
	name, fault string
	pay         order
	answered    int    // what the charge's answer is
	ends        string // the charge, once the event is handled
	exceptions  int
}

func eventCrashes() []eventCrash {
	return []eventCrash{
		{"after the event is kept", "event_received", with("tok_error_captured"), http.StatusAccepted, "captured", 0},
		{"after the event ended the unknown", "event_applied", with("tok_error_captured"), http.StatusAccepted, "captured", 0},
		{"after the event is kept as a contradiction", "event_applied", with("tok_declined_captured"), http.StatusPaymentRequired, "declined", 1},
		{"after the exception", "event_raised", with("tok_declined_captured"), http.StatusPaymentRequired, "declined", 1},
	}
}

// Killed between an event's receipt and its effect, or between two effects: the acquirer has its answer on
// the next try, nothing is lost and nothing is done twice.
func TestCrashAtEveryStepOfAnEvent(t *testing.T) {
	t.Parallel()
	for _, c := range eventCrashes() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, options{})
			s := w.start(fault(c.fault))
			if r := w.shop(s).charge(t, retriedKey, c.pay); r.status != c.answered {
				t.Fatalf("%v, want %d", r, c.answered)
			}
			if status, err := w.tell(s, w.only()); err == nil {
				t.Fatalf("the service answered %d instead of dying", status)
			}
			s.gone(t)
			s = w.start()
			if status, err := w.tell(s, w.only()); err != nil || status != http.StatusOK {
				t.Errorf("the acquirer's next try: %d, %v", status, err)
			}
			w.eventsHandled()
			if r := w.only(); r.Status != c.ends || w.exceptions() != c.exceptions {
				t.Errorf("%+v and %d exceptions, want %s and %d", r, w.exceptions(), c.ends, c.exceptions)
			}
			if c.ends == "captured" {
				w.consistent()
			}
			var evidence int
			if err := w.pool.QueryRow(t.Context(), `select count(*) from resolutions where merchant_id = $1`, w.merchant.ID).Scan(&evidence); err != nil || evidence != 1 {
				t.Errorf("%d pieces of evidence, %v", evidence, err)
			}
		})
	}
}

// The acquirers' events are late, doubled and out of order: every unknown ends by them all the same, without
// a nightly run, and what was answered agrees with them.
func TestEventsEndUnknownsUnderLoad(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{})
	s := w.start()
	w.hear(s, sim.Events{Delay: 200 * time.Millisecond, DuplicatePercent: 50, ReorderPercent: 50})
	shop := w.shop(s)
	tokens := []string{"tok_ok", "tok_error_captured", "tok_reset_captured", "tok_unknown_captured", "tok_declined", "tok_pending", "tok_pending_declined"}
	for i := range 21 {
		shop.charge(t, fmt.Sprintf("order-%d", i), with(tokens[i%len(tokens)]))
	}
	until(t, "an unknown is still open", func() bool {
		w.eventsDue()
		for _, r := range w.rows() {
			if r.Status == "unknown" || r.Status == "pending" {
				return false
			}
		}
		return true
	})
	until(t, "events are under way", func() bool { return w.north.Stats().EventsUnderWay == 0 })
	w.eventsHandled()
	w.consistent()
	byEvent := 0
	for _, r := range w.rows() {
		if r.Evidence == "event" {
			byEvent++
		}
	}
	if byEvent < 6 || w.exceptions() != 0 {
		t.Errorf("%d charges were closed by events, %d exceptions", byEvent, w.exceptions())
	}
	t.Logf("21 charges, %d events delivered, %d charges closed by events", w.north.Stats().EventsDelivered, byEvent)
}

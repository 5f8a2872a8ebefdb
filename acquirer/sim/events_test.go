package sim_test

import (
	"context"
	"encoding/base64"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"paymentsd/acquirer"
	"paymentsd/acquirer/rest"
	"paymentsd/acquirer/sim"
)

var eventSecret = "whsec_" + base64.StdEncoding.EncodeToString([]byte("the secret that the events have"))

// ear takes events, as our adapter verifies and reads them.
type ear struct {
	*httptest.Server
	t      *testing.T
	source acquirer.EventSource
	mu     sync.Mutex
	refuse int // so many first, with 500
	events []acquirer.Event
	ids    []string
}

func listen(t *testing.T) *ear {
	t.Helper()
	adapter, err := rest.New(acquirer.Config{Name: "north", URL: "http://127.0.0.1:1", EventSecrets: []acquirer.Secret{acquirer.Secret(eventSecret)}})
	if err != nil {
		t.Fatal(err)
	}
	e := &ear{t: t, source: adapter.(acquirer.EventSource)}
	e.Server = httptest.NewServer(e)
	t.Cleanup(e.Close)
	return e
}

func (e *ear) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	receipt, err := e.source.VerifyEvent(r.Header, body, time.Now())
	if err != nil {
		e.t.Errorf("an event that does not verify: %v", err)
	}
	event, err := e.source.ReadEvent(body)
	if err != nil {
		e.t.Errorf("an event that cannot be read: %v: %s", err, body)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.refuse > 0 {
		e.refuse--
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	e.events, e.ids = append(e.events, event), append(e.ids, receipt.ID)
}

// heard waits until nothing is under way.
func (e *ear) heard(s *sim.Sim) ([]acquirer.Event, []string) {
	e.t.Helper()
	for began := time.Now(); s.Stats().EventsUnderWay > 0; time.Sleep(5 * time.Millisecond) {
		if time.Since(began) > patience {
			e.t.Fatal("events are still under way")
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.events), slices.Clone(e.ids)
}

func captureOf(t *testing.T, url, ref, method string) acquirer.Answer {
	t.Helper()
	return adapterTo(t, url, time.Second).Capture(context.Background(), acquirer.CaptureRequest{Ref: ref, Amount: usd(t, "49.99"), PaymentMethod: method})
}

func TestEventsTellWhatHappened(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		method string
		found  []acquirer.Found
	}{
		{"tok_ok", []acquirer.Found{acquirer.FoundCaptured}},
		{"tok_error_captured", []acquirer.Found{acquirer.FoundCaptured}}, // the answer lies, the event does not
		{"tok_declined_captured", []acquirer.Found{acquirer.FoundCaptured}},
		{"tok_captured_twice", []acquirer.Found{acquirer.FoundCaptured, acquirer.FoundCaptured}},
		{"tok_declined", []acquirer.Found{acquirer.FoundDeclined}},
		{"tok_pending", []acquirer.Found{acquirer.FoundPending, acquirer.FoundCaptured}},
		{"tok_pending_declined", []acquirer.Found{acquirer.FoundPending, acquirer.FoundDeclined}},
		{"tok_reset_lost", nil},
		{"tok_error_lost", nil},
	} {
		t.Run(c.method, func(t *testing.T) {
			t.Parallel()
			e := listen(t)
			s, srv := start(t, sim.Config{Name: "north", PendingFor: 50 * time.Millisecond, ReportsLost: true, Events: sim.Events{URL: e.URL, Secret: eventSecret}})
			captureOf(t, srv.URL(), "K7QF2ZREC0RDED000001", c.method)
			captureOf(t, srv.URL(), "K7QF2ZREC0RDED000001", c.method) // a replay is no news
			events, ids := e.heard(s)
			var found []acquirer.Found
			for _, event := range events {
				found = append(found, event.Found)
				if event.Ref != "K7QF2ZREC0RDED000001" || (event.Found == acquirer.FoundCaptured && event.Amount.String() != "49.99") || event.At.IsZero() {
					t.Errorf("%+v", event)
				}
			}
			slices.Sort(found)
			slices.Sort(c.found)
			if !slices.Equal(found, c.found) {
				t.Errorf("told %v, want %v", found, c.found)
			}
			slices.Sort(ids)
			if len(slices.Compact(ids)) != len(events) {
				t.Errorf("ids %v", ids)
			}
		})
	}
}

func TestEventsAreDelayedLostAndDoubled(t *testing.T) {
	t.Parallel()
	capture := func(t *testing.T, e *ear, events sim.Events) *sim.Sim {
		t.Helper()
		events.URL, events.Secret = e.URL, eventSecret
		s, srv := start(t, sim.Config{Name: "north", Events: events})
		captureOf(t, srv.URL(), "K7QF2ZREC0RDED000001", "tok_ok")
		return s
	}
	t.Run("lost", func(t *testing.T) {
		t.Parallel()
		e := listen(t)
		s := capture(t, e, sim.Events{LossPercent: 100})
		if events, _ := e.heard(s); len(events) != 0 || s.Stats().EventsLost != 1 {
			t.Errorf("%v, %+v", events, s.Stats())
		}
	})
	t.Run("doubled", func(t *testing.T) {
		t.Parallel()
		e := listen(t)
		events, ids := e.heard(capture(t, e, sim.Events{DuplicatePercent: 100}))
		if len(events) != 2 || ids[0] != ids[1] {
			t.Errorf("%v, %v", events, ids)
		}
	})
	t.Run("delayed", func(t *testing.T) {
		t.Parallel()
		e := listen(t)
		began := time.Now()
		events, _ := e.heard(capture(t, e, sim.Events{Delay: 300 * time.Millisecond}))
		if len(events) != 1 || time.Since(began) < 300*time.Millisecond {
			t.Errorf("%v after %v", events, time.Since(began))
		}
	})
	t.Run("held back", func(t *testing.T) {
		t.Parallel()
		e := listen(t)
		s := capture(t, e, sim.Events{ReorderPercent: 100})
		if err := s.SetEvents(sim.Events{URL: e.URL, Secret: eventSecret}); err != nil {
			t.Fatal(err)
		}
		captureOf(t, sPort(t, s), "K7QF2ZREC0RDED000002", "tok_ok")
		events, _ := e.heard(s)
		if len(events) != 2 || events[0].Ref != "K7QF2ZREC0RDED000002" {
			t.Errorf("%v", events)
		}
	})
	t.Run("sent again until somebody takes it", func(t *testing.T) {
		t.Parallel()
		e := listen(t)
		e.refuse = 1
		s := capture(t, e, sim.Events{})
		if events, _ := e.heard(s); len(events) != 1 || s.Stats().EventsDelivered != 1 {
			t.Errorf("%v, %+v", events, s.Stats())
		}
	})
	t.Run("given up when it closes", func(t *testing.T) {
		t.Parallel()
		e := listen(t)
		s := capture(t, e, sim.Events{Delay: time.Hour})
		if err := s.Close(); err != nil || s.Stats().EventsLost != 1 {
			t.Errorf("%v, %+v", err, s.Stats())
		}
	})
}

// sPort serves a simulator on one more port.
func sPort(t *testing.T, s *sim.Sim) string {
	t.Helper()
	server := httptest.NewServer(s.Handler())
	t.Cleanup(server.Close)
	return server.URL
}

func TestEventSettingsThatAreRefused(t *testing.T) {
	t.Parallel()
	for field, events := range map[string]sim.Events{
		"URL": {URL: "gateway:80", Secret: eventSecret}, "Secret": {URL: "http://gateway", Secret: "hunter2"}, "Delay": {URL: "http://gateway", Secret: eventSecret, Delay: -1},
		"LossPercent": {URL: "http://gateway", Secret: eventSecret, LossPercent: 101}, "ReorderPercent": {URL: "http://gateway", Secret: eventSecret, ReorderPercent: -1},
	} {
		if _, err := sim.New(sim.Config{Events: events}); err == nil || !strings.Contains(err.Error(), "Events."+field) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", field, err)
		}
	}
}

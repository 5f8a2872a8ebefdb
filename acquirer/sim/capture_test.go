package sim_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"paymentsd/acquirer"
	"paymentsd/acquirer/sim"
)

func TestParallelRequestsUnderOneKeyCaptureOnce(t *testing.T) {
	t.Parallel()
	s, srv := start(t, sim.Config{Latency: 20 * time.Millisecond})
	const clients = 50
	statuses := make(chan int, clients)
	var running sync.WaitGroup
	for range clients {
		running.Go(func() { statuses <- order(t, srv.URL(), "K1", "tok_ok").status })
	}
	running.Wait()
	close(statuses)
	count := map[int]int{}
	for status := range statuses {
		count[status]++
	}
	if count[201]+count[409] != clients || count[201] == 0 {
		t.Errorf("answers by status: %v; want 201 and 409 only", count)
	}
	stats := s.Stats()
	if n := s.CapturesOf("K1"); n != 1 || stats.Captures != 1 {
		t.Errorf("%d captures in the book, %d counted; want 1", n, stats.Captures)
	}
	if stats.DuplicatesSuppressed != count[201]-1 || stats.InProgress != count[409] || stats.Requests != clients {
		t.Errorf("stats %+v do not agree with the answers %v", stats, count)
	}
}

func TestReplayIsTheSameAnswerMarked(t *testing.T) {
	t.Parallel()
	_, srv := start(t, sim.Config{})
	first, again := order(t, srv.URL(), "K1", "tok_ok"), order(t, srv.URL(), "K1", "tok_ok")
	if again.status != 201 || string(again.body) != string(first.body) {
		t.Errorf("replayed %d %s, first %s", again.status, again.body, first.body)
	}
	if first.header.Get("Idempotent-Replayed") != "" || again.header.Get("Idempotent-Replayed") != "true" {
		t.Error("the replay, and only the replay, must be marked")
	}
	declined := order(t, srv.URL(), "K2", "tok_declined")
	if again := order(t, srv.URL(), "K2", "tok_declined"); again.status != 402 || string(again.body) != string(declined.body) {
		t.Errorf("the decline is replayed as %d %s", again.status, again.body)
	}
}

func TestOtherRequestUnderAUsedKeyIsRefused(t *testing.T) {
	t.Parallel()
	s, srv := start(t, sim.Config{})
	order(t, srv.URL(), "K1", "tok_ok")
	for name, body := range map[string]string{
		"amount":         `{"reference":"K1","amount_minor":5000,"currency":"USD","payment_method":"tok_ok"}`,
		"currency":       `{"reference":"K1","amount_minor":4999,"currency":"EUR","payment_method":"tok_ok"}`,
		"reference":      `{"reference":"K2","amount_minor":4999,"currency":"USD","payment_method":"tok_ok"}`,
		"payment method": `{"reference":"K1","amount_minor":4999,"currency":"USD","payment_method":"tok_slow"}`,
		"description":    `{"reference":"K1","amount_minor":4999,"currency":"USD","payment_method":"tok_ok","description":"x"}`,
	} {
		got := do(t, http.MethodPost, srv.URL()+"/v1/captures", body, "Idempotency-Key", "K1")
		if got.status != 422 || got.field(t, "code") != "key_reused" {
			t.Errorf("another %s: %d %s", name, got.status, got.body)
		}
	}
	if n := len(s.Captures()); n != 1 {
		t.Errorf("%d records, want 1", n)
	}
}

func TestOtherRequestUnderARunningKeyIsRefused(t *testing.T) {
	t.Parallel()
	s, srv := start(t, sim.Config{SlowLatency: time.Hour})
	go func() { _, _ = http.DefaultClient.Do(slowOrder(t, srv.URL())) }() // ends when the simulator closes
	eventually(t, "the first request runs", func() bool { return s.Stats().Requests == 1 && order(t, srv.URL(), "K1", "tok_slow").status == 409 })
	if got := order(t, srv.URL(), "K1", "tok_ok"); got.status != 422 || got.field(t, "code") != "key_reused" {
		t.Errorf("%d %s", got.status, got.body)
	}
}

func slowOrder(t *testing.T, url string) *http.Request {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, url+"/v1/captures",
		strings.NewReader(`{"reference":"K1","amount_minor":4999,"currency":"USD","payment_method":"tok_slow"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Idempotency-Key", "K1")
	req.Header.Set("Content-Type", "application/json")
	return req
}

// A client that hangs up does not stop an acquirer that has begun.
func TestHungUpClientIsChargedAllTheSame(t *testing.T) {
	t.Parallel()
	s, srv := start(t, sim.Config{SlowLatency: 200 * time.Millisecond})
	got := captureUntil(t, adapterTo(t, srv.URL(), patience), "REF1", "tok_slow", "the request is under way",
		func() bool { return s.Stats().Requests == 1 })
	if got.Class != acquirer.Unclear {
		t.Fatalf("answered %+v, want unclear", got)
	}
	eventually(t, "captured after the client had gone", func() bool { return s.CapturesOf("REF1") == 1 })
}

func TestPendingTurnsIntoItsOutcome(t *testing.T) {
	t.Parallel()
	now := newClock()
	s, srv := start(t, sim.Config{Now: now.Now, PendingFor: time.Minute})
	a := adapterTo(t, srv.URL(), patience)
	capture(t, a, "REF1", "tok_pending")
	capture(t, a, "REF2", "tok_pending_declined")
	for _, ref := range []string{"REF1", "REF2"} {
		if got := a.Lookup(context.Background(), ref); got.Found != acquirer.FoundPending || got.DeclineCode != "" {
			t.Errorf("%s: %+v, want pending", ref, got)
		}
	}
	now.Advance(time.Minute)
	if got := a.Lookup(context.Background(), "REF1"); got.Found != acquirer.FoundCaptured || !got.Amount.Equal(usd(t, "49.99")) {
		t.Errorf("REF1: %+v, want captured", got)
	}
	if got := a.Lookup(context.Background(), "REF2"); got.Found != acquirer.FoundDeclined || got.DeclineCode != "card_declined" {
		t.Errorf("REF2: %+v, want declined", got)
	}
	if got := capture(t, a, "REF1", "tok_pending"); got.Class != acquirer.Captured {
		t.Errorf("a retry after it was captured: %+v", got)
	}
	if s.CapturesOf("REF1") != 1 || s.CapturesOf("REF2") != 0 {
		t.Error("the book disagrees")
	}
}

func TestInquiriesLag(t *testing.T) {
	t.Parallel()
	now := newClock()
	_, srv := start(t, sim.Config{Now: now.Now, LookupLag: 5 * time.Minute})
	a := adapterTo(t, srv.URL(), patience)
	capture(t, a, "REF1", "tok_ok")
	now.Advance(5*time.Minute - time.Microsecond)
	if got := a.Lookup(context.Background(), "REF1"); got.Found != acquirer.FoundNothing {
		t.Errorf("inside the lag: %+v", got)
	}
	now.Advance(time.Microsecond)
	if got := a.Lookup(context.Background(), "REF1"); got.Found != acquirer.FoundCaptured {
		t.Errorf("after the lag: %+v", got)
	}
}

func TestCapacityRefusesUnprocessed(t *testing.T) {
	t.Parallel()
	now := newClock()
	s, srv := start(t, sim.Config{Now: now.Now, CapacityPerSecond: 3})
	a := adapterTo(t, srv.URL(), patience)
	classes := map[acquirer.Class]int{}
	for n := range 5 {
		classes[capture(t, a, fmt.Sprintf("REF%d", n), "tok_ok").Class]++
	}
	if classes[acquirer.Captured] != 3 || classes[acquirer.Refused] != 2 {
		t.Errorf("in one second: %v, want 3 captured, 2 refused", classes)
	}
	now.Advance(time.Second)
	if got := capture(t, a, "REF4", "tok_ok"); got.Class != acquirer.Captured {
		t.Errorf("in the next second: %+v", got)
	}
	if stats := s.Stats(); stats.OverCapacity != 2 || len(stats.PerSecond) != 2 || stats.PerSecond[0].Requests != 5 || stats.PerSecond[0].OverCapacity != 2 {
		t.Errorf("stats %+v", stats)
	}
}

func TestCredentialIsAskedFor(t *testing.T) {
	t.Parallel()
	s, srv := start(t, sim.Config{Secret: "right"})
	for header, want := range map[string]int{"": 401, "Bearer wrong": 401, "right": 401, "Bearer right": 201} {
		got := do(t, http.MethodPost, srv.URL()+"/v1/captures",
			`{"reference":"K1","amount_minor":1,"currency":"USD","payment_method":"x"}`, "Idempotency-Key", "K1", "Authorization", header)
		if got.status != want {
			t.Errorf("%q: %d, want %d", header, got.status, want)
		}
	}
	if got := do(t, http.MethodGet, srv.URL()+"/v1/captures?reference=K1", ""); got.status != 401 {
		t.Errorf("an inquiry without credential: %d", got.status)
	}
	if len(s.Captures()) != 1 {
		t.Error("a refused request left a record")
	}
}

func TestFullBookRefusesUnprocessed(t *testing.T) {
	t.Parallel()
	_, srv := start(t, sim.Config{BookMax: 1})
	a := adapterTo(t, srv.URL(), patience)
	capture(t, a, "REF1", "tok_ok")
	if got := capture(t, a, "REF2", "tok_ok"); got.Class != acquirer.Refused || got.Code != "book_full" {
		t.Errorf("%+v", got)
	}
	if got := capture(t, a, "REF1", "tok_ok"); got.Class != acquirer.Captured {
		t.Errorf("what is in the book is still answered: %+v", got)
	}
}

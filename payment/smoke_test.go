package payment

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"paymentsd/acquirer"
	"paymentsd/idempotency"
	"paymentsd/internal/pgtest"
	"paymentsd/merchant"
	"paymentsd/money"
	"paymentsd/resilience"
)

type scripted struct{ answers []acquirer.Answer; calls int }

func (s *scripted) Capture(context.Context, acquirer.CaptureRequest) acquirer.Answer {
	a := s.answers[min(s.calls, len(s.answers)-1)]
	s.calls++
	return a
}
func (s *scripted) Lookup(context.Context, string) acquirer.Inquiry { return acquirer.Inquiry{} }
func (s *scripted) Capabilities() acquirer.Capabilities { return acquirer.Capabilities{DeduplicatesByKey: true} }

func TestSmoke(t *testing.T) {
	db := pgtest.New(t)
	ctx := t.Context()
	store := merchant.NewStore(db.Pool, time.Now)
	m, err := store.Create(ctx, "demo", []string{"north", "south"})
	if err != nil { t.Fatal(err) }
	route := func(name string, a acquirer.Acquirer) Route {
		c, err := resilience.NewLocal(resilience.DefaultSettings()); if err != nil { t.Fatal(err) }
		return Route{name, a, c}
	}
	north := &scripted{answers: []acquirer.Answer{{Class: acquirer.Captured, CaptureID: "n1"}, {Class: acquirer.NotSent, Failure: true}, {Class: acquirer.NotSent, Failure: true}, {Class: acquirer.NotSent, Failure: true}, {Class: acquirer.Unclear, Failure: true}}}
	south := &scripted{answers: []acquirer.Answer{{Class: acquirer.Captured, CaptureID: "s1"}, {Class: acquirer.Declined, DeclineCode: "no_money"}}}
	svc, err := New(Config{Pool: db.Pool, Routes: []Route{route("north", north), route("south", south)}, Render: func(c Charge) idempotency.Response {
		b, _ := json.Marshal(map[string]any{"id": c.ID, "status": c.Status}); return idempotency.Response{Status: 201, ContentType: "application/json", Location: "/v1/charges/" + c.ID, Body: b}
	}, Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Now: time.Now, Lease: time.Minute, Budget: 20 * time.Second, StoreTime: 5 * time.Second})
	if err != nil { t.Fatal(err) }
	amount, _ := money.Parse("49.99", "USD")
	for _, key := range []string{"a", "a", "b", "c", "c"} {
		res, err := svc.Charge(ctx, Request{Merchant: m, Key: key, Fingerprint: idempotency.Fingerprint{1}, Amount: amount, PaymentMethod: "tok_ok", Reference: "o-" + key})
		t.Logf("%s: %+v %v", key, res, err)
	}
	page, err := svc.List(ctx, Filter{Limit: 10}); t.Log(len(page.Charges), err)
	page, err = svc.List(ctx, Filter{Merchant: &m.ID, Limit: 10, Status: Unknown}); t.Log(len(page.Charges), err)
	u := page.Charges[0]
	c, err := svc.Resolve(ctx, m.ID, u.ID, Resolution{ID: "x", Evidence: Operator, Outcome: OutcomeCaptured, Acquirer: "north", CaptureID: "n7", Actor: "me", Reason: "because"})
	t.Logf("%+v %v", c, err)
	ex, err := svc.Exposures(ctx); t.Log(ex, err)
	rep, err := svc.Sweep(ctx); t.Log(rep, err)
	at, err := svc.Attempts(ctx, m.ID, page.Charges[0].ID); t.Logf("%+v %v", at, err)
	t.Log(idempotency.Maintain(ctx, db.Pool, time.Now(), 30*24*time.Hour))
	t.Log(svc.CompleteAudit(ctx, time.Now().Add(-time.Hour)))
}

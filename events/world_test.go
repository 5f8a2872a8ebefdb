package events

import (
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"paymentsd/acquirer"
	"paymentsd/acquirer/rest"
	"paymentsd/idempotency"
	"paymentsd/internal/pgtest"
	"paymentsd/internal/postgres"
	"paymentsd/internal/webhook"
	"paymentsd/merchant"
	"paymentsd/money"
	"paymentsd/payment"
	"paymentsd/reconcile"
	"paymentsd/resilience"
)

var (
	northSecret = "whsec_" + base64.StdEncoding.EncodeToString([]byte("the secret that north signs with"))
	southSecret = "whsec_" + base64.StdEncoding.EncodeToString([]byte("the secret that south signs with"))
)

// world is a merchant routed north, then south, whose acquirers answer what they are told and send events.
type world struct {
	t          *testing.T
	pool       *pgxpool.Pool
	owner      *pgxpool.Pool
	merchant   merchant.Merchant
	charges    *payment.Service
	reconciler *reconcile.Reconciler
	acquirers  map[string]*told
	rings      map[string]webhook.Ring
	n          int
	*Service
}

// told is an acquirer that answers each reference's requests from a list.
type told struct {
	acquirer.Acquirer
	mu      sync.Mutex
	answers []acquirer.Answer
	hold    chan struct{} // if set, a call waits for it to close
	held    chan struct{} // is sent to by every call that waits
}

func (a *told) Capture(_ context.Context, r acquirer.CaptureRequest) acquirer.Answer {
	a.mu.Lock()
	answer := acquirer.Answer{Class: acquirer.Captured}
	if len(a.answers) > 0 {
		answer, a.answers = a.answers[0], a.answers[1:]
	}
	hold, held := a.hold, a.held
	a.mu.Unlock()
	if hold != nil {
		held <- struct{}{}
		<-hold
	}
	if answer.Class == acquirer.Captured {
		answer.CaptureID = "cap_" + r.Ref
	}
	if answer.Class == acquirer.Declined {
		answer.DeclineCode = "no_money"
	}
	answer.Detail = "as it was told"
	return answer
}

func (a *told) next(classes ...acquirer.Class) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answers = nil
	for _, class := range classes {
		a.answers = append(a.answers, acquirer.Answer{Class: class})
	}
}

func frozen(c payment.Charge) idempotency.Response {
	return idempotency.Response{Status: 201, ContentType: "application/json", Location: "/v1/charges/" + c.ID, Body: fmt.Appendf(nil, "%s %s", c.ID, c.Status)}
}

func newWorld(t *testing.T, change ...func(*Config)) *world {
	t.Helper()
	db := pgtest.New(t)
	owner, err := postgres.Open(t.Context(), postgres.Config{URL: db.OwnerURL(), MaxConns: 4, Name: "the test itself"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(owner.Close)
	w := &world{t: t, pool: db.Pool, owner: owner, acquirers: map[string]*told{}, rings: map[string]webhook.Ring{}}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	sources := map[string]Source{}
	var routes []payment.Route
	for name, secret := range map[string]string{"north": northSecret, "south": southSecret} {
		adapter, err := rest.New(acquirer.Config{Name: name, URL: "http://127.0.0.1:1", EventSecrets: []acquirer.Secret{acquirer.Secret(secret)}})
		if err != nil {
			t.Fatal(err)
		}
		w.acquirers[name] = &told{Acquirer: adapter}
		w.rings[name], _ = webhook.NewRing(secret)
		sources[name] = Source{adapter.(acquirer.EventSource), adapter.Capabilities()}
		settings := resilience.DefaultSettings()
		settings.Breaker.MinAttempts, settings.Retry.Attempts, settings.Bulkhead.Slots = 1_000_000, 1, 100
		chain, err := resilience.NewLocal(settings)
		if err != nil {
			t.Fatal(err)
		}
		routes = append(routes, payment.Route{Name: name, Adapter: w.acquirers[name], Chain: chain})
	}
	if w.charges, err = payment.New(payment.Config{
		Pool: db.Pool, Routes: routes, Render: frozen, Log: log, Now: time.Now, Lease: time.Minute, Budget: 20 * time.Second, StoreTime: 5 * time.Second,
	}); err != nil {
		t.Fatal(err)
	}
	merchants := merchant.NewStore(db.Pool, time.Now)
	if w.merchant, err = merchants.Create(t.Context(), "shop", []string{"north", "south"}); err != nil {
		t.Fatal(err)
	}
	w.reconciler = reconcile.New(reconcile.Config{Pool: db.Pool, Resolver: w.charges.Resolver, Merchants: merchants, Now: time.Now, Log: log, LockWait: 20 * time.Second})
	config := Config{Pool: db.Pool, Sources: sources, Charges: w.charges, Exceptions: w.reconciler, Now: time.Now, Log: log}
	for _, c := range change {
		c(&config)
	}
	w.Service = New(config)
	return w
}

func usd(text string) money.Amount {
	a, err := money.Parse(text, "USD")
	if err != nil {
		panic(err)
	}
	return a
}

func (w *world) request() payment.Request {
	w.n++
	key := fmt.Sprintf("order-%d", w.n)
	return payment.Request{Merchant: w.merchant, Key: key, Amount: usd("49.99"), Reference: key, PaymentMethod: "tok_ok", Priority: resilience.Normal}
}

// charge leaves a charge whose attempts were answered so: north first, then south.
func (w *world) charge(north, south acquirer.Class) payment.Charge {
	w.t.Helper()
	w.acquirers["north"].next(north)
	w.acquirers["south"].next(south)
	result, err := w.charges.Charge(w.t.Context(), w.request())
	if err != nil {
		w.t.Fatal(err)
	}
	return result.Charge
}

func (w *world) unknown() payment.Charge {
	w.t.Helper()
	c := w.charge(acquirer.Unclear, acquirer.Captured)
	if c.Status != payment.Unknown || c.Acquirer != "north" {
		w.t.Fatalf("%+v", c)
	}
	return c
}

// now reads the charge again.
func (w *world) now(c payment.Charge) payment.Charge {
	w.t.Helper()
	c, err := w.charges.Get(w.t.Context(), c.Merchant, c.ID)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

func (w *world) evidence(c payment.Charge) []payment.Resolution {
	w.t.Helper()
	all, err := w.charges.Resolutions(w.t.Context(), c.Merchant, c.ID)
	if err != nil {
		w.t.Fatal(err)
	}
	return all
}

// tells is the body of an event about a reference.
func tells(status, ref, amountMinor, currency, captureID string) string {
	return fmt.Sprintf(`{"type":"capture.%[1]s","timestamp":"2026-11-30T09:00:00Z","data":{"id":%[5]q,"reference":%[2]q,"amount_minor":%[3]s,"currency":%[4]q,"status":%[1]q,"decline_code":"no_money"}}`,
		status, ref, amountMinor, currency, captureID)
}

func captured(c payment.Charge) string {
	return tells("captured", c.AcqRef, "4999", "USD", "cap_"+c.AcqRef)
}
func declined(c payment.Charge) string { return tells("declined", c.AcqRef, "4999", "USD", "cap_no") }

// send has an acquirer send an event, signed now.
func (w *world) send(ctx context.Context, from, id, body string) (replayed bool, err error) {
	h := http.Header{}
	if err := w.rings[from].Sign(h, id, time.Now(), []byte(body)); err != nil {
		return false, err
	}
	v, err := w.Verify(from, h, []byte(body))
	if err != nil {
		return false, err
	}
	return w.Receive(ctx, v)
}

func (w *world) mustSend(from, id, body string) {
	w.t.Helper()
	if replayed, err := w.send(w.t.Context(), from, id, body); err != nil || replayed {
		w.t.Fatalf("event %s of %s: replayed %v, %v", id, from, replayed, err)
	}
}

// kept is an event as it is in Postgres.
type kept struct {
	State, Outcome, Type, Charge, LastError string
	Tries                                   int
}

func (w *world) kept(from, id string) (k kept) {
	w.t.Helper()
	err := w.owner.QueryRow(w.t.Context(), `select state, coalesce(outcome, ''), type, coalesce(charge_id, ''), last_error, tries from acquirer_events where acquirer = $1 and event_id = $2`, from, id).
		Scan(&k.State, &k.Outcome, &k.Type, &k.Charge, &k.LastError, &k.Tries)
	if err != nil {
		w.t.Fatalf("event %s of %s: %v", id, from, err)
	}
	return k
}

func (w *world) wantOutcome(from, id string, want outcome) {
	w.t.Helper()
	if k := w.kept(from, id); k.State != "handled" || k.Outcome != string(want) {
		w.t.Errorf("event %s of %s is %+v, want %s", id, from, k, want)
	}
}

// open are the classes of the open exceptions.
func (w *world) open() (classes []reconcile.Class) {
	w.t.Helper()
	all, _, err := w.reconciler.Exceptions(w.t.Context(), reconcile.ExceptionFilter{State: "open", Limit: 100})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, e := range all {
		classes = append(classes, e.Class)
	}
	return classes
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	if _, err := w.owner.Exec(w.t.Context(), sql, args...); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
}

func (w *world) count(sql string, args ...any) (n int) {
	w.t.Helper()
	if err := w.owner.QueryRow(w.t.Context(), sql, args...).Scan(&n); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
	return n
}

// allDue lets the waits of all events pass, and handles them.
func (w *world) allDue() {
	w.t.Helper()
	w.exec(`update acquirer_events set next_try_at = now() - interval '1 second' where state = 'received'`)
	if _, err := w.HandleDue(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

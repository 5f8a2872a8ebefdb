package payment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"paymentsd/acquirer"
	"paymentsd/idempotency"
	"paymentsd/internal/pgtest"
	"paymentsd/ledger"
	"paymentsd/merchant"
	"paymentsd/money"
	"paymentsd/resilience"
)

// shop is a Service on a database of its own, with a merchant routed to its acquirers in order.
type shop struct {
	*Service
	*books
	merchant merchant.Merchant
}

// books is the database behind a shop, seen from outside.
type books struct {
	t     *testing.T
	db    *pgtest.DB
	owner *pgx.Conn
}

// named is an acquirer and the policies under which it is called.
type named struct {
	name     string
	adapter  acquirer.Acquirer
	settings resilience.Settings
}

// plainly are policies that never stand in the way: three tries a millisecond apart.
func plainly() resilience.Settings {
	s := resilience.DefaultSettings()
	s.Breaker.MinAttempts = 1_000_000
	s.Budget = resilience.BudgetConfig{Floor: 1_000_000, Percent: 100, BurstFloor: 1_000_000}
	s.Bulkhead.Slots = 1_000
	s.Retry = resilience.Retry{Attempts: 3, Backoff: resilience.Backoff{Jitter: resilience.JitterFull, Base: time.Millisecond, Cap: time.Millisecond}}
	return s
}

func routeOf(t testing.TB, n named) Route {
	t.Helper()
	chain, err := resilience.NewLocal(n.settings)
	if err != nil {
		t.Fatal(err)
	}
	return Route{Name: n.name, Adapter: n.adapter, Chain: chain}
}

// frozenAs is the test's Render: enough of the charge to see that a replay has the same bytes.
func frozenAs(c Charge) idempotency.Response {
	body, err := json.Marshal(map[string]string{
		"id": c.ID, "status": string(c.Status), "amount": c.Amount.String(), "capture": c.CaptureID, "at": c.UpdatedAt.Format(time.RFC3339Nano),
	})
	if err != nil {
		panic(err)
	}
	status := 201
	if c.Status != Captured {
		status = 402
	}
	return idempotency.Response{Status: status, ContentType: "application/json", Location: "/v1/charges/" + c.ID, Body: body}
}

func openBooks(t *testing.T) *books {
	t.Helper()
	db := pgtest.New(t)
	return &books{t: t, db: db, owner: db.Owner()}
}

// opening changes the Config of a shop before it opens.
type opening func(*Config)

func openShop(t *testing.T, acquirers []named, changes ...opening) *shop {
	t.Helper()
	return openBooks(t).shop(t, acquirers, changes...)
}

// shop opens a Service on these books; two on the same books are two replicas.
func (b *books) shop(t *testing.T, acquirers []named, changes ...opening) *shop {
	t.Helper()
	var names []string
	config := Config{
		Pool: b.db.Pool, Render: frozenAs, Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Now: time.Now,
		Lease: time.Minute, Budget: 20 * time.Second, StoreTime: 5 * time.Second,
	}
	for _, a := range acquirers {
		config.Routes = append(config.Routes, routeOf(t, a))
		names = append(names, a.name)
	}
	for _, change := range changes {
		change(&config)
	}
	service, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	m, err := merchant.NewStore(b.db.Pool, time.Now).Create(t.Context(), "demo", names)
	if err != nil {
		t.Fatal(err)
	}
	return &shop{Service: service, books: b, merchant: m}
}

// request is a POST under key, for an order of the same name.
func (s *shop) request(key string) Request {
	return Request{
		Merchant: s.merchant, Key: key, Fingerprint: idempotency.Fingerprint{1, 2, 3}, Amount: usd("49.99"),
		Reference: "order-" + key, PaymentMethod: "tok_ok", Priority: resilience.Critical,
	}
}

func usd(text string) money.Amount {
	amount, err := money.Parse(text, "USD")
	if err != nil {
		panic(err)
	}
	return amount
}

// charge posts and expects an outcome.
func (s *shop) charge(req Request) Result {
	s.t.Helper()
	result, err := s.Charge(s.t.Context(), req)
	if err != nil {
		s.t.Fatalf("charge %s: %v", req.Key, err)
	}
	return result
}

// refusal posts and expects to be refused as want.
func refusal[E error](s *shop, req Request) E {
	s.t.Helper()
	result, err := s.Charge(s.t.Context(), req)
	refused, ok := asError[E](err)
	if !ok {
		s.t.Fatalf("charge %s: result %+v, error %v; want a %T", req.Key, result, err, refused)
	}
	return refused
}

func (b *books) count(sql string, args ...any) int {
	b.t.Helper()
	var n int
	if err := b.owner.QueryRow(context.WithoutCancel(b.t.Context()), sql, args...).Scan(&n); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
	return n
}

func (b *books) exec(sql string, args ...any) {
	b.t.Helper()
	if _, err := b.owner.Exec(b.t.Context(), sql, args...); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
}

// letLeasePass makes a key look as if its holder was lost long ago.
func (b *books) letLeasePass(key string) {
	b.t.Helper()
	b.exec(`update idempotency_keys set lease_until = now() - interval '1 second' where key = $1 and state = 'in_flight'`, key)
}

// wantRows checks how many rows of each kind the books hold.
func (b *books) wantRows(keys, charges, attempts, transfers, events int) {
	b.t.Helper()
	got := [5]int{
		b.count(`select count(*) from idempotency_keys`), b.count(`select count(*) from charges`),
		b.count(`select count(*) from attempts`), b.count(`select count(*) from ledger_transfers`),
		b.count(`select count(*) from outbox`),
	}
	if want := [5]int{keys, charges, attempts, transfers, events}; got != want {
		b.t.Errorf("keys, charges, attempts, transfers, events: %v, want %v", got, want)
	}
}

// wantBalanced checks that debits and credits are equal in every currency and that each captured
// charge has its one transfer.
func (b *books) wantBalanced() {
	b.t.Helper()
	sums, err := ledger.TrialBalance(b.t.Context(), b.owner)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, sum := range sums {
		if !sum.Net().IsZero() {
			b.t.Errorf("the trial balance of %s is %s", sum.Currency, sum.Net())
		}
	}
	if n := b.count(`
		select count(*) from charges c full join ledger_transfers t
		    on t.merchant_id = c.merchant_id and t.charge_id = c.charge_id and t.kind = 'capture'
		 where (coalesce(c.status, '') = 'captured') <> (t.transfer_id is not null)
		    or t.amount <> c.amount or t.currency <> c.currency
		    or t.debit_account <> 'acquirer_receivable:' || c.acquirer or t.credit_account <> 'merchant_payable'`); n != 0 {
		b.t.Errorf("%d charges and transfers do not fit together", n)
	}
}

// script is an acquirer that answers what it is told, and captures when it is told nothing.
type script struct {
	promises acquirer.Capabilities
	found    acquirer.Inquiry
	// during, if set, runs inside each call, before its answer; n counts from 1.
	during func(n int, ctx context.Context)

	mu      sync.Mutex
	answers []acquirer.Answer
	asked   []acquirer.CaptureRequest
	lookups int
}

func answering(answers ...acquirer.Answer) *script {
	return &script{promises: acquirer.Capabilities{DeduplicatesByKey: true, LooksUpByReference: true}, answers: answers}
}

func (s *script) Capture(ctx context.Context, req acquirer.CaptureRequest) acquirer.Answer {
	s.mu.Lock()
	s.asked = append(s.asked, req)
	n := len(s.asked)
	answer := of(acquirer.Captured)
	if len(s.answers) > 0 {
		answer, s.answers = s.answers[0], s.answers[1:]
	}
	s.mu.Unlock()
	if s.during != nil {
		s.during(n, ctx)
	}
	if answer.Class == acquirer.Captured && answer.CaptureID == "" {
		answer.CaptureID = "cap_" + req.Ref
	}
	return answer
}

func (s *script) Lookup(context.Context, string) acquirer.Inquiry {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lookups++
	return s.found
}

func (s *script) Capabilities() acquirer.Capabilities { return s.promises }

func (s *script) calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.asked)
}

func (s *script) refs() map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	refs := map[string]bool{}
	for _, req := range s.asked {
		refs[req.Ref] = true
	}
	return refs
}

func (s *script) tell(answers ...acquirer.Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers = answers
}

// of is an answer of a class as adapters give it.
func of(class acquirer.Class) acquirer.Answer {
	a := acquirer.Answer{Class: class, Detail: fmt.Sprintf("scripted: %s", class)}
	switch class {
	case acquirer.Declined:
		a.DeclineCode, a.HTTPStatus = "card_declined", 402
	case acquirer.Rejected:
		a.HTTPStatus = 400
	case acquirer.Refused:
		a.HTTPStatus, a.Failure = 503, true
	case acquirer.InProgress:
		a.HTTPStatus = 409
	case acquirer.NotSent, acquirer.Unclear:
		a.Failure = true
	}
	return a
}

func times(n int, a acquirer.Answer) []acquirer.Answer {
	all := make([]acquirer.Answer, n)
	for i := range all {
		all[i] = a
	}
	return all
}

func wantStatus(t *testing.T, r Result, want Status) {
	t.Helper()
	if r.Charge.Status != want {
		t.Fatalf("charge %s is %s (%s: %s), want %s", r.Charge.ID, r.Charge.Status, r.Charge.Reason, r.Charge.Detail, want)
	}
}

func wantCalls(t *testing.T, who string, s *script, want int) {
	t.Helper()
	if got := s.calls(); got != want {
		t.Errorf("%s was called %d times, want %d", who, got, want)
	}
}

func asError[E error](err error) (E, bool) { return errors.AsType[E](err) }

package payment

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"paymentsd/acquirer"
	"paymentsd/idempotency"
	"paymentsd/internal/pgtest"
	"paymentsd/internal/postgres"
	"paymentsd/ledger"
	"paymentsd/merchant"
	"paymentsd/money"
	"paymentsd/resilience"
)

// books is a migrated database, seen from outside. Tests share one where they can: each has its own merchant.
type books struct {
	db    *pgtest.DB
	owner *pgxpool.Pool
}

// shop is a Service on some books, with a merchant routed to its acquirers in order.
type shop struct {
	*Service
	*books
	t        *testing.T
	merchant merchant.Merchant
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
	owner, err := postgres.Open(t.Context(), postgres.Config{URL: db.OwnerURL(), MaxConns: 4, Name: "the test itself"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(owner.Close)
	return &books{db: db, owner: owner}
}

// opening changes the Config of a shop before it opens.
type opening func(*Config)

// openShop opens a Service on books of its own.
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
	return &shop{Service: service, books: b, t: t, merchant: m}
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

func yen(text string) money.Amount {
	amount, err := money.Parse(text, "JPY")
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

func (s *shop) count(sql string, args ...any) int {
	s.t.Helper()
	var n int
	if err := s.owner.QueryRow(s.t.Context(), sql, args...).Scan(&n); err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
	return n
}

func (s *shop) exec(sql string, args ...any) {
	s.t.Helper()
	if _, err := s.owner.Exec(s.t.Context(), sql, args...); err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
}

// letLeasePass makes a key look as if its holder was lost long ago.
func (s *shop) letLeasePass(key string) {
	s.t.Helper()
	s.exec(`update idempotency_keys set lease_until = now() - interval '1 second' where merchant_id = $1 and key = $2 and state = 'in_flight'`, s.merchant.ID, key)
}

// wantRows checks how many rows of each kind the merchant has.
func (s *shop) wantRows(keys, charges, attempts, transfers, events int) {
	s.t.Helper()
	got := [5]int{}
	for i, table := range []string{"idempotency_keys", "charges", "attempts", "ledger_transfers", "outbox"} {
		got[i] = s.count(`select count(*) from `+table+` where merchant_id = $1`, s.merchant.ID)
	}
	if want := [5]int{keys, charges, attempts, transfers, events}; got != want {
		s.t.Errorf("keys, charges, attempts, transfers, events: %v, want %v", got, want)
	}
}

// wantBalanced checks that debits and credits are equal in every currency and that each captured
// charge has its one transfer.
func (s *shop) wantBalanced() {
	s.t.Helper()
	sums, err := ledger.TrialBalance(s.t.Context(), s.owner)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, sum := range sums {
		if !sum.Net().IsZero() {
			s.t.Errorf("the trial balance of %s is %s", sum.Currency, sum.Net())
		}
	}
	if n := s.count(`
		select count(*) from charges c full join ledger_transfers t
		    on t.merchant_id = c.merchant_id and t.charge_id = c.charge_id and t.kind = 'capture'
		 where (coalesce(c.status, '') = 'captured') <> (t.transfer_id is not null)
		    or t.amount <> c.amount or t.currency <> c.currency
		    or t.debit_account <> 'acquirer_receivable:' || c.acquirer or t.credit_account <> 'merchant_payable'`); n != 0 {
		s.t.Errorf("%d charges and transfers do not fit together", n)
	}
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

// panicIn is what an adapter with a fault does in its nth call.
func panicIn(call int) func(int, context.Context) {
	return func(n int, _ context.Context) {
		if n == call {
			panic("an adapter's fault")
		}
	}
}

// inAndOut tells when a call is inside the acquirer, and keeps it there until leave is closed.
func inAndOut(inside chan<- struct{}, leave <-chan struct{}) func(int, context.Context) {
	return func(int, context.Context) {
		inside <- struct{}{}
		<-leave
	}
}

// chargeAside posts on another goroutine; what it returns waits for the result.
func (s *shop) chargeAside(req Request) func() Result {
	s.t.Helper()
	type ended struct {
		result Result
		err    error
	}
	done := make(chan ended, 1)
	go func() {
		result, err := s.Charge(s.t.Context(), req)
		done <- ended{result, err}
	}()
	return func() Result {
		s.t.Helper()
		select {
		case e := <-done:
			if e.err != nil {
				s.t.Fatalf("charge %s: %v", req.Key, e.err)
			}
			return e.result
		case <-time.After(30 * time.Second):
			s.t.Fatalf("charge %s does not end", req.Key)
		}
		return Result{}
	}
}

// withFault does something once, at a step of the path.
func withFault(at string, do func()) opening {
	var once sync.Once
	return func(c *Config) {
		c.Fault = func(step string) {
			if step == at {
				once.Do(do)
			}
		}
	}
}

// killed posts and expects the work to end on the way, by runtime.Goexit, as if the process were lost.
func (s *shop) killed(req Request) {
	s.t.Helper()
	var gone sync.WaitGroup
	survived := false
	gone.Go(func() {
		_, _ = s.Charge(s.t.Context(), req)
		survived = true
	})
	gone.Wait()
	if survived {
		s.t.Fatalf("charge %s survived, it should have been killed", req.Key)
	}
}

// resolve applies evidence and expects it to be accepted.
func (s *shop) resolve(c Charge, e Resolution) Charge {
	s.t.Helper()
	now, err := s.Resolve(s.t.Context(), c.Merchant, c.ID, e)
	if err != nil {
		s.t.Fatalf("resolve %s: %v", c.ID, err)
	}
	return now
}

// awaitSeconds waits for a condition, for some seconds at most.
func (s *shop) awaitSeconds(met func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		if met() {
			return
		}
	}
	s.t.Fatal("what the test waits for does not come")
}

// awaitWaiter waits until a statement of the service waits for a lock.
func (s *shop) awaitWaiter(statement string) {
	s.t.Helper()
	s.awaitSeconds(func() bool {
		return s.count(`
			select count(*) from pg_stat_activity a
			 where a.datname = current_database() and a.wait_event_type = 'Lock' and a.query like '%' || $1 || '%'`, statement) > 0
	})
}

// smallPool is a pool of the service's role with few connections.
func (b *books) smallPool(t *testing.T, connections int32) (*pgxpool.Pool, error) {
	t.Helper()
	pool, err := postgres.Open(t.Context(), postgres.Config{URL: b.db.OwnerURL(), Role: postgres.ServiceRole, MaxConns: connections})
	if err == nil {
		t.Cleanup(pool.Close)
	}
	return pool, err
}

func sqlState(err error) string { return postgres.SQLState(err) }

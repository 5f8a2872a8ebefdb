package api_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"paymentsd/acquirer"
	"paymentsd/acquirer/rest"
	"paymentsd/acquirer/sim"
	"paymentsd/api"
	"paymentsd/events"
	"paymentsd/idempotency"
	"paymentsd/internal/pgtest"
	"paymentsd/internal/postgres"
	"paymentsd/ledger"
	"paymentsd/merchant"
	"paymentsd/payment"
	"paymentsd/reconcile"
	"paymentsd/resilience"
	"paymentsd/resilience/shared"
)

// attemptTimeout is how long an acquirer may take here, and slowLatency what "slow" takes: enough to
// look at a charge while it runs.
const (
	attemptTimeout = 4 * time.Second
	slowLatency    = 1500 * time.Millisecond
)

// world is the whole service on real Postgres, with simulated acquirers behind real HTTP: north and south
// for two shops, and west, which writes USD without decimals and takes no key of ours, for an odd one.
type world struct {
	t          *testing.T
	pool       *pgxpool.Pool
	wire       *pgtest.Wire // between the service and Postgres
	serviceURL string       // by way of it
	merchants  *merchant.Store
	service    *payment.Service
	reconciler *reconcile.Reconciler
	events     *events.Service // of north alone
	acquirers  map[string]*sim.Server
	sims       map[string]*sim.Sim
	shedder    *resilience.Shedder
	crowd      []*resilience.Visit
	handler    http.Handler
	server     *httptest.Server
	log        *safeBuffer
	keys       map[string]string // by the placeholder's name
	shop       merchant.Merchant
	stopping   atomic.Bool
	broken     atomic.Bool // the books panic
	policies   resilience.Settings
	shared     *shared.Shared // nil: each breaker is the process's own
}

func newWorld(t *testing.T) *world { return makeWorld(t, nil, nil) }

// newSharedWorld is one of the replicas that share breakers and budgets.
func newSharedWorld(t *testing.T) *world { return newWorldUnder(t, nil) }

// newWorldUnder has policies that differ from the world's.
func newWorldUnder(t *testing.T, change func(*resilience.Settings)) *world {
	return makeWorld(t, change, func(w *world, log *slog.Logger) {
		var all []shared.Acquirer
		for _, name := range []string{"north", "south", "west"} {
			all = append(all, shared.Acquirer{Name: name, Breaker: w.policies.Breaker, Budget: w.policies.Budget})
		}
		w.shared = w.join(shared.Config{URL: w.serviceURL, Replica: "test", Acquirers: all, Log: log})
	})
}

// worldPolicies are the defaults, with one try.
func worldPolicies() resilience.Settings {
	s := resilience.DefaultSettings()
	s.Retry = resilience.Retry{
		Attempts: 1, Backoff: resilience.Backoff{Jitter: resilience.JitterFull, Base: time.Millisecond, Cap: time.Millisecond}, CallP99: 10 * time.Millisecond, FirstMin: 10 * time.Millisecond,
	}
	return s
}

// join opens a replica; on a busy machine the first statements may take longer than they are given.
func (w *world) join(config shared.Config) *shared.Shared {
	w.t.Helper()
	var s *shared.Shared
	var err error
	for range 10 {
		if s, err = shared.Open(w.t.Context(), config); err == nil {
			w.t.Cleanup(s.Close)
			return s
		}
	}
	w.t.Fatal(err)
	return nil
}

// flushes waits until the replica has told the others what it had counted before, and has read the sums.
func (w *world) flushes() {
	w.t.Helper()
	breaker := w.shared.Breaker("north")
	for range 2 { // the first may have begun before
		last := breaker.Snapshot().Sharing.Heard
		for deadline := time.Now().Add(30 * time.Second); !breaker.Snapshot().Sharing.Heard.After(last); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				w.t.Fatal("the replica does not report")
			}
		}
	}
}

func makeWorld(t *testing.T, change func(*resilience.Settings), sharing func(*world, *slog.Logger)) *world {
	t.Helper()
	db := pgtest.New(t)
	w := &world{
		t: t, log: &safeBuffer{},
		acquirers: map[string]*sim.Server{}, sims: map[string]*sim.Sim{}, keys: map[string]string{},
	}
	w.policies = worldPolicies()
	if change != nil {
		change(&w.policies)
	}
	w.wire, w.serviceURL = pgtest.NewWire(t, db.ServiceURL())
	var err error
	if w.pool, err = postgres.Open(t.Context(), postgres.Config{URL: w.serviceURL, MaxConns: 8, StatementTimeout: time.Minute, Name: "test"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.pool.Close)
	w.merchants = merchant.NewStore(w.pool, time.Now)
	log := slog.New(slog.NewJSONHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the service's log:\n%s", w.log.String())
		}
	})
	if sharing != nil {
		sharing(w, log)
	}
	w.service = w.newService(log)
	w.reconciler = reconcile.New(reconcile.Config{
		Pool: w.pool, Resolver: w.service.Resolver, Merchants: w.merchants, Now: time.Now, Log: log, LockWait: 100 * time.Millisecond,
	})
	fingerprinter, err := idempotency.NewFingerprinter(bytes.Repeat([]byte("k"), 32))
	if err != nil {
		t.Fatal(err)
	}
	w.shedder = newShedder(t, places)
	registry := prometheus.NewRegistry()
	w.events = w.newEvents(log)
	w.handler = api.New(api.Deps{
		Auth: w.merchants, Charges: w.service, Records: w.service, Resolver: w.service, Acquirers: w.service,
		Ledger: books{w}, Reconciliation: w.reconciler, Fingerprinter: fingerprinter, Ready: w.ready, Shedder: w.shedder, Events: w.events,
		Metrics: registry, Gatherer: registry, Exposures: w.service, Log: log, Now: time.Now, Version: "test",
		Limits: api.Limits{FileBytesMax: 1 << 20},
	})
	w.server = httptest.NewServer(w.handler)
	t.Cleanup(w.server.Close)
	w.addMerchants()
	return w
}

func (w *world) newService(log *slog.Logger) *payment.Service {
	w.t.Helper()
	config := payment.Config{
		Pool: w.pool, Routes: []payment.Route{
			w.newRoute("north", "", nil), w.newRoute("south", "", nil),
			w.newRoute("west", "another-secret", map[string]string{"exponents": "USD=0"}),
		},
		Render: api.Render, Log: log, Now: time.Now,
		Lease: time.Minute, Budget: 15 * time.Second, StoreTime: 5 * time.Second,
	}
	if w.shared != nil {
		config.Replicas = w.shared
	}
	service, err := payment.New(config)
	if err != nil {
		w.t.Fatal(err)
	}
	return service
}

// northSecret signs north's events.
var northSecret = "whsec_" + base64.StdEncoding.EncodeToString([]byte("the secret that north signs with"))

func (w *world) newEvents(log *slog.Logger) *events.Service {
	w.t.Helper()
	north, err := rest.New(acquirer.Config{Name: "north", URL: w.acquirers["north"].URL(), EventSecrets: []acquirer.Secret{acquirer.Secret(northSecret)}})
	if err != nil {
		w.t.Fatal(err)
	}
	return events.New(events.Config{
		Pool: w.pool, Charges: w.service, Exceptions: w.reconciler, Now: time.Now, Log: log,
		Sources: map[string]events.Source{"north": {EventSource: north.(acquirer.EventSource), Capabilities: north.Capabilities()}},
	})
}

func (w *world) newRoute(name, secret string, settings map[string]string) payment.Route {
	w.t.Helper()
	s, err := sim.New(sim.Config{Name: name, Secret: "secret-of-" + name, SlowLatency: slowLatency})
	if err != nil {
		w.t.Fatal(err)
	}
	server, err := sim.Serve(s, "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = server.Close() })
	w.acquirers[name], w.sims[name] = server, s
	if secret == "" {
		secret = "secret-of-" + name
	}
	adapter, err := rest.New(acquirer.Config{
		Name: name, URL: server.URL(), Secret: acquirer.Secret(secret), Timeout: attemptTimeout, Settings: settings,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return payment.Route{Name: name, Adapter: adapter, Chain: w.chain(name)}
}

func (w *world) chain(name string) *resilience.Chain {
	w.t.Helper()
	if w.shared == nil {
		chain, err := resilience.NewLocal(w.policies)
		if err != nil {
			w.t.Fatal(err)
		}
		return chain
	}
	bulkhead, err := resilience.NewBulkhead(w.policies.Bulkhead)
	if err != nil {
		w.t.Fatal(err)
	}
	chain, err := resilience.NewChain(resilience.ChainConfig{
		Breaker: w.shared.Breaker(name), Budget: w.shared.Budget(name), Bulkhead: bulkhead, Retry: w.policies.Retry,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return chain
}

func (w *world) addMerchants() {
	w.t.Helper()
	w.shop = w.addMerchant("Shop", "north", "south")
	other := w.addMerchant("Other Shop", "north", "south")
	odd := w.addMerchant("Odd Shop", "west")
	w.addKey("charges key", &w.shop.ID, merchant.RoleCharges)
	w.addKey("read key", &w.shop.ID, merchant.RoleRead)
	w.addKey("shop ops key", &w.shop.ID, merchant.RoleOps)
	w.addKey("ops key", nil, merchant.RoleOps)
	w.addKey("other charges key", &other.ID, merchant.RoleCharges)
	w.addKey("other ops key", &other.ID, merchant.RoleOps)
	w.addKey("odd charges key", &odd.ID, merchant.RoleCharges)
}

func (w *world) addMerchant(name string, acquirers ...string) merchant.Merchant {
	w.t.Helper()
	m, err := w.merchants.Create(w.t.Context(), name, acquirers)
	if err != nil {
		w.t.Fatal(err)
	}
	return m
}

func (w *world) addKey(name string, m *merchant.ID, role merchant.Role) {
	w.t.Helper()
	_, presented, err := w.merchants.CreateKey(w.t.Context(), merchant.NewKey{Merchant: m, Role: role, Name: name})
	if err != nil {
		w.t.Fatal(err)
	}
	w.keys[name] = presented
}

func (w *world) ready(ctx context.Context) error {
	if w.stopping.Load() {
		return errors.New("the process is stopping")
	}
	return w.pool.Ping(ctx)
}

// settlementFile is what an acquirer hands out for yesterday to tomorrow.
func (w *world) settlementFile(ctx context.Context, name string) ([]byte, error) {
	now := time.Now().UTC().Truncate(24 * time.Hour)
	address := w.acquirers[name].URL() + "/settlement?from=" + now.Add(-24*time.Hour).Format(time.RFC3339) + "&to=" + now.Add(24*time.Hour).Format(time.RFC3339)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer secret-of-"+name)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if response.StatusCode != http.StatusOK {
		return nil, errors.New(string(body))
	}
	return body, err
}

// reconcile runs the nightly job for one acquirer.
func (w *world) reconcile(ctx context.Context, name string) error {
	_, err := w.reconciler.Run(ctx, reconcile.Request{
		Acquirer: name, Format: "canonical", AsOf: time.Now().UTC(), Feeds: []reconcile.Feed{{
			Name: name + ".csv", Open: func(ctx context.Context) (io.ReadCloser, error) {
				file, err := w.settlementFile(ctx, name)
				return io.NopCloser(bytes.NewReader(file)), err
			},
		}},
	})
	return err
}

// books reads the ledger, or panics when the world is broken on purpose.
type books struct{ w *world }

func (b books) Balances(ctx context.Context, m merchant.ID) ([]ledger.Balance, error) {
	if b.w.broken.Load() {
		panic("the books are broken on purpose")
	}
	return ledger.Balances(ctx, b.w.pool, m)
}

func (b books) Transfers(ctx context.Context, m merchant.ID, q ledger.Query) ([]ledger.Transfer, bool, error) {
	return ledger.Transfers(ctx, b.w.pool, m, q)
}

type safeBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}

// hold keeps the reconciliation of an acquirer busy until the test ends: a run takes a file in that does
// not come to its end.
func (w *world) hold(acquirer string) {
	reading, ended := make(chan struct{}), make(chan struct{})
	in, out := io.Pipe()
	first := sync.OnceFunc(func() { close(reading) })
	file := readerFunc(func(p []byte) (int, error) { first(); return in.Read(p) })
	go func() {
		defer close(ended)
		_, _ = w.reconciler.Run(context.WithoutCancel(w.t.Context()), reconcile.Request{
			Acquirer: acquirer, Format: "canonical", AsOf: time.Now().UTC(), Feeds: []reconcile.Feed{{
				Name: "held.csv", Open: func(context.Context) (io.ReadCloser, error) { return io.NopCloser(file), nil },
			}},
		})
	}()
	w.t.Cleanup(func() {
		_ = out.CloseWithError(errors.New("the test is over"))
		<-ended
	})
	<-reading
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

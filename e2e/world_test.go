package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"paymentsd/acquirer/sim"
	"paymentsd/internal/pgtest"
	"paymentsd/internal/postgres"
	"paymentsd/internal/replica"
	"paymentsd/merchant"
)

// limits are the times of the services in a world.
type limits struct {
	storeTime, attempt, budget, lease time.Duration
}

// steady bears a busy machine: a test that needs a lease to be over lets it pass by leasesPass.
func steady() limits {
	return limits{storeTime: 2500 * time.Millisecond, attempt: 3 * time.Second, budget: 5 * time.Second, lease: 12 * time.Second}
}

// quick lets real leases pass within a test, which has to bear answers that a busy machine is too late for.
func quick() limits {
	return limits{storeTime: 1200 * time.Millisecond, attempt: 1500 * time.Millisecond, budget: 2 * time.Second, lease: 4500 * time.Millisecond}
}

// ordinary is the production ladder, for tests in which no time has to pass.
func ordinary() limits {
	return limits{storeTime: 5 * time.Second, attempt: 8 * time.Second, budget: 20 * time.Second, lease: time.Minute}
}

// world is a database, two acquirers, and a merchant that is routed north, then south.
type world struct {
	t            *testing.T
	owner        string        // address of the database, as its owner
	limits       limits        // of the services
	pool         *pgxpool.Pool // as the service's role
	north, south *acquirerSim
	merchant     merchant.Merchant
	chargesKey   string
	opsKey       string
	config       string // path of the services' YAML file
}

// in is the world seen from a subtest.
func (w *world) in(t *testing.T) *world {
	inner := *w
	inner.t = t
	return &inner
}

type acquirerSim struct {
	*sim.Sim
	url string
}

// options are what a test wants to be different.
type options struct {
	limits  limits
	breaker string     // YAML of both acquirers' breakers
	retry   string     // YAML of how both are tried again
	sim     sim.Config // of both acquirers
	trust   string     // both acquirers' trust delay; an hour, so that no inquiry comes between
	jobs    string     // YAML of the jobs
	owner   string     // address of a database that is there already
	route   []string   // of the merchant; north, then south
}

// neverOpens keeps a breaker out of a test that is about something else.
const neverOpens = "{min_attempts: 100000}"

func newWorld(t *testing.T, o options) *world {
	t.Helper()
	if o.limits == (limits{}) {
		o.limits = steady()
	}
	if o.breaker == "" {
		o.breaker = neverOpens
	}
	if o.retry == "" {
		o.retry = "{base: 10ms, cap: 50ms, call_p99: 50ms}"
	}
	if o.trust == "" {
		o.trust = "1h"
	}
	if o.jobs == "" {
		o.jobs = "{database_conns: 4}"
	}
	w := &world{t: t, owner: o.owner, limits: o.limits}
	if w.owner == "" {
		w.owner = pgtest.New(t).OwnerURL()
	}
	pool, err := postgres.Open(t.Context(), postgres.Config{URL: w.owner, Role: postgres.ServiceRole, MaxConns: 4, Name: "e2e"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	w.pool = pool
	w.north, w.south = serveAcquirer(t, "north", o.sim), serveAcquirer(t, "south", o.sim)
	if o.route == nil {
		o.route = []string{"north", "south"}
	}
	w.addMerchant(o.route)
	w.config = filepath.Join(t.TempDir(), "serve.yaml")
	if err := os.WriteFile(w.config, []byte(w.yaml(o)), 0o600); err != nil {
		t.Fatal(err)
	}
	return w
}

func serveAcquirer(t *testing.T, name string, config sim.Config) *acquirerSim {
	t.Helper()
	config.Name = name
	s, err := sim.New(config)
	if err != nil {
		t.Fatal(err)
	}
	server, err := sim.Serve(s, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Errorf("close the simulator %s: %v", name, err)
		}
	})
	return &acquirerSim{s, server.URL()}
}

func (w *world) addMerchant(route []string) {
	w.t.Helper()
	ctx := w.t.Context()
	store := merchant.NewStore(w.pool, time.Now)
	var err error
	if w.merchant, err = store.Create(ctx, "Shop", route); err != nil {
		w.t.Fatal(err)
	}
	if _, w.chargesKey, err = store.CreateKey(ctx, merchant.NewKey{Merchant: &w.merchant.ID, Role: merchant.RoleCharges, Name: "checkout"}); err != nil {
		w.t.Fatal(err)
	}
	if _, w.opsKey, err = store.CreateKey(ctx, merchant.NewKey{Role: merchant.RoleOps, Name: "ops"}); err != nil {
		w.t.Fatal(err)
	}
}

// requestTimeMax is the ladder's outermost time: a service that is told to stop ends within it.
const requestTimeMax = 25 * time.Second

func (w *world) yaml(o options) string {
	var text strings.Builder
	fmt.Fprintf(&text, "server: {request_time_max: %v, database_conns: 8}\n", requestTimeMax)
	fmt.Fprintf(&text, "charge: {budget: %v, store_time: %v, lease: %v, sweep: 200ms}\n", o.limits.budget, o.limits.storeTime, o.limits.lease)
	fmt.Fprintf(&text, "jobs: %s\n", o.jobs)
	fmt.Fprintf(&text, "acquirers:\n")
	secret := secretFile(w.t)
	for _, a := range []struct{ name, url string }{{"north", w.north.url}, {"south", w.south.url}} {
		fmt.Fprintf(&text, "- name: %s\n  url: %s\n  timeout: %v\n  settings: {trust_delay: %s}\n  breaker: %s\n", a.name, a.url, o.limits.attempt, o.trust, o.breaker)
		fmt.Fprintf(&text, "  events: {secrets: [{file: '%s'}]}\n", secret)
		fmt.Fprintf(&text, "  budget: {floor: 1000, percent: 100, burst_floor: 1000}\n  retry: %s\n", o.retry)
	}
	return text.String()
}

// service is a replica and what it wrote to stderr.
type service struct {
	*replica.Replica
	stderr *lockedBuffer
}

// start runs a service and has it gone by the end of the test. Env may name a fault point.
func (w *world) start(env ...string) *service {
	w.t.Helper()
	binary, err := paymentsd()
	if err != nil {
		w.t.Fatal(err)
	}
	s := &service{stderr: &lockedBuffer{}}
	s.Replica, err = replica.Start(w.t.Context(), replica.Config{
		Binary: binary, ConfigFile: w.config, DatabaseURL: w.owner, FingerprintKey: bytes.Repeat([]byte{7}, 32), Env: env, Stderr: s.stderr,
	})
	if err != nil {
		w.t.Fatalf("%v\n%s", err, s.stderr)
	}
	w.t.Cleanup(func() {
		if err := s.Kill(); err != nil {
			w.t.Error(err)
		}
		text := s.stderr.String()
		if w.t.Failed() && text != "" {
			w.t.Logf("the service %d wrote:\n%s", s.PID(), text)
		}
		for _, bad := range []string{"DATA RACE", "panic:", "fatal error:"} {
			if strings.Contains(text, bad) {
				w.t.Errorf("the service %d wrote %q:\n%s", s.PID(), bad, text)
			}
		}
	})
	return s
}

// fault is the environment that kills a service at a step.
func fault(step string) string { return "PAYMENTSD_FAULT=" + step }

// gone waits for the process to end by itself.
func (s *service) gone(t *testing.T) {
	t.Helper()
	select {
	case <-s.Ended():
	case <-time.After(waitMax):
		t.Fatalf("the service %d is still running", s.PID())
	}
}

func (s *service) kill(t *testing.T) {
	t.Helper()
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
}

// waitMax bounds every wait for something to become true. Only a failing test waits as long, or one on a
// machine that is very busy.
const waitMax = 90 * time.Second

// until waits for a condition, looking often.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitMax)
	defer cancel()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for !done() {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			t.Fatalf("waited %v in vain: %s", waitMax, what)
		}
	}
}

// lockedBuffer takes what several goroutines write.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

package e2e

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"paymentsd/acquirer/sim"
)

// outage is how long Postgres is away.
const outage = 10 * time.Second

// Postgres is away for ten seconds in the middle of load, while north's breaker is open: nobody probes
// without a lease, nothing is sent for what is refused, and all comes back by itself.
func TestPostgresAwayForTenSeconds(t *testing.T) {
	t.Parallel()
	postgres := newPrivate(t)
	w := newWorld(t, options{
		limits: quick(), owner: postgres.server.URL(), breaker: shortBreaker, retry: "{attempts: 1, call_p99: 50ms}",
		sim: sim.Config{Latency: 20 * time.Millisecond, SlowLatency: 1200 * time.Millisecond},
	})
	services := []*service{w.start(), w.start()}
	shops := []*shop{w.shop(services[0]), w.shop(services[1])}
	for i, s := range shops {
		s.charge(t, fmt.Sprint("first-", i), with("tok_ok")).want(t, http.StatusCreated, "captured")
	}
	before := []int{goroutines(t, services[0]), goroutines(t, services[1])}
	if err := w.north.SetFaults(sim.Fault{Kind: "unprocessed"}); err != nil { // 503 before processing: on to south
		t.Fatal(err)
	}

	load := newPressure(t, shops)
	w.awaitBreaker(t, "open", services...)
	until(t, "the load is under way", func() bool { return load.count(http.StatusCreated) > 20 })
	slow := shops[0].background(t.Context(), "slow", with("tok_slow"))
	until(t, "the slow charge is at an acquirer", func() bool { return w.pending("slow") })
	address := postgres.server.URL()
	postgres.stop()
	w.pool.Reset()
	stopped := time.Now()

	// What was claimed before is finished; then nothing more may reach an acquirer.
	inFlight := <-slow
	if inFlight.status != http.StatusAccepted && inFlight.status != http.StatusCreated {
		t.Errorf("the charge in flight ended as %v; want captured or unknown", inFlight)
	}
	time.Sleep(w.limits.attempt)
	north, south := w.north.Stats().Requests, w.south.Stats().Requests
	refused, others := load.refusals()
	time.Sleep(outage - time.Since(stopped))
	if n := w.north.Stats().Requests - north; n != 0 {
		t.Errorf("%d requests reached north: a probe without a lease", n)
	}
	if n := w.south.Stats().Requests - south; n != 0 {
		t.Errorf("%d requests reached south for charges that could not be written down", n)
	}
	if more, different := load.refusals(); more-refused < 10 || different != others {
		t.Errorf("%d refusals with 503 and %d other answers while Postgres was away", more-refused, different-others)
	}

	if err := w.north.ClearFaults(); err != nil {
		t.Fatal(err)
	}
	postgres.start()
	if postgres.server.URL() != address {
		t.Fatalf("Postgres came back as %s, not as %s", postgres.server.URL(), address)
	}
	w.pool.Reset()
	w.awaitBreaker(t, "closed", services...) // by a probe out of the load
	w.agree(t, services...)
	load.stop()
	for i, s := range shops {
		r := s.charge(t, fmt.Sprint("last-", i), with("tok_ok"))
		r.want(t, http.StatusCreated, "captured")
		if r.Acquirer != "north" {
			t.Errorf("captured at %s after the recovery", r.Acquirer)
		}
	}
	w.nothingInFlight()
	w.consistent()
	w.settle()
	w.nothingLeftBehind(t, services, shops, before)
}

// nothingLeftBehind: the processes come back to about as many goroutines as before, and to their own connections.
func (w *world) nothingLeftBehind(t *testing.T, services []*service, shops []*shop, before []int) {
	t.Helper()
	for _, s := range shops {
		s.client.CloseIdleConnections()
	}
	http.DefaultClient.CloseIdleConnections()
	const slack = 12 // idle connections of pools and clients have two each
	for i, s := range services {
		until(t, fmt.Sprintf("the goroutines of a service come back to %d", before[i]), func() bool { return goroutines(t, s) <= before[i]+slack })
	}
	const resilience = `select count(*) from pg_stat_activity where datname = current_database() and application_name like 'paymentsd resilience%'`
	const each = 3 // two of the pool and one that listens
	until(t, "the connections of the shared breaker are those of two replicas", func() bool {
		var n int
		return w.pool.QueryRow(t.Context(), resilience).Scan(&n) == nil && n <= each*len(services)
	})
	for _, s := range services {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	}
	const all = `select count(*) from pg_stat_activity where datname = current_database() and application_name like 'paymentsd%'`
	until(t, "stopped services have no connection", func() bool {
		var n int
		return w.pool.QueryRow(t.Context(), all).Scan(&n) == nil && n == 0
	})
}

// goroutines reads /metrics; a service that does not answer has very many.
func goroutines(t *testing.T, s *service) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 1 << 20
	}
	defer response.Body.Close()
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), "go_goroutines "); ok {
			n, err := strconv.Atoi(value)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	return 1 << 20
}

// pressure is load that goes on, whatever it is answered, and counts the answers.
type pressure struct {
	cancel context.CancelFunc
	posts  sync.WaitGroup

	mu       sync.Mutex
	answered map[int]int
}

func newPressure(t *testing.T, shops []*shop) *pressure {
	ctx, cancel := context.WithCancel(t.Context())
	p := &pressure{cancel: cancel, answered: map[int]int{}}
	t.Cleanup(p.stop)
	const clients = 4
	for client := range clients {
		p.posts.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				// Not with ctx: a charge that was begun is waited for.
				r, err := shops[client%len(shops)].post(t.Context(), fmt.Sprintf("load-%d-%d", client, n), with("tok_ok"))
				if err == nil {
					p.mu.Lock()
					p.answered[r.status]++
					p.mu.Unlock()
				}
				time.Sleep(20 * time.Millisecond)
			}
		})
	}
	return p
}

func (p *pressure) count(status int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.answered[status]
}

// refusals are the answers 503, and all others.
func (p *pressure) refusals() (refused, others int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for status, n := range p.answered {
		if status == http.StatusServiceUnavailable {
			refused += n
		} else {
			others += n
		}
	}
	return refused, others
}

func (p *pressure) stop() {
	p.cancel()
	p.posts.Wait()
}

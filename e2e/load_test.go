package e2e

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"paymentsd/acquirer/sim"
)

// till is what clients of a load received, by key.
type till struct {
	mu   sync.Mutex
	got  map[string]reply // the last 2xx
	bad  []string         // answers that no client should ever get
	sent int
}

func (l *till) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.got)
}

// note takes an answer and says whether it is final.
func (l *till) note(key string, r reply, err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent++
	switch {
	case err != nil: // no whole answer came: the client knows nothing
		return false
	case r.status == http.StatusCreated || r.status == http.StatusAccepted:
		l.got[key] = r
		return true
	case r.status == http.StatusServiceUnavailable && r.Retry && r.header.Get("Retry-After") != "":
	case r.status == http.StatusConflict && r.Code == "idempotency_key_in_flight":
	default:
		l.bad = append(l.bad, fmt.Sprintf("%s: %v", key, r))
	}
	return false
}

const (
	loadClients = 8
	loadCharges = 40 // of each client
)

// load runs clients that charge one order after the other, until all are done. Charge sends one order,
// however often it has to, and says whether the client goes on.
func load(charge func(client int, key string) bool) *sync.WaitGroup {
	var all sync.WaitGroup
	for client := range loadClients {
		all.Go(func() {
			for n := range loadCharges {
				if !charge(client, fmt.Sprintf("client-%d-%d", client, n)) {
					return
				}
			}
		})
	}
	return &all
}

// kept holds that everything that was answered is in Postgres, and as it was answered.
func (w *world) kept(l *till) {
	t := w.t
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, bad := range l.bad {
		t.Errorf("a client got %s", bad)
	}
	stored := map[string]row{}
	for _, charge := range w.rows() {
		stored[charge.ID] = charge
	}
	captured := 0
	for key, r := range l.got {
		charge, there := stored[r.ID]
		switch {
		case !there || charge.Key != key:
			t.Errorf("%s was answered %d, and Postgres has %+v", key, r.status, charge)
		case r.status == http.StatusCreated:
			captured++
			if charge.Status != "captured" || charge.Postings != 1 {
				t.Errorf("%s was answered captured, and Postgres has %+v", key, charge)
			}
		}
	}
	t.Logf("%d requests; %d charges answered, %d of them captured: all are in Postgres", l.sent, len(l.got), captured)
}

// A deployment stops a service while it works.
func TestTermUnderLoad(t *testing.T) {
	t.Parallel()
	t.Run("peers case 9: SIGTERM during load, and every 2xx given is in Postgres", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, options{sim: sim.Config{Latency: 20 * time.Millisecond, SlowLatency: 2 * time.Second}})
		service := w.start()
		s, l := w.shop(service), &till{got: map[string]reply{}}
		over := load(func(_ int, key string) bool {
			r, err := s.post(t.Context(), key, with("tok_ok"))
			l.note(key, r, err)
			return err == nil
		})
		until(t, "the load is not under way", func() bool { return l.count() > 60 })
		slow, hanging := s.background(t.Context(), "slow", with("tok_slow")), s.background(t.Context(), "hanging", with("tok_timeout_captured"))
		until(t, "the slow ones are not in flight", func() bool { return w.pending("slow", "hanging") })
		unready := watchReadiness(t.Context(), service)
		began := time.Now()
		if err := service.Stop(); err != nil {
			t.Errorf("the service did not exit with 0: %v", err)
		}
		if took := time.Since(began); took > requestTimeMax+2*time.Second {
			t.Errorf("stopping took %v, more than the ladder allows", took)
		}
		over.Wait()
		(<-slow).want(t, http.StatusCreated, "captured")
		(<-hanging).want(t, http.StatusAccepted, "unknown")
		if !<-unready {
			t.Error("readiness was never false before the port closed")
		}
		w.kept(l)
		w.consistent() // at once: nothing is left in flight for a sweep
		w.settle()
	})
}

// background posts a charge whose answer is wanted later; without an answer its status is 0.
func (s *shop) background(ctx context.Context, key string, o order) <-chan reply {
	answer := make(chan reply, 1)
	go func() {
		r, _ := s.post(ctx, key, o)
		answer <- r
	}()
	return answer
}

// pending says whether the charges under all these keys are under way.
func (w *world) pending(keys ...string) bool {
	n := 0
	for _, r := range w.rows() {
		if slices.Contains(keys, r.Key) && r.Status == "pending" {
			n++
		}
	}
	return n == len(keys)
}

// readiness asks a service once; 0 means that it did not answer.
func readiness(ctx context.Context, service *service) int {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, service.URL+"/readyz", nil)
	if err != nil {
		return 0
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0
	}
	response.Body.Close()
	return response.StatusCode
}

// watchReadiness asks until the port is closed, and says whether the service called itself unready before.
func watchReadiness(ctx context.Context, service *service) <-chan bool {
	seen := make(chan bool, 1)
	go func() {
		unready := false
		for ctx.Err() == nil {
			status := readiness(ctx, service)
			if status == 0 {
				break
			}
			unready = unready || status == http.StatusServiceUnavailable
			time.Sleep(5 * time.Millisecond) // one look after the other, not a storm
		}
		seen <- unready
	}()
	return seen
}

// One of two services is killed in the middle of everything; clients go to the other one with the same keys.
func TestKillUnderLoad(t *testing.T) {
	t.Parallel()
	t.Run("peers case 9: kill -9 during load, and every 2xx given is in Postgres", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, options{limits: quick(), sim: sim.Config{Latency: 20 * time.Millisecond}})
		doomed, other := w.start(), w.start()
		l := &till{got: map[string]reply{}}
		shops := []*shop{w.shop(doomed), w.shop(other)}
		over := load(func(client int, key string) bool { return insistAnywhere(t.Context(), l, shops, client, key) })
		until(t, "the load is not under way", func() bool { return l.count() > 60 })
		doomed.kill(t)
		over.Wait()
		if n := l.count(); n != loadClients*loadCharges {
			t.Errorf("%d charges of %d got an answer in the end", n, loadClients*loadCharges)
		}
		w.kept(l)
		w.nothingInFlight()
		w.consistent()
		w.settle()
	})
}

// insistAnywhere posts one order under one key until it has an answer, at another service whenever one
// gives none.
func insistAnywhere(ctx context.Context, l *till, shops []*shop, first int, key string) bool {
	ctx, cancel := context.WithTimeout(ctx, waitMax)
	defer cancel()
	for at := first; ctx.Err() == nil; time.Sleep(20 * time.Millisecond) { // a client's pause
		r, err := shops[at%len(shops)].post(ctx, key, with("tok_ok"))
		if l.note(key, r, err) {
			return true
		}
		if err != nil {
			at++
		}
	}
	return false
}

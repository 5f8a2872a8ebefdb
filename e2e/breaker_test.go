package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"paymentsd/acquirer/sim"
)

// breaker is an acquirer's breaker as one replica shows it.
type breaker struct {
	State         string `json:"state"`
	Mode          string `json:"mode"`
	Epoch         int64  `json:"epoch"`
	Reason        string `json:"reason"`
	ProbeInFlight bool   `json:"probe_in_flight"`
}

// seenAcquirer is an element of GET /v1/acquirers.
type seenAcquirer struct {
	Name    string  `json:"name"`
	Breaker breaker `json:"breaker"`
	Sharing struct {
		Replica      string `json:"replica"`
		HeldBack     string `json:"held_back"`
		StoreAnswers bool   `json:"store_answers"`
		Learning     string `json:"learning"`
	} `json:"sharing"`
	Reports []struct {
		Replica            string
		Attempts, Failures int64
	} `json:"reports"`
}

// acquirerAt asks one replica how an acquirer stands.
func (w *world) acquirerAt(ctx context.Context, s *service, name string) (seenAcquirer, error) {
	ops := newShop(s.URL, w.opsKey)
	defer ops.client.CloseIdleConnections() // it is asked very often
	r, err := ops.get(ctx, "/v1/acquirers")
	if err != nil || r.status != http.StatusOK {
		return seenAcquirer{}, fmt.Errorf("GET /v1/acquirers: %v, %w", r, err)
	}
	var list struct{ Data []seenAcquirer }
	if err := json.Unmarshal([]byte(r.text), &list); err != nil {
		return seenAcquirer{}, err
	}
	for _, a := range list.Data {
		if a.Name == name {
			return a, nil
		}
	}
	return seenAcquirer{}, fmt.Errorf("no %s in %s", name, r.text)
}

// awaitBreaker waits until north's breaker is in a state on every one of the replicas.
func (w *world) awaitBreaker(t *testing.T, state string, all ...*service) (last breaker) {
	t.Helper()
	for _, s := range all {
		until(t, "north's breaker is "+state, func() bool {
			a, err := w.acquirerAt(t.Context(), s, "north")
			last = a.Breaker
			return err == nil && a.Breaker.State == state
		})
	}
	return last
}

// breakerLimits leave a probe time to be slow in, on a machine that is busy.
func breakerLimits() limits {
	return limits{storeTime: 2500 * time.Millisecond, attempt: 7 * time.Second, budget: 9 * time.Second, lease: 16 * time.Second}
}

// shortBreaker opens after a few failures, for a second; a probe that nobody hears of is replaced after 9 s.
const shortBreaker = "{min_attempts: 4, slow_call: 0s, open_for: 1s, open_max: 1s, open_jitter_percent: 0, reopen_within: 0s, " +
	"probe_lease: 9s, probe_margin: 1s, ramp: []}"

// onlyNorth is one try at one acquirer: what is refused has nowhere else to go.
func onlyNorth() options {
	return options{
		limits: breakerLimits(), breaker: shortBreaker, route: []string{"north"}, retry: "{attempts: 1, call_p99: 50ms}",
		sim: sim.Config{SlowLatency: 5 * time.Second},
	}
}

// trip has north fail for charges that come through some replicas, until the breaker is open on all.
func (w *world) trip(t *testing.T, through []*service, all ...*service) breaker {
	t.Helper()
	if err := w.north.SetFaults(sim.Fault{Kind: "error_lost"}); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		s := w.shop(through[i%len(through)])
		s.charge(t, fmt.Sprintf("trip-%d-%d", w.north.Stats().Requests, i), with("tok_ok")).want(t, http.StatusAccepted, "unknown")
	}
	last := w.awaitBreaker(t, "open", all...)
	if err := w.north.ClearFaults(); err != nil {
		t.Fatal(err)
	}
	return last
}

// probeDue lets the open time pass; nobody asks meanwhile.
func probeDue() { time.Sleep(1200 * time.Millisecond) }

// agree fails unless every replica shows the same state, mode and epoch.
func (w *world) agree(t *testing.T, all ...*service) {
	t.Helper()
	until(t, "the replicas agree", func() bool {
		first, err := w.acquirerAt(t.Context(), all[0], "north")
		for _, s := range all[1:] {
			a, otherErr := w.acquirerAt(t.Context(), s, "north")
			if err != nil || otherErr != nil || a.Breaker.State != first.Breaker.State || a.Breaker.Mode != first.Breaker.Mode || a.Breaker.Epoch != first.Breaker.Epoch {
				return false
			}
		}
		return true
	})
}

// Three processes are one client of an acquirer.
func TestReplicasShareTheBreaker(t *testing.T) {
	t.Parallel()
	t.Run("it opens on all, one probe reaches the acquirer, and it closes on all", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, onlyNorth())
		all := []*service{w.start(), w.start(), w.start()}
		w.trip(t, all[:2], all...)
		w.agree(t, all...)
		for _, s := range all {
			if a, err := w.acquirerAt(t.Context(), s, "north"); err != nil || a.Sharing.Learning != "listening" || a.Sharing.HeldBack != "" || a.Breaker.Epoch != 2 {
				t.Errorf("%+v, %v", a, err)
			}
		}
		probeDue()
		before := w.north.Stats().Requests
		captured, refused := w.atOnce(t, all, 12)
		if n := w.north.Stats().Requests - before; n != 1 || captured != 1 || refused != 11 {
			t.Errorf("%d requests reached north; %d captured, %d refused; want one probe and 11 refusals", n, captured, refused)
		}
		w.awaitBreaker(t, "closed", all...)
		w.agree(t, all...)
		for i, s := range all {
			w.shop(s).charge(t, fmt.Sprint("after-", i), with("tok_ok")).want(t, http.StatusCreated, "captured")
		}
		w.settle()
	})
	t.Run("a person's order to one holds on all", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, onlyNorth())
		all := []*service{w.start("PAYMENTSD_REPLICA=first"), w.start(), w.start()}
		w.order(t, all[0], "open")
		w.awaitBreaker(t, "open", all...)
		w.agree(t, all...)
		if a, err := w.acquirerAt(t.Context(), all[0], "north"); err != nil || !strings.HasPrefix(a.Sharing.Replica, "first/") {
			t.Errorf("the replica is called %q, %v", a.Sharing.Replica, err)
		}
		for _, s := range all {
			metrics(t, s,
				`paymentsd_breaker_state{acquirer="north",state="open"} 1`, `paymentsd_breaker_state{acquirer="north",state="closed"} 0`,
				`paymentsd_breaker_state{acquirer="south",state="closed"} 1`, `paymentsd_breaker_epoch{acquirer="north"} 2`,
				`paymentsd_breaker_transitions_total{acquirer="north",from="closed",to="open"} 1`, `paymentsd_breaker_held_back{acquirer="north"} 0`,
				`paymentsd_breaker_store_up{acquirer="north"} 1`, `paymentsd_breaker_listening{acquirer="north"} 1`,
				`paymentsd_retry_budget_used{acquirer="north",window="60s"} 0`, `paymentsd_retry_budget_limit{acquirer="north",window="1s"} 1000`,
				`paymentsd_bulkhead_in_flight{acquirer="north"} 0`, `paymentsd_bulkhead_limit{acquirer="north"} 64`)
		}
		for i, s := range all {
			r := w.shop(s).charge(t, fmt.Sprint("refused-", i), with("tok_ok"))
			if r.status != http.StatusServiceUnavailable || r.Reason != "circuit_open" {
				t.Errorf("replica %d: %v", i, r)
			}
		}
		if n := w.north.Stats().Requests; n != 0 {
			t.Errorf("%d requests reached north", n)
		}
		w.order(t, all[2], "auto")
		until(t, "the next charge is the probe, and closes it", func() bool {
			r, err := w.shop(all[1]).post(t.Context(), "probe", with("tok_ok"))
			return err == nil && r.status == http.StatusCreated
		})
		w.awaitBreaker(t, "closed", all...)
		w.agree(t, all...)
	})
	t.Run("resilience case 3: the process with the probe is killed -9, and another probes after the lease", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, onlyNorth())
		all := []*service{w.start(), w.start(), w.start()}
		w.trip(t, all[1:2], all...)
		probeDue()
		before := w.north.Stats().Requests
		claimed := time.Now()
		w.shop(all[0]).lose(t.Context(), "killed", with("tok_slow"))
		until(t, "the probe is at north", func() bool { return w.north.Stats().Requests == before+1 })
		all[0].kill(t)
		living := all[1:]
		var replacedAfter time.Duration
		for n := 0; replacedAfter == 0; n++ {
			if n > 2000 {
				t.Fatal("nobody probes any more")
			}
			r, err := w.shop(living[n%2]).post(t.Context(), fmt.Sprint("next-", n), with("tok_ok"))
			switch {
			case err != nil:
				t.Fatal(err)
			case r.status == http.StatusCreated:
				replacedAfter = time.Since(claimed)
			case r.status != http.StatusServiceUnavailable || r.Reason != "circuit_open":
				t.Fatalf("answered %v", r)
			}
			time.Sleep(50 * time.Millisecond)
		}
		if replacedAfter < 8*time.Second { // the lease began after claimed, so this cannot be early by chance
			t.Errorf("another probe went out %v after the first, whose lease was 9 s", replacedAfter)
		}
		if n := w.north.Stats().Requests - before; n != 2 {
			t.Errorf("%d requests reached north, want the lost probe and its successor", n)
		}
		w.awaitBreaker(t, "closed", living...)
		w.agree(t, living...)
		w.leasesPass()
		w.nothingInFlight()
		w.settle()
	})
}

// order steers north's breaker by way of one replica.
func (w *world) order(t *testing.T, s *service, mode string) {
	t.Helper()
	r, err := newShop(s.URL, w.opsKey).postJSON(t.Context(), "/v1/acquirers/north/breaker", "", fmt.Sprintf(`{"mode": %q, "reason": "a test"}`, mode))
	if err != nil || r.status != http.StatusOK {
		t.Fatalf("%s: %v, %v", mode, r, err)
	}
}

// atOnce posts n slow charges to all replicas at the same time.
func (w *world) atOnce(t *testing.T, all []*service, n int) (captured, refused int64) {
	t.Helper()
	var posts sync.WaitGroup
	var done, turned atomic.Int64
	for i := range n {
		posts.Go(func() {
			r, err := w.shop(all[i%len(all)]).post(t.Context(), fmt.Sprint("at-once-", i), with("tok_slow"))
			switch {
			case err != nil:
				t.Error(err)
			case r.status == http.StatusCreated:
				done.Add(1)
			case r.status == http.StatusServiceUnavailable && r.Reason == "circuit_open":
				turned.Add(1)
			default:
				t.Errorf("answered %v", r)
			}
		})
	}
	posts.Wait()
	return done.Load(), turned.Load()
}

// metrics waits until a service shows every line: a listener hears of a transition a moment after it.
func metrics(t *testing.T, s *service, lines ...string) {
	t.Helper()
	for _, line := range lines {
		until(t, "the metrics say "+line, func() bool {
			response, err := http.Get(s.URL + "/metrics")
			if err != nil {
				return false
			}
			defer response.Body.Close()
			text, err := io.ReadAll(response.Body)
			return err == nil && strings.Contains(string(text), line+"\n")
		})
	}
}

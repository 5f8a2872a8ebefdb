package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"
	"time"

	"paymentsd/acquirer/sim"
)

// What north can do to a request: after an unclear one money may have moved, after a safe one it cannot have.
var (
	unclearFaults = []string{
		"timeout_captured", "timeout_lost", "error_captured", "error_lost", "reset_captured", "reset_lost", "truncated_captured",
		"garbled_captured", "html_lost", "maintenance_lost", "unknown_captured", "redirect_lost", "wrong_amount", "wrong_currency",
		"wrong_reference", "pending",
	}
	safeFaults = []string{"unprocessed", "rate_limited"}
)

// tries is how often one acquirer is asked at most for one charge.
const tries = 3

// A fault that leaves it open whether money moved keeps the charge at north, whatever else happens
// before or after.
func TestUnclearNeverFailsOver(t *testing.T) {
	t.Parallel()
	t.Run("idempotency case 29 and peers case 5: every unclear fault alone", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, options{limits: patient(), sim: sim.Config{PendingFor: 6 * time.Second}})
		s := w.shop(w.start())
		for _, kind := range unclearFaults {
			w.meet(s, kind, []string{kind, kind, kind})
		}
		w.consistent()
		w.settle()
	})
	const sequences = 4
	for seed := range uint64(sequences) {
		t.Run(fmt.Sprintf("in any order, seed %d", seed), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, options{limits: patient(), sim: sim.Config{PendingFor: 6 * time.Second}})
			s := w.shop(w.start())
			random := rand.New(rand.NewPCG(seed, 1))
			for n := range 8 {
				w.meet(s, fmt.Sprintf("order-%d", n), someFaults(random))
			}
			w.consistent()
			w.settle()
		})
	}
}

// patient leaves time for all tries, with the second that a refusing acquirer asks for.
func patient() limits {
	return limits{storeTime: 1900 * time.Millisecond, attempt: 2 * time.Second, budget: 14 * time.Second, lease: 60 * time.Second}
}

// someFaults are one to three faults in a row, of which each is as often safe as not.
func someFaults(random *rand.Rand) []string {
	kinds := make([]string, 1+random.IntN(tries))
	for i := range kinds {
		from := unclearFaults
		if random.IntN(2) == 0 {
			from = safeFaults
		}
		kinds[i] = from[random.IntN(len(from))]
	}
	return kinds
}

// meet lets one charge meet these faults at north, one a try, and holds what has to come of it: south is
// asked only if all of north's answers were refusals, and then it captures under the same reference.
func (w *world) meet(s *shop, key string, kinds []string) {
	t := w.t
	t.Helper()
	var faults []sim.Fault
	for _, kind := range kinds {
		faults = append(faults, sim.Fault{Kind: kind, Count: 1})
	}
	if err := w.north.SetFaults(faults...); err != nil {
		t.Fatal(err)
	}
	faulty, south := w.north.faulty(), w.south.Stats().Requests
	r := s.charge(t, key, with("tok_ok"))
	charge := w.row(key)
	asked := w.south.Stats().Requests - south
	told := fmt.Sprintf("%v: answer %d, charge %s at %s, south asked %d times", kinds, r.status, charge.Status, charge.Acquirer, asked)
	if n := w.north.faulty() - faulty; n != len(kinds) {
		t.Errorf("%s: north met it with %d faults", told, n)
	}
	unclear := slices.ContainsFunc(kinds, func(kind string) bool { return slices.Contains(unclearFaults, kind) })
	switch {
	case !unclear && len(kinds) == tries:
		if r.status != http.StatusCreated || charge.Acquirer != "south" || asked != 1 || w.south.CapturesOf(charge.AcqRef) != 1 {
			t.Errorf("%s; want it captured at south, under the same reference", told)
		}
		return
	case len(kinds) == tries || r.status != http.StatusCreated:
		// What was pending may still be so at the last try.
		if r.status != http.StatusAccepted || len(kinds) < tries && !slices.Contains(kinds, "pending") {
			t.Errorf("%s; want it unknown", told)
		}
	}
	if asked != 0 || charge.Acquirer != "north" {
		t.Errorf("%s; want south left alone", told)
	}
}

// faulty counts the requests that met a fault.
func (a *acquirerSim) faulty() (n int) {
	for _, hits := range a.Stats().Faults {
		n += hits
	}
	return n
}

// What proves that nothing was sent lets the second acquirer capture, under the same reference.
func TestNothingSentFailsOver(t *testing.T) {
	t.Parallel()
	t.Run("dial refused", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, options{})
		s := w.shop(w.start())
		s.charge(t, "warm", with("tok_ok")).want(t, http.StatusCreated, "captured") // leaves an idle connection
		northDown(w)
		w.capturedAtSouth(s, "order-1")
		if n := w.attempts(w.row("order-1")); n != 2 {
			t.Errorf("%d attempts are on record, want 2", n)
		}
		if err := w.north.ClearFaults(); err != nil {
			t.Fatal(err)
		}
		w.settle()
	})
	t.Run("breaker open by its own rules", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, options{breaker: "{min_attempts: 3, open_for: 5m, open_max: 5m}"})
		service := w.start()
		s := w.shop(service)
		s.charge(t, "unlucky", with("tok_error_lost")).want(t, http.StatusAccepted, "unknown")
		w.awaitBreaker(t, "open", service)
		asked := w.north.Stats().Requests
		w.capturedAtSouth(s, "order-1")
		if n := w.north.Stats().Requests - asked; n != 0 {
			t.Errorf("north was asked %d times behind an open breaker", n)
		}
		w.settle()
	})
	t.Run("breaker held open by a person", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, options{})
		service := w.start()
		s := w.shop(service)
		r, err := newShop(service.URL, w.opsKey).postJSON(t.Context(), "/v1/acquirers/north/breaker", "", `{"mode": "open", "reason": "north called"}`)
		if err != nil || r.status != http.StatusOK {
			t.Fatalf("hold the breaker open: %v, %v", r, err)
		}
		w.capturedAtSouth(s, "order-1")
		if n := w.north.Stats().Requests; n != 0 {
			t.Errorf("north was asked %d times behind an open breaker", n)
		}
		w.settle()
	})
	t.Run("ambiguity is sticky: a connection that broke after the request, then dials refused", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, options{})
		s := w.shop(w.start())
		if err := w.north.SetFaults(sim.Fault{Kind: "timeout_captured", Count: 1}); err != nil {
			t.Fatal(err)
		}
		answer := make(chan reply, 1)
		go func() {
			r, _ := s.post(t.Context(), "order-1", with("tok_ok")) // without an answer the status below is 0
			answer <- r
		}()
		until(t, "north captures", func() bool { return w.north.Stats().Captures == 1 })
		northDown(w)
		(<-answer).want(t, http.StatusAccepted, "unknown")
		if n := w.south.Stats().Requests; n != 0 {
			t.Errorf("south was asked %d times", n)
		}
		if err := w.north.ClearFaults(); err != nil {
			t.Fatal(err)
		}
		w.settle()
		s.charge(t, "order-1", with("tok_ok")).want(t, http.StatusCreated, "captured")
	})
}

func (w *world) capturedAtSouth(s *shop, key string) {
	w.t.Helper()
	r := s.charge(w.t, key, with("tok_ok"))
	charge := w.row(key)
	if r.status != http.StatusCreated || charge.Acquirer != "south" || w.south.CapturesOf(charge.AcqRef) != 1 || w.captures(charge.AcqRef) != 1 {
		w.t.Errorf("answer %v, charge %+v; want it captured at south under its reference", r, charge)
	}
}

package payment

import (
	"bytes"
	"testing"
	"time"

	"paymentsd/acquirer/sim"
	"paymentsd/idempotency"
	"paymentsd/resilience"
)

// articlePolicies are the settings of the article on the retry loop: the last ten outcomes, judged once
// there are ten, at a rate of one half or more.
func articlePolicies() resilience.Settings {
	s := plainly()
	s.Breaker.WindowCount, s.Breaker.MinAttempts = 10, 10
	s.Breaker.Failures = resilience.Share{Num: 1, Den: 2, OrEqual: true}
	s.Breaker.SlowCall = 0
	s.Breaker.OpenFor, s.Breaker.OpenMax, s.Breaker.OpenJitterPercent = 50*time.Millisecond, 50*time.Millisecond, 0
	s.Breaker.Ramp = nil
	s.Retry.Attempts = 1
	return s
}

// articleShop opens a Service that is routed to one simulated acquirer under the article's policies.
func (b *books) articleShop(t *testing.T) (*shop, *simulated) {
	t.Helper()
	north := simulate(t, sim.Config{Name: "north"}, nil)
	return b.shop(t, []named{{"north", north.adapter, articlePolicies()}}), north
}

// charges posts n charges under new keys and gives how many ended as want.
func (s *shop) charges(prefix string, n int, want Status) (ended int) {
	s.t.Helper()
	for i := range n {
		if s.charge(s.request(prefix+string(rune('a'+i)))).Charge.Status == want {
			ended++
		}
	}
	return ended
}

func breakerOf(s *shop) resilience.State { return s.Acquirers()[0].Breaker.State }

// TestSeed001 are the article's fourteen tests, by their names, against the whole path: Postgres, the
// rest adapter and the simulator. Package resilience has those of the breaker under a fake clock, too.
func TestSeed001(t *testing.T) {
	t.Parallel()
	b := openBooks(t)
	errorsLost := sim.Fault{Kind: "error_lost"}

	t.Run("stays closed while the failure rate is below threshold", func(t *testing.T) {
		t.Parallel()
		s, north := b.articleShop(t)
		if got := s.charges("good-", 6, Captured); got != 6 {
			t.Fatalf("%d captured", got)
		}
		north.set(errorsLost)
		s.charges("bad-", 4, Unknown)
		if state := breakerOf(s); state != resilience.Closed {
			t.Errorf("the breaker is %v at 4 of 10", state)
		}
	})
	t.Run("trips open when the rate crosses the threshold", func(t *testing.T) {
		t.Parallel()
		s, north := b.articleShop(t)
		s.charges("good-", 5, Captured)
		north.set(errorsLost)
		s.charges("bad-", 4, Unknown)
		if state := breakerOf(s); state != resilience.Closed {
			t.Errorf("the breaker is %v before the window is full", state)
		}
		s.charges("last-", 1, Unknown)
		if state := breakerOf(s); state != resilience.Open {
			t.Errorf("the breaker is %v at 5 of 10", state)
		}
	})
	t.Run("open circuit fails fast without touching the network", func(t *testing.T) {
		t.Parallel()
		s, north := b.articleShop(t)
		s.hold("north", "open")
		refused := refusal[*NotExecutedError](s, s.request("k"))
		if refused.Rejection.Reason != resilience.CircuitOpen {
			t.Errorf("refused for %s", refused.Rejection.Reason)
		}
		north.wantCaptures(0, 0)
		s.wantRows(0, 0, 0, 0, 0)
	})
	t.Run("half-open probe success closes the circuit", func(t *testing.T) {
		t.Parallel()
		s, north := b.articleShop(t)
		north.set(errorsLost)
		s.charges("bad-", 10, Unknown)
		north.set()
		s.awaitProbe()
		wantStatus(t, s.charge(s.request("probe")), Captured)
		if state := breakerOf(s); state != resilience.Closed {
			t.Errorf("the breaker is %v after a good probe", state)
		}
	})
	t.Run("failed probe re-opens immediately", func(t *testing.T) {
		t.Parallel()
		s, north := b.articleShop(t)
		north.set(errorsLost)
		s.charges("bad-", 10, Unknown)
		s.awaitProbe()
		wantStatus(t, s.charge(s.request("probe")), Unknown)
		if state := breakerOf(s); state != resilience.Open {
			t.Errorf("the breaker is %v after a bad probe", state)
		}
	})
	t.Run("fallback is used instead of throwing", func(t *testing.T) {
		t.Parallel()
		s, north, south := b.simulatedShop(t)
		s.hold("north", "open")
		result := s.charge(s.request("k"))
		wantStatus(t, result, Captured)
		if result.Charge.Acquirer != "south" || south.Stats().CapturesByKey[result.Charge.AcqRef] != 1 {
			t.Errorf("captured at %s, south has %v", result.Charge.Acquirer, south.Stats().CapturesByKey)
		}
		north.wantCaptures(0, 0)
	})
	t.Run("same key executes the charge once and replays the result", func(t *testing.T) {
		t.Parallel()
		s, north, _ := b.simulatedShop(t)
		first := s.charge(s.request("k"))
		wantStatus(t, first, Captured)
		again := s.charge(s.request("k"))
		if !again.Replayed || again.Frozen == nil || !bytes.Equal(again.Frozen.Body, first.Frozen.Body) || again.Frozen.Status != 201 {
			t.Errorf("replay %+v of %+v", again, first)
		}
		north.wantCaptures(1, 1)
		s.wantRows(1, 1, 1, 1, 1)
	})
	t.Run("a concurrent duplicate is rejected, not replayed", func(t *testing.T) {
		t.Parallel()
		north := answering()
		inside, leave := make(chan struct{}), make(chan struct{})
		north.during = inAndOut(inside, leave)
		s := b.shop(t, []named{{"north", north, plainly()}})
		first := s.chargeAside(s.request("k"))
		<-inside
		refused := refusal[*InFlightError](s, s.request("k"))
		close(leave)
		result := first()
		if refused.ChargeID != result.Charge.ID || refused.RetryAfter <= 0 {
			t.Errorf("the duplicate was told %+v, the charge is %s", refused, result.Charge.ID)
		}
		wantStatus(t, result, Captured)
		wantCalls(t, "north", north, 1)
	})
	t.Run("a timeout leaves the key in unknown, blocking blind retries", func(t *testing.T) {
		t.Parallel()
		s, north, south := b.simulatedShop(t)
		req := s.request("k")
		req.PaymentMethod = "tok_timeout_captured"
		wantStatus(t, s.charge(req), Unknown)
		asked := north.Stats().Requests
		again := s.charge(req)
		wantStatus(t, again, Unknown)
		if !again.Replayed || again.Frozen != nil || again.RetryAfter <= 0 {
			t.Errorf("the retry got %+v", again)
		}
		record, err := idempotency.Lookup(t.Context(), s.db.Pool, s.merchant.ID, "k")
		if err != nil || record.State != idempotency.Unknown {
			t.Errorf("the key is %s, %v", record.State, err)
		}
		north.wantCaptures(1, asked)
		south.wantCaptures(0, 0)
	})
	t.Run("a definitive rejection frees the key for a legitimate retry", func(t *testing.T) {
		t.Parallel()
		s, north, south := b.simulatedShop(t)
		req := s.request("k")
		req.PaymentMethod = "tok_declined"
		first := s.charge(req)
		wantStatus(t, first, Declined)
		if first.Charge.DeclineCode != "card_declined" {
			t.Errorf("decline code %q", first.Charge.DeclineCode)
		}
		s.wantRows(0, 1, 1, 0, 1)
		req.PaymentMethod, req.Fingerprint = "tok_ok", idempotency.Fingerprint{9}
		second := s.charge(req)
		wantStatus(t, second, Captured)
		if second.Charge.Generation != 1 || second.Charge.AcqRef == first.Charge.AcqRef {
			t.Errorf("generation %d, reference %s after %s", second.Charge.Generation, second.Charge.AcqRef, first.Charge.AcqRef)
		}
		north.wantCaptures(1, 2)
		south.wantCaptures(0, 0)
	})
	t.Run("a transient blip is absorbed and every attempt carries the same key", func(t *testing.T) {
		t.Parallel()
		s, north, _ := b.simulatedShop(t)
		req := s.request("k")
		req.PaymentMethod = "tok_error_captured_once"
		result := s.charge(req)
		wantStatus(t, result, Captured)
		if keys := north.Stats().CapturesByKey; len(keys) != 1 || keys[result.Charge.AcqRef] != 1 {
			t.Errorf("captures by key: %v", keys)
		}
		attempts, err := s.Attempts(t.Context(), s.merchant.ID, result.Charge.ID)
		if err != nil || len(attempts) != 1 || attempts[0].Calls < 2 {
			t.Errorf("attempts %+v, %v", attempts, err)
		}
	})
	t.Run("a repeated request is replayed, not charged twice", func(t *testing.T) {
		t.Parallel()
		s, north, _ := b.simulatedShop(t)
		first := s.charge(s.request("k"))
		for range 5 {
			if again := s.charge(s.request("k")); !again.Replayed || again.Charge.ID != first.Charge.ID {
				t.Errorf("%+v", again)
			}
		}
		north.wantCaptures(1, 1)
		s.wantBalanced()
	})
	t.Run("an unresolved timeout blocks a second attempt with the same key", func(t *testing.T) {
		t.Parallel()
		s, north, south := b.simulatedShop(t)
		req := s.request("k")
		req.PaymentMethod = "tok_timeout_lost"
		first := s.charge(req)
		wantStatus(t, first, Unknown)
		asked := north.Stats().Requests
		for range 3 {
			if again := s.charge(req); again.Charge.ID != first.Charge.ID || again.Charge.Status != Unknown {
				t.Errorf("%+v", again.Charge)
			}
		}
		north.wantCaptures(0, asked)
		south.wantCaptures(0, 0)
		s.wantRows(1, 1, 1, 0, 1)
	})
	t.Run("the breaker stops new keys once the gateway is known-dead", func(t *testing.T) {
		t.Parallel()
		s, north := b.articleShop(t)
		done := s.charge(s.request("before"))
		north.set(errorsLost)
		s.charges("bad-", 9, Unknown)
		asked := north.Stats().Requests
		s.hold("north", "open") // as it is anyway; held, so that no probe is due in the middle of the test
		refused := refusal[*NotExecutedError](s, s.request("new"))
		if refused.Rejection.Reason != resilience.CircuitOpen {
			t.Errorf("refused for %s", refused.Rejection.Reason)
		}
		if again := s.charge(s.request("before")); !again.Replayed || again.Charge.ID != done.Charge.ID {
			t.Errorf("a key in use does not depend on the breaker: %+v", again)
		}
		north.wantCaptures(1, asked)
	})
}

// hold steers a breaker as ops do.
func (s *shop) hold(acquirer, mode string) {
	s.t.Helper()
	if err := s.SetBreaker(s.t.Context(), acquirer, mode, Act{Actor: "test"}); err != nil {
		s.t.Fatal(err)
	}
}

// awaitProbe waits until the open breaker admits a probe.
func (s *shop) awaitProbe() {
	s.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if refused, _ := s.routes[0].Chain.Breaker().Peek(); refused == nil {
			return
		}
	}
	s.t.Fatal("the breaker admits no probe")
}

package payment

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"paymentsd/acquirer"
	"paymentsd/acquirer/sim"
	"paymentsd/resilience"
)

func (b *books) failoverOnProof(t *testing.T) {
	t.Parallel()
	for name, proof := range map[string]func(*shop, *simulated){
		"dial refused": func(_ *shop, north *simulated) { north.set(sim.Fault{Kind: sim.Down, For: time.Minute}) },
		"breaker open": func(s *shop, _ *simulated) { s.hold("north", "open") },
		// The simulator asks for a second's patience, so that the first refusal is the last.
		"refused unprocessed": func(_ *shop, north *simulated) { north.set(sim.Fault{Kind: "unprocessed"}) },
		"rate limited":        func(_ *shop, north *simulated) { north.set(sim.Fault{Kind: "rate_limited"}) },
	} {
		t.Run(name+": the other acquirer captures under the same reference", func(t *testing.T) {
			t.Parallel()
			s, north, south := b.simulatedShop(t, func(c *Config) { c.Budget = 900 * time.Millisecond })
			proof(s, north)
			result := s.charge(s.request("k"))
			wantStatus(t, result, Captured)
			if want := AcqRef(s.merchant.ID, "k", 0); result.Charge.Acquirer != "south" || result.Charge.AcqRef != want || south.Stats().CapturesByKey[want] != 1 {
				t.Errorf("%+v; south has %v", result.Charge, south.Stats().CapturesByKey)
			}
			north.wantCaptures(0, -1)
			south.wantCaptures(1, 1)
			s.wantBalanced()
		})
	}
	for _, token := range []string{
		"tok_timeout_captured", "tok_timeout_lost", "tok_error_captured", "tok_error_lost", "tok_reset_captured", "tok_reset_lost",
		"tok_truncated_captured", "tok_garbled_captured", "tok_html_lost", "tok_maintenance_lost", "tok_unknown_captured",
		"tok_wrong_amount", "tok_wrong_currency", "tok_wrong_reference", "tok_pending", "tok_redirect_lost",
	} {
		t.Run(token+": something was sent, so no other acquirer is asked", func(t *testing.T) {
			t.Parallel()
			north, south := simulate(t, sim.Config{Name: "north"}, map[string]string{"deduplicates": "false"}), answering()
			s := b.shop(t, []named{{"north", north.adapter, plainly()}, {"south", south, plainly()}})
			req := s.request("k")
			req.PaymentMethod = token
			wantStatus(t, s.charge(req), Unknown)
			wantStatus(t, s.charge(req), Unknown)
			wantCalls(t, "south", south, 0)
			north.wantCaptures(north.Stats().Captures, 1)
			s.wantRows(1, 1, 1, 0, 1)
		})
	}
	t.Run("unclear first, refused connections later: still no other acquirer", func(t *testing.T) {
		t.Parallel()
		north, south := answering(of(acquirer.Unclear), of(acquirer.NotSent), of(acquirer.NotSent)), answering()
		s := b.shop(t, []named{{"north", north, plainly()}, {"south", south, plainly()}})
		wantStatus(t, s.charge(s.request("k")), Unknown)
		wantCalls(t, "north", north, 3)
		wantCalls(t, "south", south, 0)
	})
	t.Run("both refuse: failed, the key is free, the attempts are written", func(t *testing.T) {
		t.Parallel()
		north, south := answering(times(3, of(acquirer.NotSent))...), answering(times(3, of(acquirer.Refused))...)
		s := b.shop(t, []named{{"north", north, plainly()}, {"south", south, plainly()}})
		result := s.charge(s.request("k"))
		wantStatus(t, result, Failed)
		if result.RetryAfter <= 0 || result.Charge.Acquirer != "south" {
			t.Errorf("%+v", result)
		}
		tried, err := s.Attempts(t.Context(), s.merchant.ID, result.Charge.ID)
		if err != nil || len(tried) != 2 || tried[0].State != "not_sent" || tried[0].Calls != 3 || tried[1].State != "refused" || tried[1].HTTPStatus != 503 {
			t.Errorf("%+v, %v", tried, err)
		}
		s.wantRows(0, 1, 2, 0, 1)
		wantStatus(t, s.charge(s.request("k")), Captured)
	})
	t.Run("a rejected request goes to no other acquirer, and trying again is not advised", func(t *testing.T) {
		t.Parallel()
		south := answering()
		s := b.shop(t, []named{{"north", answering(of(acquirer.Rejected)), plainly()}, {"south", south, plainly()}})
		result := s.charge(s.request("k"))
		wantStatus(t, result, Failed)
		if result.RetryAfter != 0 || result.Charge.Reason != "rejected" {
			t.Errorf("%+v", result)
		}
		wantCalls(t, "south", south, 0)
		s.wantRows(0, 1, 1, 0, 1)
	})
}

func (b *books) referencesUnderLoad(t *testing.T) {
	t.Parallel()
	north := simulate(t, sim.Config{Name: "north"}, nil)
	wire := &recorder{Acquirer: north.adapter, refs: map[string]string{}}
	s := b.shop(t, []named{{"north", wire, plainly()}})
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			req := s.request(fmt.Sprintf("k%d", i))
			req.Description = req.Key
			if i%2 == 0 {
				req.PaymentMethod = "tok_error_captured_once"
			}
			if result, err := s.Charge(t.Context(), req); err != nil || result.Charge.Status != Captured {
				t.Errorf("%s: %+v, %v", req.Key, result.Charge, err)
			}
		})
	}
	all.Wait()
	if len(wire.refs) != 40 || wire.problem != "" {
		t.Errorf("%d references; %s", len(wire.refs), wire.problem)
	}
	for ref, key := range wire.refs {
		if want := AcqRef(s.merchant.ID, key, 0); ref != want {
			t.Errorf("%s went out under %s, want %s", key, ref, want)
		}
	}
	north.wantCaptures(40, 60)
	s.wantBalanced()
}

// recorder sees which reference each charge (named in its description) goes out under.
type recorder struct {
	acquirer.Acquirer
	mu      sync.Mutex
	refs    map[string]string
	problem string
}

func (r *recorder) Capture(ctx context.Context, req acquirer.CaptureRequest) acquirer.Answer {
	r.mu.Lock()
	if key, known := r.refs[req.Ref]; known && key != req.Description {
		r.problem = fmt.Sprintf("%s was sent for %s and for %s", req.Ref, key, req.Description)
	}
	r.refs[req.Ref] = req.Description
	r.mu.Unlock()
	return r.Acquirer.Capture(ctx, req)
}

func (b *books) breakerOpenThenClosed(t *testing.T) {
	t.Parallel()
	s, north, south := b.simulatedShop(t)
	s.hold("north", "open")
	s.hold("south", "open")
	for range 2 {
		refused := refusal[*NotExecutedError](s, s.request("k"))
		if refused.Rejection.Reason != resilience.CircuitOpen || !errors.Is(refused, ErrNotExecuted) {
			t.Errorf("%v", refused)
		}
	}
	s.wantRows(0, 0, 0, 0, 0)
	s.hold("north", "close")
	wantStatus(t, s.charge(s.request("k")), Captured)
	north.wantCaptures(1, 1)
	south.wantCaptures(0, 0)

	// What an acquirer's gateway answers after the request was sent is kept.
	req := s.request("after sending")
	req.PaymentMethod = "tok_error_lost"
	wantStatus(t, s.charge(req), Unknown)
	s.hold("north", "open")
	wantStatus(t, s.charge(req), Unknown)
}

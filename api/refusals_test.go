package api_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"paymentsd/merchant"
	"paymentsd/payment"
	"paymentsd/resilience"
)

// refused is one way in which a mechanism of ours keeps a charge from the acquirer.
type refused struct {
	policies func(*resilience.Settings)
	prepare  func(*refusals) // brings the mechanism to refuse
	method   string          // the token; tok_ok if empty
	headers  []string
	reason   string
	detail   string // a pattern: the mechanism and its numbers
}

// refusals is a shop that is routed to north alone.
type refusals struct {
	*world
	n    int
	slow sync.WaitGroup
}

func (r *refusals) pay(method string, headers ...string) answer {
	r.t.Helper()
	r.n++
	body := fmt.Sprintf(`{"amount": "1.00", "currency": "USD", "payment_method": %q}`, method)
	return r.ask(http.MethodPost, "/v1/charges", "north charges key", body, append([]string{"Idempotency-Key", fmt.Sprint("k", r.n)}, headers...)...)
}

// slowly begins a charge that holds its slot, and its probe, for a while.
func (r *refusals) slowly() {
	r.t.Helper()
	r.slow.Go(func() {
		r.ask(http.MethodPost, "/v1/charges", "north charges key", `{"amount": "1.00", "currency": "USD", "payment_method": "tok_slow"}`, "Idempotency-Key", "slow")
	})
	r.until("the slow charge holds a slot", func() bool { return r.service.Acquirers()[0].Bulkhead.InFlight == 1 })
}

func (w *world) until(what string, holds func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("not within half a minute: %s", what)
		}
	}
}

func (r *refusals) north() payment.AcquirerStatus { return r.service.Acquirers()[0] }

// trip fails until the breaker opens.
func (r *refusals) trip() {
	r.t.Helper()
	for range 2 {
		r.expect(r.pay("tok_error_lost"), http.StatusAccepted, "")
	}
	r.until("the breaker opens", func() bool { return r.north().Breaker.State == resilience.Open })
}

func tripsAtTwo(openFor time.Duration) func(*resilience.Settings) {
	return func(s *resilience.Settings) {
		s.Breaker.MinAttempts = 2
		s.Breaker.OpenFor, s.Breaker.OpenMax = openFor, openFor
	}
}

func retries(base time.Duration, budget resilience.BudgetConfig) func(*resilience.Settings) {
	return func(s *resilience.Settings) {
		s.Retry.Attempts, s.Retry.Backoff.Base, s.Retry.Backoff.Cap = 3, base, base
		s.Budget = budget
	}
}

func refusedCharges() map[string]refused {
	free := resilience.BudgetConfig{Floor: 100, Percent: 10, BurstFloor: 100}
	return map[string]refused{
		"the breaker is open": {policies: tripsAtTwo(time.Hour), prepare: (*refusals).trip,
			reason: "circuit_open", detail: `^North: failure rate 1\.00 over 2 attempts\. `},
		"the probe is out": {policies: tripsAtTwo(50 * time.Millisecond), prepare: func(r *refusals) {
			r.trip()
			r.until("a probe is due", func() bool { return !r.north().Breaker.NextProbe.After(time.Now()) })
			r.slowly()
		}, reason: "circuit_open", detail: `^North: a probe is out; opened by failure rate 1\.00 over 2 attempts\. `},
		"a person holds it open": {prepare: func(r *refusals) {
			r.expect(r.ask(http.MethodPost, "/v1/acquirers/north/breaker", "ops key", `{"mode": "open", "reason": "a secret of ops"}`), http.StatusOK, "")
		}, reason: "circuit_open", detail: `^North: held open by a person's order\. `},
		"the minute's retries are spent": {policies: retries(time.Millisecond, resilience.BudgetConfig{Floor: 1, BurstFloor: 100}), method: "tok_unprocessed",
			reason: "budget_spent", detail: `no further try: 1 of 1 retries in 60s used by all replicas, 0 successes\)\. `},
		"the second's retries are spent": {policies: retries(time.Millisecond, resilience.BudgetConfig{Floor: 100, BurstFloor: 1}), method: "tok_unprocessed",
			reason: "budget_spent", detail: `no further try: 1 of 1 retries in 1s used by all replicas\)\. `},
		"all slots are taken": {policies: func(s *resilience.Settings) { s.Bulkhead = resilience.BulkheadConfig{Slots: 1} }, prepare: (*refusals).slowly,
			reason: "bulkhead_full", detail: `^Nothing was sent to north: all 1 slots in use\. `},
		"no slot came free": {policies: func(s *resilience.Settings) {
			s.Bulkhead = resilience.BulkheadConfig{Slots: 1, Wait: 20 * time.Millisecond, Queue: 1}
		}, prepare: (*refusals).slowly,
			reason: "bulkhead_full", detail: `^Nothing was sent to north: all 1 slots in use, none came free in 20ms\. `},
		"no time for a charge": {headers: []string{"Request-Timeout", "0.05"},
			reason: "deadline_too_short", detail: `^\d+ms left, a charge needs at least 100ms\. .* Send a longer Request-Timeout with it\.$`},
		"no time for a call": {policies: func(s *resilience.Settings) { s.Retry.FirstMin = 30 * time.Second }, headers: []string{"Request-Timeout", "10"},
			reason: "deadline_too_short", detail: `^Nothing was sent to north: [\d.]+m?s left, a call needs 30s\. .* Send a longer Request-Timeout with it\.$`},
		"no time for a retry": {policies: func(s *resilience.Settings) {
			retries(time.Millisecond, free)(s)
			s.Retry.CallP99 = 30 * time.Second
		}, prepare: func(r *refusals) { _ = r.acquirers["north"].Close() }, headers: []string{"Request-Timeout", "10"},
			reason: "deadline_too_short", detail: `no further try: [\d.]+m?s left, a retry needs 30s and a wait of \d+m?s\)\. .* Send a longer Request-Timeout with it\.$`},
		"no time for the wait that the acquirer asks for": {policies: func(s *resilience.Settings) {
			retries(time.Millisecond, free)(s)
			s.Retry.CallP99 = 9*time.Second + 500*time.Millisecond
		}, method: "tok_rate_limited", headers: []string{"Request-Timeout", "10"},
			reason: "retry_after_too_long", detail: `no further try: [\d.]+m?s left, a retry needs 9\.5s and the acquirer asked to wait \d+s\)\. `},
	}
}

// Every refusal names its mechanism and the numbers: in the answer, in the log, and by its reason in the metric.
func TestRefusalsNameMechanismAndNumbers(t *testing.T) {
	t.Parallel()
	for name, c := range refusedCharges() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &refusals{world: newWorldUnder(t, c.policies)}
			defer r.slow.Wait()
			m := r.addMerchant("North Only", "north")
			r.addKey("north charges key", &m.ID, merchant.RoleCharges)
			if c.prepare != nil {
				c.prepare(r)
			}
			if c.method == "" {
				c.method = "tok_ok"
			}
			a := r.pay(c.method, c.headers...)
			r.expect(a, http.StatusServiceUnavailable, "charge_not_executed")
			detail := a.field("detail")
			if a.field("reason") != c.reason || !regexp.MustCompile(c.detail).MatchString(detail) || a.field("retryable") != "true" || a.header.Get("Retry-After") == "" {
				t.Errorf("Retry-After %q and %s; want reason %s and %s", a.header.Get("Retry-After"), a.body, c.reason, c.detail)
			}
			if strings.Contains(a.body, "a secret of ops") {
				t.Errorf("a merchant is told what ops say: %s", a.body)
			}
			r.logged(a.field("request_id"), c.reason, strings.TrimSuffix(detail, "."))
			counted := fmt.Sprintf(`paymentsd_refusals_total{code="charge_not_executed",reason=%q} 1`, c.reason)
			if metrics := r.ask(http.MethodGet, "/metrics", "", ""); !strings.Contains(metrics.body, counted) {
				t.Errorf("no %s in the metrics", counted)
			}
		})
	}
	t.Run("no acquirer of the merchant is configured", func(t *testing.T) {
		t.Parallel()
		w := newSharedWorld(t)
		m := w.addMerchant("Lost", "east")
		w.addKey("lost key", &m.ID, merchant.RoleCharges)
		a := w.ask(http.MethodPost, "/v1/charges", "lost key", goodCharge, "Idempotency-Key", "k")
		w.expect(a, http.StatusServiceUnavailable, "charge_not_executed")
		if a.field("reason") != "no_acquirer" || !strings.Contains(a.field("detail"), "none of [east], to which the merchant is routed, is configured.") {
			t.Error(a.body)
		}
	})
	t.Run("every acquirer says why", func(t *testing.T) {
		t.Parallel()
		w := newSharedWorld(t)
		for _, name := range []string{"north", "south"} {
			w.expect(w.ask(http.MethodPost, "/v1/acquirers/"+name+"/breaker", "ops key", `{"mode": "open", "reason": "r"}`), http.StatusOK, "")
		}
		a := w.charge("k", goodCharge)
		if want := "North: held open by a person's order; south: held open by a person's order. No money moved"; !strings.HasPrefix(a.field("detail"), want) {
			t.Error(a.body)
		}
	})
}

// logged finds the line about a refusal: its reason, and the numbers of the answer's detail up to its first full stop.
func (w *world) logged(request, reason, detail string) {
	w.t.Helper()
	numbers, _, _ := strings.Cut(detail, ". ")
	if i := strings.LastIndex(numbers, ": "); i >= 0 {
		numbers = numbers[i+2:]
	}
	for line := range strings.Lines(w.log.String()) {
		if strings.Contains(line, request) && strings.Contains(line, `"msg":"request refused"`) {
			if !strings.Contains(line, fmt.Sprintf(`"reason":%q`, reason)) || !strings.Contains(line, numbers) {
				w.t.Errorf("the log says %s; want reason %s and %q", line, reason, numbers)
			}
			return
		}
	}
	w.t.Errorf("no line about %s", request)
}

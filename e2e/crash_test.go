package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"paymentsd/acquirer/sim"
)

// crash is a place at which the service dies, and what becomes of the charge.
type crash struct {
	name  string
	fault string // STEP or STEP:N
	pay   order
	// prepare makes the world ready before the service starts.
	prepare func(w *world)
	// once: nobody is tried again, so that the count of calls does not hang on the store's granting retries.
	once bool
	// reach brings a service to its fault point; the default posts the charge.
	reach func(w *world, s *service, pay order)
	// retried is what the client's retry gets after the restart, before settlement.
	retried int
	// ends is the charge's state after settlement, at whom it is if it is captured.
	ends, at string
}

const retriedKey = "order-1"

func crashes() []crash {
	unknown, ok := http.StatusAccepted, http.StatusCreated
	lost := "unknown" // nothing was captured and nothing says so: it waits for a person
	return []crash{
		// Each group holds one request: the first is its T1, the second its T2. Nothing of T1 is left: the retry is
		// the first request.
		{name: "before a group of T1 is sent", fault: "group_formed", pay: with("tok_ok"), retried: ok, ends: "captured", at: "north"},
		{name: "a group of T1 is sent with its COMMIT: Postgres carries it out", fault: "group_sent", pay: with("tok_ok"), retried: unknown, ends: lost},
		{name: "after a group of T1, before its requests know", fault: "group_written", pay: with("tok_ok"), retried: unknown, ends: lost},
		{
			name: "before a group of T2 is sent", fault: "group_formed:2", pay: with("tok_ok"),
			retried: unknown, ends: "captured", at: "north",
		},
		{
			name: "a group of T2 is sent with its COMMIT: Postgres carries it out", fault: "group_sent:2", pay: with("tok_ok"),
			retried: ok, ends: "captured", at: "north",
		},
		{
			name: "after a group of T2, before its requests know", fault: "group_written:2", pay: with("tok_ok"),
			retried: ok, ends: "captured", at: "north",
		},
		{name: "after T1", fault: "claimed", pay: with("tok_ok"), retried: unknown, ends: lost},
		{name: "before the first byte", fault: "before_call", pay: with("tok_ok"), retried: unknown, ends: lost},
		{
			name: "idempotency case 14 and peers case 8: after the acquirer captured, before T2", fault: "after_call",
			pay: with("tok_ok"), retried: unknown, ends: "captured", at: "north",
		},
		{name: "after the acquirer declined, before T2", fault: "after_call", pay: with("tok_declined"), retried: unknown, ends: lost},
		{
			name: "before a retry after a refusal", fault: "before_call:2", pay: with("tok_unprocessed_once"),
			retried: unknown, ends: lost,
		},
		{
			name: "before a retry after a reset that hid a capture", fault: "before_call:2", pay: with("tok_reset_captured_once"),
			retried: unknown, ends: "captured", at: "north",
		},
		{
			name: "after a retry", fault: "after_call:2", pay: with("tok_reset_captured_once"),
			retried: unknown, ends: "captured", at: "north",
		},
		{name: "after the failover", fault: "failed_over", pay: with("tok_ok"), prepare: northDown, retried: unknown, ends: lost},
		{
			name: "after the second acquirer captured, before T2", fault: "after_call:2", once: true, pay: with("tok_ok"), prepare: northDown,
			retried: unknown, ends: "captured", at: "south",
		},
		{name: "after T2 of a capture", fault: "finished", pay: with("tok_ok"), retried: ok, ends: "captured", at: "north"},
		{
			name: "after T2 of a capture by the second acquirer", fault: "finished", pay: with("tok_ok"), prepare: northDown,
			retried: ok, ends: "captured", at: "south",
		},
		{
			// The key is free again: the retry is a new charge, and is declined like the first.
			name: "after T2 of a decline", fault: "finished", pay: with("tok_declined"),
			retried: http.StatusPaymentRequired, ends: "declined",
		},
		{
			name: "after T2 of an unknown", fault: "finished", pay: with("tok_error_captured"),
			retried: unknown, ends: "captured", at: "north",
		},
		{
			name: "in the resolution, after the charge", fault: "resolve_charge_written", pay: with("tok_error_captured"),
			reach: decideUnknown, retried: unknown, ends: "captured", at: "north",
		},
		{
			name: "in the resolution, after the key", fault: "resolve_key_written", pay: with("tok_error_captured"),
			reach: decideUnknown, retried: unknown, ends: "captured", at: "north",
		},
		{
			name: "after the resolution", fault: "resolved", pay: with("tok_error_captured"),
			reach: decideUnknown, retried: ok, ends: "captured", at: "north",
		},
		{
			name: "in the sweep, after the key", fault: "sweep_key_taken", pay: with("tok_ok"),
			prepare: diedAfterCapture, reach: onlySweep, retried: unknown, ends: "captured", at: "north",
		},
		{
			name: "in an inquiry, with the answer in hand", fault: "inquired", pay: with("tok_error_captured"),
			reach: untilInquiry, retried: unknown, ends: "captured", at: "north",
		},
	}
}

// At every step of the path the process is killed, started again, the client insists, the acquirers
// settle: one capture or none, and our books say the same.
func TestCrashAtEveryStep(t *testing.T) {
	t.Parallel()
	for _, c := range crashes() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var o options
			if c.once {
				o.retry = "{attempts: 1, call_p99: 50ms}"
			}
			w := newWorld(t, o)
			if c.prepare != nil {
				c.prepare(w)
			}
			if c.reach == nil {
				c.reach = postLost
			}
			s := w.start(fault(c.fault))
			c.reach(w, s, c.pay)
			s.gone(t)
			w.leasesPass()
			w.recover(c)
		})
	}
}

// recover restarts the service, lets the client insist and the acquirers settle, and compares the books.
func (w *world) recover(c crash) {
	t := w.t
	t.Helper()
	if err := w.north.ClearFaults(); err != nil {
		t.Fatal(err)
	}
	shop := w.shop(w.start())
	r := shop.insist(t, retriedKey, c.pay)
	if r.status != c.retried {
		t.Errorf("the client's retry got %v; want %d", r, c.retried)
	}
	w.nothingInFlight()
	w.consistent()
	w.settle()
	charge := w.row(retriedKey)
	if charge.Status != c.ends || (c.at != "" && charge.Acquirer != c.at) {
		t.Errorf("after settlement the charge is %+v; want %s %s", charge, c.ends, c.at)
	}
	captures := 0
	if c.ends == "captured" {
		captures = 1
		if r := shop.charge(t, retriedKey, c.pay); r.status != http.StatusCreated || !r.replayed() || r.Acquirer != c.at {
			t.Errorf("the replay after settlement: %v; want 201 from %s", r, c.at)
		}
	}
	if n := w.captures(charge.AcqRef); n != captures {
		t.Errorf("the acquirers hold %d captures, want %d", n, captures)
	}
}

func postLost(w *world, s *service, pay order) {
	w.t.Helper()
	if r, err := w.shop(s).post(w.t.Context(), retriedKey, pay); err == nil {
		w.t.Errorf("the service answered %v instead of dying", r)
	}
}

func northDown(w *world) {
	w.t.Helper()
	if err := w.north.SetFaults(sim.Fault{Kind: sim.Down, For: time.Minute}); err != nil {
		w.t.Fatal(err)
	}
}

// decideUnknown brings a service into Resolve: a charge becomes unknown, and an operator ends it.
func decideUnknown(w *world, s *service, pay order) {
	w.t.Helper()
	w.shop(s).charge(w.t, retriedKey, pay).want(w.t, http.StatusAccepted, "unknown")
	if r, err := w.decision(s, w.only())(); err == nil {
		w.t.Errorf("the service answered %v instead of dying", r)
	}
}

// untilInquiry makes a charge unknown and lets the trust delay pass.
func untilInquiry(w *world, s *service, pay order) {
	w.t.Helper()
	w.shop(s).charge(w.t, retriedKey, pay).want(w.t, http.StatusAccepted, "unknown")
	w.trustPasses()
}

// decision is an operator's word that north captured the charge: sent when it is called.
func (w *world) decision(s *service, charge row) func() (reply, error) {
	w.t.Helper()
	captures := w.north.Captures()
	i := slices.IndexFunc(captures, func(theirs sim.Record) bool { return theirs.Reference == charge.AcqRef })
	if i < 0 {
		w.t.Fatalf("north holds no capture of %+v", charge)
	}
	body := fmt.Sprintf(`{"outcome": "captured", "acquirer": "north", "capture_id": %q, "reason": "seen in north's portal"}`, captures[i].ID)
	ctx, ops := w.t.Context(), newShop(s.URL, w.opsKey)
	return func() (reply, error) { return ops.postJSON(ctx, "/v1/charges/"+charge.ID+"/resolution", "", body) }
}

// diedAfterCapture leaves a charge whose process is gone.
func diedAfterCapture(w *world) {
	w.t.Helper()
	s := w.start(fault("after_call"))
	postLost(w, s, with("tok_ok"))
	s.gone(w.t)
}

// onlySweep lets a service do nothing but sweep.
func onlySweep(w *world, _ *service, _ order) {
	w.t.Helper()
	w.leasesPass()
}

package e2e

import (
	"context"
	"net/http"
	"syscall"
	"testing"
	"time"

	"paymentsd/acquirer/sim"
)

// A client that hangs up changes nothing about its charge.
func TestClientHangsUp(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, token string
		status      int
		ends        string
	}{
		{"idempotency case 16: while the acquirer works, it ends captured and the retry replays it", "tok_slow", http.StatusCreated, "captured"},
		{"while the acquirer hangs, it ends unknown", "tok_timeout_lost", http.StatusAccepted, "unknown"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, options{sim: sim.Config{SlowLatency: 2 * time.Second}})
			s := w.shop(w.start())
			ctx, hangUp := context.WithCancel(t.Context())
			over := s.lose(ctx, "order-1", with(c.token))
			until(t, "north is not asked", func() bool { return w.north.Stats().Requests > 0 })
			hangUp()
			<-over
			if status := w.only().Status; status != "pending" {
				t.Fatalf("the charge is %s when the client hangs up: the test came too late", status)
			}
			until(t, "the charge is not ended", func() bool { return w.only().Status != "pending" })
			if status := w.only().Status; status != c.ends {
				t.Errorf("the charge is %s, want %s", status, c.ends)
			}
			asked := w.north.Stats().Requests
			r := s.charge(t, "order-1", with(c.token))
			r.want(t, c.status, c.ends)
			if !r.replayed() || w.north.Stats().Requests != asked {
				t.Errorf("replayed: %v, and north was asked %d times more; want a replay that asks nobody", r.replayed(), w.north.Stats().Requests-asked)
			}
			w.consistent()
			w.settle()
		})
	}
}

// A client that waits for a result that is on its way gets it, also from another replica.
func TestPreferWait(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{limits: ordinary(), sim: sim.Config{SlowLatency: 2 * time.Second}})
	first, second := w.shop(w.start()), w.shop(w.start())
	over := first.lose(t.Context(), "order-1", with("tok_slow"))
	until(t, "north is not asked", func() bool { return w.north.Stats().Requests > 0 })
	r := second.charge(t, "order-1", with("tok_slow"))
	if r.status != http.StatusConflict || !r.Retry || r.header.Get("Retry-After") == "" || r.ChargeID == "" {
		t.Errorf("idempotency case 12: without waiting %v; want a retryable 409 that names the charge and says when", r)
	}
	second.prefer = "wait=10"
	r = second.charge(t, "order-1", with("tok_slow"))
	r.want(t, http.StatusCreated, "captured")
	if !r.replayed() {
		t.Error("the duplicate's answer is not marked as a replay")
	}
	<-over
	w.consistent()
}

// A process that stands still for longer than its lease (a pause of its machine, say) comes back to find
// its charge taken over. What it learnt is evidence, and not a second truth.
func TestProcessPausedPastItsLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{sim: sim.Config{SlowLatency: 2 * time.Second}})
	paused := w.start()
	over := w.shop(paused).lose(t.Context(), "order-1", with("tok_slow"))
	until(t, "north is not asked", func() bool { return w.north.Stats().Requests > 0 })
	if err := syscall.Kill(paused.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	w.leasesPass()
	other := w.shop(w.start())
	other.insist(t, "order-1", with("tok_slow")).want(t, http.StatusAccepted, "unknown")
	if err := syscall.Kill(paused.PID(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	<-over
	// Whether it still reads the answer or gives up first is a matter of its clocks: both are sound.
	if charge := w.only(); charge.Status == "captured" && charge.Evidence != "late_answer" {
		t.Errorf("charge %+v; want it unknown, or captured by the evidence of the late answer", charge)
	}
	w.consistent()
	w.settle()
	if charge := w.only(); charge.Status != "captured" {
		t.Errorf("after settlement the charge is %+v; want it captured", charge)
	}
	other.charge(t, "order-1", with("tok_slow")).want(t, http.StatusCreated, "captured")
}

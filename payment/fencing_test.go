package payment

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"paymentsd/acquirer"
	"paymentsd/idempotency"
)

// unreliableShop reaches its books through a proxy.
func (b *books) unreliableShop(t *testing.T, acquirers []named, changes ...opening) (*shop, *proxy) {
	t.Helper()
	p, pool := behindProxy(t, b)
	return b.shop(t, acquirers, append([]opening{func(c *Config) { c.Pool = pool }}, changes...)...), p
}

func TestLostCommits(t *testing.T) {
	t.Parallel()
	b := openBooks(t)
	t.Run("T1: written, answer lost: the second run finds its own row", func(t *testing.T) {
		t.Parallel()
		north := answering()
		s, p := b.unreliableShop(t, []named{{"north", north, plainly()}})
		p.lose(loss{statement: "charge_begin_v", times: 1, executed: true})
		wantStatus(t, s.charge(s.request("k")), Captured)
		s.wantLossesMet(p)
		wantCalls(t, "north", north, 1)
		s.wantRows(1, 1, 1, 1, 1)
	})
	t.Run("T1: the connection breaks before it is written: run again", func(t *testing.T) {
		t.Parallel()
		north := answering()
		s, p := b.unreliableShop(t, []named{{"north", north, plainly()}})
		p.lose(loss{statement: "charge_begin_v", times: 1})
		wantStatus(t, s.charge(s.request("k")), Captured)
		s.wantLossesMet(p)
		s.wantRows(1, 1, 1, 1, 1)
	})
	t.Run("T1: in doubt twice: refused, nothing is sent", func(t *testing.T) {
		t.Parallel()
		north := answering()
		s, p := b.unreliableShop(t, []named{{"north", north, plainly()}})
		p.lose(loss{statement: "charge_begin_v", times: 2, executed: true})
		refusal[*UnavailableError](s, s.request("k"))
		wantCalls(t, "north", north, 0)
		s.letLeasePass("k")
		s.sweep()
		wantStatus(t, s.charge(s.request("k")), Unknown)
		wantCalls(t, "north", north, 0)
	})
	for name, tc := range map[string]struct {
		answer acquirer.Class
		status Status
	}{
		"captured": {acquirer.Captured, Captured}, "declined": {acquirer.Declined, Declined},
		"rejected": {acquirer.Rejected, Failed}, "in progress": {acquirer.Unclear, Unknown},
	} {
		t.Run("T2: "+name+", written, answer lost: the second run finds it done", func(t *testing.T) {
			t.Parallel()
			north := answering(times(3, of(tc.answer))...)
			s, p := b.unreliableShop(t, []named{{"north", north, plainly()}})
			p.lose(loss{statement: "charge_finish_v", times: 1, executed: true})
			result := s.charge(s.request("k"))
			wantStatus(t, result, tc.status)
			s.wantLossesMet(p)
			if evidence, err := s.Resolutions(t.Context(), s.merchant.ID, result.Charge.ID); err != nil || len(evidence) != 0 {
				t.Errorf("what was written was taken for late: %+v, %v", evidence, err)
			}
			if tc.status == Captured {
				if again := s.charge(s.request("k")); !bytes.Equal(again.Frozen.Body, result.Frozen.Body) {
					t.Errorf("%s, then %s", result.Frozen.Body, again.Frozen.Body)
				}
			}
			s.wantBalanced()
		})
	}
	t.Run("T2: broken connections: written in the end", func(t *testing.T) {
		t.Parallel()
		s, p := b.unreliableShop(t, []named{{"north", answering(), plainly()}})
		p.lose(loss{statement: "charge_finish_v", times: 3})
		wantStatus(t, s.charge(s.request("k")), Captured)
		s.wantLossesMet(p)
		s.wantRows(1, 1, 1, 1, 1)
	})
	// Regression: a failover in doubt was read back, and ended the charge if it was being committed just then.
	for name, executed := range map[string]bool{"written, answer lost": true, "the connection breaks before it is written": false} {
		t.Run("failover: "+name+": run again, and it goes on", func(t *testing.T) {
			t.Parallel()
			north, south := answering(times(3, of(acquirer.NotSent))...), answering()
			s, p := b.unreliableShop(t, []named{{"north", north, plainly()}, {"south", south, plainly()}})
			p.lose(loss{statement: "charge_failover_v1", times: 1, executed: executed})
			result := s.charge(s.request("k"))
			wantStatus(t, result, Captured)
			s.wantLossesMet(p)
			if result.Charge.Acquirer != "south" {
				t.Errorf("captured at %s", result.Charge.Acquirer)
			}
			wantCalls(t, "south", south, 1)
			s.wantRows(1, 1, 2, 1, 1)
			s.wantBalanced()
		})
	}
	t.Run("failover that cannot be written: nothing is sent to the next acquirer", func(t *testing.T) {
		t.Parallel()
		north, south := answering(times(3, of(acquirer.NotSent))...), answering()
		s, p := b.unreliableShop(t, []named{{"north", north, plainly()}, {"south", south, plainly()}})
		p.lose(loss{statement: "charge_failover_v1", times: 2})
		wantStatus(t, s.charge(s.request("k")), Failed)
		wantCalls(t, "south", south, 0)
		s.wantRows(0, 1, 1, 0, 1)
	})
	t.Run("Resolve: committed, answer lost: the same evidence again is harmless", func(t *testing.T) {
		t.Parallel()
		s, p := b.unreliableShop(t, []named{{"north", answering(times(3, of(acquirer.Unclear))...), plainly()}})
		charge := s.charge(s.request("k")).Charge
		p.lose(loss{statement: "commit", times: 1, executed: true})
		evidence := settles(charge, "north")
		if _, err := s.Resolve(t.Context(), s.merchant.ID, charge.ID, evidence); err == nil {
			t.Error("a lost commit was taken for certain")
		}
		s.wantLossesMet(p)
		if now := s.resolve(charge, evidence); now.Status != Captured {
			t.Errorf("%+v", now)
		}
		s.wantRows(1, 1, 1, 1, 2)
		s.wantBalanced()
	})
}

func (s *shop) wantLossesMet(p *proxy) {
	s.t.Helper()
	if n := p.left(); n != 0 {
		s.t.Errorf("%d losses did not happen: the test shows nothing", n)
	}
}

func (s *shop) sweep() SweepReport {
	s.t.Helper()
	report, err := s.Sweep(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	return report
}

// settles is a settlement line that pays a charge.
func settles(c Charge, acquirer string) Resolution {
	return Resolution{
		ID: "settlement:f1:1", Evidence: Settlement, Outcome: OutcomeCaptured, Acquirer: acquirer, CaptureID: "settled-" + c.AcqRef,
		Amount: c.Amount, Actor: "settlement", Reason: "line 1 pays it", FileID: "f1", LineNo: 1,
	}
}

func TestStoreDown(t *testing.T) {
	t.Parallel()
	b := openBooks(t)
	brief := func(c *Config) { c.StoreTime = 1500 * time.Millisecond }
	t.Run("before T1: refused, nothing is sent", func(t *testing.T) {
		t.Parallel()
		north := answering()
		s, p := b.unreliableShop(t, []named{{"north", north, plainly()}}, brief)
		p.setDown(true)
		if refused := refusal[*UnavailableError](s, s.request("k")); !errors.Is(refused, ErrUnavailable) || refused.Cause == nil {
			t.Errorf("%v", refused)
		}
		s.hold("north", "open")
		refusal[*UnavailableError](s, s.request("k"))
		p.setDown(false)
		s.pool.Reset()
		s.hold("north", "close")
		wantStatus(t, s.charge(s.request("k")), Captured)
		wantCalls(t, "north", north, 1)
	})
	t.Run("idempotency case 18: at T2: unknown, and the sweep makes it so", func(t *testing.T) {
		t.Parallel()
		north := answering()
		s, p := b.unreliableShop(t, []named{{"north", north, plainly()}}, brief)
		north.during = func(int, context.Context) { p.setDown(true) }
		result := s.charge(s.request("k"))
		wantStatus(t, result, Unknown)
		if result.Frozen != nil || result.Charge.CaptureID != "" || result.RetryAfter <= 0 {
			t.Errorf("%+v", result)
		}
		p.setDown(false)
		s.pool.Reset()
		refusal[*InFlightError](s, s.request("k"))
		s.letLeasePass("k")
		s.sweep()
		wantStatus(t, s.charge(s.request("k")), Unknown)
		wantCalls(t, "north", north, 1)
		if now := s.resolve(result.Charge, settles(result.Charge, "north")); now.Status != Captured {
			t.Errorf("%+v", now)
		}
		if again := s.charge(s.request("k")); again.Frozen == nil || again.Frozen.Status != 201 {
			t.Errorf("%+v", again)
		}
		s.wantBalanced()
	})
}

// TestTakenOver has a sweep take the charge over while its acquirer is being asked.
func TestTakenOver(t *testing.T) {
	t.Parallel()
	b := openBooks(t)
	takenOver := func(t *testing.T, acquirers func(during func(int, context.Context)) []named) *shop {
		var s *shop
		s = b.shop(t, acquirers(func(n int, _ context.Context) {
			if n == 1 {
				s.letLeasePass("k")
				s.sweep()
			}
		}))
		return s
	}
	oneOf := func(answers ...acquirer.Answer) func(func(int, context.Context)) []named {
		return func(during func(int, context.Context)) []named {
			north := answering(answers...)
			north.during = during
			return []named{{"north", north, plainly()}}
		}
	}
	t.Run("the late answer captured: it is evidence that closes the charge", func(t *testing.T) {
		t.Parallel()
		s := takenOver(t, oneOf())
		result := s.charge(s.request("k"))
		wantStatus(t, result, Captured)
		if result.Charge.Evidence != LateAnswer || result.Frozen == nil || result.Frozen.Status != 201 {
			t.Errorf("%+v", result)
		}
		evidence, err := s.Resolutions(t.Context(), s.merchant.ID, result.Charge.ID)
		if err != nil || len(evidence) != 1 || !evidence[0].Applied || evidence[0].Evidence != LateAnswer || evidence[0].ID != "late_answer:1" {
			t.Errorf("%+v, %v", evidence, err)
		}
		if again := s.charge(s.request("k")); !bytes.Equal(again.Frozen.Body, result.Frozen.Body) {
			t.Errorf("%s, then %s", result.Frozen.Body, again.Frozen.Body)
		}
		s.wantRows(1, 1, 1, 1, 2)
		s.wantBalanced()
	})
	for class, status := range map[acquirer.Class]int{acquirer.Declined: 402, acquirer.Rejected: 402} {
		t.Run("the late answer is "+string(class)+": failed for certain, and the key keeps the answer", func(t *testing.T) {
			t.Parallel()
			s := takenOver(t, oneOf(of(class)))
			result := s.charge(s.request("k"))
			wantStatus(t, result, Failed)
			again := s.charge(s.request("k"))
			if result.Charge.Reason != ReasonNotCaptured || again.Frozen == nil || again.Frozen.Status != status || !bytes.Equal(again.Frozen.Body, result.Frozen.Body) {
				t.Errorf("%+v, then %+v", result, again)
			}
			s.wantRows(1, 1, 1, 0, 2)
		})
	}
	// Regression: T2 took the unknown that a sweep left for its own.
	t.Run("the late answer proves nothing either: noted, still unknown", func(t *testing.T) {
		t.Parallel()
		s := takenOver(t, oneOf(times(3, of(acquirer.Unclear))...))
		result := s.charge(s.request("k"))
		wantStatus(t, result, Unknown)
		evidence, err := s.Resolutions(t.Context(), s.merchant.ID, result.Charge.ID)
		if err != nil || len(evidence) != 1 || evidence[0].Applied || evidence[0].Outcome != OutcomeNone {
			t.Errorf("%+v, %v", evidence, err)
		}
		s.wantRows(1, 1, 1, 0, 1)
	})
	t.Run("no failover once the lease is gone", func(t *testing.T) {
		t.Parallel()
		south := answering()
		s := takenOver(t, func(during func(int, context.Context)) []named {
			north := answering(times(3, of(acquirer.NotSent))...)
			north.during = during
			return []named{{"north", north, plainly()}, {"south", south, plainly()}}
		})
		wantStatus(t, s.charge(s.request("k")), Failed)
		wantCalls(t, "south", south, 0)
	})
	t.Run("somebody closed it first: his outcome stands, ours is kept as a contradiction", func(t *testing.T) {
		t.Parallel()
		var s *shop
		north := answering()
		north.during = func(int, context.Context) {
			s.letLeasePass("k")
			s.sweep()
			open := s.open("k")
			s.resolve(open, Resolution{ID: "ops", Evidence: Operator, Outcome: OutcomeFailed, Actor: "ops", Reason: "seen in their portal"})
		}
		s = b.shop(t, []named{{"north", north, plainly()}})
		result := s.charge(s.request("k"))
		wantStatus(t, result, Failed)
		evidence, err := s.Resolutions(t.Context(), s.merchant.ID, result.Charge.ID)
		if err != nil || len(evidence) != 2 || evidence[1].Applied || evidence[1].Evidence != LateAnswer || evidence[1].Outcome != OutcomeCaptured {
			t.Errorf("%+v, %v", evidence, err)
		}
		s.wantRows(1, 1, 1, 0, 2)
	})
}

// open reads the charge that a key names now.
func (s *shop) open(key string) Charge {
	s.t.Helper()
	record, err := idempotency.Lookup(s.t.Context(), s.db.Pool, s.merchant.ID, key)
	if err != nil {
		s.t.Fatal(err)
	}
	charge, err := s.Get(s.t.Context(), s.merchant.ID, record.ChargeID)
	if err != nil {
		s.t.Fatal(err)
	}
	return charge
}

// Regression: a row of our own that a sweep had taken over was claimed as if it were still ours, and sent.
func TestOwnRowThatWasTakenOverIsNotSent(t *testing.T) {
	t.Parallel()
	north := answering()
	s := openShop(t, []named{{"north", north, plainly()}})
	req := s.request("k")
	charge := s.newCharge(req, "north")
	if claimed, err := s.claim(t.Context(), req, &charge); err != nil || claimed.outcome != beginClaimed {
		t.Fatalf("%+v, %v", claimed, err)
	}
	if claimed, err := s.claim(t.Context(), req, &charge); err != nil || claimed.outcome != beginClaimed || claimed.fence != 1 {
		t.Fatalf("its own row: %+v, %v", claimed, err)
	}
	s.letLeasePass("k")
	s.sweep()
	if claimed, err := s.claim(t.Context(), req, &charge); err != nil || claimed.outcome != beginExists || claimed.record.State != idempotency.Unknown {
		t.Fatalf("taken over: %+v, %v", claimed, err)
	}
}

// Regression: an outcome that had been written down, and was found fenced off all the same, was answered
// as a frozen answer that does not exist.
func TestLateAnswerOfAChargeThatIsWrittenDown(t *testing.T) {
	t.Parallel()
	s := openShop(t, []named{{"north", answering(of(acquirer.Declined)), plainly()}})
	charge := s.charge(s.request("k")).Charge
	result, err := s.lateAnswer(t.Context(), charge, ending{n: 1, class: acquirer.Declined})
	if err != nil || result.Frozen != nil || result.Charge.Status != Declined {
		t.Errorf("%+v, %v", result, err)
	}
}

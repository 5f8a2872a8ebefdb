package payment

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"paymentsd/acquirer"
)

// unknown leaves a charge that is unknown at the merchant's first acquirer.
func (s *shop) unknown(key string) Charge {
	s.t.Helper()
	req := s.request(key)
	charge := s.newCharge(req, s.merchant.Acquirers[0])
	claimed, err := s.claim(s.t.Context(), req, &charge)
	if err != nil {
		s.t.Fatal(err)
	}
	result, err := s.conclude(s.t.Context(), charge, claimed.fence, ending{n: 1, class: acquirer.Unclear, calls: 1, detail: "scripted"}, false)
	if err != nil || result.Charge.Status != Unknown {
		s.t.Fatalf("%+v, %v", result, err)
	}
	return result.Charge
}

func decided(id, outcome string) Resolution {
	r := Resolution{ID: id, Evidence: Operator, Outcome: outcome, Actor: "key 1 (J. Doe)", Reason: "seen in their portal"}
	if outcome == OutcomeCaptured {
		r.Acquirer, r.CaptureID = "north", "n-"+id
	}
	return r
}

func (b *books) northShop(t *testing.T, changes ...opening) *shop {
	t.Helper()
	return b.shop(t, []named{{"north", answering(), plainly()}}, changes...)
}

func TestResolve(t *testing.T) {
	t.Parallel()
	b := openBooks(t)
	t.Run("captured: charge, key, ledger, evidence and event are written", func(t *testing.T) {
		t.Parallel()
		s := b.northShop(t)
		charge := s.unknown("k")
		now := s.resolve(charge, settles(charge, "north"))
		if now.Status != Captured || now.Evidence != Settlement || now.CaptureID == "" || now.Reason != "" {
			t.Errorf("%+v", now)
		}
		s.wantRows(1, 1, 1, 1, 2)
		s.wantBalanced()
		again := s.charge(s.request("k"))
		if !again.Replayed || !bytes.Equal(again.Frozen.Body, frozenAs(now).Body) || again.Frozen.Status != 201 {
			t.Errorf("%+v", again)
		}
	})
	t.Run("failed: the key keeps the answer, nothing is posted", func(t *testing.T) {
		t.Parallel()
		s := b.northShop(t)
		charge := s.unknown("k")
		now := s.resolve(charge, decided("d", OutcomeFailed))
		if now.Status != Failed || now.Reason != ReasonNotCaptured || now.Evidence != Operator {
			t.Errorf("%+v", now)
		}
		s.wantRows(1, 1, 1, 0, 2)
		if again := s.charge(s.request("k")); again.Frozen == nil || again.Frozen.Status != 402 || again.Charge.ID != charge.ID {
			t.Errorf("%+v", again)
		}
	})
	t.Run("none: noted, and nothing changes", func(t *testing.T) {
		t.Parallel()
		s := b.northShop(t)
		charge := s.unknown("k")
		for i := range 3 { // idempotency cases 20 and 21: inquiries that prove nothing
			now := s.resolve(charge, Resolution{ID: fmt.Sprintf("inquiry:%d", i), Evidence: Inquiry, Outcome: OutcomeNone, Actor: "inquiry", Reason: "no such order"})
			if now.Status != Unknown {
				t.Errorf("%+v", now)
			}
		}
		if kept, err := s.Resolutions(t.Context(), s.merchant.ID, charge.ID); err != nil || len(kept) != 3 {
			t.Errorf("%+v, %v", kept, err)
		}
		s.wantRows(1, 1, 1, 0, 1)
		wantStatus(t, s.charge(s.request("k")), Unknown)
	})
	t.Run("the same evidence again is harmless", func(t *testing.T) {
		t.Parallel()
		s := b.northShop(t)
		charge := s.unknown("k")
		evidence := settles(charge, "north")
		first := s.resolve(charge, evidence)
		second := s.resolve(charge, evidence)
		if !first.UpdatedAt.Equal(second.UpdatedAt) || first.Status != second.Status || first.CaptureID != second.CaptureID {
			t.Errorf("%+v, then %+v", first, second)
		}
		s.wantRows(1, 1, 1, 1, 2)
	})
	t.Run("evidence that does not fit is refused and leaves nothing", func(t *testing.T) {
		t.Parallel()
		s := b.northShop(t)
		charge := s.unknown("k")
		for name, spoil := range map[string]func(*Resolution){
			"another amount":                 func(e *Resolution) { e.Amount = usd("49.98") },
			"another currency":               func(e *Resolution) { e.Amount = yen("50") },
			"an acquirer that was not asked": func(e *Resolution) { e.Acquirer = "south" },
			"no acquirer":                    func(e *Resolution) { e.Acquirer = "" },
			"no id of the capture":           func(e *Resolution) { e.CaptureID = "" },
		} {
			evidence := settles(charge, "north")
			spoil(&evidence)
			if _, err := s.Resolve(t.Context(), s.merchant.ID, charge.ID, evidence); !errors.Is(err, ErrEvidenceConflict) {
				t.Errorf("%s: %v", name, err)
			}
		}
		evidence := settles(charge, "north")
		evidence.Outcome = "reversed"
		if _, err := s.Resolve(t.Context(), s.merchant.ID, charge.ID, evidence); err == nil {
			t.Error("an outcome that is none is accepted")
		}
		if now, err := s.Get(t.Context(), s.merchant.ID, charge.ID); err != nil || now.Status != Unknown {
			t.Errorf("%+v, %v", now, err)
		}
		if kept, err := s.Resolutions(t.Context(), s.merchant.ID, charge.ID); err != nil || len(kept) != 0 {
			t.Errorf("%+v, %v", kept, err)
		}
	})
	t.Run("no such charge, and another merchant's", func(t *testing.T) {
		t.Parallel()
		s, other := b.northShop(t), b.northShop(t)
		charge := s.unknown("k")
		if _, err := s.Resolve(t.Context(), other.merchant.ID, charge.ID, decided("d", OutcomeFailed)); !errors.Is(err, ErrNotFound) {
			t.Errorf("%v", err)
		}
		if _, err := s.Resolve(t.Context(), s.merchant.ID, NewChargeID(s.merchant.ID, time.Now()), decided("d", OutcomeFailed)); !errors.Is(err, ErrNotFound) {
			t.Errorf("%v", err)
		}
	})
	t.Run("a charge that is being made is not resolved", func(t *testing.T) {
		t.Parallel()
		s := b.northShop(t)
		charge := s.abandon("k")
		_, err := s.Resolve(t.Context(), s.merchant.ID, charge.ID, settles(charge, "north"))
		if refused, ok := asError[*ResolvedError](err); !ok || refused.Charge.Status != Pending || refused.By != nil {
			t.Errorf("%v", err)
		}
		s.wantRows(1, 1, 1, 0, 0)
	})
	t.Run("peers case 11: age alone resolves nothing", func(t *testing.T) {
		t.Parallel()
		s := b.northShop(t)
		charge := s.unknown("k")
		s.exec(`update charges set created_at = now() - interval '400 days', updated_at = now() - interval '400 days' where merchant_id = $1`, s.merchant.ID)
		s.sweep()
		if now, err := s.Get(t.Context(), s.merchant.ID, charge.ID); err != nil || now.Status != Unknown {
			t.Errorf("%+v, %v", now, err)
		}
		exposures, err := s.Exposures(t.Context())
		if err != nil || len(exposures) == 0 || time.Since(exposures[0].Oldest) < 399*24*time.Hour {
			t.Errorf("%+v, %v", exposures, err)
		}
	})
	t.Run("peers case 14: a late success for what ops called failed is kept, and shown to whoever brings it", func(t *testing.T) {
		t.Parallel()
		s := b.northShop(t)
		charge := s.unknown("k")
		s.resolve(charge, decided("d", OutcomeFailed))
		_, err := s.Resolve(t.Context(), s.merchant.ID, charge.ID, settles(charge, "north"))
		refused, ok := asError[*ResolvedError](err)
		if !ok || refused.By == nil || refused.By.ID != "d" || refused.By.Actor != "key 1 (J. Doe)" || refused.Charge.Status != Failed {
			t.Fatalf("%v", err)
		}
		kept, err := s.Resolutions(t.Context(), s.merchant.ID, charge.ID)
		if err != nil || len(kept) != 2 || !kept[0].Applied || kept[1].Applied || kept[1].LineNo != 1 {
			t.Errorf("%+v, %v", kept, err)
		}
	})
	t.Run("peers case 16: a terminal state is left by nothing", func(t *testing.T) {
		t.Parallel()
		s := b.northShop(t)
		for i, before := range []string{OutcomeCaptured, OutcomeFailed} {
			charge := s.unknown(before)
			done := s.resolve(charge, decided("first", before))
			for j, after := range []Resolution{
				decided("op-captured", OutcomeCaptured), decided("op-failed", OutcomeFailed), settles(charge, "north"),
				{ID: "inq", Evidence: Inquiry, Outcome: OutcomeFailed, Actor: "inquiry", Reason: "unknown there"},
				{ID: "none", Evidence: Event, Outcome: OutcomeNone, Actor: "event", Reason: "pending"},
			} {
				_, err := s.Resolve(t.Context(), s.merchant.ID, charge.ID, after)
				if after.Outcome != OutcomeNone && !errors.Is(err, ErrNotUnknown) {
					t.Errorf("%d.%d: %v", i, j, err)
				}
			}
			if now, err := s.Get(t.Context(), s.merchant.ID, charge.ID); err != nil || fmt.Sprint(now) != fmt.Sprint(done) {
				t.Errorf("%+v, %v; was %+v", now, err, done)
			}
		}
		s.wantBalanced()
	})
}

// TestHalfAResolutionIsNone kills the process at each step inside the transaction.
func TestHalfAResolutionIsNone(t *testing.T) {
	t.Parallel()
	b := openBooks(t)
	for _, point := range []string{faultResolveCharge, faultResolveKey} {
		t.Run("peers case 34: lost at "+point, func(t *testing.T) {
			t.Parallel()
			s := b.northShop(t, withFault(point, func() { panic("lost") }))
			charge := s.unknown("k")
			func() {
				defer func() {
					if recover() == nil {
						t.Error("the fault was not met")
					}
				}()
				_, _ = s.Resolve(t.Context(), s.merchant.ID, charge.ID, settles(charge, "north"))
			}()
			s.wantRows(1, 1, 1, 0, 1)
			if kept, err := s.Resolutions(t.Context(), s.merchant.ID, charge.ID); err != nil || len(kept) != 0 {
				t.Errorf("%+v, %v", kept, err)
			}
			wantStatus(t, s.charge(s.request("k")), Unknown)
			if now := s.resolve(charge, settles(charge, "north")); now.Status != Captured {
				t.Errorf("%+v", now)
			}
			s.wantRows(1, 1, 1, 1, 2)
		})
	}
	t.Run("lost after it: the decision stands, and the audit log is completed", func(t *testing.T) {
		t.Parallel()
		s := openBooks(t).northShop(t, withFault(faultResolved, func() { panic("lost") }))
		charge := s.unknown("k")
		func() {
			defer func() { _ = recover() }()
			_, _ = s.Resolve(t.Context(), s.merchant.ID, charge.ID, decided("d", OutcomeCaptured))
		}()
		s.wantRows(1, 1, 1, 1, 2)
		if n := s.count(`select count(*) from audit_log`); n != 0 {
			t.Errorf("%d audit rows", n)
		}
		for range 2 {
			if err := s.CompleteAudit(t.Context(), time.Now().Add(-time.Hour)); err != nil {
				t.Fatal(err)
			}
			if n := s.count(`select count(*) from audit_log where subject = $1 and action = 'charge.resolve'`, charge.ID); n != 1 {
				t.Errorf("%d audit rows", n)
			}
		}
	})
}

// TestTwoResolversAtOnce lets an operator and the settlement run close the same charge.
func TestTwoResolversAtOnce(t *testing.T) {
	t.Parallel()
	t.Run("peers case 15: one wins, the other is told who did", func(t *testing.T) {
		t.Parallel()
		s := openBooks(t).northShop(t)
		const rounds = 200
		won := map[Evidence]int{}
		for i := range rounds {
			charge := s.unknown(fmt.Sprintf("k%d", i))
			errs := make([]error, 2)
			var both sync.WaitGroup
			for j, evidence := range []Resolution{decided("op", OutcomeFailed), settles(charge, "north")} {
				both.Go(func() { _, errs[j] = s.Resolve(t.Context(), s.merchant.ID, charge.ID, evidence) })
			}
			both.Wait()
			if (errs[0] == nil) == (errs[1] == nil) {
				t.Fatalf("round %d: operator %v, settlement %v", i, errs[0], errs[1])
			}
			loser := errors.Join(errs...)
			refused, ok := asError[*ResolvedError](loser)
			if !ok || refused.By == nil || !refused.By.Applied {
				t.Fatalf("round %d: the loser was told %v", i, loser)
			}
			won[refused.By.Evidence]++
		}
		t.Logf("won: %v", won)
		if n := s.count(`select count(*) from resolutions where applied`); n != rounds {
			t.Errorf("%d resolutions are applied", n)
		}
		if n := s.count(`select count(*) from charges where status = 'captured'`); n != won[Settlement] {
			t.Errorf("%d captured, settlement won %d times", n, won[Settlement])
		}
		s.wantBalanced()
	})
}

package payment

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"paymentsd/acquirer"
	"paymentsd/resilience"
)

// unclearThen is an acquirer whose answers to one charge are unclear, and what it says when it is asked.
func unclearThen(found acquirer.Inquiry) *script {
	s := answering(of(acquirer.Unclear), of(acquirer.Unclear), of(acquirer.Unclear))
	s.promises.TrustDelay = time.Minute
	s.found = found
	return s
}

// trustPasses makes the shop's attempts look old enough for the trust delay, and its errands due.
func (s *shop) trustPasses() {
	s.t.Helper()
	s.exec(`update attempts set started_at = started_at - interval '2 hours', finished_at = finished_at - interval '2 hours' where merchant_id = $1`, s.merchant.ID)
	s.errandsFallDue()
}

func (s *shop) errandsFallDue() {
	s.t.Helper()
	s.exec(`update errands set due_at = now(), wake_at = now() where merchant_id = $1`, s.merchant.ID)
}

// follow relays the shop's events as the jobs do.
func (s *shop) follow() {
	s.t.Helper()
	events, err := s.ClaimEvents(s.t.Context(), s.merchant.ID, 1000, time.Minute)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, e := range events {
		if err := s.Follow(s.t.Context(), e); err != nil {
			s.t.Fatal(err)
		}
	}
}

// inquireOnce makes the inquiry of an unknown charge, whose time has come.
func (s *shop) inquireOnce(c Charge) Charge {
	s.t.Helper()
	if err := s.RunErrand(s.t.Context(), c.Merchant, c.ID, ErrandInquiry); err != nil {
		s.t.Fatalf("inquire: %v", err)
	}
	now, err := s.Get(s.t.Context(), c.Merchant, c.ID)
	if err != nil {
		s.t.Fatal(err)
	}
	return now
}

func (s *shop) evidenceOf(c Charge) []Resolution {
	s.t.Helper()
	all, err := s.Resolutions(s.t.Context(), c.Merchant, c.ID)
	if err != nil {
		s.t.Fatal(err)
	}
	return all
}

func (s *shop) errandOf(c Charge) Errand {
	s.t.Helper()
	e, err := s.Errand(s.t.Context(), c.Merchant, c.ID, ErrandInquiry)
	if err != nil {
		s.t.Fatal(err)
	}
	return e
}

func capturedThere(c string, amount string) acquirer.Inquiry {
	return acquirer.Inquiry{Found: acquirer.FoundCaptured, CaptureID: c, Amount: usd(amount), HTTPStatus: 200}
}

// Cases 14, 20 and 21 of the collected reports, and 13 of the peers': what an inquiry may and may not do.
func TestInquiry(t *testing.T) {
	t.Parallel()
	b := openBooks(t)
	for name, tc := range map[string]struct {
		found    acquirer.Inquiry
		forgets  bool
		status   Status
		finding  acquirer.Found
		applied  bool
		dedupes  bool
		evidence string // what the reason says
	}{
		"a capture of the charge closes it": {
			found: capturedThere("cap_1", "49.99"), dedupes: true, status: Captured, finding: acquirer.FoundCaptured, applied: true, evidence: "knows the capture",
		},
		"a capture of another amount changes nothing": {
			found: capturedThere("cap_1", "49.98"), dedupes: true, status: Unknown, finding: acquirer.FoundCaptured, evidence: "another amount: 49.98 USD",
		},
		"a capture in another currency changes nothing": {
			found:   acquirer.Inquiry{Found: acquirer.FoundCaptured, CaptureID: "cap_1", Amount: yen("4999")},
			dedupes: true, status: Unknown, finding: acquirer.FoundCaptured, evidence: "4999 JPY",
		},
		"a capture without an id changes nothing": {
			found: capturedThere("", "49.99"), dedupes: true, status: Unknown, finding: acquirer.FoundCaptured, evidence: "no id",
		},
		"a decline under our key, after the trust delay, closes it": {
			found:   acquirer.Inquiry{Found: acquirer.FoundDeclined, DeclineCode: "card_declined"},
			dedupes: true, status: Failed, finding: acquirer.FoundDeclined, applied: true, evidence: "declined (card_declined)",
		},
		"a decline proves nothing where a key may charge twice": {
			found:  acquirer.Inquiry{Found: acquirer.FoundDeclined, DeclineCode: "card_declined"},
			status: Unknown, finding: acquirer.FoundDeclined, evidence: "declined",
		},
		"not found alone changes nothing, even after the trust delay": {
			found: acquirer.Inquiry{Found: acquirer.FoundNothing}, dedupes: true, status: Unknown, finding: acquirer.FoundNothing, evidence: "Alone that proves nothing",
		},
		"pending changes nothing": {
			found: acquirer.Inquiry{Found: acquirer.FoundPending}, dedupes: true, status: Unknown, finding: acquirer.FoundPending, evidence: "not finished",
		},
		"an error, a maintenance page, an unknown shape change nothing": {
			found: acquirer.Inquiry{Found: acquirer.FoundUnclear, HTTPStatus: 200, Detail: "HTTP 200: maintenance"}, dedupes: true,
			status: Unknown, finding: acquirer.FoundUnclear, evidence: "HTTP 200: maintenance",
		},
		"a finding that is not in the table changes nothing": {
			found: acquirer.Inquiry{Found: "settled", Amount: usd("49.99"), CaptureID: "cap_1"}, dedupes: true, status: Unknown, finding: acquirer.FoundUnclear, evidence: "proves nothing",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			north := unclearThen(tc.found)
			north.promises.DeduplicatesByKey = tc.dedupes
			s := b.shop(t, []named{{"north", north, plainly()}})
			c := s.charge(s.request("k")).Charge
			s.follow()
			s.trustPasses()
			now := s.inquireOnce(c)
			if now.Status != tc.status {
				t.Fatalf("it is %s (%s), want %s", now.Status, now.Detail, tc.status)
			}
			all := s.evidenceOf(c)
			if len(all) != 1 {
				t.Fatalf("%d pieces of evidence: %+v", len(all), all)
			}
			e := all[0]
			if e.Evidence != Inquiry || e.Finding != tc.finding || e.Applied != tc.applied || e.Acquirer != "north" || !strings.Contains(e.Reason, tc.evidence) {
				t.Errorf("evidence %+v", e)
			}
			if tc.applied != (now.Evidence == Inquiry) {
				t.Errorf("the charge says %q", now.Evidence)
			}
			left := s.count(`select count(*) from errands where merchant_id = $1`, s.merchant.ID)
			if closed := now.Status != Unknown; closed != (left == 0) {
				t.Errorf("%d errands are left of a charge that is %s", left, now.Status)
			}
			s.wantBalanced()
		})
	}
}

func TestWhenInquiriesAreMade(t *testing.T) {
	t.Parallel()
	b := openBooks(t)
	t.Run("not before the trust delay, whatever wakes them", func(t *testing.T) {
		t.Parallel()
		north := unclearThen(acquirer.Inquiry{Found: acquirer.FoundNothing})
		s := b.shop(t, []named{{"north", north, plainly()}})
		c := s.charge(s.request("k")).Charge
		s.follow()
		s.follow()                               // the same event again
		s.inquireOnce(c)                         // a wake-up before its time
		s.errandsFallDue()                       // another replica's clock is ahead
		if s.inquireOnce(c); north.lookups > 0 { // the acquirer's own delay stands
			t.Fatalf("asked %d times before the trust delay", north.lookups)
		}
		if e := s.errandOf(c); e.Due || e.Tries != 0 || e.DueAt.Before(c.UpdatedAt.Add(50*time.Second)) {
			t.Errorf("%+v", e)
		}
		if all := s.evidenceOf(c); len(all) != 0 {
			t.Errorf("evidence %+v", all)
		}
	})
	t.Run("by a schedule that grows, and at its end people are asked (case 22)", func(t *testing.T) {
		t.Parallel()
		north := unclearThen(acquirer.Inquiry{Found: acquirer.FoundNothing})
		seen := &results{}
		waits := []time.Duration{time.Minute, time.Hour, 24 * time.Hour}
		s := b.shop(t, []named{{"north", north, plainly()}}, func(c *Config) { c.Inquiries, c.Observer = waits, seen })
		c := s.charge(s.request("k")).Charge
		s.follow()
		s.trustPasses()
		for i, wait := range waits {
			before := time.Now()
			s.inquireOnce(c)
			e := s.errandOf(c)
			if in := e.DueAt.Sub(before); e.Tries != i+1 || e.Ended() || in < wait*3/4-time.Second || in > wait*5/4+time.Minute {
				t.Fatalf("after inquiry %d: %+v, in %v", i+1, e, in)
			}
			s.inquireOnce(c) // a second wake-up
			s.errandsFallDue()
		}
		now := s.inquireOnce(c)
		e := s.errandOf(c)
		if now.Status != Unknown || !e.Ended() || e.Tries != 4 || north.lookups != 4 {
			t.Fatalf("%s, %+v, %d lookups", now.Status, e, north.lookups)
		}
		s.errandsFallDue()
		if s.inquireOnce(c); north.lookups != 4 {
			t.Error("it goes on after its end")
		}
		if n, err := s.PlanForgotten(t.Context()); err != nil {
			t.Error(n, err)
		}
		if got := seen.of(ErrandInquiry); got[ErrandAgain] != 3 || got[ErrandGivenUp] != 1 {
			t.Errorf("observed %v", got)
		}
		if all := s.evidenceOf(c); len(all) != 4 {
			t.Errorf("%d pieces of evidence", len(all))
		}
	})
	t.Run("an open breaker puts them off: no call, no try used", func(t *testing.T) {
		t.Parallel()
		north := unclearThen(capturedThere("cap_1", "49.99"))
		s := b.shop(t, []named{{"north", north, plainly()}})
		c := s.charge(s.request("k")).Charge
		s.follow()
		s.trustPasses()
		if err := s.routes[0].Chain.Breaker().Force(t.Context(), resilience.Order{Mode: resilience.ForcedOpen, Why: "the test"}); err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			if now := s.inquireOnce(c); now.Status != Unknown || north.lookups != 0 {
				t.Fatalf("%s, %d lookups", now.Status, north.lookups)
			}
			if e := s.errandOf(c); e.Tries != 0 || e.Deferrals != i+1 || e.Note != string(resilience.CircuitOpen) || e.Due {
				t.Fatalf("%+v", e)
			}
			s.errandsFallDue()
		}
		if err := s.routes[0].Chain.Breaker().Force(t.Context(), resilience.Order{Mode: resilience.Automatic, Why: "the test"}); err != nil {
			t.Fatal(err)
		}
		if now := s.inquireOnce(c); now.Status != Captured {
			t.Errorf("%s after it closed", now.Status)
		}
	})
	t.Run("failed inquiries do not open the breaker for charges", func(t *testing.T) {
		t.Parallel()
		north := unclearThen(acquirer.Inquiry{Found: acquirer.FoundUnclear, HTTPStatus: 500})
		settings := plainly()
		settings.Breaker = resilience.DefaultBreaker()
		s := b.shop(t, []named{{"north", north, settings}})
		c := s.charge(s.request("k")).Charge
		s.follow()
		s.trustPasses()
		for range 30 {
			s.inquireOnce(c)
			s.errandsFallDue()
		}
		if state := s.Acquirers()[0].Breaker; state.State != resilience.Closed || state.Attempts != 3 {
			t.Errorf("%+v", state)
		}
	})
	t.Run("a spent retry budget puts off all but the first", func(t *testing.T) {
		t.Parallel()
		north := unclearThen(acquirer.Inquiry{Found: acquirer.FoundNothing})
		settings := plainly()
		settings.Budget = resilience.BudgetConfig{}
		s := b.shop(t, []named{{"north", north, settings}})
		c := s.charge(s.request("k")).Charge
		s.follow()
		s.trustPasses()
		s.inquireOnce(c)
		s.errandsFallDue()
		s.inquireOnce(c)
		if e := s.errandOf(c); north.lookups != 1 || e.Tries != 1 || e.Deferrals != 1 || e.Note != string(resilience.BudgetSpent) {
			t.Errorf("%d lookups, %+v", north.lookups, e)
		}
	})
	t.Run("an acquirer that answers no inquiries, or is not configured any more", func(t *testing.T) {
		t.Parallel()
		north := unclearThen(acquirer.Inquiry{})
		north.promises.LooksUpByReference = false
		s := b.shop(t, []named{{"north", north, plainly()}})
		c := s.charge(s.request("k")).Charge
		s.follow()
		s.trustPasses()
		s.inquireOnce(c)
		s.exec(`update attempts set acquirer = 'gone' where merchant_id = $1`, s.merchant.ID)
		s.errandsFallDue()
		s.inquireOnce(c)
		all := s.evidenceOf(c)
		if north.lookups != 0 || len(all) != 2 || !strings.Contains(all[0].Reason, "answers no inquiries") || !strings.Contains(all[1].Reason, "not configured") {
			t.Errorf("%d lookups, %+v", north.lookups, all)
		}
	})
	t.Run("an adapter that panics is noted, and comes again later", func(t *testing.T) {
		t.Parallel()
		north := unclearThen(acquirer.Inquiry{})
		s := b.shop(t, []named{{"north", &panicky{script: north}, plainly()}})
		c := s.charge(s.request("k")).Charge
		s.follow()
		s.trustPasses()
		if now := s.inquireOnce(c); now.Status != Unknown || s.errandOf(c).Tries != 1 {
			t.Errorf("%s, %+v", now.Status, s.errandOf(c))
		}
	})
	t.Run("an event that was lost is made up for", func(t *testing.T) {
		t.Parallel()
		s := b.shop(t, []named{{"north", unclearThen(acquirer.Inquiry{}), plainly()}})
		c := s.charge(s.request("k")).Charge
		s.exec(`delete from outbox where merchant_id = $1`, s.merchant.ID)
		s.exec(`update charges set updated_at = now() - interval '1 hour' where merchant_id = $1`, s.merchant.ID)
		if _, err := s.PlanForgotten(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.errandOf(c) // fails the test if there is none
	})
	t.Run("nothing is made of a charge that was closed meanwhile", func(t *testing.T) {
		t.Parallel()
		north := unclearThen(acquirer.Inquiry{})
		north.answers = append(north.answers, north.answers...)
		s := b.shop(t, []named{{"north", north, plainly()}})
		closed, later := s.charge(s.request("a")).Charge, s.charge(s.request("b")).Charge
		s.resolve(closed, settles(closed, "north"))
		s.follow()
		if n := s.count(`select count(*) from errands where charge_id = $1`, closed.ID); n != 0 {
			t.Error("an errand of a charge that is certain")
		}
		s.resolve(later, settles(later, "north"))
		if n := s.count(`select count(*) from errands where charge_id = $1`, later.ID); n != 0 {
			t.Error("the errand outlives its charge's doubt")
		}
		if now := s.inquireOnce(later); now.Status != Captured || now.Evidence != Settlement {
			t.Errorf("%+v", now)
		}
	})
}

// A decline whose T2 was lost is closed by inquiry; so is a capture.
func TestInquiryClosesWhatACrashLeft(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		answer acquirer.Class
		found  acquirer.Inquiry
		want   Status
	}{
		"a capture": {acquirer.Captured, capturedThere("cap_1", "49.99"), Captured},
		"a decline": {acquirer.Declined, acquirer.Inquiry{Found: acquirer.FoundDeclined}, Failed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			north := answering(of(tc.answer))
			north.found = tc.found
			s := openShop(t, []named{{"north", north, plainly()}}, withFault(faultAfterCall, runtime.Goexit))
			s.killed(s.request("k"))
			s.letLeasePass("k")
			if report, err := s.Sweep(t.Context()); err != nil || report.Unknown != 1 {
				t.Fatalf("%+v, %v", report, err)
			}
			page, err := s.List(t.Context(), Filter{Merchant: &s.merchant.ID, Limit: 1})
			if err != nil {
				t.Fatal(err)
			}
			s.follow()
			s.trustPasses()
			if now := s.inquireOnce(page.Charges[0]); now.Status != tc.want || now.Evidence != Inquiry {
				t.Errorf("%+v", now)
			}
			if again := s.charge(s.request("k")); again.Frozen == nil || !again.Replayed {
				t.Errorf("the key answers %+v", again)
			}
			wantCalls(t, "north", north, 1)
			s.wantBalanced()
		})
	}
}

// Killed at any step of an inquiry, the next one goes on, and nothing is there twice.
func TestInquiryIsKilled(t *testing.T) {
	t.Parallel()
	for _, step := range []string{faultInquired, faultResolveCharge, faultResolveKey, faultResolved} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			north := unclearThen(capturedThere("cap_1", "49.99"))
			s := openShop(t, []named{{"north", north, plainly()}}, withFault(step, runtime.Goexit))
			c := s.charge(s.request("k")).Charge
			s.follow()
			s.trustPasses()
			done := make(chan struct{})
			go func() {
				defer close(done)
				_ = s.RunErrand(context.WithoutCancel(t.Context()), c.Merchant, c.ID, ErrandInquiry)
				t.Error("it was not killed")
			}()
			<-done
			s.errandsFallDue()
			if now := s.inquireOnce(c); now.Status != Captured || now.Evidence != Inquiry {
				t.Errorf("%+v", now)
			}
			if all := s.evidenceOf(c); len(all) != 1 || !all[0].Applied {
				t.Errorf("%+v", all)
			}
			s.wantRows(1, 1, 1, 1, 2)
			s.wantBalanced()
		})
	}
}

// Must show: a hundred unknowns whose inquiries fail, again and again, do not keep ten fresh ones waiting (peers,
// pay-connector PR 3822).
func TestPoisonedInquiriesDoNotStarveFreshOnes(t *testing.T) {
	t.Parallel()
	north := unclearThen(acquirer.Inquiry{Found: acquirer.FoundUnclear})
	s := openShop(t, []named{{"north", north, plainly()}})
	fresh := map[string]bool{}
	for i := range 110 {
		north.mu.Lock()
		north.answers = []acquirer.Answer{of(acquirer.Unclear), of(acquirer.Unclear), of(acquirer.Unclear)}
		north.mu.Unlock()
		c := s.charge(s.request(fmt.Sprintf("k%03d", i))).Charge
		if i >= 100 {
			fresh[c.ID] = true
		}
	}
	s.follow()
	s.trustPasses()
	s.exec(`update errands set tries = 1, due_at = now() - interval '1 day', wake_at = now() - interval '1 day' where charge_id <> all($1)`, slices.Collect(maps.Keys(fresh)))
	first, err := s.ErrandsToWake(t.Context(), len(fresh))
	if err != nil || len(first) != len(fresh) {
		t.Fatal(len(first), err)
	}
	for _, e := range first {
		if !fresh[e.ChargeID] {
			t.Errorf("%s, tried %d times, goes before fresh ones", e.ChargeID, e.Tries)
		}
	}
}

// results is an Observer that counts what came of errands.
type results struct {
	silent
	mu   sync.Mutex
	seen map[ErrandKind]map[ErrandResult]int
}

func (r *results) ErrandEnded(kind ErrandKind, result ErrandResult) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen == nil {
		r.seen = map[ErrandKind]map[ErrandResult]int{}
	}
	if r.seen[kind] == nil {
		r.seen[kind] = map[ErrandResult]int{}
	}
	r.seen[kind][result]++
}

func (r *results) of(kind ErrandKind) map[ErrandResult]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.seen[kind])
}

// panicky panics when it is asked.
type panicky struct{ *script }

func (*panicky) Lookup(context.Context, string) acquirer.Inquiry { panic("an adapter's fault") }

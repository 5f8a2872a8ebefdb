package events

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"paymentsd/acquirer"
	"paymentsd/internal/pgtest"
	"paymentsd/internal/webhook"
	"paymentsd/merchant"
	"paymentsd/payment"
	"paymentsd/reconcile"
)

func TestEverySQLConstantPrepares(t *testing.T) {
	t.Parallel()
	pgtest.PrepareAll(t, ".")
}

// What each event does to each charge, on real books.
func TestWhatAnEventDoes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const none = acquirer.Class("")
	for i, c := range []struct {
		name         string
		north, south acquirer.Class // what they answered
		from         string
		body         func(payment.Charge) string
		outcome      outcome
		after        payment.Status
		evidence     string // what is kept: OUTCOME, with + if it was applied; empty for none
		class        reconcile.Class
	}{
		{"unknown, captured", acquirer.Unclear, none, "north", captured, applied, payment.Captured, "captured+", ""},
		{"unknown, declined", acquirer.Unclear, none, "north", declined, applied, payment.Failed, "failed+", ""},
		{"unknown, another amount", acquirer.Unclear, none, "north", func(c payment.Charge) string { return tells("captured", c.AcqRef, "4998", "USD", "cap") }, exception, payment.Unknown, "none", reconcile.AmountMismatch},
		{"unknown, another currency", acquirer.Unclear, none, "north", func(c payment.Charge) string { return tells("captured", c.AcqRef, "4999", "EUR", "cap") }, exception, payment.Unknown, "none", reconcile.CurrencyMismatch},
		{"unknown, captured by one that was never asked", acquirer.Unclear, none, "south", captured, exception, payment.Unknown, "none", reconcile.WrongAcquirer},
		{"unknown, declined by one that was never asked", acquirer.Unclear, none, "south", declined, noted, payment.Unknown, "none", ""},
		{"unknown at south, captured there", acquirer.Refused, acquirer.Unclear, "south", captured, applied, payment.Captured, "captured+", ""},
		{"unknown at south, captured at north, which had refused", acquirer.Refused, acquirer.Unclear, "north", captured, applied, payment.Captured, "captured+", reconcile.CapturedThoughFailed},
		{"unknown at south, declined by north", acquirer.Refused, acquirer.Unclear, "north", declined, noted, payment.Unknown, "none", ""},
		{"unknown at south, declined there", acquirer.Refused, acquirer.Unclear, "south", declined, applied, payment.Failed, "failed+", ""},
		{"captured, the same capture", acquirer.Captured, none, "north", captured, agreed, payment.Captured, "", ""},
		{"captured, another capture", acquirer.Captured, none, "north", func(c payment.Charge) string { return tells("captured", c.AcqRef, "4999", "USD", "cap_2") }, exception, payment.Captured, "captured", reconcile.DuplicateCapture},
		{"captured at south, captured at north as well", acquirer.Refused, acquirer.Captured, "north", captured, exception, payment.Captured, "captured", reconcile.CapturedAtBoth},
		{"captured, declined", acquirer.Captured, none, "north", declined, exception, payment.Captured, "failed", reconcile.ContradictedLater},
		{"captured at south, declined by north", acquirer.Refused, acquirer.Captured, "north", declined, agreed, payment.Captured, "", ""},
		{"declined, declined", acquirer.Declined, none, "north", declined, agreed, payment.Declined, "", ""},
		{"idempotency case 23: declined, captured", acquirer.Declined, none, "north", captured, exception, payment.Declined, "captured", reconcile.CapturedThoughDeclined},
		{"peers case 14: failed, captured", acquirer.Refused, acquirer.Refused, "north", captured, exception, payment.Failed, "captured", reconcile.CapturedThoughFailed},
		{"rejected, captured", acquirer.Rejected, none, "north", captured, exception, payment.Failed, "captured", reconcile.CapturedThoughFailed},
		{"unknown, pending", acquirer.Unclear, none, "north", func(c payment.Charge) string { return tells("pending", c.AcqRef, "4999", "USD", "cap") }, ignored, payment.Unknown, "", ""},
	} {
		charge := w.charge(c.north, c.south)
		transfers := w.count(`select count(*) from ledger_transfers where merchant_id = $1`, charge.Merchant)
		id := "evt_" + strings.Repeat("x", i+1)
		w.mustSend(c.from, id, c.body(charge))
		w.wantOutcome(c.from, id, c.outcome)
		if now := w.now(charge); now.Status != c.after || (c.after != charge.Status && now.Evidence != payment.Event) {
			t.Errorf("%s: the charge was %s and is %s by %q, want %s", c.name, charge.Status, now.Status, now.Evidence, c.after)
		}
		evidence := ""
		for _, r := range w.evidence(charge) {
			evidence += r.Outcome
			if r.Applied {
				evidence += "+"
			}
			if r.Evidence != payment.Event || r.ID != "event:"+c.from+":"+id || !strings.Contains(r.Reason, id) {
				t.Errorf("%s: %+v", c.name, r)
			}
		}
		if evidence != c.evidence {
			t.Errorf("%s: evidence %q, want %q", c.name, evidence, c.evidence)
		}
		var class reconcile.Class
		all, _, err := w.reconciler.Exceptions(t.Context(), reconcile.ExceptionFilter{ChargeID: charge.ID, Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range all {
			class += e.Class
			if e.Merchant == nil || *e.Merchant != charge.Merchant || e.AcqRef != charge.AcqRef || e.Acquirer != c.from || e.AtRisk.Sign() <= 0 || e.Detail == "" {
				t.Errorf("%s: %+v", c.name, e)
			}
		}
		if class != c.class {
			t.Errorf("%s: exceptions %q, want %q", c.name, class, c.class)
		}
		posted := w.count(`select count(*) from ledger_transfers where merchant_id = $1`, charge.Merchant) - transfers
		if want := map[bool]int{true: 1}[c.after == payment.Captured && charge.Status == payment.Unknown]; posted != want {
			t.Errorf("%s: %d transfers were posted, want %d", c.name, posted, want)
		}
	}
}

func TestEventsThatAreAboutNoCharge(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	code := w.merchant.ID.Code()
	w.mustSend("north", "ours", tells("captured", code+"00000000000000", "4999", "USD", "cap_1"))
	w.mustSend("north", "ours-again", tells("captured", code+"00000000000000", "4999", "USD", "cap_1"))
	w.mustSend("north", "foreign", tells("captured", "invoice-7", "100", "USD", "cap_2"))
	w.mustSend("north", "declined", tells("declined", "invoice-8", "100", "USD", "cap_3"))
	w.mustSend("north", "other", `{"type":"payout.paid","data":{"amount":12}}`)
	w.mustSend("north", "garbled", `{"type":"capture.captured","data":"see the portal"}`)
	w.mustSend("north", "no-json", "capture=captured&amount=4999")
	for id, want := range map[string]outcome{
		"ours": exception, "ours-again": exception, "foreign": exception, "declined": exception, "other": ignored, "garbled": exception, "no-json": exception,
	} {
		w.wantOutcome("north", id, want)
	}
	if k := w.kept("north", "other"); k.Type != "payout.paid" {
		t.Errorf("an event of a type that is not known: %+v", k)
	}
	classes := w.open()
	slices.Sort(classes)
	want := []reconcile.Class{reconcile.BadEvent, reconcile.BadEvent, reconcile.MissingWithUs, reconcile.MissingWithUs, reconcile.MissingWithUs}
	if !slices.Equal(classes, want) { // two events about one capture are one exception
		t.Errorf("open: %v, want %v", classes, want)
	}
}

// The order reference is the merchant's: an event that names it instead of ours moves nothing.
func TestAnEventIsBoundToTheAttemptAndNotToTheOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	charge := w.unknown()
	w.mustSend("north", "by-order", tells("captured", charge.Reference, "4999", "USD", "cap_1"))
	w.wantOutcome("north", "by-order", exception)
	if now := w.now(charge); now.Status != payment.Unknown || len(w.evidence(charge)) != 0 {
		t.Errorf("%+v", now)
	}
}

func TestReplaysAndDuplicatesChangeNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	charge := w.unknown()
	w.mustSend("north", "evt_1", captured(charge))
	after := w.now(charge)
	for range 3 {
		if replayed, err := w.send(t.Context(), "north", "evt_1", captured(charge)); err != nil || !replayed {
			t.Errorf("the same event again: replayed %v, %v", replayed, err)
		}
	}
	if replayed, err := w.send(t.Context(), "north", "evt_1", declined(charge)); !errors.Is(err, ErrIDReused) || !replayed {
		t.Errorf("the same id with another body: replayed %v, %v", replayed, err)
	}
	w.mustSend("north", "evt_2", captured(charge)) // the same news under another id
	w.mustSend("south", "evt_1", `{"type":"x"}`)   // ids are an acquirer's own
	w.wantOutcome("north", "evt_1", applied)
	w.wantOutcome("north", "evt_2", agreed)
	if now := w.now(charge); !same(now, after) || len(w.evidence(charge)) != 1 {
		t.Errorf("%+v, was %+v", now, after)
	}
	if n := w.count(`select count(*) from ledger_transfers where merchant_id = $1`, charge.Merchant); n != 1 {
		t.Errorf("%d transfers", n)
	}
	if k := w.kept("north", "evt_1"); k.Tries != 1 {
		t.Errorf("replays were handled: %+v", k)
	}
}

// Out of order: the capture is told before the news that it is pending, and twice at the same moment.
func TestEventsOutOfOrderAndAtTheSameMoment(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	charge := w.unknown()
	var all sync.WaitGroup
	for _, id := range []string{"a", "a", "a", "b", "c"} {
		all.Go(func() {
			if _, err := w.send(t.Context(), "north", id, captured(charge)); err != nil {
				t.Errorf("%s: %v", id, err)
			}
		})
	}
	all.Wait()
	w.mustSend("north", "late", tells("pending", charge.AcqRef, "4999", "USD", "cap_"+charge.AcqRef))
	outcomes := []string{w.kept("north", "a").Outcome, w.kept("north", "b").Outcome, w.kept("north", "c").Outcome}
	slices.Sort(outcomes)
	if !slices.Equal(outcomes, []string{"agreed", "agreed", "applied"}) {
		t.Errorf("%v", outcomes)
	}
	if n := w.count(`select count(*) from ledger_transfers where merchant_id = $1`, charge.Merchant); n != 1 || w.now(charge).Status != payment.Captured || len(w.open()) != 0 {
		t.Errorf("%d transfers, %v, %v", n, w.now(charge), w.open())
	}
}

// An acquirer may be faster with its event than with its answer.
func TestAnEventWaitsForAChargeThatIsStillAsked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	north := w.acquirers["north"]
	north.hold, north.held = make(chan struct{}), make(chan struct{}, 1)
	north.next(acquirer.Unclear)
	ended := make(chan payment.Charge, 1)
	request := w.request()
	go func() {
		result, err := w.charges.Charge(context.WithoutCancel(t.Context()), request)
		if err != nil {
			t.Error(err)
		}
		ended <- result.Charge
	}()
	<-north.held
	page, err := w.charges.List(t.Context(), payment.Filter{Merchant: &w.merchant.ID, Limit: 10})
	if err != nil || len(page.Charges) != 1 {
		t.Fatalf("%+v, %v", page, err)
	}
	pending := page.Charges[0]
	w.mustSend("north", "evt_1", captured(pending))
	w.allDue()
	if k := w.kept("north", "evt_1"); k.State != "received" || k.Tries != 2 || k.LastError == "" || w.now(pending).Status != payment.Pending {
		t.Errorf("%+v", k)
	}
	close(north.hold)
	if c := <-ended; c.Status != payment.Unknown {
		t.Fatalf("%+v", c)
	}
	w.allDue()
	w.wantOutcome("north", "evt_1", applied)
	if now := w.now(pending); now.Status != payment.Captured || now.Evidence != payment.Event {
		t.Errorf("%+v", now)
	}
}

// brittle fails as often as it is told.
type brittle struct {
	Charges
	failures int
}

func (b *brittle) Resolve(ctx context.Context, m merchant.ID, id string, r payment.Resolution) (payment.Charge, error) {
	if b.failures > 0 {
		b.failures--
		return payment.Charge{}, errors.New("the store is away\x00")
	}
	return b.Charges.Resolve(ctx, m, id, r)
}

// Peers case 19: what could not be handled is not recorded as handled, and is handled again.
func TestAFailedHandlingIsTriedAgain(t *testing.T) {
	t.Parallel()
	b := &brittle{failures: 2}
	w := newWorld(t, func(c *Config) { b.Charges, c.Charges = c.Charges, b })
	charge := w.unknown()
	w.mustSend("north", "evt_1", captured(charge)) // the acquirer is told that we have it
	if k := w.kept("north", "evt_1"); k.State != "received" || !strings.Contains(k.LastError, "the store is away") {
		t.Errorf("%+v", k)
	}
	if more, err := w.HandleDue(t.Context()); more || err != nil || b.failures != 1 {
		t.Errorf("%v, %v: %d failures left; an event is not tried again at once", more, err, b.failures)
	}
	w.allDue()
	w.allDue()
	w.wantOutcome("north", "evt_1", applied)
	if k := w.kept("north", "evt_1"); k.Tries != 3 || k.LastError != "" || w.now(charge).Status != payment.Captured {
		t.Errorf("%+v", k)
	}
}

// Events that cannot be handled do not keep others from it.
func TestPoisonedEventsDoNotStarveFreshOnes(t *testing.T) {
	t.Parallel()
	b := &brittle{failures: 2 * dueBatch}
	w := newWorld(t, func(c *Config) { b.Charges, c.Charges = c.Charges, b })
	bad, good := w.unknown(), w.unknown()
	w.exec(`insert into acquirer_events (acquirer, event_id, sha256, body, sent_at, received_at, state, tries, next_try_at)
		select 'north', 'bad-' || n, sha256(''), convert_to($1, 'UTF8'), now(), now(), 'received', 1, now() - interval '1 hour' from generate_series(1, $2::int) n`, captured(bad), dueBatch)
	w.exec(`insert into acquirer_events (acquirer, event_id, sha256, body, sent_at, received_at, state, tries, next_try_at)
		values ('north', 'good', sha256(''), convert_to($1, 'UTF8'), now(), now(), 'received', 1, now() - interval '1 second')`, captured(good))
	if more, err := w.HandleDue(t.Context()); !more || err != nil {
		t.Fatalf("%v, %v", more, err)
	}
	b.failures = 0
	if more, err := w.HandleDue(t.Context()); more || err != nil {
		t.Fatalf("%v, %v", more, err)
	}
	w.wantOutcome("north", "good", applied)
	if k := w.kept("north", "bad-1"); k.State != "received" || k.Tries != 2 {
		t.Errorf("%+v", k)
	}
}

// Killed anywhere between receipt and mark, an event has its effect once.
func TestACrashAtEachStepLosesNothing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		step    string
		body    func(payment.Charge) string
		outcome outcome
		after   payment.Status
		classes []reconcile.Class
	}{
		{faultReceived, captured, applied, payment.Captured, nil},
		{faultApplied, captured, applied, payment.Captured, nil},
		{faultApplied, declined, applied, payment.Failed, nil},
		{faultRaised, func(c payment.Charge) string { return tells("captured", c.AcqRef, "1", "USD", "cap_1") }, exception, payment.Unknown, []reconcile.Class{reconcile.AmountMismatch}},
	} {
		t.Run(c.step+" "+string(c.after), func(t *testing.T) {
			t.Parallel()
			armed := true
			w := newWorld(t, func(config *Config) {
				config.Fault = func(step string) {
					if step == c.step && armed {
						armed = false
						panic("killed at " + step)
					}
				}
			})
			charge := w.unknown()
			func() {
				defer func() {
					if recover() == nil {
						t.Error("the fault point was not reached")
					}
				}()
				_, _ = w.send(t.Context(), "north", "evt_1", c.body(charge)) // does not return
			}()
			if k := w.kept("north", "evt_1"); k.State != "received" {
				t.Errorf("%+v", k)
			}
			if _, err := w.HandleDue(t.Context()); err != nil || w.kept("north", "evt_1").State != "received" {
				t.Errorf("handled before its lease is over: %v", err)
			}
			w.allDue()
			w.wantOutcome("north", "evt_1", c.outcome)
			if now := w.now(charge); now.Status != c.after || len(w.evidence(charge)) != 1 || !slices.Equal(w.open(), c.classes) {
				t.Errorf("%+v, %v, %v", now, w.evidence(charge), w.open())
			}
		})
	}
}

func same(a, b payment.Charge) bool { return a.Status == b.Status && a.UpdatedAt.Equal(b.UpdatedAt) }

// What is not signed just now by this acquirer leaves no trace.
func TestVerify(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	charge := w.unknown()
	body := []byte(captured(charge))
	signed := func(ring webhook.Ring, at time.Time) http.Header {
		h := http.Header{}
		if err := ring.Sign(h, "evt_1", at, body); err != nil {
			t.Fatal(err)
		}
		return h
	}
	for name, h := range map[string]http.Header{
		"no headers": {}, "another acquirer's secret": signed(w.rings["south"], time.Now()),
		"six minutes old": signed(w.rings["north"], time.Now().Add(-6*time.Minute)), "six minutes ahead": signed(w.rings["north"], time.Now().Add(6*time.Minute)),
	} {
		if _, err := w.Verify("north", h, body); !errors.Is(err, ErrUnverified) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := w.Verify("west", signed(w.rings["north"], time.Now()), body); !errors.Is(err, payment.ErrUnknownAcquirer) {
		t.Errorf("an acquirer that sends no events: %v", err)
	}
	if n := w.count(`select count(*) from acquirer_events`); n != 0 || !same(w.now(charge), charge) {
		t.Errorf("%d events are kept", n)
	}
}

// An event of an acquirer that is no longer configured waits until it is again.
func TestAnEventOutlivesItsAcquirersConfiguration(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	charge := w.unknown()
	source := w.Sources["north"]
	delete(w.Sources, "north")
	w.exec(`insert into acquirer_events (acquirer, event_id, sha256, body, sent_at, received_at, state, tries, next_try_at)
		values ('north', 'evt_1', sha256(''), convert_to($1, 'UTF8'), now(), now(), 'received', 1, now())`, captured(charge))
	w.allDue()
	if k := w.kept("north", "evt_1"); k.State != "received" || !strings.Contains(k.LastError, "configuration") {
		t.Errorf("%+v", k)
	}
	w.Sources["north"] = source
	w.allDue()
	w.wantOutcome("north", "evt_1", applied)
}

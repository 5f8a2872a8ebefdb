package events

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"paymentsd/ledger"
	"paymentsd/money"
	"paymentsd/payment"
	"paymentsd/reconcile"
	"paymentsd/settlement"
)

// raceRounds is how often the five race for one charge.
const raceRounds = 200

// raceHeadMax is the most by which a racer starts late: about what the slowest needs.
const raceHeadMax = 60 * time.Millisecond

// racer is one road by which a charge's outcome may come: it gives whom it was told had won, nil if it
// won itself or was told nothing.
type racer struct {
	evidence payment.Evidence
	run      func(context.Context) (*payment.ResolvedError, error)
}

// A late answer, the acquirer's event, an inquiry, the settlement file and an operator settle the same
// charge at the same moment: one wins, money is posted once, whoever lost is told who won, and what each of
// them knew is kept.
func TestFiveRoadsRaceForOneCharge(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	won := map[payment.Evidence]int{}
	for round := range raceRounds {
		charge, answer := w.lateCharge()
		begin := make(chan struct{})
		var all sync.WaitGroup
		var mu sync.Mutex
		told := map[payment.Evidence]*payment.ResolvedError{}
		for _, r := range append(w.racers(charge, round), racer{payment.LateAnswer, answer}) {
			// A file takes a while to be read; the others give it one in most rounds, but not in all.
			head := time.Duration(0)
			if r.evidence != payment.Settlement {
				head = rand.N(raceHeadMax)
			}
			all.Go(func() {
				<-begin
				time.Sleep(head)
				lost, err := r.run(t.Context())
				if err != nil {
					t.Errorf("round %d, %s: %v", round, r.evidence, err)
				}
				mu.Lock()
				defer mu.Unlock()
				told[r.evidence] = lost
			})
		}
		close(begin)
		all.Wait()
		winner := w.judgeRace(round, charge, told)
		won[winner]++
		if t.Failed() {
			return
		}
	}
	if len(won) < 2 {
		t.Errorf("%v: that was no race", won)
	}
	if sums, err := ledger.TrialBalance(t.Context(), w.pool); err != nil || len(sums) != 1 || !sums[0].Net().IsZero() {
		t.Errorf("the trial balance is %v, %v", sums, err)
	}
	if open := w.open(); len(open) != 0 {
		t.Errorf("open exceptions: %v", open)
	}
	t.Logf("%d rounds, won by: %v", raceRounds, won)
}

// lateCharge is a charge that a sweep has taken for lost while its acquirer is still working; answer lets that
// one answer.
func (w *world) lateCharge() (payment.Charge, func(context.Context) (*payment.ResolvedError, error)) {
	w.t.Helper()
	north := w.acquirers["north"]
	north.mu.Lock()
	hold, held := make(chan struct{}), make(chan struct{}, 1)
	north.hold, north.held, north.answers = hold, held, nil
	north.mu.Unlock()
	request := w.request()
	type ended struct {
		payment.Result
		error
	}
	done := make(chan ended, 1)
	go func() {
		result, err := w.charges.Charge(context.WithoutCancel(w.t.Context()), request)
		done <- ended{result, err}
	}()
	<-held
	w.exec(`update idempotency_keys set lease_until = now() - interval '1 second' where merchant_id = $1 and key = $2`, w.merchant.ID, request.Key)
	if report, err := w.charges.Sweep(w.t.Context()); err != nil || report.Unknown != 1 {
		w.t.Fatalf("sweep: %+v, %v", report, err)
	}
	page, err := w.charges.List(w.t.Context(), payment.Filter{Merchant: &w.merchant.ID, IdempotencyKey: request.Key, Limit: 1})
	if err != nil || len(page.Charges) != 1 || page.Charges[0].Status != payment.Unknown {
		w.t.Fatalf("%+v, %v", page, err)
	}
	return page.Charges[0], func(context.Context) (*payment.ResolvedError, error) {
		close(hold)
		end := <-done
		if end.error == nil && end.Charge.Status != payment.Captured {
			return nil, fmt.Errorf("the client was answered %s", end.Charge.Status)
		}
		return nil, end.error // the client gets the charge as it stands, whoever closed it
	}
}

// racers are the four that do not come through the charge's own request.
func (w *world) racers(c payment.Charge, round int) []racer {
	resolve := func(r payment.Resolution) func(context.Context) (*payment.ResolvedError, error) {
		return func(ctx context.Context) (*payment.ResolvedError, error) {
			r.Outcome, r.Acquirer, r.CaptureID, r.Amount = payment.OutcomeCaptured, "north", "cap_"+c.AcqRef, c.Amount
			_, err := w.charges.Resolve(ctx, c.Merchant, c.ID, r)
			if lost, ok := errors.AsType[*payment.ResolvedError](err); ok {
				return lost, nil
			}
			return nil, err
		}
	}
	return []racer{
		{payment.Inquiry, resolve(payment.Resolution{ID: "inquiry:1", Evidence: payment.Inquiry, Actor: "inquiry", Reason: "north says captured"})},
		{payment.Operator, resolve(payment.Resolution{ID: "operator:1", Evidence: payment.Operator, Actor: "J. Doe", Reason: "seen in the portal"})},
		{payment.Event, func(ctx context.Context) (*payment.ResolvedError, error) {
			_, err := w.send(ctx, "north", fmt.Sprintf("race-%d", round), captured(c))
			return nil, err
		}},
		{payment.Settlement, func(ctx context.Context) (*payment.ResolvedError, error) {
			file, err := settlementOf(c, round)
			if err != nil {
				return nil, err
			}
			_, err = w.reconciler.Run(ctx, reconcile.Request{
				Acquirer: "north", Format: "canonical", AsOf: time.Now().UTC(), Feeds: []reconcile.Feed{{
					Name: fmt.Sprintf("north-%d.csv", round), Open: func(context.Context) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(file)), nil },
				}},
			})
			return nil, err
		}},
	}
}

// settlementOf is a file with the charge's capture, one day for each round.
func settlementOf(c payment.Charge, round int) ([]byte, error) {
	var file bytes.Buffer
	day := time.Now().UTC().Truncate(24 * time.Hour)
	out := settlement.NewWriter(&file, settlement.Header{Acquirer: "north", Account: "main", Sequence: round + 1, From: day, To: day.AddDate(0, 0, 1)})
	err := errors.Join(out.Write(settlement.Line{
		ID: fmt.Sprintf("line-%d", round), Kind: settlement.Capture, Reference: c.AcqRef, CaptureID: "cap_" + c.AcqRef,
		Gross: c.Amount, Fee: money.Zero("USD"), Net: c.Amount, OccurredAt: c.CreatedAt.Add(time.Second).Truncate(time.Second),
	}), out.Close())
	return file.Bytes(), err
}

// judgeRace holds what must be true after a round, and says who won it.
func (w *world) judgeRace(round int, c payment.Charge, told map[payment.Evidence]*payment.ResolvedError) payment.Evidence {
	w.t.Helper()
	now := w.now(c)
	if now.Status != payment.Captured || now.CaptureID != "cap_"+c.AcqRef {
		w.t.Errorf("round %d: %+v", round, now)
	}
	if n := w.count(`select count(*) from ledger_transfers where merchant_id = $1 and charge_id = $2 and kind = 'capture'`, c.Merchant, c.ID); n != 1 {
		w.t.Errorf("round %d: the capture is posted %d times", round, n)
	}
	var applied []payment.Resolution
	kept := map[payment.Evidence]bool{}
	for _, r := range w.evidence(c) {
		kept[r.Evidence] = true
		if r.Applied {
			applied = append(applied, r)
		}
	}
	if len(applied) != 1 || applied[0].Evidence != now.Evidence {
		w.t.Errorf("round %d: applied %+v to a charge that is %s by %s", round, applied, now.Status, now.Evidence)
		return ""
	}
	// A person who lost is told, and decides anew: what he said then is not evidence. The nightly run
	// and an event that find the charge captured as they say have nothing to add: theirs is kept where it is,
	// the line or the event itself.
	for _, e := range []payment.Evidence{payment.Inquiry, payment.LateAnswer} {
		if !kept[e] {
			w.t.Errorf("round %d: the evidence of %s is lost", round, e)
		}
	}
	for _, e := range []payment.Evidence{payment.Inquiry, payment.Operator} {
		if e == now.Evidence {
			continue
		}
		if lost := told[e]; lost == nil || lost.By == nil || lost.By.ID != applied[0].ID {
			w.t.Errorf("round %d: %s lost to %s and was told %+v", round, e, applied[0].ID, lost)
		}
	}
	w.wantOutcome("north", fmt.Sprintf("race-%d", round), map[bool]outcome{true: "applied", false: "agreed"}[now.Evidence == payment.Event])
	if n := w.count(`select count(*) from settlement_claims where merchant_id = $1 and charge_id = $2 and state = 'matched' and resolved = $3`,
		c.Merchant, c.ID, now.Evidence == payment.Settlement); n != 1 {
		w.t.Errorf("round %d: the line is not matched", round)
	}
	if !slices.Contains([]payment.Evidence{payment.Inquiry, payment.Operator, payment.Event, payment.Settlement, payment.LateAnswer}, now.Evidence) {
		w.t.Errorf("round %d: %q", round, now.Evidence)
	}
	return now.Evidence
}

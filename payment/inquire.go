package payment

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"paymentsd/acquirer"
	"paymentsd/merchant"
	"paymentsd/money"
	"paymentsd/resilience"
)

// DefaultInquiries is how long to wait after each inquiry that did not settle the charge. The first one comes
// after the acquirer's trust delay; after the last one a person has to see to it.
func DefaultInquiries() []time.Duration {
	return []time.Duration{
		time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour, 4 * time.Hour, 12 * time.Hour,
		24 * time.Hour, 24 * time.Hour, 48 * time.Hour, 72 * time.Hour,
	}
}

// Follow makes the errand that an event asks for: an unknown charge is inquired about. The same event
// again changes nothing.
func (s *Service) Follow(ctx context.Context, e OutboxEvent) error {
	if e.Kind != EventUnknown {
		return nil
	}
	return s.planInquiry(ctx, e.Merchant, e.ChargeID)
}

func (s *Service) planInquiry(ctx context.Context, m merchant.ID, chargeID string) error {
	asked, err := s.suspects(ctx, m, chargeID)
	if err != nil {
		return err
	}
	now := s.moment()
	due := now
	for _, a := range asked {
		if at := a.trusted(); at.After(due) {
			due = at
		}
	}
	return addErrand(ctx, s.pool, Errand{Merchant: m, ChargeID: chargeID, Kind: ErrandInquiry, DueAt: due}, Unknown, due, now)
}

// suspect is an attempt that may have captured, and who to ask about it.
type suspect struct {
	Attempt
	route *Route // nil: the acquirer is not configured any more
}

// trusted is when the acquirer's "not found" begins to mean something.
func (a suspect) trusted() time.Time {
	ended := a.FinishedAt
	if ended.IsZero() {
		ended = a.StartedAt
	}
	if a.route == nil {
		return ended
	}
	return ended.Add(a.route.Adapter.Capabilities().TrustDelay)
}

// suspects are the attempts of a charge that do not prove that nothing was executed.
func (s *Service) suspects(ctx context.Context, m merchant.ID, chargeID string) ([]suspect, error) {
	all, err := s.Attempts(ctx, m, chargeID)
	if err != nil {
		return nil, err
	}
	var some []suspect
	for _, a := range all {
		if !a.ProvesNotExecuted() {
			asked := suspect{Attempt: a}
			if route, err := s.route(a.Acquirer); err == nil {
				asked.route = &route
			}
			some = append(some, asked)
		}
	}
	return some, nil
}

// inquire asks what became of an unknown charge, once at each acquirer that may have captured it.
func (s *Service) inquire(ctx context.Context, e Errand) error {
	charge, err := s.Get(ctx, e.Merchant, e.ChargeID)
	if err != nil {
		return err
	}
	if charge.Status != Unknown {
		return s.done(ctx, s.pool, e.Merchant, e.ChargeID, ErrandInquiry)
	}
	asked, err := s.suspects(ctx, e.Merchant, e.ChargeID)
	if err != nil {
		return err
	}
	denied := 0
	for _, a := range asked {
		if wait := a.trusted().Sub(s.now()); wait > 0 {
			return s.again(ctx, e, wait)
		}
		found, refused := s.lookUp(ctx, a, charge, e)
		if ctx.Err() != nil {
			return ctx.Err() // what was cut off by us says nothing about the acquirer
		}
		if refused != nil {
			return s.putOff(ctx, e, a.Acquirer, refused)
		}
		s.fault(faultInquired)
		e.Note = string(found.Found)
		evidence := s.weigh(a, charge, found, e.Tries+1)
		if evidence.Finding == acquirer.FoundDeclined && a.route.Adapter.Capabilities().DeduplicatesByKey {
			if denied++; denied == len(asked) {
				evidence.Outcome = OutcomeFailed
			}
		}
		closed, err := s.bringIn(ctx, charge, evidence)
		if closed || err != nil {
			return err
		}
	}
	return s.nextInquiry(ctx, charge, e)
}

// lookUp asks one acquirer, under its policies but for what they learn of it: an inquiry shows nothing
// about captures, and those that fail must not close the way for charges. One that is refused has cost
// neither a call nor a try.
func (s *Service) lookUp(ctx context.Context, a suspect, charge Charge, e Errand) (acquirer.Inquiry, *resilience.Rejection) {
	if a.route == nil {
		return acquirer.Inquiry{Found: acquirer.FoundUnclear, Detail: "The acquirer is not configured any more."}, nil
	}
	if !a.route.Adapter.Capabilities().LooksUpByReference {
		return acquirer.Inquiry{Found: acquirer.FoundUnclear, Detail: "The acquirer answers no inquiries."}, nil
	}
	if e.Tries > 0 {
		// Not the first question: while even retries of charges are over their budget, it can wait.
		if refused := a.route.Chain.Budget().Spent(); refused != nil {
			return acquirer.Inquiry{}, refused
		}
	}
	found := acquirer.Inquiry{Found: acquirer.FoundUnclear, Detail: "the adapter failed in the middle of the inquiry"}
	report := a.route.Chain.Once().Do(ctx, resilience.Low, func(ctx context.Context, _ int) resilience.Verdict {
		found = a.route.Adapter.Lookup(ctx, charge.AcqRef)
		return resilience.Verdict{Outcome: resilience.Ignored}
	})
	if report.Panic != nil {
		s.log.Error("an adapter panicked in an inquiry", "acquirer", a.Acquirer, "charge_id", charge.ID,
			"error", report.Panic, "stack", string(report.Panic.Stack))
	}
	if report.Calls == 0 && report.Refused != nil {
		return acquirer.Inquiry{}, report.Refused
	}
	switch found.Found {
	case acquirer.FoundCaptured, acquirer.FoundDeclined, acquirer.FoundNothing, acquirer.FoundPending:
	default:
		found.Found = acquirer.FoundUnclear
	}
	return found, nil
}

// weigh makes evidence of an answer. Only a capture of exactly this charge closes it by itself; "not found"
// needs the settlement files beside it (reconcile: absence), and all else is noted.
func (s *Service) weigh(a suspect, charge Charge, found acquirer.Inquiry, try int) Resolution {
	e := Resolution{
		ID: fmt.Sprintf("inquiry:%s:%d", a.Acquirer, try), Evidence: Inquiry, Outcome: OutcomeNone, Finding: found.Found,
		Acquirer: a.Acquirer, CaptureID: acquirer.Clip(found.CaptureID), Amount: found.Amount, Actor: "inquiry",
	}
	said := acquirer.Clip(found.Detail)
	switch found.Found {
	case acquirer.FoundCaptured:
		switch {
		case e.CaptureID == "":
			e.Reason = "The acquirer says captured, but gives no id of the capture."
		case !found.Amount.Equal(charge.Amount):
			e.Reason = fmt.Sprintf("The acquirer knows a capture of another amount: %s %s.", found.Amount, found.Amount.Currency())
			s.log.Error("an inquiry found a capture of another amount: a person has to look",
				"charge_id", charge.ID, "acquirer", a.Acquirer, "capture_id", e.CaptureID,
				"theirs", found.Amount.String(), "ours", charge.Amount.String())
		default:
			e.Outcome, e.Reason = OutcomeCaptured, "The acquirer, asked by our reference, knows the capture."
		}
	case acquirer.FoundDeclined:
		e.Reason = fmt.Sprintf("The acquirer, asked by our reference after its trust delay, says that it declined (%s).",
			orWord(acquirer.Clip(found.DeclineCode), "no code"))
	case acquirer.FoundNothing:
		e.Reason = "The acquirer, asked after its trust delay, does not know our reference. Alone that proves nothing."
	case acquirer.FoundPending:
		e.Reason = "The acquirer knows the charge and is not finished with it."
	default:
		e.Amount, e.CaptureID = money.Amount{}, ""
		e.Reason = "The answer proves nothing: " + orWord(said, "it could not be read") + "."
	}
	return e
}

func orWord(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// bringIn hands evidence to Resolve. It reports whether the charge is closed now, by us or by others.
func (s *Service) bringIn(ctx context.Context, charge Charge, evidence Resolution) (closed bool, err error) {
	now, err := s.Resolve(ctx, charge.Merchant, charge.ID, evidence)
	if _, faster := errors.AsType[*ResolvedError](err); err != nil && !faster {
		return false, fmt.Errorf("bring in what an inquiry found: %w", err)
	}
	if !now.Status.Terminal() {
		return false, nil
	}
	if err == nil {
		s.observer.ChargeEnded(now.Status, string(Inquiry))
		s.log.Info("an unknown charge was closed by inquiry",
			"charge_id", charge.ID, "acquirer", evidence.Acquirer, "status", now.Status, "after", s.now().Sub(charge.CreatedAt))
	}
	return true, s.done(ctx, s.pool, charge.Merchant, charge.ID, ErrandInquiry)
}

// nextInquiry waits for the next place in the schedule, or gives the charge to people at its end. It stays
// unknown.
func (s *Service) nextInquiry(ctx context.Context, charge Charge, e Errand) error {
	e.Tries++
	if e.Tries <= len(s.inquiries) {
		s.observer.ErrandEnded(ErrandInquiry, ErrandAgain)
		return s.again(ctx, e, spread(s.inquiries[e.Tries-1]))
	}
	ours, err := s.giveUp(ctx, e)
	if ours {
		s.observer.ErrandEnded(ErrandInquiry, ErrandGivenUp)
		s.log.Error("no inquiry settled the charge: it stays unknown and waits for settlement or a person",
			"charge_id", charge.ID, "merchant_id", charge.Merchant, "acquirer", charge.Acquirer, "acq_ref", charge.AcqRef,
			"inquiries", e.Tries, "last", e.Note)
	}
	return err
}

// putOff comes back when the mechanism that refused may admit a call, spread so that all who were refused do
// not come at once. It uses up no try.
func (s *Service) putOff(ctx context.Context, e Errand, name string, refused *resilience.Rejection) error {
	e.Deferrals++
	e.Note = string(refused.Reason)
	s.observer.Rejected(name, refused.Reason)
	s.observer.ErrandEnded(e.Kind, ErrandDeferred)
	return s.again(ctx, e, deferral(refused.RetryAfter))
}

const (
	deferralMin    = time.Second
	deferralMax    = 5 * time.Minute
	deferralSpread = 5 * time.Second
)

// deferral is never shorter than asked for, and random above that.
func deferral(asked time.Duration) time.Duration {
	asked = min(max(asked, deferralMin), deferralMax)
	return asked + rand.N(asked+deferralSpread)
}

// spread is a wait of about d: from three quarters of it to five.
func spread(d time.Duration) time.Duration {
	if d < 4 {
		return d
	}
	return d/4*3 + rand.N(d/2)
}

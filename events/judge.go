package events

import (
	"fmt"
	"slices"

	"paymentsd/acquirer"
	"paymentsd/payment"
	"paymentsd/reconcile"
)

// outcome is what came of an event.
type outcome string

const (
	applied   outcome = "applied"   // it closed an unknown charge
	agreed    outcome = "agreed"    // it says what we knew
	noted     outcome = "noted"     // evidence that settles nothing
	exception outcome = "exception" // a person has to look
	ignored   outcome = "ignored"   // no news of a capture
)

// subject is an event beside the charge that it is about.
type subject struct {
	acquirer     string
	event        acquirer.Event // captured or declined
	capabilities acquirer.Capabilities
	charge       payment.Charge
	attempts     []payment.Attempt
}

// decision is what to do about an event. It is a function of the subject alone.
type decision struct {
	wait    bool   // the charge has no outcome yet
	resolve string // an Outcome of payment.Resolution to hand in as evidence; empty for none
	class   reconcile.Class
	detail  string // of the exception of that class, or of evidence that only is noted
	outcome outcome
}

// judge compares an event with its charge. The amount has to be equal, the acquirer has to be one that was
// asked; a terminal charge is never changed, whatever the event says.
func judge(s subject) decision {
	c, e := s.charge, s.event
	switch {
	case c.Status == payment.Pending || c.Status == payment.Queued:
		return decision{wait: true}
	case !s.tried():
		if e.Found == acquirer.FoundDeclined {
			return note("It was never asked for this charge, and says that it declined.")
		}
		return raise(payment.OutcomeNone, reconcile.WrongAcquirer, "It was never asked for this charge.")
	case e.Found == acquirer.FoundDeclined:
		return s.declined()
	case e.Amount.Currency() != c.Amount.Currency():
		return raise(payment.OutcomeNone, reconcile.CurrencyMismatch, "The event is in another currency than the charge, which stays as it is.")
	case !e.Amount.Equal(c.Amount):
		return raise(payment.OutcomeNone, reconcile.AmountMismatch, "The event names another amount than the charge, which stays as it is.")
	default:
		return s.captured()
	}
}

// captured is about the charge's own amount at an acquirer that was asked for it.
func (s subject) captured() decision {
	c := s.charge
	switch {
	case c.Status == payment.Unknown && s.refused():
		d := raise(payment.OutcomeCaptured, reconcile.CapturedThoughFailed,
			"We went on to another acquirer because it had refused: see whether that one captured as well.")
		d.outcome = applied
		return d
	case c.Status == payment.Unknown:
		return decision{resolve: payment.OutcomeCaptured, outcome: applied}
	case c.Status == payment.Captured && c.Acquirer != s.acquirer:
		return raise(payment.OutcomeCaptured, reconcile.CapturedAtBoth, "The charge is captured at "+c.Acquirer+" as well.")
	case c.Status == payment.Captured && c.CaptureID == s.event.CaptureID:
		return decision{outcome: agreed}
	case c.Status == payment.Captured && (c.Evidence == payment.Settlement || c.Evidence == payment.Operator):
		return raise(payment.OutcomeCaptured, reconcile.ReferenceConflict,
			fmt.Sprintf("It was resolved as capture %.100q on the evidence of a file or a person; the event names another.", c.CaptureID))
	case c.Status == payment.Captured:
		return raise(payment.OutcomeCaptured, reconcile.DuplicateCapture, "The acquirer named another capture of this charge before.")
	case c.Evidence != "":
		return raise(payment.OutcomeCaptured, reconcile.ContradictedLater, fmt.Sprintf("It was resolved as %s by evidence: %s.", c.Status, c.Evidence))
	case c.Status == payment.Declined:
		return raise(payment.OutcomeCaptured, reconcile.CapturedThoughDeclined, "We answered that it was declined.")
	default:
		return raise(payment.OutcomeCaptured, reconcile.CapturedThoughFailed, "We answered that nothing was executed.")
	}
}

// declined is an acquirer's word that it refused. It ends an unknown only by the rule of docs/states.md: where
// keys deduplicate, and no other acquirer may have captured.
func (s subject) declined() decision {
	c := s.charge
	switch {
	case c.Status == payment.Captured && c.Acquirer == s.acquirer:
		return raise(payment.OutcomeFailed, reconcile.ContradictedLater, "The acquirer says that it declined what is captured there.")
	case c.Status != payment.Unknown:
		return decision{outcome: agreed}
	case !s.capabilities.DeduplicatesByKey:
		return note("It says that it declined, but may take a second request under our key: that proves nothing about the others.")
	case slices.ContainsFunc(s.attempts, func(a payment.Attempt) bool { return a.Acquirer != s.acquirer && !a.ProvesNotExecuted() }):
		return note("It says that it declined, but another acquirer may have captured.")
	}
	return decision{resolve: payment.OutcomeFailed, outcome: applied}
}

func raise(resolve string, class reconcile.Class, detail string) decision {
	return decision{resolve: resolve, class: class, detail: detail, outcome: exception}
}

func note(detail string) decision {
	return decision{resolve: payment.OutcomeNone, detail: detail, outcome: noted}
}

func (s subject) tried() bool {
	return slices.ContainsFunc(s.attempts, func(a payment.Attempt) bool { return a.Acquirer == s.acquirer })
}

// refused reports whether all that this acquirer answered proved that nothing was executed there.
func (s subject) refused() bool {
	return !slices.ContainsFunc(s.attempts, func(a payment.Attempt) bool { return a.Acquirer == s.acquirer && !a.ProvesNotExecuted() })
}

package events

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"paymentsd/acquirer"
	"paymentsd/merchant"
	"paymentsd/payment"
	"paymentsd/reconcile"
)

// done is what came of handling an event; an empty outcome means that it has to wait for its charge.
type done struct {
	outcome  outcome
	event    acquirer.Event
	merchant *merchant.ID
	charge   string // id
}

// apply has the effect of an event, all of it or an error. It may be called again after a crash anywhere.
func (s *Service) apply(ctx context.Context, row row) (done, error) {
	source, ok := s.Sources[row.Acquirer]
	if !ok {
		return done{}, fmt.Errorf("no events are taken from %s any more: its configuration is gone", row.Acquirer)
	}
	event, err := source.ReadEvent(row.Body)
	if err != nil {
		err = s.raise(ctx, reconcile.Exception{
			Acquirer: row.Acquirer, Class: reconcile.BadEvent, Theirs: "event " + row.ID, Detail: "It cannot be read: " + printable(err.Error()),
		}, row.ID)
		return done{outcome: exception}, err
	}
	result := done{event: event}
	if event.Found != acquirer.FoundCaptured && event.Found != acquirer.FoundDeclined {
		result.outcome = ignored
		return result, nil
	}
	charge, m, err := s.find(ctx, event.Ref)
	if err != nil {
		return done{}, err
	}
	result.merchant = m
	if charge == nil {
		result.outcome = exception
		return result, s.raiseUnknown(ctx, row.Acquirer, event, m)
	}
	result.charge = charge.ID
	result.outcome, err = s.settle(ctx, row, source, event, *charge)
	return result, err
}

// find looks for the charge that was sent to acquirers under a reference. The merchant is nil if the
// reference is none of ours, the charge if there is none.
func (s *Service) find(ctx context.Context, ref string) (*payment.Charge, *merchant.ID, error) {
	m, ok := payment.MerchantOfReference(ref)
	if !ok {
		return nil, nil, nil
	}
	found, err := s.Charges.ByAcqRefs(ctx, m, []string{ref})
	if err != nil {
		return nil, nil, err
	}
	if charge, ok := found[ref]; ok {
		return &charge, &m, nil
	}
	return nil, &m, nil
}

// judgements bounds how often a charge may change while its event is being judged; it changes once.
const judgements = 4

// settle hands the event in as evidence and tells a person what does not fit. If the charge changes
// meanwhile, because other evidence was faster, the event is judged by what it is then.
func (s *Service) settle(ctx context.Context, row row, source Source, event acquirer.Event, charge payment.Charge) (outcome, error) {
	m, id := charge.Merchant, charge.ID
	attempts, err := s.Charges.Attempts(ctx, m, id)
	if err != nil {
		return "", err
	}
	for range judgements {
		d := judge(subject{row.Acquirer, event, source.Capabilities, charge, attempts})
		if d.wait {
			return "", nil
		}
		lost, err := s.handIn(ctx, row, event, charge, d)
		switch {
		case err != nil:
			return "", err
		case lost != nil && lost.Charge.Status != charge.Status:
			s.Log.Info("other evidence was faster than an event", "acquirer", row.Acquirer, "event_id", row.ID, "charge_id", id, "what", lost.Error())
			charge = lost.Charge
			continue
		}
		if d.resolve != "" {
			s.fault(faultApplied)
		}
		if d.class != "" {
			if err := s.raise(ctx, about(row.Acquirer, event, charge, d), row.Acquirer, event.Ref, event.CaptureID, string(event.Found)); err != nil {
				return "", err
			}
		}
		if d.outcome == agreed && charge.Evidence == payment.Event {
			return s.whose(ctx, row, charge)
		}
		return d.outcome, nil
	}
	return "", fmt.Errorf("charge %s changed %d times while its event was judged", id, judgements)
}

// handIn gives the event to Resolve as evidence. Lost says who closed the charge, if it was closed before.
func (s *Service) handIn(ctx context.Context, row row, event acquirer.Event, charge payment.Charge, d decision) (lost *payment.ResolvedError, err error) {
	if d.resolve == "" {
		return nil, nil
	}
	evidence := payment.Resolution{
		ID: row.evidenceID(), Evidence: payment.Event, Outcome: d.resolve, Acquirer: row.Acquirer, Actor: "acquirer " + row.Acquirer,
		Reason: clip(fmt.Sprintf("Event %s: %s. %s", row.ID, says(event), d.detail), 1000),
	}
	if d.resolve == payment.OutcomeCaptured {
		evidence.Amount, evidence.CaptureID = event.Amount, event.CaptureID
	}
	_, err = s.Charges.Resolve(ctx, charge.Merchant, charge.ID, evidence)
	if resolved, ok := errors.AsType[*payment.ResolvedError](err); ok {
		return resolved, nil
	}
	return nil, err
}

// whose tells an event that closed its charge, and whose handling was cut off then, from one that came
// after another event.
func (s *Service) whose(ctx context.Context, row row, charge payment.Charge) (outcome, error) {
	all, err := s.Charges.Resolutions(ctx, charge.Merchant, charge.ID)
	if err != nil {
		return "", err
	}
	for _, r := range all {
		if r.Applied && r.ID == row.evidenceID() {
			return applied, nil
		}
	}
	return agreed, nil
}

// about is the exception of a decision.
func about(name string, event acquirer.Event, charge payment.Charge, d decision) reconcile.Exception {
	ours := fmt.Sprintf("charge %s %s %s at %s", charge.Status, charge.Amount, charge.Amount.Currency(), charge.Acquirer)
	if charge.CaptureID != "" {
		ours += ", capture " + clip(charge.CaptureID, 100)
	}
	e := reconcile.Exception{
		Acquirer: name, Class: d.class, Merchant: &charge.Merchant, ChargeID: charge.ID, AcqRef: charge.AcqRef,
		AtRisk: charge.Amount, Ours: ours, Theirs: fmt.Sprintf("event: %s", says(event)), Detail: d.detail, Since: charge.CreatedAt,
	}
	if event.Found == acquirer.FoundCaptured {
		e.AtRisk = event.Amount
	}
	return e
}

// raiseUnknown tells of an event about a reference under which we asked for nothing.
func (s *Service) raiseUnknown(ctx context.Context, name string, event acquirer.Event, m *merchant.ID) error {
	e := reconcile.Exception{
		Acquirer: name, Class: reconcile.MissingWithUs, Merchant: m, AcqRef: clip(event.Ref, 64), AtRisk: event.Amount,
		Ours: "no charge has this reference", Theirs: "event: " + says(event), Since: event.At,
		Detail: "Whoever asked for it was not this service, or its record is lost.",
	}
	return s.raise(ctx, e, name, event.Ref, event.CaptureID, string(event.Found))
}

// raise records an exception. Events that say the same about the same capture are one exception.
func (s *Service) raise(ctx context.Context, e reconcile.Exception, distinct ...string) error {
	if e.Since.IsZero() {
		e.Since = s.moment()
	}
	if err := s.Exceptions.Raise(ctx, e, "event:"+e.Acquirer, distinct...); err != nil {
		return err
	}
	s.fault(faultRaised)
	return nil
}

// says is the event in one line.
func says(e acquirer.Event) string {
	if e.Found == acquirer.FoundDeclined {
		return strings.TrimSpace("declined " + e.DeclineCode)
	}
	return fmt.Sprintf("captured %s %s as %s", e.Amount, e.Amount.Currency(), clip(e.CaptureID, 100))
}

// printable makes a text fit for Postgres and for a log line.
func printable(s string) string { return strings.TrimSpace(acquirer.Clip(s)) }

// clip keeps a text within limit characters.
func clip(s string, limit int) string {
	s = printable(s)
	if utf8.RuneCountInString(s) <= limit {
		return s
	}
	return string([]rune(s)[:limit])
}

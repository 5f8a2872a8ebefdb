package payment

import (
	"context"
	"fmt"
	"time"

	"paymentsd/acquirer"
	"paymentsd/resilience"
)

// belief is what all answers of one acquirer to one charge prove together. Ambiguity is sticky: after
// one unclear answer a later "not sent" does not make the charge failed.
type belief struct {
	answer    acquirer.Answer
	any       bool
	ambiguous bool
	// dedupes: a later certain answer under the same key settles an earlier unclear one.
	dedupes bool
}

// ambiguous reports the classes after which money may have moved.
func ambiguous(c acquirer.Class) bool { return c == acquirer.Unclear || c == acquirer.InProgress }

// learn adds one answer.
func (b *belief) learn(a acquirer.Answer) {
	settles := a.Class == acquirer.Captured || (a.Class == acquirer.Declined && b.dedupes)
	unclear := ambiguous(a.Class)
	if !b.ambiguous || settles || unclear {
		b.answer = a
	}
	b.ambiguous = (b.ambiguous && !settles) || unclear
	b.any = true
}

// ask calls one acquirer under its policies, and again where that is safe, and says what it all proves.
// The attempt has been committed before.
func (s *Service) ask(ctx context.Context, route Route, c Charge, n int, priority resilience.Priority) ending {
	capabilities := route.Adapter.Capabilities()
	request := acquirer.CaptureRequest{
		Ref: c.AcqRef, Amount: c.Amount, PaymentMethod: c.PaymentMethod, Description: c.Description,
	}
	known := belief{dedupes: capabilities.DeduplicatesByKey}
	// What the acquirer takes, and what we wait for it, is not work of ours.
	visit := resilience.VisitOf(ctx)
	visit.StepOut()
	report := route.Chain.Do(ctx, priority, func(ctx context.Context, try int) resilience.Verdict {
		s.fault(faultBeforeCall)
		answer := s.call(ctx, route, request)
		s.fault(faultAfterCall)
		if ambiguous(answer.Class) && capabilities.ForgetsFailures && capabilities.LooksUpByReference {
			answer = inquire(ctx, route.Adapter, request, answer)
		}
		known.learn(answer)
		return verdict(answer, capabilities)
	})
	visit.StepIn()
	if report.Panic != nil {
		s.log.Error("an adapter panicked; what it did is not known", "acquirer", route.Name, "charge_id", c.ID,
			"error", report.Panic, "stack", string(report.Panic.Stack))
		known.learn(acquirer.Answer{Class: acquirer.Unclear, Detail: "the adapter failed in the middle of the call"})
	}
	return s.end(route.Name, n, known, report)
}

// call makes one call and measures it.
func (s *Service) call(ctx context.Context, route Route, request acquirer.CaptureRequest) acquirer.Answer {
	request.Left = max(resilience.Remaining(ctx), 0)
	started := s.now()
	answer := sound(route.Adapter.Capture(ctx, request))
	s.observer.AcquirerAnswered(route.Name, answer.Class, s.now().Sub(started))
	return answer
}

// sound makes an answer fit to rely on and to write down, whatever the adapter: a class that is not in
// the table, or a capture without the acquirer's id of it, proves nothing.
func sound(a acquirer.Answer) acquirer.Answer {
	switch a.Class {
	case acquirer.Declined, acquirer.Rejected, acquirer.NotSent, acquirer.Refused, acquirer.InProgress:
	case acquirer.Captured:
		if a.CaptureID == "" {
			a.Class, a.Detail = acquirer.Unclear, "The acquirer says that it captured, but gives no id of the capture."
		}
	default:
		a.Class = acquirer.Unclear
	}
	if a.HTTPStatus < 100 || a.HTTPStatus > 999 {
		a.HTTPStatus = 0
	}
	a.CaptureID, a.DeclineCode = acquirer.Clip(a.CaptureID), acquirer.Clip(a.DeclineCode)
	a.Code, a.Detail = acquirer.Clip(a.Code), acquirer.Clip(a.Detail)
	return a
}

// end writes up what was learnt, with the mechanism of ours that kept from trying further, if any did.
func (s *Service) end(name string, n int, known belief, report resilience.Report) ending {
	e := ending{n: n, class: known.answer.Class, calls: report.Calls, answer: known.answer, detail: known.answer.Detail}
	if report.Refused != nil {
		s.observer.Rejected(name, report.Refused.Reason)
		e.reason = string(report.Refused.Reason)
		e.answer.RetryAfter = max(e.answer.RetryAfter, report.Refused.RetryAfter)
	}
	switch {
	case !known.any:
		e.class = acquirer.NotSent
		if report.Refused != nil {
			e.detail = fmt.Sprintf("Nothing was sent to %s: %s.", name, report.Refused.Detail)
		}
	case report.Refused != nil:
		e.detail = fmt.Sprintf("%s (no further try: %s)", e.detail, report.Refused.Detail)
	}
	return e
}

// inquire asks an acquirer that forgets failures, where the same key may charge again. Only a capture that
// is equal in amount proves anything this soon.
func inquire(ctx context.Context, adapter acquirer.Acquirer, request acquirer.CaptureRequest, unclear acquirer.Answer) acquirer.Answer {
	found := adapter.Lookup(ctx, request.Ref)
	if found.Found == acquirer.FoundCaptured && found.Amount.Equal(request.Amount) && found.CaptureID != "" {
		return acquirer.Answer{
			Class: acquirer.Captured, CaptureID: found.CaptureID, HTTPStatus: found.HTTPStatus, Failure: unclear.Failure,
			Detail: "The answer was unclear; the acquirer, asked by our reference, knows the capture.",
		}
	}
	return unclear
}

// inProgressWait is how long to wait before a key that the acquirer still works on is asked for again.
const inProgressWait = time.Second

// verdict is what one answer means to the policies.
func verdict(a acquirer.Answer, capabilities acquirer.Capabilities) resilience.Verdict {
	v := resilience.Verdict{Outcome: resilience.Success, RetryAfter: a.RetryAfter}
	switch a.Class {
	case acquirer.NotSent:
		v.Retry, v.Outcome = true, resilience.Ignored
	case acquirer.Refused:
		v.Retry = true
	case acquirer.InProgress:
		v.Retry, v.RetryAfter = capabilities.RetriesUnclear(), max(a.RetryAfter, inProgressWait)
	case acquirer.Unclear:
		v.Retry, v.Outcome = capabilities.RetriesUnclear(), resilience.Ignored
	}
	if a.Failure {
		v.Outcome = resilience.Failure
	}
	return v
}

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

// learn adds one answer.
func (b *belief) learn(a acquirer.Answer) {
	settles := a.Class == acquirer.Captured || (a.Class == acquirer.Declined && b.dedupes)
	unclear := a.Class == acquirer.Unclear || a.Class == acquirer.InProgress
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
	report := route.Chain.Do(ctx, priority, func(ctx context.Context, try int) resilience.Verdict {
		s.fault("before_call")
		answer := s.call(ctx, route, request)
		s.fault("after_call")
		if answer.Class == acquirer.Unclear && capabilities.ForgetsFailures && capabilities.LooksUpByReference {
			answer = inquire(ctx, route.Adapter, request, answer)
		}
		known.learn(answer)
		return verdict(answer, capabilities)
	})
	if report.Panic != nil {
		s.log.Error("an adapter panicked; what it did is not known", "acquirer", route.Name, "charge_id", c.ID,
			"error", report.Panic, "stack", string(report.Panic.Stack))
		known.learn(acquirer.Answer{Class: acquirer.Unclear, Detail: "the adapter failed in the middle of the call"})
	}
	return s.end(route.Name, n, known, report)
}

// call makes one call and measures it.
func (s *Service) call(ctx context.Context, route Route, request acquirer.CaptureRequest) acquirer.Answer {
	started := s.now()
	answer := route.Adapter.Capture(ctx, request)
	if answer.Class == "" {
		answer.Class = acquirer.Unclear
	}
	s.observer.AcquirerAnswered(route.Name, answer.Class, s.now().Sub(started))
	return answer
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

// inquire asks an acquirer that forgets failures before anything is sent again. Only a capture that is
// equal in amount proves anything this soon.
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
		v.Retry, v.RetryAfter = capabilities.DeduplicatesByKey, max(a.RetryAfter, inProgressWait)
	case acquirer.Unclear:
		v.Retry, v.Outcome = capabilities.RetriesUnclear(), resilience.Ignored
	}
	if a.Failure {
		v.Outcome = resilience.Failure
	}
	return v
}

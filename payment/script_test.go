package payment

import (
	"context"
	"fmt"
	"sync"

	"paymentsd/acquirer"
)

// script is an acquirer that answers what it is told, and captures when it is told nothing.
type script struct {
	promises acquirer.Capabilities
	found    acquirer.Inquiry
	// during, if set, runs inside each call, before its answer; n counts from 1.
	during func(n int, ctx context.Context)

	mu      sync.Mutex
	answers []acquirer.Answer
	asked   []acquirer.CaptureRequest
	lookups int
}

func answering(answers ...acquirer.Answer) *script {
	return &script{promises: acquirer.Capabilities{DeduplicatesByKey: true, LooksUpByReference: true}, answers: answers}
}

func (s *script) Capture(ctx context.Context, req acquirer.CaptureRequest) acquirer.Answer {
	s.mu.Lock()
	s.asked = append(s.asked, req)
	n := len(s.asked)
	answer := of(acquirer.Captured)
	if len(s.answers) > 0 {
		answer, s.answers = s.answers[0], s.answers[1:]
	}
	s.mu.Unlock()
	if s.during != nil {
		s.during(n, ctx)
	}
	if answer.Class == acquirer.Captured && answer.CaptureID == "" {
		answer.CaptureID = "cap_" + req.Ref
	}
	return answer
}

func (s *script) Lookup(context.Context, string) acquirer.Inquiry {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lookups++
	return s.found
}

func (s *script) Capabilities() acquirer.Capabilities { return s.promises }

func (s *script) calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.asked)
}

func (s *script) refs() map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	refs := map[string]bool{}
	for _, req := range s.asked {
		refs[req.Ref] = true
	}
	return refs
}

// of is an answer of a class as adapters give it.
func of(class acquirer.Class) acquirer.Answer {
	a := acquirer.Answer{Class: class, Detail: fmt.Sprintf("scripted: %s", class)}
	switch class {
	case acquirer.Declined:
		a.DeclineCode, a.HTTPStatus = "card_declined", 402
	case acquirer.Rejected:
		a.HTTPStatus = 400
	case acquirer.Refused:
		a.HTTPStatus, a.Failure = 503, true
	case acquirer.InProgress:
		a.HTTPStatus = 409
	case acquirer.NotSent, acquirer.Unclear:
		a.Failure = true
	}
	return a
}

func times(n int, a acquirer.Answer) []acquirer.Answer {
	all := make([]acquirer.Answer, n)
	for i := range all {
		all[i] = a
	}
	return all
}

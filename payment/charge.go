package payment

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"paymentsd/acquirer"
	"paymentsd/idempotency"
	"paymentsd/internal/groupcommit"
	"paymentsd/internal/postgres"
	"paymentsd/resilience"
)

// claimTries bounds how often T1 is run again because the row that stood in its way is gone.
const claimTries = 8

// Charge makes one request mean at most one capture, and answers with what is certain.
//
// A Result is an outcome, also when it is declined, failed or unknown. An error means that the
// request was refused and no acquirer was asked for it.
func (s *Service) Charge(ctx context.Context, req Request) (Result, error) {
	if ctx.Err() != nil {
		return Result{}, &NotExecutedError{Rejection: &resilience.Rejection{
			Reason: resilience.CallerGone, Detail: "the caller hung up before the charge was begun",
		}}
	}
	routes, err := s.routesFor(req)
	if err != nil {
		return s.refuse(ctx, req, err)
	}
	ctx, cancel := s.detach(ctx, req)
	defer cancel()

	routes, refused := admissible(ctx, routes)
	if refused != nil {
		return s.refuse(ctx, req, &NotExecutedError{Rejection: refused})
	}
	charge := s.newCharge(req, routes[0].Name)
	claimed, err := s.claim(ctx, req, &charge)
	if err != nil {
		return Result{}, err
	}
	if claimed.outcome == beginExists {
		return s.answerExisting(ctx, req, claimed.record)
	}
	s.fault(faultClaimed)
	last, fenced := s.askInOrder(ctx, routes, req.Priority, &charge, claimed.fence)
	return s.conclude(ctx, charge, claimed.fence, last, fenced)
}

// detach frees the work from the client's connection, since a client that hangs up does not create
// an unknown, and gives it its own deadline. The caller's deadline limits only what is started.
func (s *Service) detach(ctx context.Context, req Request) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.budget)
	if !req.Deadline.IsZero() {
		ctx = resilience.WithStartBy(ctx, req.Deadline)
	}
	return ctx, cancel
}

// callMin is the least time that must be left to begin a charge at all.
const callMin = 100 * time.Millisecond

// admissible leaves out acquirers whose breaker refuses now. If none is left, nothing is written: the
// key stays free.
func admissible(ctx context.Context, routes []Route) ([]Route, *resilience.Rejection) {
	if left := resilience.Remaining(ctx); left < callMin {
		return nil, &resilience.Rejection{
			Reason: resilience.DeadlineTooShort,
			Detail: fmt.Sprintf("%v left, a charge needs at least %v", left.Round(time.Millisecond), callMin),
		}
	}
	var open []Route
	var soonest resilience.Rejection
	var details []string
	for _, route := range routes {
		refused, _ := route.Chain.Breaker().Peek()
		if refused == nil {
			open = append(open, route)
			continue
		}
		if len(details) == 0 || refused.RetryAfter < soonest.RetryAfter {
			soonest = *refused
		}
		details = append(details, route.Name+": "+refused.Detail)
	}
	if len(open) == 0 {
		soonest.Detail = strings.Join(details, "; ")
		return nil, &soonest
	}
	return open, nil
}

// refuse answers a request that cannot be begun, for the reason given: a key that is in use still gets
// its answer.
func (s *Service) refuse(ctx context.Context, req Request, why error) (Result, error) {
	// The caller may have left no time at all; looking the key up costs one read.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.storeMax)
	defer cancel()
	record, err := idempotency.Lookup(ctx, s.pool, req.Merchant.ID, req.Key)
	switch {
	case errors.Is(err, idempotency.ErrNotFound):
		if refused, ok := errors.AsType[*NotExecutedError](why); ok {
			s.observer.Rejected("", refused.Rejection.Reason)
		}
		return Result{}, why
	case err != nil:
		return Result{}, &UnavailableError{Cause: err}
	}
	return s.answerExisting(ctx, req, record)
}

func (s *Service) newCharge(req Request, firstAcquirer string) Charge {
	now := s.moment()
	return Charge{
		Merchant: req.Merchant.ID, ID: NewChargeID(req.Merchant.ID, now), IdempotencyKey: req.Key,
		AcqRef: AcqRef(req.Merchant.ID, req.Key, 0), Amount: req.Amount, Reference: req.Reference,
		AllowConcurrent: req.AllowConcurrent, PaymentMethod: req.PaymentMethod, Description: req.Description,
		Status: Pending, Acquirer: firstAcquirer, CreatedAt: now, UpdatedAt: now,
	}
}

// claim runs T1 until the key is ours or somebody's.
func (s *Service) claim(ctx context.Context, req Request, charge *Charge) (claim, error) {
	for range claimTries {
		claimed, err := s.begin(ctx, *charge, req.Fingerprint)
		if err != nil {
			return claim{}, err
		}
		switch claimed.outcome {
		case beginClaimed:
			return claimed, nil
		case beginExists:
			// An earlier try of ours may have been committed after all. If a sweep has taken it over
			// meanwhile it is not ours any more.
			if claimed.chargeID == charge.ID && claimed.record.State == idempotency.InFlight {
				claimed.outcome = beginClaimed
			}
			return claimed, nil
		case beginGeneration:
			charge.Generation = claimed.generation
			charge.AcqRef = AcqRef(charge.Merchant, charge.IdempotencyKey, charge.Generation)
		case beginReferenceOpen:
			return claim{}, &ReferenceOpenError{Reference: charge.Reference, ChargeID: claimed.chargeID}
		case beginAgain:
		}
	}
	return claim{}, &UnavailableError{Cause: fmt.Errorf("the key was claimed and freed %d times meanwhile", claimTries)}
}

// begin runs T1, and once more if that may help: after a commit in doubt it then finds its own row.
func (s *Service) begin(ctx context.Context, charge Charge, fingerprint idempotency.Fingerprint) (claim, error) {
	within := resilience.Remaining(ctx) - callMin // later there is no time left for the call
	ctx, cancel := context.WithTimeout(ctx, s.storeMax)
	defer cancel()
	item := beginning{charge: charge, fingerprint: fingerprint}
	claimed, err := s.queues.begin.Do(ctx, within, item)
	if errors.Is(err, groupcommit.ErrNotWritten) {
		return claim{}, notWritten(err)
	}
	if mayRunAgain(ctx, err) {
		// Refused or not, this time: the first run may have been written, so it stays in doubt.
		claimed, err = s.queues.begin.Do(ctx, within, item)
	}
	if postgres.Rejected(err) {
		return claim{}, fmt.Errorf("the store refuses the charge: %w", err)
	}
	if err != nil {
		return claim{}, &UnavailableError{Cause: err}
	}
	return claimed, nil
}

// askInOrder asks the merchant's acquirers in order, the next one only while every attempt so far proves
// that nothing was executed. Each attempt is committed before its first byte is sent.
func (s *Service) askInOrder(ctx context.Context, routes []Route, priority resilience.Priority, charge *Charge, fence int64) (last ending, fenced bool) {
	for i, route := range routes {
		charge.Acquirer = route.Name
		last = s.ask(ctx, route, *charge, i+1, priority)
		if !last.class.ProvesNotExecuted() || i == len(routes)-1 {
			return last, false
		}
		next := routes[i+1].Name
		ours, err := s.failOver(ctx, *charge, fence, last, next)
		if err != nil {
			s.log.Error("failover could not be written; the charge ends here", "charge_id", charge.ID, "to", next, "error", err)
			return last, false
		}
		if !ours {
			return last, true
		}
		s.fault(faultFailedOver)
	}
	return last, false
}

// failOver commits the next attempt, and tries once more if that may help, as begin does.
func (s *Service) failOver(ctx context.Context, charge Charge, fence int64, last ending, next string) (bool, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.storeMax)
	defer cancel()
	now := s.moment()
	ours, err := failOver(ctx, s.pool, charge, fence, last, next, now)
	if mayRunAgain(ctx, err) {
		ours, err = failOver(ctx, s.pool, charge, fence, last, next, now)
	}
	return ours, err
}

// mayRunAgain reports a write that failed for a reason that may pass: a commit in doubt, a connection that
// turned out dead, a lost deadlock. Every write of the path recognises what an earlier run of it wrote.
func mayRunAgain(ctx context.Context, err error) bool {
	return postgres.Unavailable(err) && ctx.Err() == nil
}

// conclude turns what the last attempt proved into the charge's outcome, and writes it down.
func (s *Service) conclude(ctx context.Context, charge Charge, fence int64, last ending, fenced bool) (Result, error) {
	charge = concluded(charge, last)
	charge.UpdatedAt = s.moment()
	frozen := idempotency.Response{}
	if charge.Status == Captured {
		frozen = s.render(charge)
	}
	// What is known has to be written whoever has gone meanwhile.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.storeMax)
	defer cancel()

	outcome := finishFenced
	if !fenced {
		var err error
		if outcome, err = s.finish(ctx, charge, fence, last, frozen); err != nil {
			return s.unwritten(charge, err), nil
		}
	}
	s.fault(faultFinished)
	s.news()
	switch outcome {
	case finishFenced:
		return s.lateAnswer(ctx, charge, last)
	case finishAlready:
		if record, err := idempotency.Lookup(ctx, s.pool, charge.Merchant, charge.IdempotencyKey); err == nil && record.State == idempotency.Done {
			if stored, err := idempotency.ReadResponse(ctx, s.pool, charge.Merchant, charge.IdempotencyKey, record.ResponseOn); err == nil {
				frozen = stored
			}
		}
	}
	s.observer.ChargeEnded(charge.Status, charge.Reason)
	return answer(charge, frozen, last.answer.RetryAfter), nil
}

// answer is the Result of a charge that was just concluded. Asked is the wait that the acquirer, or a
// mechanism of ours, asked for.
func answer(charge Charge, frozen idempotency.Response, asked time.Duration) Result {
	result := Result{Charge: charge}
	switch charge.Status {
	case Captured:
		result.Frozen = &frozen
	case Unknown:
		result.RetryAfter = unknownRetryAfter
	case Failed:
		if charge.Reason != string(acquirer.Rejected) { // what was wrong with it stays wrong
			result.RetryAfter = max(asked, failedRetryAfter)
		}
	}
	return result
}

// concluded is the charge as the last attempt leaves it.
func concluded(charge Charge, last ending) Charge {
	charge.Detail, charge.Reason = last.detail, last.reason
	switch last.class {
	case acquirer.Captured:
		charge.Status, charge.CaptureID = Captured, last.answer.CaptureID
		charge.Detail, charge.Reason = "", ""
	case acquirer.Declined:
		charge.Status, charge.DeclineCode, charge.Reason = Declined, last.answer.DeclineCode, ""
		if charge.DeclineCode == "" {
			charge.DeclineCode = "unspecified"
		}
	case acquirer.Rejected, acquirer.NotSent, acquirer.Refused:
		charge.Status = Failed
	default:
		charge.Status = Unknown
	}
	// What is unknown is so because of an answer; who kept us from trying further stands in the detail.
	if charge.Status == Unknown || (charge.Status == Failed && charge.Reason == "") {
		charge.Reason = string(last.class)
	}
	return charge
}

// finish runs T2 until it is written or certainly refused. An earlier try whose answer was lost shows
// as already done.
func (s *Service) finish(ctx context.Context, charge Charge, fence int64, last ending, frozen idempotency.Response) (string, error) {
	for wait := 20 * time.Millisecond; ; wait *= 2 {
		outcome, err := s.queues.finish.Do(ctx, groupcommit.AnyTime, conclusion{charge: charge, fence: fence, last: last, frozen: frozen})
		if err == nil || postgres.Rejected(err) {
			return outcome, err
		}
		s.log.Warn("the outcome could not be written yet", "charge_id", charge.ID, "status", charge.Status, "error", err)
		select {
		case <-ctx.Done():
			return "", errors.Join(err, ctx.Err())
		case <-time.After(wait):
		}
	}
}

// unwritten answers unknown when the outcome could not be written: the sweep will find the row in
// flight, and what we cannot prove to a later reader we do not claim now.
func (s *Service) unwritten(charge Charge, err error) Result {
	s.log.Error("the outcome could not be written: the charge is unknown until it is reconciled",
		"charge_id", charge.ID, "acq_ref", charge.AcqRef, "outcome_in_hand", charge.Status, "capture_id", charge.CaptureID, "error", err)
	charge.Status, charge.CaptureID, charge.DeclineCode = Unknown, "", ""
	charge.Reason, charge.Detail = "store_unavailable", "The acquirer's answer could not be written down."
	s.observer.ChargeEnded(charge.Status, charge.Reason)
	return answer(charge, idempotency.Response{}, 0)
}

// lateAnswer brings in what we learnt although the lease was taken over meanwhile: it is not thrown away,
// it is evidence.
func (s *Service) lateAnswer(ctx context.Context, charge Charge, last ending) (Result, error) {
	evidence := Resolution{
		ID: fmt.Sprintf("late_answer:%d", last.n), Evidence: LateAnswer, Outcome: OutcomeNone,
		Acquirer: charge.Acquirer, CaptureID: charge.CaptureID, Actor: "the process that made the call",
		Reason: fmt.Sprintf("The answer (%s) came after the lease was taken over. %s", last.class, acquirer.Clip(charge.Detail)),
	}
	switch charge.Status {
	case Captured:
		evidence.Outcome, evidence.Amount = OutcomeCaptured, charge.Amount
	case Declined, Failed:
		evidence.Outcome = OutcomeFailed
	}
	now, err := s.Resolve(ctx, charge.Merchant, charge.ID, evidence)
	if err != nil && !errors.Is(err, ErrNotUnknown) {
		return s.unwritten(charge, err), nil
	}
	s.observer.ChargeEnded(now.Status, now.Reason)
	// It may have been written down after all, and then it is answered as it stands. Else it was unknown
	// for a moment, so that its answer is frozen even if it failed.
	if !now.Status.Terminal() || (now.Status != Captured && now.Evidence == "") {
		return answer(now, idempotency.Response{}, 0), nil
	}
	frozen := s.render(now)
	return Result{Charge: now, Frozen: &frozen}, nil
}

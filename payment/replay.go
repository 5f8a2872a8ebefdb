package payment

import (
	"context"
	"errors"
	"time"

	"paymentsd/idempotency"
	"paymentsd/resilience"
)

const (
	// inFlightRetryAfter is what a duplicate of a running request is told.
	inFlightRetryAfter = time.Second
	// unknownRetryAfter is when it makes sense to look at an unknown charge again.
	unknownRetryAfter = 60 * time.Second
	// failedRetryAfter is the least wait before a charge that was not executed is tried again.
	failedRetryAfter = time.Second
	// waitPoll is how often a duplicate that waits looks at the key.
	waitPoll = 50 * time.Millisecond
)

// answerExisting answers a request whose key is in use, without calling anyone.
func (s *Service) answerExisting(ctx context.Context, req Request, record idempotency.Record) (Result, error) {
	until := s.now().Add(req.Wait)
	for {
		if record.Fingerprint != req.Fingerprint {
			return Result{}, &MismatchError{ChargeID: record.ChargeID}
		}
		if record.State != idempotency.InFlight {
			result, err := s.replay(ctx, req, record)
			if !errors.Is(err, errMoved) {
				return result, err
			}
		} else if !s.now().Before(until) {
			return Result{}, &InFlightError{ChargeID: record.ChargeID, RetryAfter: inFlightRetryAfter}
		}
		if !pause(ctx, waitPoll) {
			return Result{}, &InFlightError{ChargeID: record.ChargeID, RetryAfter: inFlightRetryAfter}
		}
		now, err := idempotency.Lookup(ctx, s.pool, req.Merchant.ID, req.Key)
		if err != nil {
			return s.freed(ctx, req, record, err)
		}
		record = now
	}
}

// pause waits without counting as work of ours; false if ctx ended first.
func pause(ctx context.Context, wait time.Duration) bool {
	visit := resilience.VisitOf(ctx)
	visit.StepOut()
	defer visit.StepIn()
	select {
	case <-ctx.Done():
		return false
	case <-time.After(wait):
		return true
	}
}

// errMoved says that the key changed between two reads: look again.
var errMoved = errors.New("the key changed meanwhile")

// replay answers a key that is done with its stored bytes, and one that is unknown with the charge as it
// stands now.
func (s *Service) replay(ctx context.Context, req Request, record idempotency.Record) (Result, error) {
	charge, err := s.Get(ctx, req.Merchant.ID, record.ChargeID)
	if err != nil {
		return Result{}, &UnavailableError{Cause: err}
	}
	if record.State == idempotency.Unknown {
		if charge.Status != Unknown {
			return Result{}, errMoved
		}
		return Result{Charge: charge, Replayed: true, RetryAfter: unknownRetryAfter}, nil
	}
	frozen, err := idempotency.ReadResponse(ctx, s.pool, req.Merchant.ID, req.Key, record.ResponseOn)
	switch {
	case errors.Is(err, idempotency.ErrExpired):
		return Result{}, &ExpiredKeyError{ChargeID: record.ChargeID}
	case err != nil:
		return Result{}, &UnavailableError{Cause: err}
	}
	return Result{Charge: charge, Frozen: &frozen, Replayed: true}, nil
}

// freed answers a duplicate whose key was freed while it waited: the charge ended declined or failed.
// The duplicate gets that answer; it does not begin anew by itself.
func (s *Service) freed(ctx context.Context, req Request, before idempotency.Record, err error) (Result, error) {
	if !errors.Is(err, idempotency.ErrNotFound) {
		return Result{}, &UnavailableError{Cause: err}
	}
	charge, err := s.Get(ctx, req.Merchant.ID, before.ChargeID)
	if err != nil {
		return Result{}, &UnavailableError{Cause: err}
	}
	result := answer(charge, idempotency.Response{}, 0)
	result.Replayed = true
	return result, nil
}

package main

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"paymentsd/acquirer/sim"
)

func (s *stage) shop() *checkout { return newCheckout(s.replica.URL, s.plant.chargesKey) }
func (s *stage) north() *sim.Sim { return s.plant.acquirers[0].sim }
func (s *stage) south() *sim.Sim { return s.plant.acquirers[1].sim }
func (s *stage) captures(r reply) int {
	return s.north().CapturesOf(r.body.AcqRef) + s.south().CapturesOf(r.body.AcqRef)
}

// scenes is the story, in order. Later scenes build on earlier ones.
func (s *stage) scenes() []step {
	return []step{
		{"A checkout charges 49.99 USD.", s.capture},
		{"The answer gets lost on the way, so the checkout sends the same request again.", s.replay},
		{"Twenty identical requests arrive at the same moment.", s.duplicates},
		{"A card is declined; the customer takes another one, under the same key.", s.decline},
		{"The acquirer captures, but its answer never arrives.", s.timeout},
		{"The checkout gives up on that key and tries the same order with a new one.", s.newKey},
		{"The gateway asks the acquirer by itself, once its trust delay has passed.", s.asked},
		{"Acquirer north goes down. A timeout never fails over; a refused connection does.", s.failover},
		{"The service is killed (kill -9) in the middle of a charge, and started again.", s.crash},
		{"Night: the settlement files of both acquirers are reconciled.", s.nightly},
		{"The checkout asks once more about what was unknown.", s.closed},
		{"The books.", s.books},
	}
}

func (s *stage) capture(ctx context.Context) (string, error) {
	r, err := s.shop().charge(ctx, "order-1", order{"49.99", "USD", "order-1", "tok_ok"})
	if err != nil {
		return "", err
	}
	if err := hold(r.status == http.StatusCreated && r.body.Status == "captured", "answer %d: %s", r.status, r.text); err != nil {
		return "", err
	}
	return fmt.Sprintf("201 captured at %s as %s. The acquirer knows it by %s.", r.body.Acquirer, r.body.CaptureID, r.body.AcqRef),
		hold(s.captures(r) == 1, "the acquirers hold %d captures", s.captures(r))
}

func (s *stage) replay(ctx context.Context) (string, error) {
	first, err := s.shop().charge(ctx, "order-1", order{"49.99", "USD", "order-1", "tok_ok"})
	if err != nil {
		return "", err
	}
	if err := hold(first.status == http.StatusCreated && first.replayed(), "answer %d, replayed %v: %s", first.status, first.replayed(), first.text); err != nil {
		return "", err
	}
	return "201 with the very same bytes, marked Idempotent-Replayed. The acquirer heard nothing of it.",
		hold(s.captures(first) == 1, "the acquirers hold %d captures", s.captures(first))
}

func (s *stage) duplicates(ctx context.Context) (string, error) {
	const requests = 20
	replies, errs := make([]reply, requests), make([]error, requests)
	var all sync.WaitGroup
	for i := range requests {
		all.Go(func() {
			replies[i], errs[i] = s.shop().charge(ctx, "order-2", order{"12.00", "EUR", "order-2", "tok_ok"})
		})
	}
	all.Wait()
	var captured reply
	created, inFlight := 0, 0
	for i, r := range replies {
		switch {
		case errs[i] != nil:
			return "", errs[i]
		case r.status == http.StatusCreated:
			created, captured = created+1, r
		case r.status == http.StatusConflict && r.body.Code == "idempotency_key_in_flight":
			inFlight++
		default:
			return "", fmt.Errorf("answer %d: %s", r.status, r.text)
		}
	}
	if err := hold(created >= 1, "none of %d was captured", requests); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d got the capture, %d were told that it is still running. One capture at the acquirer.", created, inFlight),
		hold(s.captures(captured) == 1, "the acquirers hold %d captures", s.captures(captured))
}

func (s *stage) decline(ctx context.Context) (string, error) {
	declined, err := s.shop().charge(ctx, "order-3", order{"20.00", "USD", "order-3", "tok_insufficient_funds"})
	if err != nil {
		return "", err
	}
	if err := hold(declined.status == http.StatusPaymentRequired, "answer %d: %s", declined.status, declined.text); err != nil {
		return "", err
	}
	again, err := s.shop().charge(ctx, "order-3", order{"20.00", "USD", "order-3", "tok_ok"})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("402 %s: for certain nothing moved, so the key is free again. Then 201 captured with the other card.", declined.body.Decline),
		hold(again.status == http.StatusCreated && s.captures(again) == 1, "answer %d: %s", again.status, again.text)
}

func (s *stage) timeout(ctx context.Context) (string, error) {
	r, err := s.shop().charge(ctx, "order-4", order{"99.00", "USD", "order-4", "tok_timeout_captured"})
	if err != nil {
		return "", err
	}
	if err := hold(r.status == http.StatusAccepted && r.body.Status == "unknown", "answer %d: %s", r.status, r.text); err != nil {
		return "", err
	}
	again, err := s.shop().charge(ctx, "order-4", order{"99.00", "USD", "order-4", "tok_timeout_captured"})
	if err != nil {
		return "", err
	}
	if err := hold(again.status == http.StatusAccepted && again.body.ID == r.body.ID, "answer %d: %s", again.status, again.text); err != nil {
		return "", err
	}
	return fmt.Sprintf("202 unknown: money may have moved (it did: north holds %d capture). The same key again gets the same answer; nobody is called.", s.captures(r)),
		hold(s.captures(r) == 1 && s.south().CapturesOf(r.body.AcqRef) == 0, "the acquirers hold %d captures", s.captures(r))
}

func (s *stage) newKey(ctx context.Context) (string, error) {
	r, err := s.shop().charge(ctx, "order-4-second-try", order{"99.00", "USD", "order-4", "tok_ok"})
	if err != nil {
		return "", err
	}
	return "409: charge " + r.body.ChargeID + " of this order is still open. That would have been the commonest double charge.",
		hold(r.status == http.StatusConflict && r.body.Code == "reference_has_open_charge", "answer %d: %s", r.status, r.text)
}

// asked follows the timeout's charge to its inquiry.
func (s *stage) asked(ctx context.Context) (string, error) {
	var r reply
	err := until(ctx, func() (ok bool, err error) {
		r, err = s.shop().charge(ctx, "order-4", order{"99.00", "USD", "order-4", "tok_timeout_captured"})
		return r.status != http.StatusAccepted, err
	})
	if err != nil {
		return "", err
	}
	if err := hold(r.status == http.StatusCreated && r.replayed() && r.body.Evidence == "inquiry", "answer %d: %s", r.status, r.text); err != nil {
		return "", err
	}
	return fmt.Sprintf("north knows the reference: the same key now gets 201 captured, on the evidence of an %s. Still %d capture.", r.body.Evidence, s.captures(r)),
		hold(s.captures(r) == 1, "the acquirers hold %d captures", s.captures(r))
}

func (s *stage) failover(ctx context.Context) (string, error) {
	if err := s.north().SetFaults(sim.Fault{Kind: sim.Down, For: time.Minute}); err != nil {
		return "", err
	}
	r, err := s.shop().charge(ctx, "order-5", order{"5000", "JPY", "order-5", "tok_ok"})
	if clearErr := s.north().ClearFaults(); err == nil {
		err = clearErr
	}
	if err != nil {
		return "", err
	}
	if err := hold(r.status == http.StatusCreated && r.body.Acquirer == "south", "answer %d: %s", r.status, r.text); err != nil {
		return "", err
	}
	return fmt.Sprintf("Nothing could be sent to north, so south captured it, under the same reference %s.", r.body.AcqRef),
		hold(s.captures(r) == 1, "the acquirers hold %d captures", s.captures(r))
}

// crash kills the service while the acquirer works, and follows the charge into its recovery.
func (s *stage) crash(ctx context.Context) (string, error) {
	asked := s.north().Stats().Requests
	lost := make(chan struct{})
	go func() {
		defer close(lost)
		_, _ = s.shop().charge(ctx, "order-6", order{"75.00", "USD", "order-6", "tok_slow"}) // its answer is lost with the service
	}()
	if err := until(ctx, func() (bool, error) { return s.north().Stats().Requests > asked, nil }); err != nil {
		return "", fmt.Errorf("the acquirer was not asked: %w", err)
	}
	if err := s.replica.Kill(); err != nil {
		return "", err
	}
	<-lost
	var err error
	if s.replica, err = startReplica(ctx, s.plant, s.out); err != nil {
		return "", err
	}
	var r reply
	inFlight := 0
	err = until(ctx, func() (bool, error) {
		r, err = s.shop().charge(ctx, "order-6", order{"75.00", "USD", "order-6", "tok_slow"})
		if r.status == http.StatusConflict {
			inFlight++
		}
		return r.status != http.StatusConflict, err
	})
	if err != nil {
		return "", err
	}
	if err := hold(r.status == http.StatusAccepted && r.body.Status == "unknown", "answer %d: %s", r.status, r.text); err != nil {
		return "", err
	}
	return fmt.Sprintf("409 in flight (%d times) until the lost process's lease ended, then 202 unknown: it may have reached the acquirer. It is not simply run again.", inFlight),
		hold(s.captures(r) <= 1, "the acquirers hold %d captures", s.captures(r))
}

// pollEvery and pollTimeMax bound waiting for something to become true.
const (
	pollEvery   = 100 * time.Millisecond
	pollTimeMax = 40 * time.Second
)

func until(ctx context.Context, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, pollTimeMax)
	defer cancel()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pollEvery):
		}
	}
}

package jobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/riverqueue/river"

	"paymentsd/merchant"
	"paymentsd/payment"
)

const (
	// relayBatch bounds what is taken of one merchant at once, so that it cannot keep the others waiting.
	relayBatch = 200
	// relayScan bounds how many events one look for merchants takes in.
	relayScan = 1000
	// relayLease is how long a claimed event stays away from others if its relay is lost.
	relayLease = 30 * time.Second
	// insertBatch bounds one insert of jobs.
	insertBatch = 500
	// An event that a consumer cannot take comes again after a second, doubling up to this.
	postponeMax = 10 * time.Minute
)

// Relay passes on every event that is due: to all consumers, then their jobs to river, and only then is
// it marked. A merchant whose events cannot be passed on does not keep others waiting.
func (j *Jobs) Relay(ctx context.Context) error {
	var problems []error
	for {
		merchants, err := j.Errands.OutboxMerchants(ctx, relayScan)
		if err != nil {
			return errors.Join(append(problems, err)...)
		}
		taken := 0
		for _, m := range merchants {
			events, err := j.Errands.ClaimEvents(ctx, m, relayBatch, relayLease)
			if err != nil {
				problems = append(problems, err)
				continue
			}
			taken += len(events)
			problems = append(problems, j.relay(ctx, m, events))
		}
		if taken == 0 || ctx.Err() != nil {
			return errors.Join(problems...)
		}
	}
}

// relay hands the events of one merchant over, together if that is possible, else one by one.
func (j *Jobs) relay(ctx context.Context, m merchant.ID, events []payment.OutboxEvent) error {
	err := j.handOver(ctx, m, events)
	if err == nil || ctx.Err() != nil {
		return err
	}
	if len(events) > 1 {
		for _, e := range events {
			if err := j.relay(ctx, m, []payment.OutboxEvent{e}); err != nil && ctx.Err() != nil {
				return err
			}
		}
		return nil
	}
	e := events[0]
	wait := postponement(e.Tries)
	j.Log.Error("an event cannot be passed on; it comes again",
		"event_id", e.ID, "merchant_id", m, "tries", e.Tries, "in", wait, "error", err)
	return j.Errands.PostponeEvent(ctx, m, e.ID, wait)
}

func postponement(tries int) time.Duration {
	return min(time.Second<<min(tries, 20), postponeMax)
}

func (j *Jobs) handOver(ctx context.Context, m merchant.ID, events []payment.OutboxEvent) error {
	if len(events) == 0 {
		return nil
	}
	var jobs []river.InsertManyParams
	for _, consumer := range j.consumers {
		made, err := consumer.Take(ctx, m, events)
		if err != nil {
			return fmt.Errorf("%s: %w", consumer.Name(), err)
		}
		jobs = append(jobs, made...)
	}
	if err := j.insert(ctx, jobs); err != nil {
		return err
	}
	ids := make([]string, len(events))
	for i, e := range events {
		ids[i] = e.ID
	}
	return j.Errands.MarkRelayed(ctx, m, ids)
}

// insert makes jobs; one that is there already is not made twice.
func (j *Jobs) insert(ctx context.Context, jobs []river.InsertManyParams) error {
	for len(jobs) > 0 {
		batch := jobs[:min(len(jobs), insertBatch)]
		if _, err := j.client.InsertMany(ctx, batch); err != nil {
			return fmt.Errorf("make jobs: %w", err)
		}
		jobs = jobs[len(batch):]
	}
	return nil
}

package payment

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"paymentsd/idempotency"
	"paymentsd/internal/postgres"
)

// sweepBatch bounds one sweep.
const sweepBatch = 100

// postponeAfterError is how long a key that cannot be swept waits behind the others.
const postponeAfterError = time.Minute

// SweepReport says what a sweep did.
type SweepReport struct {
	Unknown int // charges whose process was lost and that are now unknown
	Failed  int // keys that could not be swept and wait
	More    bool
}

// Sweep moves charges whose lease has passed from in flight to unknown: whoever worked on them is gone,
// and may have reached an acquirer. Any number of replicas may sweep at once.
func (r *Resolver) Sweep(ctx context.Context) (SweepReport, error) {
	abandoned, err := idempotency.ListAbandoned(ctx, r.pool, sweepBatch)
	if err != nil {
		return SweepReport{}, err
	}
	report := SweepReport{More: len(abandoned) == sweepBatch}
	for _, item := range abandoned {
		taken, err := r.sweepOne(ctx, item)
		switch {
		case ctx.Err() != nil:
			return report, ctx.Err()
		case err != nil:
			report.Failed++
			r.log.Error("an abandoned key cannot be swept; it goes to the end of the line",
				"charge_id", item.ChargeID, "merchant_id", item.Merchant, "error", err)
			if err := idempotency.Postpone(ctx, r.pool, item, postponeAfterError); err != nil {
				return report, fmt.Errorf("postpone an abandoned key: %w", err)
			}
		case taken:
			report.Unknown++
		}
	}
	return report, nil
}

const abandonCharge = `
update charges c set status = 'unknown', reason = @reason, detail = @detail, updated_at = @now
 where c.merchant_id = @merchant and c.charge_id = @charge and c.status = 'pending'`

const abandonAttempts = `
update attempts a set state = 'unclear', reason = @reason, detail = @detail, finished_at = @now
 where a.merchant_id = @merchant and a.charge_id = @charge and a.state = 'started'`

// reasonAbandoned is the Reason of a charge whose process was lost.
const reasonAbandoned = "process_lost"

func (r *Resolver) sweepOne(ctx context.Context, item idempotency.Abandoned) (taken bool, err error) {
	args := pgx.NamedArgs{
		"merchant": item.Merchant, "charge": item.ChargeID, "reason": reasonAbandoned, "now": r.moment(),
		"detail": "The process that worked on the charge was lost before it wrote the answer down.",
	}
	err = postgres.InTx(ctx, r.pool, func(tx pgx.Tx) error {
		taken, err = idempotency.TakeOver(ctx, tx, item)
		if err != nil || !taken {
			return err
		}
		r.fault(faultSweepKey)
		tag, err := tx.Exec(ctx, abandonCharge, args)
		if err != nil {
			return fmt.Errorf("mark charge %s unknown: %w", item.ChargeID, err)
		}
		if tag.RowsAffected() != 1 {
			return fmt.Errorf("charge %s of an abandoned key is not pending", item.ChargeID)
		}
		if _, err := tx.Exec(ctx, abandonAttempts, args); err != nil {
			return fmt.Errorf("end the attempts of %s: %w", item.ChargeID, err)
		}
		return addEvent(ctx, tx, item.Merchant, item.ChargeID, string(Unknown), args["now"].(time.Time))
	})
	if err == nil && taken {
		r.log.Warn("the process that worked on a charge was lost: the charge is unknown",
			"charge_id", item.ChargeID, "merchant_id", item.Merchant)
	}
	return taken, err
}

package payment

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/shopspring/decimal"

	"paymentsd/internal/postgres"
	"paymentsd/merchant"
	"paymentsd/money"
)

// chargeColumns are what scanCharge reads, of charges c.
const chargeColumns = `
       c.merchant_id, c.charge_id, c.idempotency_key, c.generation, c.acq_ref, c.amount, c.currency,
       coalesce(c.reference, ''), c.allow_concurrent, c.payment_method, coalesce(c.description, ''), c.status, c.acquirer,
       coalesce(c.capture_id, ''), coalesce(c.decline_code, ''), coalesce(c.reason, ''), coalesce(c.detail, ''),
       coalesce(c.evidence, ''), c.created_at, c.updated_at`

const selectCharge = `select` + chargeColumns + `
  from charges c where c.merchant_id = @merchant and c.charge_id = @charge`

// Get reads a charge, or ErrNotFound.
func (r *Resolver) Get(ctx context.Context, m merchant.ID, chargeID string) (Charge, error) {
	return get(ctx, r.pool, selectCharge, m, chargeID)
}

func get(ctx context.Context, db postgres.DB, sql string, m merchant.ID, chargeID string) (Charge, error) {
	charge, err := scanCharge(db.QueryRow(ctx, sql, pgx.NamedArgs{"merchant": m, "charge": chargeID}))
	if errors.Is(err, pgx.ErrNoRows) {
		return Charge{}, fmt.Errorf("%w: %s", ErrNotFound, chargeID)
	}
	if err != nil {
		return Charge{}, fmt.Errorf("read charge %s: %w", chargeID, err)
	}
	return charge, nil
}

func scanCharge(row pgx.Row) (c Charge, err error) {
	var amount decimal.Decimal
	var currency money.Currency
	err = row.Scan(&c.Merchant, &c.ID, &c.IdempotencyKey, &c.Generation, &c.AcqRef, &amount, &currency,
		&c.Reference, &c.AllowConcurrent, &c.PaymentMethod, &c.Description, &c.Status, &c.Acquirer,
		&c.CaptureID, &c.DeclineCode, &c.Reason, &c.Detail, &c.Evidence, &c.CreatedAt, &c.UpdatedAt)
	if err != nil {
		return Charge{}, err
	}
	c.CreatedAt, c.UpdatedAt = c.CreatedAt.UTC(), c.UpdatedAt.UTC()
	c.Amount, err = money.New(amount, currency)
	return c, err
}

func collectCharges(rows pgx.Rows, err error) ([]Charge, error) {
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (Charge, error) { return scanCharge(row) })
}

const selectAttempts = `
select a.n, a.acquirer, a.state, a.calls, coalesce(a.http_status, 0), coalesce(a.code, ''), coalesce(a.reason, ''),
       coalesce(a.detail, ''), a.started_at, coalesce(a.finished_at, 'epoch'::timestamptz)
  from attempts a where a.merchant_id = @merchant and a.charge_id = @charge order by a.n`

// Attempts reads the attempts of a charge, in order.
func (r *Resolver) Attempts(ctx context.Context, m merchant.ID, chargeID string) ([]Attempt, error) {
	return attempts(ctx, r.pool, m, chargeID)
}

func attempts(ctx context.Context, db postgres.DB, m merchant.ID, chargeID string) ([]Attempt, error) {
	rows, err := db.Query(ctx, selectAttempts, pgx.NamedArgs{"merchant": m, "charge": chargeID})
	if err != nil {
		return nil, fmt.Errorf("read the attempts of %s: %w", chargeID, err)
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (a Attempt, err error) {
		err = row.Scan(&a.N, &a.Acquirer, &a.State, &a.Calls, &a.HTTPStatus, &a.Code, &a.Reason, &a.Detail, &a.StartedAt, &a.FinishedAt)
		a.StartedAt, a.FinishedAt = a.StartedAt.UTC(), a.FinishedAt.UTC()
		if a.FinishedAt.Unix() == 0 {
			a.FinishedAt = time.Time{}
		}
		return a, err
	})
}

const selectResolutions = `
select r.resolution_id, r.evidence, r.outcome, r.applied, coalesce(r.acquirer, ''), coalesce(r.capture_id, ''),
       r.amount, coalesce(r.currency, ''), r.actor, r.reason, coalesce(r.file_id, ''), coalesce(r.line_no, 0), r.created_at, coalesce(r.finding, '')
  from resolutions r where r.merchant_id = @merchant and r.charge_id = @charge order by r.created_at, r.resolution_id`

// Resolutions reads all evidence about a charge, oldest first.
func (r *Resolver) Resolutions(ctx context.Context, m merchant.ID, chargeID string) ([]Resolution, error) {
	return resolutions(ctx, r.pool, m, chargeID)
}

func resolutions(ctx context.Context, db postgres.DB, m merchant.ID, chargeID string) ([]Resolution, error) {
	rows, err := db.Query(ctx, selectResolutions, pgx.NamedArgs{"merchant": m, "charge": chargeID})
	if err != nil {
		return nil, fmt.Errorf("read the evidence of %s: %w", chargeID, err)
	}
	return pgx.CollectRows(rows, scanResolution)
}

func scanResolution(row pgx.CollectableRow) (r Resolution, err error) {
	var amount decimal.NullDecimal
	var currency money.Currency
	err = row.Scan(&r.ID, &r.Evidence, &r.Outcome, &r.Applied, &r.Acquirer, &r.CaptureID, &amount, &currency,
		&r.Actor, &r.Reason, &r.FileID, &r.LineNo, &r.CreatedAt, &r.Finding)
	if err != nil {
		return Resolution{}, err
	}
	r.CreatedAt = r.CreatedAt.UTC()
	if amount.Valid {
		r.Amount, err = money.New(amount.Decimal, currency)
	}
	return r, err
}

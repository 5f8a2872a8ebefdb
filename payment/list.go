package payment

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/shopspring/decimal"

	"paymentsd/merchant"
	"paymentsd/money"
)

// Filter says which charges to list.
type Filter struct {
	Merchant       *merchant.ID // nil: of all merchants
	Reference      string
	IdempotencyKey string
	Status         Status
	Acquirer       string
	CreatedAfter   time.Time
	StartingAfter  string // the last charge id of the page before
	Limit          int    // 1 to 100
}

// Page is one page of charges, newest first.
type Page struct {
	Charges []Charge
	HasMore bool
}

// Within a merchant charge ids sort by time, so the primary key serves the order.
const listCharges = `select` + chargeColumns + `
  from charges c
 where c.merchant_id = @merchant
   and (@reference = '' or c.reference = @reference)
   and (@key = '' or c.idempotency_key = @key)
   and (@status = '' or c.status = @status)
   and (@acquirer = '' or c.acquirer = @acquirer)
   and c.created_at > @created_after
   and (@after = '' or c.charge_id < @after)
 order by c.charge_id desc limit @limit`

// listChargesOfAll is a report over all merchants, for ops.
const listChargesOfAll = `select` + chargeColumns + `
  from charges c
 where (@reference = '' or c.reference = @reference)
   and (@key = '' or c.idempotency_key = @key)
   and (@status = '' or c.status = @status)
   and (@acquirer = '' or c.acquirer = @acquirer)
   and c.created_at > @created_after
   and (c.created_at, c.merchant_id, c.charge_id) < (@before, @before_merchant, @after)
 order by c.created_at desc, c.merchant_id desc, c.charge_id desc limit @limit`

// List reads a page of charges. A cursor that names no charge is ErrInvalidCursor.
func (r *Resolver) List(ctx context.Context, f Filter) (Page, error) {
	if f.Limit < 1 || f.Limit > 100 {
		return Page{}, fmt.Errorf("list charges: the limit %d is not 1 to 100", f.Limit)
	}
	args := pgx.NamedArgs{
		"reference": f.Reference, "key": f.IdempotencyKey, "status": f.Status, "acquirer": f.Acquirer,
		"created_after": f.CreatedAfter, "after": f.StartingAfter, "limit": f.Limit + 1,
	}
	sql, err := listCharges, error(nil)
	if f.Merchant != nil {
		args["merchant"] = *f.Merchant
	} else {
		sql = listChargesOfAll
	}
	if err = r.placeCursor(ctx, f, args); err != nil {
		return Page{}, err
	}
	charges, err := collectCharges(r.pool.Query(ctx, sql, args))
	if err != nil {
		return Page{}, fmt.Errorf("list charges: %w", err)
	}
	if len(charges) > f.Limit {
		return Page{Charges: charges[:f.Limit], HasMore: true}, nil
	}
	return Page{Charges: charges}, nil
}

// placeCursor checks the cursor, and over all merchants turns it into a place in time.
func (r *Resolver) placeCursor(ctx context.Context, f Filter, args pgx.NamedArgs) error {
	args["before"], args["before_merchant"] = "infinity", merchant.ID(0)
	if f.StartingAfter == "" {
		return nil
	}
	m, err := MerchantOf(f.StartingAfter)
	if err != nil || (f.Merchant != nil && *f.Merchant != m) {
		return fmt.Errorf("%w: %.40q", ErrInvalidCursor, f.StartingAfter)
	}
	if f.Merchant != nil {
		return nil
	}
	charge, err := r.Get(ctx, m, f.StartingAfter)
	if err != nil {
		return fmt.Errorf("%w: %.40q", ErrInvalidCursor, f.StartingAfter)
	}
	args["before"], args["before_merchant"] = charge.CreatedAt, m
	return nil
}

// Exposure is the money whose fate is not known, at one acquirer and in one currency.
type Exposure struct {
	Acquirer string
	Count    int
	Sum      money.Amount
	Oldest   time.Time
}

// sumExposures is a report over all merchants.
const sumExposures = `
select c.acquirer, c.currency, count(*)::int, sum(c.amount), min(c.created_at)
  from charges c where c.status = 'unknown' group by c.acquirer, c.currency order by c.acquirer, c.currency`

// Exposures sums all unknown charges. It decides nothing about money.
func (r *Resolver) Exposures(ctx context.Context) ([]Exposure, error) {
	rows, err := r.pool.Query(ctx, sumExposures)
	if err != nil {
		return nil, fmt.Errorf("sum the exposures: %w", err)
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (e Exposure, err error) {
		var sum decimal.Decimal
		var currency money.Currency
		if err = row.Scan(&e.Acquirer, &currency, &e.Count, &sum, &e.Oldest); err != nil {
			return Exposure{}, err
		}
		e.Oldest = e.Oldest.UTC()
		e.Sum, err = money.Total(sum, currency)
		return e, err
	})
}

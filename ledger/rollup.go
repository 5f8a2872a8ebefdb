package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"paymentsd/internal/postgres"
	"paymentsd/merchant"
)

// RollupLag is how far a roll-up stays behind: no transaction lasts that long, so no transfer can
// still appear before the moment that is rolled up.
const RollupLag = time.Hour

const rollUp = `
with before as materialized (
  select max(r.through) as through from ledger_rollups r where r.merchant_id = @merchant and r.through < @through
), parts as (
  select r.account, r.currency, r.debits, r.credits
    from ledger_rollups r join before on r.through = before.through where r.merchant_id = @merchant
  union all
  select t.debit_account, t.currency, t.amount, 0 from ledger_transfers t, before
   where t.merchant_id = @merchant and t.posted_at > coalesce(before.through, '-infinity') and t.posted_at <= @through
  union all
  select t.credit_account, t.currency, 0, t.amount from ledger_transfers t, before
   where t.merchant_id = @merchant and t.posted_at > coalesce(before.through, '-infinity') and t.posted_at <= @through
)
insert into ledger_rollups as l (merchant_id, through, account, currency, debits, credits)
select @merchant, @through, p.account, p.currency, sum(p.debits), sum(p.credits)
  from parts p group by p.account, p.currency
on conflict (merchant_id, through, account, currency) do nothing`

// rollupsKept is how long roll-ups are kept beside the newest, which replaces them.
const rollupsKept = 7 * 24 * time.Hour

const dropOldRollups = `
delete from ledger_rollups r where r.merchant_id = @merchant and r.through < @oldest`

// ErrTooRecent refuses a roll-up that could miss a transfer which is still being written.
var ErrTooRecent = errors.New("the moment is too recent to roll up")

// isPast leaves a replica's clock half the lag to be wrong by.
const isPast = `select @through::timestamptz <= now() - @lag::interval / 2`

// RollUp sums a merchant's transfers up to through, which must be RollupLag ago (ErrTooRecent). Running it
// twice, or twice at once, gives the same rows.
func RollUp(ctx context.Context, db postgres.Beginner, m merchant.ID, through time.Time) error {
	through = through.UTC().Truncate(time.Microsecond)
	args := pgx.NamedArgs{"merchant": m, "through": through, "oldest": through.Add(-rollupsKept), "lag": RollupLag}
	err := postgres.InTx(ctx, db, func(tx pgx.Tx) error {
		var past bool
		if err := tx.QueryRow(ctx, isPast, args).Scan(&past); err != nil {
			return err
		}
		if !past {
			return ErrTooRecent
		}
		if _, err := tx.Exec(ctx, rollUp, args); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, dropOldRollups, args)
		return err
	})
	if err != nil {
		return fmt.Errorf("roll up the ledger of merchant %d: %w", m, err)
	}
	return nil
}

// activeMerchants is a report over all merchants.
const activeMerchants = `
select distinct t.merchant_id from ledger_transfers t where t.posted_at > @since and t.posted_at <= @through order by 1`

// RollUpAll rolls up every merchant with transfers in (since, through].
func RollUpAll(ctx context.Context, db interface {
	postgres.DB
	postgres.Beginner
}, since, through time.Time) (int, error) {
	rows, err := db.Query(ctx, activeMerchants, pgx.NamedArgs{"since": since, "through": through})
	if err != nil {
		return 0, fmt.Errorf("find merchants to roll up: %w", err)
	}
	merchants, err := pgx.CollectRows(rows, pgx.RowTo[merchant.ID])
	if err != nil {
		return 0, fmt.Errorf("find merchants to roll up: %w", err)
	}
	for _, m := range merchants {
		if err := RollUp(ctx, db, m, through); err != nil {
			return 0, err
		}
	}
	return len(merchants), nil
}

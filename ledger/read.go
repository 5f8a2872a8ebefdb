package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/shopspring/decimal"

	"paymentsd/internal/postgres"
	"paymentsd/merchant"
	"paymentsd/money"
)

// Each transfer counts once on its debit and once on its credit account; what the newest roll-up
// holds is not summed again.
const balances = `
with rolled as materialized (
  select max(r.through) as through from ledger_rollups r where r.merchant_id = @merchant
), parts as (
  select r.account, r.currency, r.debits, r.credits
    from ledger_rollups r join rolled on r.through = rolled.through where r.merchant_id = @merchant
  union all
  select t.debit_account, t.currency, t.amount, 0 from ledger_transfers t, rolled
   where t.merchant_id = @merchant and t.posted_at > coalesce(rolled.through, '-infinity')
  union all
  select t.credit_account, t.currency, 0, t.amount from ledger_transfers t, rolled
   where t.merchant_id = @merchant and t.posted_at > coalesce(rolled.through, '-infinity')
)
select p.account, p.currency, sum(p.debits), sum(p.credits)
  from parts p group by p.account, p.currency order by p.account, p.currency`

// Balances reads every account of a merchant, by account and currency.
func Balances(ctx context.Context, db postgres.DB, m merchant.ID) ([]Balance, error) {
	return collectBalances(ctx, db, balances, pgx.NamedArgs{"merchant": m})
}

const balancesAnew = `
with parts as (
  select t.debit_account as account, t.currency, t.amount as debits, 0 as credits
    from ledger_transfers t where t.merchant_id = @merchant
  union all
  select t.credit_account, t.currency, 0, t.amount from ledger_transfers t where t.merchant_id = @merchant
)
select p.account, p.currency, sum(p.debits), sum(p.credits)
  from parts p group by p.account, p.currency order by p.account, p.currency`

// BalancesAnew reads the same from the transfers alone: what the roll-ups are verified against.
func BalancesAnew(ctx context.Context, db postgres.DB, m merchant.ID) ([]Balance, error) {
	return collectBalances(ctx, db, balancesAnew, pgx.NamedArgs{"merchant": m})
}

func collectBalances(ctx context.Context, db postgres.DB, sql string, args pgx.NamedArgs) ([]Balance, error) {
	rows, err := db.Query(ctx, sql, args)
	if err != nil {
		return nil, fmt.Errorf("read balances: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Balance])
}

// The books' sums; each transfer adds the same to both sides, so a difference is damage.
// This is a report over all merchants.
const trialBalance = `
with sides as (
  select t.currency, t.amount as debits, 0 as credits from ledger_transfers t where t.debit_account is not null
  union all
  select t.currency, 0, t.amount from ledger_transfers t where t.credit_account is not null
)
select s.currency, sum(s.debits), sum(s.credits) from sides s group by s.currency order by s.currency`

// TrialSum is the sum of all debits and of all credits in one currency.
type TrialSum struct {
	Currency money.Currency
	Debits   decimal.Decimal
	Credits  decimal.Decimal
}

// Net is zero in sound books.
func (s TrialSum) Net() decimal.Decimal { return s.Debits.Sub(s.Credits) }

// TrialBalance sums both sides of all merchants' books.
func TrialBalance(ctx context.Context, db postgres.DB) ([]TrialSum, error) {
	rows, err := db.Query(ctx, trialBalance)
	if err != nil {
		return nil, fmt.Errorf("read the trial balance: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[TrialSum])
}

// Query says which transfers to list.
type Query struct {
	ChargeID      string  // all if empty
	Account       Account // all if empty
	StartingAfter string  // a transfer ID of an earlier page
	Limit         int
}

const listTransfers = `
select t.transfer_id, coalesce(t.charge_id, ''), t.kind, t.debit_account, t.credit_account, t.amount, t.currency, t.posted_at
  from ledger_transfers t
 where t.merchant_id = @merchant
   and (@charge = '' or t.charge_id = @charge)
   and (@account = '' or t.debit_account = @account or t.credit_account = @account)
   and (@after = '' or (t.posted_at, t.transfer_id) <
        (select a.posted_at, a.transfer_id from ledger_transfers a where a.merchant_id = @merchant and a.transfer_id = @after))
 order by t.posted_at desc, t.transfer_id desc limit @limit`

const transferExists = `
select exists (select 1 from ledger_transfers t where t.merchant_id = @merchant and t.transfer_id = @after)`

// Transfers lists a merchant's transfers, newest first, and says whether there are more. A cursor that
// names no transfer of the merchant is ErrInvalidCursor.
func Transfers(ctx context.Context, db postgres.DB, m merchant.ID, q Query) ([]Transfer, bool, error) {
	rows, err := db.Query(ctx, listTransfers, pgx.NamedArgs{
		"merchant": m, "charge": q.ChargeID, "account": q.Account, "after": q.StartingAfter, "limit": q.Limit + 1,
	})
	if err != nil {
		return nil, false, fmt.Errorf("list transfers: %w", err)
	}
	transfers, err := pgx.CollectRows(rows, scanTransfer)
	if err != nil {
		return nil, false, fmt.Errorf("list transfers: %w", err)
	}
	if len(transfers) == 0 && q.StartingAfter != "" { // the last page, or no cursor of ours?
		var exists bool
		err := db.QueryRow(ctx, transferExists, pgx.NamedArgs{"merchant": m, "after": q.StartingAfter}).Scan(&exists)
		if err != nil {
			return nil, false, fmt.Errorf("check the cursor: %w", err)
		}
		if !exists {
			return nil, false, fmt.Errorf("%w: %.40q", ErrInvalidCursor, q.StartingAfter)
		}
	}
	if len(transfers) > q.Limit {
		return transfers[:q.Limit], true, nil
	}
	return transfers, false, nil
}

func scanTransfer(row pgx.CollectableRow) (t Transfer, err error) {
	var sum decimal.Decimal
	var currency money.Currency
	var postedAt time.Time
	if err = row.Scan(&t.ID, &t.ChargeID, &t.Kind, &t.Debit, &t.Credit, &sum, &currency, &postedAt); err != nil {
		return Transfer{}, err
	}
	t.PostedAt = postedAt.UTC()
	t.Amount, err = money.New(sum, currency)
	return t, err
}

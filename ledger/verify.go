package ledger

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"paymentsd/internal/postgres"
	"paymentsd/merchant"
)

const transfersByID = `
select t.transfer_id, coalesce(t.charge_id, ''), t.kind, t.debit_account, t.credit_account, t.amount, t.currency, t.posted_at
  from ledger_transfers t where t.merchant_id = @merchant and t.transfer_id = any(@ids)`

// ByIDs reads the transfers of a merchant that are posted under these IDs.
func ByIDs(ctx context.Context, db postgres.DB, m merchant.ID, ids []string) (map[string]Transfer, error) {
	rows, err := db.Query(ctx, transfersByID, pgx.NamedArgs{"merchant": m, "ids": ids})
	if err != nil {
		return nil, fmt.Errorf("read transfers: %w", err)
	}
	transfers, err := pgx.CollectRows(rows, scanTransfer)
	if err != nil {
		return nil, fmt.Errorf("read transfers: %w", err)
	}
	found := make(map[string]Transfer, len(transfers))
	for _, t := range transfers {
		found[t.ID] = t
	}
	return found, nil
}

const countKind = `select count(*) from ledger_transfers t where t.merchant_id = @merchant and t.kind = @kind`

// CountKind counts a merchant's transfers of a kind.
func CountKind(ctx context.Context, db postgres.DB, m merchant.ID, kind string) (n int64, err error) {
	if err = db.QueryRow(ctx, countKind, pgx.NamedArgs{"merchant": m, "kind": kind}).Scan(&n); err != nil {
		return 0, fmt.Errorf("count transfers: %w", err)
	}
	return n, nil
}

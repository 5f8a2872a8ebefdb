package ledger

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"paymentsd/internal/postgres"
	"paymentsd/merchant"
)

// sqlstateConflict is raised by ledger_post_v1 (migrations).
const sqlstateConflict = "PD001"

const post = `
select ledger_post_v1(@merchant, @id, nullif(@charge, ''), @kind, @debit, @credit, @amount, @currency)`

// Post appends a transfer within tx. It reports false, and appends nothing, if the same transfer was
// posted before; another movement under the same ID is ErrConflict.
func Post(ctx context.Context, tx pgx.Tx, m merchant.ID, t Transfer) (bool, error) {
	if !t.Amount.IsPositive() {
		return false, fmt.Errorf("post transfer %s: the amount %s is not positive", t.ID, t.Amount)
	}
	if t.Debit == t.Credit {
		return false, fmt.Errorf("post transfer %s: debit and credit are both %s", t.ID, t.Debit)
	}
	var posted bool
	err := tx.QueryRow(ctx, post, pgx.NamedArgs{
		"merchant": m, "id": t.ID, "charge": t.ChargeID, "kind": t.Kind, "debit": t.Debit, "credit": t.Credit,
		"amount": t.Amount.Decimal(), "currency": t.Amount.Currency(),
	}).Scan(&posted)
	if postgres.SQLState(err) == sqlstateConflict {
		return false, errors.Join(fmt.Errorf("%w: %s", ErrConflict, t.ID), err)
	}
	if err != nil {
		return false, fmt.Errorf("post transfer %s: %w", t.ID, err)
	}
	return posted, nil
}

package idempotency

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"paymentsd/internal/postgres"
	"paymentsd/merchant"
)

// Held is a key as the verification of the books looks at it.
type Held struct {
	Key      string
	State    State
	ChargeID string
}

const pageOfKeys = `
select k.key, k.state, k.charge_id from idempotency_keys k
 where k.merchant_id = @merchant and k.key > @after order by k.key limit @limit`

// List reads a merchant's keys by key.
func List(ctx context.Context, db postgres.DB, m merchant.ID, after string, limit int) ([]Held, error) {
	return collectHeld(db.Query(ctx, pageOfKeys, pgx.NamedArgs{"merchant": m, "after": after, "limit": limit}))
}

const keysNamed = `
select k.key, k.state, k.charge_id from idempotency_keys k
 where k.merchant_id = @merchant and k.key = any(@keys)`

// Named reads those of a merchant's keys that there are.
func Named(ctx context.Context, db postgres.DB, m merchant.ID, keys []string) ([]Held, error) {
	return collectHeld(db.Query(ctx, keysNamed, pgx.NamedArgs{"merchant": m, "keys": keys}))
}

func collectHeld(rows pgx.Rows, err error) ([]Held, error) {
	if err != nil {
		return nil, fmt.Errorf("read keys: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Held])
}

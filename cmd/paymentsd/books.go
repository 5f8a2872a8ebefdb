package main

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"paymentsd/ledger"
	"paymentsd/merchant"
)

// books reads the ledger through a pool. It is an api.Ledger.
type books struct{ pool *pgxpool.Pool }

func (b books) Balances(ctx context.Context, m merchant.ID) ([]ledger.Balance, error) {
	return ledger.Balances(ctx, b.pool, m)
}

func (b books) Transfers(ctx context.Context, m merchant.ID, q ledger.Query) ([]ledger.Transfer, bool, error) {
	return ledger.Transfers(ctx, b.pool, m, q)
}

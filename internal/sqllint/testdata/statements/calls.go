package statements

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

func bare(ctx context.Context, pool *pgxpool.Pool, b *pgx.Batch) {
	pool.SendBatch(ctx, b)
}

func inTx(ctx context.Context, tx pgx.Tx, b *pgx.Batch) { tx.SendBatch(ctx, b) }

func run(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.Serializable})
	_, err = pool.Exec(ctx, "update charges set status = 'x'")
	return err
}

package reconcile

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"paymentsd/internal/postgres"
)

// Raise records a difference that something other than a file showed. Source is what showed it, distinct is
// what tells it from others of its class: the same difference again is the same row. Runs leave it
// alone, since no file is its cause: a person closes it, and it then stays closed as long as it says the same.
func (r *Reconciler) Raise(ctx context.Context, e Exception, source string, distinct ...string) error {
	err := postgres.InTx(ctx, r.Pool, func(tx pgx.Tx) error {
		return r.recordIn(ctx, tx, nil, []Exception{e.identify("raised:"+source, distinct...)}, "")
	})
	if err != nil {
		return fmt.Errorf("raise an exception: %w", err)
	}
	return nil
}

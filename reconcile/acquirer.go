package reconcile

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// acquirerName is what an account of the ledger can carry.
var acquirerName = regexp.MustCompile(`^[a-z0-9_-]{1,40}$`)

const acquirersOfFiles = `select distinct f.acquirer from settlement_files f where f.status <> 'quarantined' order by f.acquirer`

// CheckAcquirer is ErrAcquirer, with a list of those that are known, for a name that cannot be one and for one
// that nothing speaks of: no merchant is routed to it, and no file of it was ever taken in. Most likely it is
// misspelt, and a run under it would find nothing, and say that all is well.
func (r *Reconciler) CheckAcquirer(ctx context.Context, name string) error {
	if !acquirerName.MatchString(name) {
		return fmt.Errorf("%w: %.50q (1 to 40 of a-z, 0-9, _ and -)", ErrAcquirer, name)
	}
	known, err := r.Merchants.Acquirers(ctx)
	if err != nil || slices.Contains(known, name) {
		return err
	}
	rows, err := r.Pool.Query(ctx, acquirersOfFiles)
	if err != nil {
		return fmt.Errorf("list the acquirers of files: %w", err)
	}
	filed, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || slices.Contains(filed, name) {
		return err
	}
	if known = append(known, filed...); len(known) == 0 {
		return fmt.Errorf("%w that is known: %q; no merchant is routed to any yet", ErrAcquirer, name)
	}
	slices.Sort(known)
	return fmt.Errorf("%w that is known: %q; known are %s", ErrAcquirer, name, strings.Join(slices.Compact(known), ", "))
}

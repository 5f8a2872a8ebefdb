package shared

import (
	"context"
	"fmt"
	"time"

	"paymentsd/internal/postgres"
)

// ReplicasWithin is how far back Replicas looks.
const ReplicasWithin = 2 * time.Minute

const countReplicas = `
select count(distinct w.replica) from outcome_windows w where w.sec > extract(epoch from clock_timestamp())::bigint - $1::bigint`

// Replicas counts the processes that reported calls within the last ReplicasWithin. One that made none is
// not among them.
func Replicas(ctx context.Context, db postgres.DB) (count int, err error) {
	if err := db.QueryRow(ctx, countReplicas, int64(ReplicasWithin/time.Second)).Scan(&count); err != nil {
		return 0, fmt.Errorf("count the replicas: %w", err)
	}
	return count, nil
}

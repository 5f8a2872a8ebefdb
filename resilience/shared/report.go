package shared

import (
	"context"

	"github.com/jackc/pgx/v5"

	"paymentsd/resilience"
)

const reportedOutcomes = `
select w.acquirer, w.replica, w.epoch, sum(w.attempts)::bigint as attempts, sum(w.failures)::bigint as failures,
       sum(w.slow)::bigint as slow, (extract(epoch from clock_timestamp())::bigint - max(w.sec)) as age_seconds
  from outcome_windows w join breakers b on b.acquirer = w.acquirer and b.epoch = w.epoch
 where w.sec > extract(epoch from clock_timestamp())::bigint - 60
 group by w.acquirer, w.replica, w.epoch
 order by w.acquirer, w.replica`

// Reports says which replica reported what in the last minute, by acquirer and replica: for ops, on
// request.
func (s *Shared) Reports(ctx context.Context) ([]resilience.ReplicaReport, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeMax)
	defer cancel()
	rows, err := s.store.db.Query(ctx, reportedOutcomes)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByName[resilience.ReplicaReport])
}

const lastTransitions = `
select e.acquirer, e.epoch, e.from_state as "from", e.to_state as "to", e.mode, e.reason, e.replica, e.at
  from breaker_events e where e.acquirer = @acquirer order by e.epoch desc limit @most`

// Transitions gives the newest transitions of an acquirer's breaker, newest first.
func (s *Shared) Transitions(ctx context.Context, acquirer string, most int) ([]resilience.Transition, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeMax)
	defer cancel()
	rows, err := s.store.db.Query(ctx, lastTransitions, pgx.NamedArgs{"acquirer": acquirer, "most": most})
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByName[resilience.Transition])
}

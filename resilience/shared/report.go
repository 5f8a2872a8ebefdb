package shared

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"paymentsd/resilience"
)

// Status is a breaker as this replica sees it, and how well it sees.
type Status struct {
	resilience.BreakerSnapshot
	// Replica is this process. HeldBack says why it alone refuses calls; empty if it does not.
	Replica, HeldBack string
	// Reporting replicas had attempts in the window; of these, Seeing saw a tenth of them fail or slow.
	Reporting, Seeing int
	// Heard is when the store answered last. StoreError is why it does not; empty if it does.
	Heard      time.Time
	StoreError string
	// Listening is false while this replica learns by polling alone.
	Listening bool
}

// Status is the snapshot, and where it comes from.
func (b *Breaker) Status() Status {
	s := Status{BreakerSnapshot: b.Snapshot(), Replica: b.shared.replica, Listening: b.shared.listening.Load()}
	ph := b.phase.Load()
	if ph.hold != nil {
		s.HeldBack = ph.hold.why
	}
	if v := b.view.Load(); v != nil && v.counts == ph.counts {
		s.Reporting, s.Seeing = v.reporting, v.seeing
	}
	if h := b.shared.health.Load(); h != nil {
		s.Heard = b.at(h.heard)
		if h.err != nil {
			s.StoreError = h.err.Error()
		}
	}
	return s
}

// Report is what one replica reported of one acquirer in the last minute, in the breaker's epoch.
type Report struct {
	Acquirer string `db:"acquirer"`
	Replica  string `db:"replica"`
	Epoch    int64  `db:"epoch"`
	Attempts int64  `db:"attempts"`
	Failures int64  `db:"failures"`
	Slow     int64  `db:"slow"`
	// Age is the time since its last report, by the database's clock.
	AgeSeconds int64 `db:"age_seconds"`
}

const reportedOutcomes = `
select w.acquirer, w.replica, w.epoch, sum(w.attempts)::bigint as attempts, sum(w.failures)::bigint as failures,
       sum(w.slow)::bigint as slow, (extract(epoch from clock_timestamp())::bigint - max(w.sec)) as age_seconds
  from outcome_windows w join breakers b on b.acquirer = w.acquirer and b.epoch = w.epoch
 where w.sec > extract(epoch from clock_timestamp())::bigint - 60
 group by w.acquirer, w.replica, w.epoch
 order by w.acquirer, w.replica`

// Reports says which replica reported what: for ops, on request.
func (s *Shared) Reports(ctx context.Context) ([]Report, error) {
	rows, err := s.store.db.Query(ctx, reportedOutcomes)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByName[Report])
}

// Transition is one stored change of a breaker.
type Transition struct {
	Acquirer string    `db:"acquirer"`
	Epoch    int64     `db:"epoch"` // that began with it
	From     string    `db:"from_state"`
	To       string    `db:"to_state"`
	Mode     string    `db:"mode"`
	Reason   string    `db:"reason"`
	Replica  string    `db:"replica"` // which brought it about
	At       time.Time `db:"at"`
}

const lastTransitions = `
select e.acquirer, e.epoch, e.from_state, e.to_state, e.mode, e.reason, e.replica, e.at
  from breaker_events e where e.acquirer = @acquirer order by e.epoch desc limit @most`

// Transitions gives the newest transitions of an acquirer's breaker, newest first.
func (s *Shared) Transitions(ctx context.Context, acquirer string, most int) ([]Transition, error) {
	rows, err := s.store.db.Query(ctx, lastTransitions, pgx.NamedArgs{"acquirer": acquirer, "most": most})
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByName[Transition])
}

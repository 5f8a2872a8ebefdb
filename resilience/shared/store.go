package shared

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"paymentsd/internal/postgres"
	"paymentsd/resilience"
)

// row is an acquirer's row as the database tells it: in answers and in notifications alike, and in
// durations, since no two clocks agree.
type row struct {
	Acquirer   string           `json:"acquirer"`
	Epoch      uint64           `json:"epoch"`
	State      resilience.State `json:"state"`
	Mode       resilience.Mode  `json:"mode"`
	Reason     string           `json:"reason"`
	Cause      string           `json:"cause"`   // why it opened first
	Replica    string           `json:"replica"` // which began this epoch
	AgeMS      int64            `json:"age_ms"`  // of this epoch
	OpenMS     int64            `json:"open_ms"` // until a probe is due
	OpenForMS  int64            `json:"open_for_ms"`
	ProbeMS    int64            `json:"probe_ms"` // until the lease ends
	Probing    bool             `json:"probing"`
	Owner      string           `json:"owner"` // of the lease
	Successes  int              `json:"successes"`
	Closed     bool             `json:"closed"`    // by a probe, at some time
	ClosedMS   int64            `json:"closed_ms"` // since then
	Reopenings int              `json:"reopenings"`
	Ramping    bool             `json:"ramping"`
}

func (r row) age() time.Duration         { return time.Duration(r.AgeMS) * time.Millisecond }
func (r row) open() time.Duration        { return time.Duration(r.OpenMS) * time.Millisecond }
func (r row) openFor() time.Duration     { return time.Duration(r.OpenForMS) * time.Millisecond }
func (r row) lease() time.Duration       { return time.Duration(r.ProbeMS) * time.Millisecond }
func (r row) sinceClosed() time.Duration { return time.Duration(r.ClosedMS) * time.Millisecond }

func parseRow(text string) (row, error) {
	var r row
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return row{}, fmt.Errorf("a breaker's row cannot be read: %w", err)
	}
	return r, nil
}

// store is the shared state in Postgres. Every call is one statement, bounded by its context.
type store struct {
	db      postgres.DB
	replica string
}

// flushed is what one flush brings back for one acquirer.
type flushed struct {
	Row          string `db:"o_row"`
	Attempts     int64  `db:"o_attempts"`
	Failures     int64  `db:"o_failures"`
	Slow         int64  `db:"o_slow"`
	Reporting    int    `db:"o_reporting"` // replicas with attempts in the window
	Seeing       int    `db:"o_seeing"`    // of these, with at least a tenth failed or slow
	Retries60s   int64  `db:"o_retries_60s"`
	Retries1s    int64  `db:"o_retries_1s"`
	Successes60s int64  `db:"o_successes_60s"`
	Successes5s  int64  `db:"o_successes_5s"`
	row          row
}

func (f flushed) tally() resilience.Tally {
	return resilience.Tally{Attempts: f.Attempts, Failures: f.Failures, Slow: f.Slow}
}

// batch is what one flush sends: a column a field, an acquirer a place.
type batch struct {
	acquirers                                         []string
	seqs, epochs, attempts, failures, slow, successes []int64
	windows, windowCounts                             []int32
}

const flushOutcomes = `
select f.o_row, f.o_attempts, f.o_failures, f.o_slow, f.o_reporting, f.o_seeing,
       f.o_retries_60s, f.o_retries_1s, f.o_successes_60s, f.o_successes_5s
  from breakers_flush_v1(@replica, @acquirers, @seqs, @epochs, @attempts, @failures, @slow, @successes, @windows, @window_counts) f`

func (s store) flush(ctx context.Context, b batch) ([]flushed, error) {
	rows, err := s.db.Query(ctx, flushOutcomes, pgx.NamedArgs{
		"replica": s.replica, "acquirers": b.acquirers, "seqs": b.seqs, "epochs": b.epochs, "attempts": b.attempts,
		"failures": b.failures, "slow": b.slow, "successes": b.successes, "windows": b.windows, "window_counts": b.windowCounts,
	})
	if err != nil {
		return nil, err
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByName[flushed])
	for i := range all {
		if err == nil {
			all[i].row, err = parseRow(all[i].Row)
		}
	}
	return all, err
}

// changed runs a statement that gives whether it did what was asked, and the row as it is now.
func (s store) changed(ctx context.Context, sql string, args pgx.NamedArgs) (done bool, r row, err error) {
	var text string
	if err := s.db.QueryRow(ctx, sql, args).Scan(&done, &text); err != nil {
		return false, row{}, err
	}
	r, err = parseRow(text)
	return done && err == nil, r, err
}

const openBreaker = `select o.o_done, o.o_row from breaker_open_v1(@acquirer, @epoch, @open_for_ms, @reopenings, @reason, @replica) o`

// open opens a breaker that is closed in that epoch.
func (s store) open(ctx context.Context, acquirer string, epoch uint64, openFor time.Duration, reopenings int, reason string) (bool, row, error) {
	return s.changed(ctx, openBreaker, pgx.NamedArgs{
		"acquirer": acquirer, "epoch": int64(epoch), "open_for_ms": openFor.Milliseconds(), "reopenings": reopenings,
		"reason": reason, "replica": s.replica,
	})
}

const claimProbe = `select c.o_done, c.o_row from breaker_claim_v1(@acquirer, @replica, @lease_ms, @seen) c`

// claim takes the probe, if it is due and free.
func (s store) claim(ctx context.Context, acquirer string, lease time.Duration, seen uint64) (bool, row, error) {
	return s.changed(ctx, claimProbe, pgx.NamedArgs{
		"acquirer": acquirer, "replica": s.replica, "lease_ms": lease.Milliseconds(), "seen": int64(seen),
	})
}

// finish is what came of a probe.
type finish struct {
	acquirer  string
	epoch     uint64
	result    string // close, open or release
	openFor   time.Duration
	successes int
	reason    string
}

const finishProbe = `select f.o_done, f.o_row from breaker_finish_v1(@acquirer, @epoch, @replica, @result, @open_for_ms, @successes, @reason) f`

// finish is false if the probe was not ours any more.
func (s store) finish(ctx context.Context, f finish) (bool, row, error) {
	return s.changed(ctx, finishProbe, pgx.NamedArgs{
		"acquirer": f.acquirer, "epoch": int64(f.epoch), "replica": s.replica, "result": f.result,
		"open_for_ms": f.openFor.Milliseconds(), "successes": f.successes, "reason": f.reason,
	})
}

// forceBreaker is one statement, so that no order goes without its record, nor a record without its order.
const forceBreaker = `
select audit_append_v1(clock_timestamp(), @actor, 'breaker.force', @acquirer, @detail, @act),
       breaker_force_v1(@acquirer, @mode, @why, @replica, @seen)`

// orders are the words for a mode in the audit log.
var orders = map[resilience.Mode]string{
	resilience.ForcedOpen: "open", resilience.ForcedClosed: "close", resilience.Automatic: "auto",
}

func (s store) force(ctx context.Context, acquirer string, o resilience.Order, seen uint64) (row, error) {
	_, r, err := s.changed(ctx, forceBreaker, pgx.NamedArgs{
		"acquirer": acquirer, "mode": string(o.Mode), "why": o.Reason(), "replica": s.replica, "seen": int64(seen),
		"actor": o.Actor, "detail": orders[o.Mode] + ": " + o.Why, "act": o.Act,
	})
	return r, err
}

// grant is the answer to a wish for retries.
type grant struct {
	Granted      int64 `db:"o_granted"`
	Retries60s   int64 `db:"o_retries_60s"`
	Limit60s     int64 `db:"o_limit_60s"`
	Retries1s    int64 `db:"o_retries_1s"`
	Limit1s      int64 `db:"o_limit_1s"`
	Successes60s int64 `db:"o_successes_60s"`
	WaitMS       int64 `db:"o_wait_ms"` // until the oldest retry leaves its window
}

const takeRetries = `
select t.o_granted, t.o_retries_60s, t.o_limit_60s, t.o_retries_1s, t.o_limit_1s, t.o_successes_60s, t.o_wait_ms
  from retry_take_v1(@acquirer, @wanted, @floor, @percent, @burst_floor) t`

func (s store) take(ctx context.Context, acquirer string, wanted int, c resilience.BudgetConfig) (grant, error) {
	rows, err := s.db.Query(ctx, takeRetries, pgx.NamedArgs{
		"acquirer": acquirer, "wanted": wanted, "floor": c.Floor, "percent": c.Percent, "burst_floor": c.BurstFloor,
	})
	if err != nil {
		return grant{}, err
	}
	return pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[grant])
}

const pruneWindows = `select resilience_prune_v1()`

func (s store) prune(ctx context.Context) error {
	_, err := s.db.Exec(ctx, pruneWindows)
	return err
}

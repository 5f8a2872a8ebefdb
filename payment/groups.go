package payment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"paymentsd/idempotency"
	"paymentsd/internal/groupcommit"
	"paymentsd/internal/postgres"
	"paymentsd/merchant"
	"paymentsd/resilience"
)

// Groups says how T1 and T2 of many requests share commits (docs/decisions/0012). What is 0 has a default.
type Groups struct {
	// Writers is how many groups of T1, and how many of T2, may be on their way at once; each needs
	// one connection.
	Writers int
	// RowsMax is how many requests one commit holds at most.
	RowsMax int
	// QueueMax is how many requests may wait for T1; beyond it they are refused. As many may wait for T2.
	QueueMax int
	// OneMerchant keeps the rows of different merchants in commits of their own: on Citus.
	OneMerchant bool
}

// The defaults of Groups.
const (
	WritersDefault  = 2
	RowsMaxDefault  = 128
	QueueMaxDefault = 4096
)

func (g Groups) orDefault() Groups {
	g.Writers = cmp.Or(g.Writers, WritersDefault)
	g.RowsMax = cmp.Or(g.RowsMax, RowsMaxDefault)
	g.QueueMax = cmp.Or(g.QueueMax, QueueMaxDefault)
	return g
}

const (
	// slowGroup is when a group is taken for stuck, and its writer is replaced. Up to slowMax may be.
	slowGroup = 250 * time.Millisecond
	slowMax   = 4
)

// ReasonQueueFull: more requests wait to be written than may.
const ReasonQueueFull resilience.Reason = "write_queue_full"

// beginning is one T1 on its way through a queue, conclusion one T2.
type beginning struct {
	charge      Charge
	fingerprint idempotency.Fingerprint
}

type conclusion struct {
	charge Charge
	fence  int64
	last   ending
	frozen idempotency.Response
}

// queues are where T1 and T2 form groups.
type queues struct {
	begin  *groupcommit.Queue[beginning, claim]
	finish *groupcommit.Queue[conclusion, string]
}

func (s *Service) openQueues(g Groups) {
	g = g.orDefault()
	begin := groupcommit.Config[beginning, claim]{
		Flushers: g.Writers, GroupMax: g.RowsMax, QueueMax: g.QueueMax, TimeMax: s.storeMax,
		Slow: slowGroup, SlowMax: slowMax, Split: oneRowToBlame,
		Open: func(ctx context.Context) (groupcommit.Writer[beginning, claim], error) {
			conn, err := s.pool.Acquire(ctx)
			return beginWriter{s, conn}, err
		},
	}
	finish := groupcommit.Config[conclusion, string]{
		Flushers: g.Writers, GroupMax: g.RowsMax, QueueMax: g.QueueMax, TimeMax: s.storeMax,
		Slow: slowGroup, SlowMax: slowMax, Split: oneRowToBlame,
		Open: func(ctx context.Context) (groupcommit.Writer[conclusion, string], error) {
			conn, err := s.pool.Acquire(ctx)
			return finishWriter{s, conn}, err
		},
	}
	if g.OneMerchant {
		begin.Scope = func(b beginning) int64 { return int64(b.charge.Merchant) }
		finish.Scope = func(c conclusion) int64 { return int64(c.charge.Merchant) }
	}
	s.queues = queues{begin: groupcommit.New(begin), finish: groupcommit.New(finish)}
}

// Close refuses new charges and waits until what was handed over is written.
func (s *Service) Close() {
	s.queues.begin.Close()
	s.queues.finish.Close()
}

// beginWriter writes groups of T1 on one connection, finishWriter groups of T2.
type beginWriter struct {
	s    *Service
	conn *pgxpool.Conn
}

func (w beginWriter) Close() { w.conn.Release() }

type finishWriter struct {
	s    *Service
	conn *pgxpool.Conn
}

func (w finishWriter) Close() { w.conn.Release() }

// oneRowToBlame reports an error that one row may have brought over its group, of which nothing is written:
// its values (22), a constraint (23), a rule of ours (PD), or a lock that somebody holds (55P03).
func oneRowToBlame(err error) bool {
	state := postgres.SQLState(err)
	return state == "55P03" || (len(state) == 5 && (state[:2] == "22" || state[:2] == "23" || state[:2] == "PD"))
}

// byMerchant divides a group into runs of one merchant each, in the order in which all groups
// take their locks: merchant, key. It gives indexes into the group.
func byMerchant[T any](group []T, of func(*T) *Charge) (runs [][]int) {
	order := make([]int, len(group))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		x, y := of(&group[a]), of(&group[b])
		return cmp.Or(cmp.Compare(x.Merchant, y.Merchant), cmp.Compare(x.IdempotencyKey, y.IdempotencyKey))
	})
	for from := 0; from < len(order); {
		to := from + 1
		for to < len(order) && of(&group[order[to]]).Merchant == of(&group[order[from]]).Merchant {
			to++
		}
		runs = append(runs, order[from:to])
		from = to
	}
	return runs
}

// writeGroup sends what statement makes of each merchant's rows, in one flight and one commit.
func writeGroup[T any](ctx context.Context, s *Service, conn *pgx.Conn, step string, group []T, hurry bool, of func(*T) *Charge, statement func(m merchant.ID, rows []int, hurry bool) postgres.Statement) error {
	s.fault(faultGroupFormed)
	began := s.now()
	var statements []postgres.Statement
	runs := byMerchant(group, of)
	for _, rows := range runs {
		// Among several the transaction sees to the hurry, a single one has to itself.
		statements = append(statements, statement(of(&group[rows[0]]).Merchant, rows, hurry && len(runs) == 1))
	}
	if err := postgres.InOneFlight(ctx, conn, statements, hurry, func() { s.fault(faultGroupSent) }); err != nil {
		return err
	}
	s.fault(faultGroupWritten)
	s.observer.GroupWritten(step, len(group), s.now().Sub(began))
	return nil
}

// readRows scans each row of an answer, which begins with the row's place in its group, counted from 1.
func readRows(n int, scan func(rows pgx.Rows) (place int, err error)) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		seen := 0
		for ; rows.Next(); seen++ {
			place, err := scan(rows)
			if err != nil {
				return err
			}
			if place < 1 || place > n {
				return fmt.Errorf("an answer for row %d of %d", place, n)
			}
		}
		if err := rows.Err(); err != nil {
			return err
		}
		if seen != n {
			return fmt.Errorf("%d answers for %d rows", seen, n)
		}
		return nil
	}
}

// notWritten says why T1 was not even tried. It is not "not executed": whether the key is in use was not
// looked up, because the store has enough to do.
func notWritten(err error) error {
	switch {
	case errors.Is(err, groupcommit.ErrLate):
		err = &resilience.Rejection{Reason: resilience.DeadlineTooShort, Detail: "the caller's time was up before the store was free"}
	case errors.Is(err, groupcommit.ErrFull):
		err = &resilience.Rejection{
			Reason: ReasonQueueFull, Detail: "too many charges wait to be written", RetryAfter: failedRetryAfter,
		}
	}
	return &UnavailableError{Cause: err}
}

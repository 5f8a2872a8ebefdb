package payment

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"paymentsd/acquirer"
	"paymentsd/internal/postgres"
	"paymentsd/merchant"
	"paymentsd/resilience"
	"paymentsd/resilience/advice"
)

// TrafficQuery says which attempts to read: those that began in [From, To), to whole seconds.
type TrafficQuery struct {
	From, To time.Time
	// Progress, if set, is told after each merchant how many of them, and how many attempts, were read.
	Progress func(merchants int, attempts int64)
}

const (
	// trafficSlice is what one statement reads of one merchant.
	trafficSlice = 7 * 24 * time.Hour
	// trafficMax bounds the seconds that are held, some bytes each.
	trafficMax = 366 * 24 * time.Hour
	// chargeMax is longer than a charge takes from its id to the beginning of its last attempt.
	chargeMax = time.Hour
)

// Traffic reads what every acquirer was asked in a period, by name. It decides nothing about money.
//
// Attempts have no index by time and need none here: a merchant's charge ids sort by time, so that the
// primary key finds its attempts of a week, however many there are of other weeks. One read-only
// transaction, each statement with a snapshot of its own: what ends meanwhile may be in or not.
//
// What a row measures: from before the write that begins the attempt (T1, or the failover) until the last
// answer is in hand, before the write that ends it. So the time of a row with one call is that call's, plus one
// write to Postgres, the wait for a slot of the bulkhead, and an inquiry if the answer was unclear; it is never
// shorter than the call. A row with more calls holds their waits, too, and is not used for times. Only the last
// answer of an attempt is on record: the calls before it were tried again, and count as failed. Attempts
// that a sweep ended, or that still run, count no calls.
func (r *Resolver) Traffic(ctx context.Context, q TrafficQuery) ([]advice.Traffic, error) {
	q.From, q.To = q.From.UTC().Truncate(time.Second), q.To.UTC().Truncate(time.Second)
	if length := q.To.Sub(q.From); length <= 0 || length > trafficMax {
		return nil, fmt.Errorf("read the traffic: %v to %v is not a period of at most %v", q.From, q.To, trafficMax)
	}
	if q.Progress == nil {
		q.Progress = func(int, int64) {}
	}
	t := &traffic{TrafficQuery: q, byName: map[string]*advice.Traffic{}, bounds: advice.Bounds()}
	err := pgx.BeginTxFunc(ctx, r.pool, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		for m, count := merchant.ID(-1), 1; ; count++ {
			var ok bool
			var err error
			if m, ok, err = nextMerchant(ctx, tx, m); err != nil || !ok {
				return err
			}
			for from := q.From; from.Before(q.To); from = from.Add(trafficSlice) {
				if err := t.read(ctx, tx, m, from, earlier(from.Add(trafficSlice), q.To)); err != nil {
					return fmt.Errorf("read the traffic of merchant %s from %v: %w", m.Code(), from, err)
				}
			}
			q.Progress(count, t.attempts)
		}
	})
	return t.sorted(), err
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// traffic is what was read so far.
type traffic struct {
	TrafficQuery
	byName   map[string]*advice.Traffic
	bounds   []time.Duration
	attempts int64
}

func (t *traffic) of(name string) *advice.Traffic {
	if t.byName[name] == nil {
		t.byName[name] = &advice.Traffic{
			Acquirer: name, CallsBySecond: make([]uint32, t.To.Sub(t.From)/time.Second), Refused: map[resilience.Reason]int64{},
		}
	}
	return t.byName[name]
}

func (t *traffic) sorted() []advice.Traffic {
	all := make([]advice.Traffic, 0, len(t.byName))
	for _, one := range t.byName {
		all = append(all, *one)
	}
	slices.SortFunc(all, func(a, b advice.Traffic) int { return cmp.Compare(a.Acquirer, b.Acquirer) })
	return all
}

// trafficOf groups attempts twice: by the second in which they began, and by the bucket of their time,
// which is -1 where it is not one answered call's. The last answer counts as failed if it proves nothing or
// the acquirer could not be reached, unless its status is a refusal of the request.
const trafficOf = `
select a.acquirer, a.second, a.bucket, a.reason, count(*), sum(a.calls), sum(greatest(a.calls - 1, 0)), count(*) filter (where a.failed)
  from (
    select a.acquirer, a.calls, date_trunc('second', a.started_at) as second,
           case when a.reason = any(@reasons::text[]) then a.reason else '' end as reason,
           case when a.calls = 1 and a.state = any(@certain::text[])
                then width_bucket(a.finished_at - a.started_at, @bounds::interval[]) else -1 end as bucket,
           a.calls > 0 and case a.state when 'unclear' then coalesce(a.http_status, 0) not between 400 and 499
             when 'refused' then a.http_status >= 500 else a.state = 'not_sent' end as failed
      from attempts a
     where a.merchant_id = @merchant and a.charge_id >= @low and a.charge_id < @high
       and a.started_at >= @from and a.started_at < @to and a.state <> 'started') a
 group by grouping sets ((a.acquirer, a.second), (a.acquirer, a.bucket, a.reason))`

// read adds a merchant's attempts of a slice.
func (t *traffic) read(ctx context.Context, db postgres.DB, m merchant.ID, from, to time.Time) error {
	rows, err := db.Query(ctx, trafficOf, t.args(m, from, to))
	if err != nil {
		return err
	}
	var name string
	var second *time.Time // of the first grouping
	var bucket *int       // of the second
	var reason *string    // of the second
	var attempts, calls, retries, lastFailed int64
	_, err = pgx.ForEachRow(rows, []any{&name, &second, &bucket, &reason, &attempts, &calls, &retries, &lastFailed}, func() error {
		one := t.of(name)
		if second != nil {
			one.CallsBySecond[second.Sub(t.From)/time.Second] += uint32(calls)
			return nil
		}
		t.attempts += attempts
		one.Attempts += attempts
		one.Calls += calls
		one.Retries += retries
		one.Failures += retries + lastFailed // a call that was followed by another had failed
		if *bucket >= 0 {
			one.Answered.Add(*bucket, attempts)
		}
		if *reason != "" {
			one.Refused[resilience.Reason(*reason)] += attempts
		}
		return nil
	})
	return err
}

func (t *traffic) args(m merchant.ID, from, to time.Time) pgx.NamedArgs {
	return pgx.NamedArgs{
		"merchant": m, "low": lowestChargeID(m, from.Add(-chargeMax)), "high": lowestChargeID(m, to.Add(time.Millisecond)),
		"from": from, "to": to, "bounds": t.bounds,
		"certain": []string{string(acquirer.Captured), string(acquirer.Declined), string(acquirer.Rejected)},
		"reasons": []string{string(resilience.CircuitOpen), string(resilience.BudgetSpent), string(resilience.BulkheadFull)},
	}
}

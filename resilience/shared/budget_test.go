package shared

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"paymentsd/internal/pgtest"
	"paymentsd/resilience"
)

// budgets is n replicas with a budget.
func budgets(tb testing.TB, n int, budget resilience.BudgetConfig) (*pgtest.DB, []*Shared) {
	tb.Helper()
	db := pgtest.New(tb)
	all := make([]*Shared, n)
	for i := range all {
		c := config(db.ServiceURL(), quick())
		c.Acquirers[0].Budget = budget
		all[i] = open(tb, c)
	}
	return db, all
}

// grab has every replica take from the budget at once until nobody gets anything for rounds in a row.
func grab(all []*Shared, callers, rounds int) int64 {
	var granted atomic.Int64
	var each sync.WaitGroup
	for _, s := range all {
		for range callers {
			each.Go(func() {
				for misses := 0; misses < rounds; {
					refused := s.Budget("north").Take(context.Background())
					switch {
					case refused == nil:
						granted.Add(1)
					default:
						misses++
						time.Sleep(denialLife) // as long as a denial stands, asking again asks nobody
					}
				}
			})
		}
	}
	each.Wait()
	return granted.Load()
}

// succeeded puts successes of the given age on record.
func succeeded(tb testing.TB, db *pgtest.DB, n int, secondsAgo int) {
	tb.Helper()
	const add = `insert into outcome_windows (acquirer, replica, seq, epoch, sec, attempts, failures, slow, successes)
	  values ('north', 'before', $2, 1, floor(extract(epoch from clock_timestamp()))::bigint - $2, 0, 0, 0, $1)`
	if _, err := db.Pool.Exec(context.Background(), add, n, secondsAgo); err != nil {
		tb.Fatal(err)
	}
}

func TestBudget(t *testing.T) {
	t.Parallel()
	t.Run("resilience case 31: no success at all: exactly 10 a minute in the whole cluster, one a second", func(t *testing.T) {
		t.Parallel()
		db, all := budgets(t, 12, resilience.DefaultBudget())
		eventually(t, "the minute's rule refuses", func() bool {
			for _, s := range all {
				if refused := s.Budget("north").Take(t.Context()); refused != nil && strings.Contains(refused.Detail, "of 10 retries in 60s") {
					return true
				}
			}
			return false
		})
		if got := query[int](t, db, `select sum(retries) from retry_windows`); got != 10 {
			t.Errorf("%d retries, want 10", got)
		}
		if got := query[int](t, db, mostInASecond); got != 1 {
			t.Errorf("%d retries within one second, want 1", got)
		}
		// It refills as the first leave the window, and with the successes that follow.
		if _, err := db.Pool.Exec(t.Context(), `update retry_windows set tick = tick - 601`); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it refills", func() bool { return all[0].Budget("north").Take(t.Context()) == nil })
	})
	t.Run("resilience case 32: a refusal says that we refuse, and with what numbers; the acquirer's answer stands", func(t *testing.T) {
		t.Parallel()
		_, all := budgets(t, 2, resilience.BudgetConfig{Floor: 1, BurstFloor: 5})
		eventually(t, "the one retry is granted", func() bool { return all[0].Budget("north").Take(t.Context()) == nil })
		report := chainOf(t, all[1]).Do(t.Context(), resilience.Critical, func(context.Context, int) resilience.Verdict {
			return resilience.Verdict{Outcome: resilience.Failure, Retry: true}
		})
		if report.Refused == nil || report.Refused.Reason != resilience.BudgetSpent || report.Calls != 1 || report.Last.Outcome != resilience.Failure {
			t.Fatalf("report %+v", report)
		}
		if got := report.Refused; got.Detail != "1 of 1 retries in 60s used by all replicas, 0 successes" || got.RetryAfter < time.Second {
			t.Errorf("refused with %v", got)
		}
		if refused := all[1].Budget("north").Spent(); refused == nil || refused.Reason != resilience.BudgetSpent {
			t.Errorf("spent: %v", refused)
		}
		flushes(t, all[0])
		want := resilience.BudgetSnapshot{Retries60s: 1, Limit60s: 1, Limit1s: 5}
		got := all[0].Budget("north").Snapshot()
		if got.Retries1s = 0; got != want {
			t.Errorf("snapshot %+v, want %+v", got, want)
		}
		if refused := all[0].Budget("north").Spent(); refused == nil { // known from the flush: it was never refused
			t.Error("spent, and Spent does not know")
		}
	})
	for _, c := range []struct {
		name      string
		successes int
		want      int64
	}{{"the floor", 0, 10}, {"ten percent", 1000, 100}, {"ten percent of a lot", 4800, 480}} {
		t.Run(fmt.Sprintf("resilience case 33: 12 replicas at once take %s and no more: %d", c.name, c.want), func(t *testing.T) {
			t.Parallel()
			// The burst rule is out of the way: the minute's has to hold by itself.
			db, all := budgets(t, 12, resilience.BudgetConfig{Floor: 10, Percent: 10, BurstFloor: 1_000_000})
			if c.successes > 0 {
				succeeded(t, db, c.successes, 1)
			}
			granted := grab(all, 8, 3)
			if onRecord := query[int64](t, db, `select sum(retries) from retry_windows`); onRecord != c.want || granted > c.want || granted < c.want*9/10 {
				t.Errorf("%d granted, %d on record, want %d", granted, onRecord, c.want)
			}
		})
	}
	t.Run("12 replicas never take more than the rule allows in any second", func(t *testing.T) {
		t.Parallel()
		db, all := budgets(t, 12, resilience.BudgetConfig{Floor: 1_000_000, Percent: 0, BurstFloor: 20})
		granted := grab(all, 4, 12) // for three seconds at least
		most, onRecord := query[int64](t, db, mostInASecond), query[int64](t, db, `select sum(retries) from retry_windows`)
		if most != 20 || granted <= 20 || granted > onRecord {
			t.Errorf("%d granted, %d on record, %d in the busiest second; the rule allows 20 a second", granted, onRecord, most)
		}
	})
	t.Run("12 replicas never take more than the rule allows in any minute, while older retries leave it", func(t *testing.T) {
		t.Parallel()
		db, all := budgets(t, 12, resilience.BudgetConfig{Floor: 40, Percent: 0, BurstFloor: 1_000_000})
		// The minute is full. Its first retries leave it in half a second, its last in four seconds.
		const full = `insert into retry_windows (acquirer, tick, retries)
		  select 'north', floor(extract(epoch from clock_timestamp()) * 10)::bigint - 600 + n * 4, 4 from generate_series(1, 10) n`
		if _, err := db.Pool.Exec(t.Context(), full); err != nil {
			t.Fatal(err)
		}
		granted := grab(all, 4, 24) // for six seconds at least
		most, onRecord := query[int64](t, db, mostInAMinute), query[int64](t, db, `select sum(retries) from retry_windows`)
		if most != 40 || onRecord != 80 || granted > 40 || granted < 36 {
			t.Errorf("%d granted, %d on record, %d in the busiest minute; the rule allows 40 a minute, and 40 were there before", granted, onRecord, most)
		}
	})
	t.Run("the rule in the database is the rule of the policy", func(t *testing.T) {
		t.Parallel()
		db := pgtest.New(t)
		st := store{db: db.Pool}
		for i, c := range []struct{ ago1, ago4, ago10, ago70 int }{{0, 0, 0, 0}, {99, 0, 0, 0}, {50, 50, 100, 0}, {0, 490, 5000, 1000}, {100, 150, 7, 100000}} {
			name := fmt.Sprintf("acquirer%d", i)
			for ago, n := range map[int]int{1: c.ago1, 3: c.ago4, 10: c.ago10, 70: c.ago70} {
				const add = `insert into outcome_windows (acquirer, replica, seq, epoch, sec, attempts, failures, slow, successes)
				  values ($1, '', $2, 1, floor(extract(epoch from clock_timestamp()))::bigint - $2, 0, 0, 0, $3)`
				if _, err := db.Pool.Exec(t.Context(), add, name, ago, n); err != nil {
					t.Fatal(err)
				}
			}
			for _, cfg := range []resilience.BudgetConfig{resilience.DefaultBudget(), {Floor: 0, Percent: 33, BurstFloor: 0}, {Floor: 7, Percent: 100, BurstFloor: 3}} {
				g, err := st.take(t.Context(), name, 0, cfg)
				if err != nil {
					t.Fatal(err)
				}
				in60s, in1s := cfg.Limits(int64(c.ago1+c.ago4+c.ago10), int64(c.ago1+c.ago4))
				if g.Limit60s != in60s || g.Limit1s != in1s {
					t.Errorf("%+v under %+v: limits %d and %d, want %d and %d", c, cfg, g.Limit60s, g.Limit1s, in60s, in1s)
				}
			}
		}
	})
	t.Run("callers who want at once share a statement, and a denial is not asked for twice", func(t *testing.T) {
		t.Parallel()
		db := pgtest.New(t)
		seen := &statements{}
		c := config(db.ServiceURL(), quick())
		c.Tracer = seen
		c.Acquirers[0].Budget = resilience.BudgetConfig{Floor: 0, BurstFloor: 0}
		s := open(t, c)
		var refusals atomic.Int64
		began := time.Now()
		storm(200, func() {
			if s.Budget("north").Take(context.Background()) != nil {
				refusals.Add(1)
			}
		})
		took := time.Since(began)
		asked := 0
		for _, sql := range seen.seen() {
			if sql == takeRetries {
				asked++
			}
		}
		if most := 1 + int(took/denialLife); refusals.Load() != 200 || asked > most {
			t.Errorf("%d refusals of 200, %d statements in %v, want at most %d", refusals.Load(), asked, took, most)
		}
	})
	t.Run("a caller who leaves while another asks is told so, and wastes nothing", func(t *testing.T) {
		t.Parallel()
		s := &Shared{start: time.Now()}
		b := &Budget{acquirer: "north", shared: s, asking: make(chan struct{})}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if refused := b.Take(ctx); refused == nil || refused.Reason != resilience.CallerGone || b.waiting != 0 {
			t.Errorf("refused with %v, %d waiting", refused, b.waiting)
		}
		b.asking, b.tokens, b.tokensUntil = nil, 2, time.Hour
		if refused := b.Take(t.Context()); refused != nil || b.tokens != 1 {
			t.Errorf("a token in hand: %v, %d left", refused, b.tokens)
		}
	})
}

// mostInASecond and mostInAMinute are the busiest ones, however they lie: a second touches at most eleven
// tenths in a row, and a minute 601.
const (
	mostInASecond = `
select max(n) from (select sum(b.retries) as n from retry_windows a join retry_windows b on b.tick between a.tick and a.tick + 10 group by a.tick) s`
	mostInAMinute = `
select max(n) from (select sum(b.retries) as n from retry_windows a join retry_windows b on b.tick between a.tick and a.tick + 600 group by a.tick) s`
)

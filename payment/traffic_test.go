package payment

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"paymentsd/acquirer"
	"paymentsd/merchant"
	"paymentsd/resilience"
	"paymentsd/resilience/advice"
)

// asked is an attempt as it stands in the table, and whose.
type asked struct {
	merchant merchant.ID
	n        int
	acquirer string
	state    acquirer.Class // "started" while it runs
	calls    int
	status   int
	reason   string
	at       time.Time
	took     time.Duration
	charged  time.Duration // its charge began so much earlier
}

// seedAttempts writes attempts past the charge path, with a charge each.
func (b *books) seedAttempts(t *testing.T, all []asked) {
	t.Helper()
	var charges, attempts [][]any
	for i, a := range all {
		created := a.at.Add(-a.charged)
		id, key := NewChargeID(a.merchant, created), fmt.Sprintf("%d-%d", a.at.UnixMicro(), i)
		charges = append(charges, []any{a.merchant, id, key, 0, AcqRef(a.merchant, key, 0), "1.00", "USD", false, "tok_ok", "pending", a.acquirer, created, created})
		var finished *time.Time
		if a.state != "started" {
			end := a.at.Add(a.took)
			finished = &end
		}
		attempts = append(attempts, []any{a.merchant, id, max(a.n, 1), a.acquirer, string(a.state), a.calls, optionalInt(a.status), optional(a.reason), a.at, finished})
	}
	b.copyRows(t, "charges", []string{"merchant_id", "charge_id", "idempotency_key", "generation", "acq_ref", "amount", "currency",
		"allow_concurrent", "payment_method", "status", "acquirer", "created_at", "updated_at"}, charges)
	b.copyRows(t, "attempts", []string{"merchant_id", "charge_id", "n", "acquirer", "state", "calls", "http_status", "reason", "started_at", "finished_at"}, attempts)
}

func (b *books) copyRows(t *testing.T, table string, columns []string, rows [][]any) {
	t.Helper()
	if _, err := b.owner.CopyFrom(t.Context(), pgx.Identifier{table}, columns, pgx.CopyFromRows(rows)); err != nil {
		t.Fatalf("seed %s: %v", table, err)
	}
}

// day is the first of two that the tests look at.
var day = time.Date(2026, 3, 28, 0, 0, 0, 0, time.UTC)

func (b *books) traffic(t *testing.T, from, to time.Time) []advice.Traffic {
	t.Helper()
	all, err := NewResolver(ResolverConfig{Pool: b.db.Pool, Now: time.Now}).Traffic(t.Context(), TrafficQuery{From: from, To: to})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestTrafficCountsWhatABreakerWould(t *testing.T) {
	t.Parallel()
	b := openBooks(t)
	one, other, noon := merchant.ID(7), merchant.ID(700_000_000), day.Add(12*time.Hour)
	const second = time.Second
	b.seedAttempts(t, []asked{
		{one, 1, "north", acquirer.Captured, 1, 201, "", noon, 300 * time.Millisecond, 0},
		{other, 1, "north", acquirer.Declined, 1, 402, "", noon.Add(second - time.Microsecond), 300 * time.Millisecond, 0},
		{one, 1, "north", acquirer.Rejected, 1, 422, "", noon.Add(2 * second), 300 * time.Millisecond, 0},
		// The two calls before the last had failed; its time is not one call's.
		{one, 1, "north", acquirer.Captured, 3, 201, "", noon.Add(3 * second), 4 * second, 0},
		{one, 1, "north", acquirer.Unclear, 1, 0, "unclear", noon.Add(4 * second), 8 * second, 0},
		{one, 1, "north", acquirer.Unclear, 1, 202, "unclear", noon.Add(4 * second), second, 0},
		{one, 1, "north", acquirer.Unclear, 1, 422, "unclear", noon.Add(4 * second), second, 0}, // a refusal is no failure
		{one, 1, "north", acquirer.InProgress, 1, 409, "", noon.Add(4 * second), second, 0},
		{one, 1, "north", acquirer.Refused, 1, 503, "", noon.Add(5 * second), second, 0},
		{one, 1, "north", acquirer.Refused, 2, 429, string(resilience.BudgetSpent), noon.Add(5 * second), second, 0},
		{one, 1, "north", acquirer.NotSent, 1, 0, "not_sent", noon.Add(5 * second), second, 0},
		// Nothing was called: refused by us, running, lost.
		{one, 1, "north", acquirer.NotSent, 0, 0, string(resilience.BulkheadFull), noon.Add(6 * second), second, 0},
		{one, 1, "north", "started", 0, 0, "", noon.Add(6 * second), 0, 0},
		{one, 1, "north", acquirer.Unclear, 0, 0, reasonAbandoned, noon.Add(6 * second), 65 * second, 0},
		// The second attempt of a charge that began the day before.
		{other, 2, "south", acquirer.Captured, 1, 201, "", day.Add(5 * second), second, 20 * second},
		// The edges of the period.
		{one, 1, "south", acquirer.Captured, 1, 201, "", day, second, 0},
		{one, 1, "south", acquirer.Captured, 1, 201, "", day.AddDate(0, 0, 2).Add(-time.Microsecond), second, 0},
		{one, 1, "south", acquirer.Captured, 1, 201, "", day.Add(-time.Microsecond), second, 0},
		{one, 1, "south", acquirer.Captured, 1, 201, "", day.AddDate(0, 0, 2), second, 0},
	})
	all := b.traffic(t, day, day.AddDate(0, 0, 2))
	if len(all) != 2 || all[0].Acquirer != "north" || all[1].Acquirer != "south" {
		t.Fatalf("acquirers %+v", all)
	}
	north, south := all[0], all[1]
	got := map[string]int64{"attempts": north.Attempts, "calls": north.Calls, "retries": north.Retries, "failures": north.Failures,
		"answered": north.Answered.Total(), "full": north.Refused[resilience.BulkheadFull], "spent": north.Refused[resilience.BudgetSpent]}
	want := map[string]int64{"attempts": 13, "calls": 14, "retries": 3, "failures": 3 + 4, "answered": 3, "full": 1, "spent": 1}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("north (- want, + got):\n%s", diff)
	}
	if p := north.Answered.Quantile(99, 100); p < 300*time.Millisecond || p > 330*time.Millisecond {
		t.Errorf("p99 of north is %v", p)
	}
	if diff := cmp.Diff(map[int]uint32{43200: 2, 43202: 1, 43203: 3, 43204: 4, 43205: 4}, bySecond(north)); diff != "" {
		t.Errorf("calls of north by second (- want, + got):\n%s", diff)
	}
	if diff := cmp.Diff(map[int]uint32{0: 1, 5: 1, 2*86400 - 1: 1}, bySecond(south)); diff != "" {
		t.Errorf("calls of south by second (- want, + got):\n%s", diff)
	}
}

func bySecond(t advice.Traffic) map[int]uint32 {
	busy := map[int]uint32{}
	for i, n := range t.CallsBySecond {
		if n > 0 {
			busy[i] = n
		}
	}
	return busy
}

func TestTrafficOfNothing(t *testing.T) {
	t.Parallel()
	b := openBooks(t)
	if all := b.traffic(t, day, day.AddDate(0, 0, 1)); len(all) != 0 {
		t.Errorf("%+v", all)
	}
	r := NewResolver(ResolverConfig{Pool: b.db.Pool, Now: time.Now})
	for _, to := range []time.Time{day, day.Add(-time.Hour), day.AddDate(2, 0, 0)} {
		if _, err := r.Traffic(t.Context(), TrafficQuery{From: day, To: to}); err == nil {
			t.Errorf("%v to %v is taken for a period", day, to)
		}
	}
}

func TestTrafficTellsHowFarItIs(t *testing.T) {
	t.Parallel()
	b := openBooks(t)
	b.seedAttempts(t, []asked{
		{3, 1, "north", acquirer.Captured, 1, 201, "", day, time.Second, 0},
		{9, 1, "north", acquirer.Captured, 1, 201, "", day.AddDate(0, 0, 10), time.Second, 0}, // the second slice
		{9, 1, "north", acquirer.Captured, 1, 201, "", day.AddDate(0, 0, -1), time.Second, 0},
	})
	var told []string
	_, err := NewResolver(ResolverConfig{Pool: b.db.Pool, Now: time.Now}).Traffic(t.Context(), TrafficQuery{
		From: day, To: day.AddDate(0, 0, 14), Progress: func(m int, n int64) { told = append(told, fmt.Sprint(m, " ", n)) },
	})
	if err != nil || strings.Join(told, ", ") != "1 1, 2 2" {
		t.Errorf("told %q (%v)", told, err)
	}
}

// The buckets of Postgres and of package advice are the same: a time just below a bound and at it.
func TestTrafficFillsTheBucketsOfAdvice(t *testing.T) {
	t.Parallel()
	b := openBooks(t)
	var seeded []asked
	bounds := advice.Bounds()
	for i, bound := range bounds {
		at := day.Add(time.Duration(i) * time.Second)
		seeded = append(seeded,
			asked{1, 1, fmt.Sprintf("b%03d-below", i), acquirer.Captured, 1, 201, "", at, bound - time.Microsecond, 0},
			asked{1, 1, fmt.Sprintf("b%03d-from", i), acquirer.Captured, 1, 201, "", at, bound, 0})
	}
	seeded = append(seeded, asked{1, 1, "clock-back", acquirer.Captured, 1, 201, "", day, -time.Second, 0})
	b.seedAttempts(t, seeded)
	for _, one := range b.traffic(t, day, day.AddDate(0, 0, 1)) {
		want := bounds[0]
		var i int
		var side string
		if _, err := fmt.Sscanf(one.Acquirer, "b%03d-%s", &i, &side); err == nil {
			want = bounds[min(i+map[string]int{"from": 1}[side], len(bounds)-1)]
		}
		if got := one.Answered.Quantile(1, 1); got != want {
			t.Errorf("%s: %v, want %v", one.Acquirer, got, want)
		}
	}
}

// slowly captures after a while.
type slowly struct {
	acquirer.Acquirer
	wait time.Duration
}

func (s slowly) Capture(_ context.Context, r acquirer.CaptureRequest) acquirer.Answer {
	time.Sleep(s.wait)
	return acquirer.Answer{Class: acquirer.Captured, CaptureID: "cap_" + r.Ref, HTTPStatus: 201}
}

func (slowly) Capabilities() acquirer.Capabilities { return acquirer.Capabilities{} }

func TestAnAttemptIsNeverShorterThanItsCall(t *testing.T) {
	t.Parallel()
	const wait = 40 * time.Millisecond
	s := openShop(t, []named{{"north", slowly{wait: wait}, plainly()}})
	if result, err := s.Charge(t.Context(), s.request("k")); err != nil || result.Charge.Status != Captured {
		t.Fatalf("%+v, %v", result, err)
	}
	now := time.Now()
	all := s.traffic(t, now.Add(-time.Hour), now.Add(time.Minute))
	if len(all) != 1 || all[0].Calls != 1 || all[0].Answered.Total() != 1 {
		t.Fatalf("%d acquirers", len(all))
	}
	if got := all[0].Answered.Quantile(1, 2); got < wait {
		t.Errorf("the row says %v, the call took %v", got, wait)
	}
}

// However long the history, only the period is read: by the primary key, since nothing else knows the time.
func TestTrafficFindsADayByThePrimaryKey(t *testing.T) {
	t.Parallel()
	b := openBooks(t)
	var seeded []asked
	for i := range 10_000 {
		at := day.AddDate(0, 0, -i%300).Add(time.Duration(i) * time.Second / 4)
		seeded = append(seeded, asked{merchant.ID(i % 7), 1, "north", acquirer.Captured, 1, 201, "", at, time.Second, 0})
	}
	b.seedAttempts(t, seeded)
	if _, err := b.owner.Exec(t.Context(), "analyze charges, attempts"); err != nil {
		t.Fatal(err)
	}
	read := &traffic{bounds: advice.Bounds()}
	rows, err := b.db.Pool.Query(t.Context(), "explain "+trafficOf, read.args(3, day, day.AddDate(0, 0, 1)))
	if err != nil {
		t.Fatal(err)
	}
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if text := strings.Join(plan, "\n"); err != nil || !strings.Contains(text, "attempts_pkey") || strings.Contains(text, "Seq Scan") {
		t.Errorf("the plan reads everything (%v):\n%s", err, text)
	}
}

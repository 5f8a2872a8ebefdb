package shared

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"paymentsd/resilience"
)

func TestRule(t *testing.T) {
	t.Parallel()
	t.Run("resilience case 13: 19 of 19 over all replicas stay closed, the 20th opens for all", func(t *testing.T) {
		t.Parallel()
		cfg := shut()
		cfg.MinAttempts = 20
		_, all := cluster(t, 2, cfg)
		record(north(all[0]), resilience.Failure, 10)
		record(north(all[1]), resilience.Failure, 9)
		flushes(t, all...)
		flushes(t, all...)
		for _, s := range all {
			if got := north(s).Snapshot(); got.State != resilience.Closed || got.Tally != (resilience.Tally{Attempts: 19, Failures: 19}) {
				t.Errorf("snapshot %+v", got)
			}
		}
		record(north(all[0]), resilience.Failure, 1)
		inState(t, resilience.Open, all...)
		if got, want := mustRefuse(t, north(all[1])).Detail, "failure rate 1.00 over 20 attempts"; got != want {
			t.Errorf("detail %q, want %q", got, want)
		}
	})
	t.Run("exactly half of all stays closed", func(t *testing.T) {
		t.Parallel()
		_, all := cluster(t, 2, shut())
		record(north(all[0]), resilience.Success, 40)
		flushes(t, all...)
		record(north(all[1]), resilience.Failure, 40) // a replica alone would open; two report, so the sums decide
		flushes(t, all...)
		if got := north(all[1]).Snapshot(); got.State != resilience.Closed || got.Attempts != 80 {
			t.Errorf("snapshot %+v", got)
		}
		record(north(all[1]), resilience.Failure, 1)
		inState(t, resilience.Open, all...)
	})
	t.Run("resilience case 16: what the caller cut short does not count, anywhere", func(t *testing.T) {
		t.Parallel()
		_, all := cluster(t, 2, shut())
		record(north(all[0]), resilience.Ignored, 100)
		flushes(t, all...)
		for _, s := range all {
			if got := north(s).Snapshot(); got.State != resilience.Closed || got.Tally != (resilience.Tally{}) {
				t.Errorf("snapshot %+v", got)
			}
		}
	})
	t.Run("resilience case 17: slow successes on two replicas open by the slow rule", func(t *testing.T) {
		t.Parallel()
		cfg := shut()
		cfg.SlowCall = time.Millisecond
		_, all := cluster(t, 2, cfg)
		for _, s := range all {
			for range 5 {
				p, refused := north(s).Acquire(t.Context())
				if refused != nil {
					t.Fatal(refused)
				}
				time.Sleep(2 * time.Millisecond) // the slow call
				north(s).Done(p, resilience.Success)
			}
		}
		inState(t, resilience.Open, all...)
		if got := mustRefuse(t, north(all[0])).Detail; !strings.HasPrefix(got, "slow rate 1.00 over 10 attempts") {
			t.Errorf("detail %q", got)
		}
	})
	t.Run("the seeds' own settings: the last ten outcomes of all replicas, at half or more", func(t *testing.T) {
		t.Parallel()
		cfg := shut()
		cfg.Window, cfg.WindowCount, cfg.MinAttempts = time.Minute, 10, 10
		cfg.Failures = resilience.Share{Num: 1, Den: 2, OrEqual: true}
		db, all := cluster(t, 2, cfg)
		record(north(all[0]), resilience.Success, 100)
		flushes(t, all[0])
		// The newest second that holds ten attempts counts whole: the hundred have to be of an older one.
		before := query[int64](t, db, `select max(sec) from outcome_windows`)
		eventually(t, "the next second", func() bool {
			return query[int64](t, db, `select floor(extract(epoch from clock_timestamp()))::bigint`) > before
		})
		record(north(all[0]), resilience.Success, 5)
		record(north(all[1]), resilience.Failure, 4)
		flushes(t, all...)
		if got := north(all[1]).Snapshot(); got.State != resilience.Closed {
			t.Errorf("snapshot %+v", got)
		}
		record(north(all[1]), resilience.Failure, 6)
		inState(t, resilience.Open, all...)
	})
	t.Run("a flush whose answer was lost is sent again and counts once", func(t *testing.T) {
		t.Parallel()
		_, all := cluster(t, 1, shut())
		send := func(epoch, seq, attempts int64) flushed {
			f, err := all[0].store.flush(t.Context(), batch{
				acquirers: []string{"south"}, seqs: []int64{seq}, epochs: []int64{epoch}, attempts: []int64{attempts}, failures: []int64{0},
				slow: []int64{0}, successes: []int64{attempts}, windows: []int32{60}, windowCounts: []int32{0},
			})
			if err != nil || len(f) != 1 {
				t.Fatal(f, err)
			}
			return f[0]
		}
		send(0, 1, 0) // makes the row
		send(1, 1, 5)
		send(1, 1, 7) // the same, and what came since
		if got := send(1, 2, 3); got.Attempts != 10 || got.Successes60s != 10 {
			t.Errorf("%d attempts, %d successes, want 10 each", got.Attempts, got.Successes60s)
		}
	})
}

func TestSickReplica(t *testing.T) {
	t.Parallel()
	t.Run("resilience case 20: one of four loses its way out: it holds itself back, the others stay closed, and it comes back", func(t *testing.T) {
		t.Parallel()
		db, all := cluster(t, 4, quick())
		sick, healthy := all[0], all[1:]
		for _, s := range healthy {
			record(north(s), resilience.Success, 20)
		}
		flushes(t, healthy...)
		record(north(sick), resilience.Failure, 500) // more than half of all attempts
		eventually(t, "the sick one holds itself back", func() bool { return north(sick).Snapshot().Sharing.HeldBack != "" })
		refused := mustRefuse(t, north(sick))
		if !strings.Contains(refused.Detail, "this replica alone") || !strings.Contains(refused.Detail, "1 of 4 replicas see failures") {
			t.Errorf("detail %q", refused.Detail)
		}
		flushes(t, all...)
		for _, s := range healthy {
			if made := record(north(s), resilience.Success, 10); made != 10 {
				t.Errorf("a healthy replica was refused after %d calls", made)
			}
		}
		failing := takeProbe(t, sick) // its own trial: the breaker is closed
		mustRefuse(t, north(sick))
		north(sick).Done(failing, resilience.Failure)
		mustRefuse(t, north(sick))
		good := takeProbe(t, sick)
		north(sick).Done(failing, resilience.Success) // too late
		if !north(sick).Valid(good) {
			t.Error("a late result ended the trial")
		}
		north(sick).Done(good, resilience.Success)
		if made := record(north(sick), resilience.Success, 10); made != 10 {
			t.Errorf("%d calls after a good trial", made)
		}
		flushes(t, all...)
		if got := north(sick).Snapshot(); got.Sharing.HeldBack != "" || query[int](t, db, `select count(*) from breaker_events`) != 0 {
			t.Errorf("status %+v", got)
		}
	})
	t.Run("resilience case 20: two of four see failures: it opens for all", func(t *testing.T) {
		t.Parallel()
		_, all := cluster(t, 4, shut())
		for _, s := range all[2:] {
			record(north(s), resilience.Success, 1)
		}
		flushes(t, all[2:]...)
		for _, s := range all[:2] {
			record(north(s), resilience.Failure, 8)
		}
		inState(t, resilience.Open, all...)
	})
	for _, c := range []struct {
		reporting, seeing int
		want              bool
	}{{1, 1, true}, {2, 1, true}, {3, 1, false}, {3, 2, true}, {6, 2, true}, {7, 2, false}, {12, 3, false}, {12, 4, true}} {
		if got := (flushed{Reporting: c.reporting, Seeing: c.seeing}).quorum(); got != c.want {
			t.Errorf("%d of %d see failures: quorum %v, want %v", c.seeing, c.reporting, got, c.want)
		}
	}
}

func TestRestart(t *testing.T) {
	t.Parallel()
	t.Run("resilience case 21: all replicas restart while it is open: the open time goes on, and it recovers by itself", func(t *testing.T) {
		t.Parallel()
		cfg := quick()
		cfg.OpenFor, cfg.OpenMax = 2*time.Second, 2*time.Second
		db, all := cluster(t, 2, cfg)
		trip(t, all[0], all...)
		until := query[time.Time](t, db, `select open_until from breakers`)
		for _, s := range all {
			s.Close()
		}
		next := open(t, config(db.ServiceURL(), cfg))
		if got := north(next).Snapshot(); got.State != resilience.Open && got.State != resilience.HalfOpen {
			t.Errorf("snapshot %+v", got)
		}
		if got := query[time.Time](t, db, `select open_until from breakers`); !got.Equal(until) {
			t.Errorf("the restart moved the end of the open time from %v to %v", until, got)
		}
		north(next).Done(takeProbe(t, next), resilience.Success)
		inState(t, resilience.Closed, next)
	})
}

func TestChain(t *testing.T) {
	t.Parallel()
	t.Run("resilience case 23: it opens while others are between tries: they stop, with no sleep", func(t *testing.T) {
		t.Parallel()
		_, all := cluster(t, 2, shut())
		bulkhead, err := resilience.NewBulkhead(resilience.DefaultBulkhead())
		if err != nil {
			t.Fatal(err)
		}
		retry := resilience.DefaultRetry()
		retry.Backoff = resilience.Backoff{Jitter: resilience.JitterNone, Base: time.Hour, Cap: time.Hour}
		chain, err := resilience.NewChain(resilience.ChainConfig{
			Breaker: north(all[1]), Budget: all[1].Budget("north"), Bulkhead: bulkhead, Retry: retry,
		})
		if err != nil {
			t.Fatal(err)
		}
		var once, waiting sync.WaitGroup
		reports := make([]resilience.Report, 5)
		once.Add(len(reports))
		for i := range reports {
			waiting.Go(func() {
				reports[i] = chain.Do(context.Background(), resilience.Critical, func(context.Context, int) resilience.Verdict {
					once.Done()
					return resilience.Verdict{Outcome: resilience.Failure, Retry: true}
				})
			})
		}
		once.Wait()
		trip(t, all[0], all...)
		waiting.Wait() // an hour, if they slept
		for _, r := range reports {
			if r.Calls != 1 || r.Refused == nil || r.Refused.Reason != resilience.CircuitOpen || r.Last.Outcome != resilience.Failure {
				t.Errorf("report %+v", r)
			}
		}
	})
}

func TestForce(t *testing.T) {
	t.Parallel()
	t.Run("open and closed hold for all replicas, automatic gives it back", func(t *testing.T) {
		t.Parallel()
		db, all := cluster(t, 3, quick())
		if err := north(all[0]).Force(t.Context(), order(resilience.ForcedOpen, "maintenance at north")); err != nil {
			t.Fatal(err)
		}
		inState(t, resilience.Open, all...)
		for _, s := range all {
			got := mustRefuse(t, north(s))
			if got.Detail != "held open by a person's order" || got.RetryAfter != 0 || !north(s).Snapshot().NextProbe.IsZero() {
				t.Errorf("refused with %+v", got)
			}
		}
		if err := north(all[1]).Force(t.Context(), order(resilience.Automatic, "over")); err != nil {
			t.Fatal(err)
		}
		north(all[2]).Done(takeProbe(t, all[2]), resilience.Success)
		inState(t, resilience.Closed, all...)
		if err := north(all[0]).Force(t.Context(), order(resilience.ForcedClosed, "we know better")); err != nil {
			t.Fatal(err)
		}
		eventually(t, "all know", func() bool { return north(all[1]).Snapshot().Mode == resilience.ForcedClosed })
		if made := record(north(all[1]), resilience.Failure, 50); made != 50 {
			t.Errorf("%d calls passed", made)
		}
		flushes(t, all...)
		if got := query[string](t, db, `select state from breakers`); got != "closed" {
			t.Errorf("state %s", got)
		}
		before := north(all[0]).Snapshot().Epoch
		for range 2 { // the second changes nothing
			if err := north(all[0]).Force(t.Context(), order(resilience.Automatic, "we did not")); err != nil {
				t.Fatal(err)
			}
		}
		if got := north(all[0]).Snapshot(); got.Epoch != before+1 || got.Tally != (resilience.Tally{}) {
			t.Errorf("snapshot %+v", got)
		}
		if err := north(all[0]).Force(t.Context(), order("sideways", "")); err == nil {
			t.Error("an unknown mode was taken")
		}
	})
	t.Run("a probe that is out when ops decide changes nothing", func(t *testing.T) {
		t.Parallel()
		_, all := cluster(t, 2, quick())
		trip(t, all[0], all...)
		p := takeProbe(t, all[0])
		if err := north(all[1]).Force(t.Context(), order(resilience.ForcedOpen, "stop")); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the other knows", func() bool { return north(all[0]).Snapshot().Mode == resilience.ForcedOpen })
		if north(all[0]).Valid(p) {
			t.Error("the probe is still valid")
		}
		north(all[0]).Done(p, resilience.Success)
		flushes(t, all...)
		for _, s := range all {
			if got := north(s).Snapshot(); got.State != resilience.Open || got.Mode != resilience.ForcedOpen {
				t.Errorf("snapshot %+v", got)
			}
		}
	})
}

func TestRamp(t *testing.T) {
	t.Parallel()
	cfg := quick()
	cfg.Ramp, cfg.RampStep = []int{25, 50}, time.Hour
	db, all := cluster(t, 2, cfg)
	trip(t, all[0], all...)
	north(all[0]).Done(takeProbe(t, all[0]), resilience.Success)
	inState(t, resilience.Closed, all...)
	late := open(t, config(db.ServiceURL(), cfg)) // started after the closing
	for _, s := range append(all, late) {
		if p, refused := north(s).Acquire(t.Context()); refused != nil || p.RampPercent != 25 {
			t.Errorf("%+v, %v, want 25 %% on every replica", p, refused)
		}
	}
	if _, err := db.Pool.Exec(t.Context(), `update breakers set changed_at = changed_at - interval '61 minutes'`); err != nil {
		t.Fatal(err)
	}
	later := open(t, config(db.ServiceURL(), cfg))
	if p, refused := north(later).Acquire(t.Context()); refused != nil || p.RampPercent != 50 {
		t.Errorf("%+v, %v, want 50 %% in the second step", p, refused)
	}
}

func TestFlapping(t *testing.T) {
	t.Parallel()
	t.Run("resilience case 18: an opening soon after a closing by another replica doubles the open time", func(t *testing.T) {
		t.Parallel()
		cfg := quick()
		cfg.OpenMax = time.Second
		db, all := cluster(t, 2, cfg)
		for i, want := range []int64{100, 200, 400} {
			trip(t, all[i%2], all...)
			if got := query[int64](t, db, `select breaker_ms_v1(open_for) from breakers`); got != want {
				t.Errorf("opening %d: %d ms, want %d", i+1, got, want)
			}
			s := all[(i+1)%2]
			north(s).Done(takeProbe(t, s), resilience.Success)
			inState(t, resilience.Closed, all...)
		}
		if _, err := db.Pool.Exec(t.Context(), `update breakers set closed_at = closed_at - interval '61 seconds'`); err != nil {
			t.Fatal(err)
		}
		trip(t, all[0], all...)
		if got := query[int64](t, db, `select breaker_ms_v1(open_for) from breakers`); got != 100 {
			t.Errorf("after a quiet minute %d ms, want 100", got)
		}
	})
}

func TestReports(t *testing.T) {
	t.Parallel()
	db, all := cluster(t, 2, shut())
	record(north(all[0]), resilience.Success, 3)
	record(north(all[1]), resilience.Failure, 4)
	flushes(t, all...)
	flushes(t, all[0])
	reports, err := all[0].Reports(t.Context())
	if err != nil || len(reports) != 2 {
		t.Fatalf("%+v, %v", reports, err)
	}
	for _, r := range reports {
		attempts, failures := int64(3), int64(0)
		if r.Replica == all[1].Replica() {
			attempts, failures = 4, 4
		}
		if r.Acquirer != "north" || r.Attempts != attempts || r.Failures != failures || r.Epoch != 1 || r.AgeSeconds > 60 {
			t.Errorf("report %+v", r)
		}
	}
	got := north(all[0]).Snapshot().Sharing
	if got.Reporting != 2 || got.Seeing != 1 || got.Replica != all[0].Replica() || got.StoreError != "" || !got.Listening || time.Since(got.Heard) > time.Minute {
		t.Errorf("status %+v", got)
	}
	trip(t, all[1], all...)
	changes, err := all[0].Transitions(t.Context(), "north", 10)
	if err != nil || len(changes) != 1 || changes[0].To != "open" || changes[0].Replica != all[1].Replica() && changes[0].Replica != all[0].Replica() {
		t.Errorf("%+v, %v", changes, err)
	}
	const old = `insert into outcome_windows values ('north', 'gone', 1, 1, 0, 1, 0, 0, 0)`
	if _, err := db.Pool.Exec(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	if err := all[0].store.prune(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := query[int](t, db, `select count(*) from outcome_windows where replica = 'gone'`); got != 0 {
		t.Error("an old row was kept")
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	_, err := Open(t.Context(), Config{URL: "postgres://nobody@127.0.0.1:1/x", Acquirers: []Acquirer{
		{Name: "North!", Breaker: resilience.DefaultBreaker(), Budget: resilience.DefaultBudget()}, {Name: "b"}, {Name: "b"},
	}})
	for _, want := range []string{"Log", `"North!"`, "twice", "breaker.window"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not mention %s", err, want)
		}
	}
	long := resilience.DefaultBreaker()
	long.Window = time.Hour
	if _, err = Open(t.Context(), config("postgres://nobody@127.0.0.1:1/x", long)); err == nil || !strings.Contains(err.Error(), "at most 5m0s") {
		t.Errorf("a window of an hour: %v", err)
	}
	if _, err = Open(t.Context(), config("postgres://nobody@127.0.0.1:1/x", quick())); err == nil || !strings.Contains(err.Error(), "listen") {
		t.Errorf("no database: %v", err)
	}
}

func TestListeners(t *testing.T) {
	t.Parallel()
	e := newEvents()
	stop, done := make(chan struct{}), make(chan struct{})
	var heard []int
	for i := range 3 {
		e.push(func() {
			heard = append(heard, i)
			if i == 1 {
				panic(errors.New("a listener's own fault"))
			}
		})
	}
	go func() { e.run(stop); close(done) }()
	close(stop)
	<-done
	if len(heard) != 3 || heard[2] != 2 || e.panics.Load() != 1 {
		t.Errorf("heard %v, %d panics", heard, e.panics.Load())
	}
}

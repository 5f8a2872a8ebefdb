package shared

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"paymentsd/internal/pgtest"
	"paymentsd/resilience"
)

// storm runs f in n goroutines at once.
func storm(n int, f func()) {
	var wg sync.WaitGroup
	for range n {
		wg.Go(f)
	}
	wg.Wait()
}

func TestProbe(t *testing.T) {
	t.Parallel()
	t.Run("resilience case 1: 1,000 calls on 3 replicas while the probe is out: none passes", func(t *testing.T) {
		t.Parallel()
		cfg := quick()
		cfg.ProbeLease = time.Minute
		_, all := cluster(t, 3, cfg)
		trip(t, all[0], all...)
		p := takeProbe(t, all[1])
		var admitted atomic.Int64
		for _, s := range all {
			storm(334, func() {
				if _, refused := north(s).Acquire(context.Background()); refused == nil {
					admitted.Add(1)
				}
			})
		}
		if admitted.Load() != 0 {
			t.Errorf("%d calls passed beside the probe", admitted.Load())
		}
		if got := mustRefuse(t, north(all[2])); got.RetryAfter <= 0 || got.RetryAfter > probeRetryAfter {
			t.Errorf("refused with %v: no wait to tell the caller", got)
		}
		north(all[1]).Done(p, resilience.Success)
		inState(t, resilience.Closed, all...)
	})
	t.Run("resilience case 2: 12 replicas cross the deadline together: one claim wins, the others fail fast", func(t *testing.T) {
		t.Parallel()
		cfg := quick()
		cfg.ProbeLease = time.Minute
		db, all := cluster(t, 12, cfg)
		trip(t, all[0], all...)
		time.Sleep(cfg.OpenFor) // what is tested is the moment after it
		var probes atomic.Int64
		var each sync.WaitGroup
		for _, s := range all {
			each.Go(func() {
				storm(4, func() {
					if p, refused := north(s).Acquire(context.Background()); refused == nil && p.Probe {
						probes.Add(1)
					}
				})
			})
		}
		each.Wait()
		if probes.Load() == 0 { // each claim may have taken too long on a busy machine
			takeProbe(t, all[0])
		}
		if got := transitions(t, db, resilience.Open, resilience.HalfOpen); probes.Load() > 1 || got != 1 {
			t.Errorf("%d probes, %d claims", probes.Load(), got)
		}
	})
	for _, late := range []resilience.Outcome{resilience.Success, resilience.Failure, resilience.Ignored} {
		t.Run("resilience case 4: a probe hangs: the next goes out after the lease, and a late "+late.String()+" changes nothing", func(t *testing.T) {
			t.Parallel()
			db, all := cluster(t, 2, quick())
			trip(t, all[0], all...)
			hung := takeProbe(t, all[0])
			if hung.ProbeTimeout > 1500*time.Millisecond || hung.ProbeTimeout <= 0 {
				t.Errorf("a probe of %v within a lease of 2 s and a margin of 500 ms", hung.ProbeTimeout)
			}
			second := takeProbe(t, all[1])
			if second.Epoch <= hung.Epoch || north(all[0]).Valid(hung) {
				t.Errorf("epoch %d after %d, the hung one valid: %v", second.Epoch, hung.Epoch, north(all[0]).Valid(hung))
			}
			north(all[0]).Done(hung, late)
			// And if the process did not know how late it is, the database would: by epoch and by owner, each alone.
			for _, c := range []struct {
				by    *Shared
				epoch uint64
			}{{all[0], hung.Epoch}, {all[0], second.Epoch}, {all[1], hung.Epoch}} {
				done, r, err := c.by.store.finish(t.Context(), finish{acquirer: "north", epoch: c.epoch, result: "close"})
				if err != nil || done || r.State != resilience.HalfOpen || r.Epoch != second.Epoch {
					t.Errorf("a report for epoch %d by %s: done %v, row %+v, %v", c.epoch, c.by.Replica(), done, r, err)
				}
			}
			north(all[1]).Done(second, resilience.Success)
			inState(t, resilience.Closed, all...)
			if got := transitions(t, db, resilience.HalfOpen, resilience.HalfOpen); got != 1 {
				t.Errorf("%d replacements, want 1", got)
			}
		})
	}
	t.Run("resilience case 4: a report after the lease changes nothing, even if nobody took the probe over", func(t *testing.T) {
		t.Parallel()
		cfg := quick()
		cfg.ProbeLease, cfg.ProbeMargin = 300*time.Millisecond, 100*time.Millisecond
		db, all := cluster(t, 1, cfg)
		trip(t, all[0])
		p := takeProbe(t, all[0])
		eventually(t, "the lease ends", func() bool { return query[bool](t, db, `select probe_until <= clock_timestamp() from breakers`) })
		north(all[0]).Done(p, resilience.Success)
		done, _, err := all[0].store.finish(t.Context(), finish{acquirer: "north", epoch: p.Epoch, result: "close"})
		if got := query[string](t, db, `select state from breakers`); err != nil || done || got != "half_open" {
			t.Errorf("done %v, state %s, %v", done, got, err)
		}
	})
	t.Run("resilience case 6: a probe that says nothing is given back, to any replica", func(t *testing.T) {
		t.Parallel()
		cfg := quick()
		cfg.ProbeLease = time.Hour
		_, all := cluster(t, 2, cfg)
		trip(t, all[0], all...)
		p := takeProbe(t, all[0])
		north(all[0]).Done(p, resilience.Ignored)
		next := takeProbe(t, all[1]) // long before the lease ends
		north(all[0]).Done(p, resilience.Success)
		north(all[1]).Done(next, resilience.Success)
		inState(t, resilience.Closed, all...)
	})
	t.Run("resilience case 7: a probe that panics is recovered, and the breaker opens again", func(t *testing.T) {
		t.Parallel()
		db, all := cluster(t, 2, quick())
		trip(t, all[0], all...)
		chain := chainOf(t, all[0])
		eventually(t, "the probe is made", func() bool {
			report := chain.Do(t.Context(), resilience.Critical, func(context.Context, int) resilience.Verdict { panic("in the probe") })
			return report.Panic != nil
		})
		eventually(t, "it opens again", func() bool { return transitions(t, db, resilience.HalfOpen, resilience.Open) == 1 })
		reason := query[string](t, db, `select reason from breaker_events where from_state = 'half_open' and to_state = 'open'`)
		if !strings.Contains(reason, "probe failed") || !strings.Contains(reason, "failure rate 1.00 over 10 attempts") {
			t.Errorf("reason %q", reason)
		}
	})
	t.Run("resilience case 17: a slow probe does not close", func(t *testing.T) {
		t.Parallel()
		cfg := quick()
		cfg.SlowCall = time.Millisecond
		db, all := cluster(t, 1, cfg)
		trip(t, all[0])
		p := takeProbe(t, all[0])
		time.Sleep(2 * time.Millisecond) // the slow call
		north(all[0]).Done(p, resilience.Success)
		eventually(t, "it opens again", func() bool { return transitions(t, db, resilience.HalfOpen, resilience.Open) == 1 })
	})
	t.Run("several probes to close go one at a time, over all replicas", func(t *testing.T) {
		t.Parallel()
		cfg := quick()
		cfg.ProbesToClose = 3
		db, all := cluster(t, 3, cfg)
		trip(t, all[0], all...)
		for i, s := range all {
			p := takeProbe(t, s)
			if got := query[int](t, db, `select probe_successes from breakers`); got != i {
				t.Errorf("%d successes before probe %d", got, i+1)
			}
			north(s).Done(p, resilience.Success)
		}
		inState(t, resilience.Closed, all...)
		if got := transitions(t, db, resilience.HalfOpen, resilience.Closed); got != 1 {
			t.Errorf("closed %d times", got)
		}
	})
	t.Run("a claim whose answer was lost is not held, and given back within a flush", func(t *testing.T) {
		t.Parallel()
		cfg := quick()
		cfg.ProbeLease = time.Hour
		db, all := cluster(t, 1, cfg)
		trip(t, all[0])
		eventually(t, "the store grants what nobody here knows of", func() bool {
			done, _, err := all[0].store.claim(t.Context(), "north", cfg.ProbeLease, 0)
			return err == nil && done
		})
		lost := query[int64](t, db, `select epoch from breakers`)
		p := takeProbe(t, all[0]) // which would otherwise take an hour
		if p.Epoch <= uint64(lost) {
			t.Errorf("probe of epoch %d, the lost one had %d", p.Epoch, lost)
		}
		reason := query[string](t, db, `select reason from breaker_events where epoch = $1`, lost+1)
		if reason != "the answer to the claim was lost" {
			t.Errorf("reason %q", reason)
		}
	})
	t.Run("the database's clock is set back: what runs begins again, and lasts no longer than it was meant to", func(t *testing.T) {
		t.Parallel()
		cfg := quick()
		db, all := cluster(t, 1, cfg)
		trip(t, all[0])
		for _, c := range [][2]string{{"open_until", "open_for"}, {"probe_until", "probe_lease"}} { // first open, then half-open
			column, duration := c[0], c[1]
			const ahead = `update breakers set %s = clock_timestamp() + interval '1 year'`
			if _, err := db.Pool.Exec(t.Context(), strings.Replace(ahead, "%s", column, 1)); err != nil {
				t.Fatal(err)
			}
			done, r, err := all[0].store.claim(t.Context(), "north", cfg.ProbeLease, 0)
			if err != nil || done {
				t.Fatalf("%s: done %v, %v, row %+v", column, done, err, r)
			}
			const within = `select %s <= clock_timestamp() + %d from breakers`
			if !query[bool](t, db, strings.NewReplacer("%s", column, "%d", duration).Replace(within)) {
				t.Errorf("%s is still a year away", column)
			}
			p := takeProbe(t, all[0])
			if column == "probe_until" {
				north(all[0]).Done(p, resilience.Success)
			}
		}
		inState(t, resilience.Closed, all...)
	})
}

// chainOf is the whole chain over the shared breaker and budget.
func chainOf(tb testing.TB, s *Shared) *resilience.Chain {
	tb.Helper()
	chain, err := newChain(s)
	if err != nil {
		tb.Fatal(err)
	}
	return chain
}

func newChain(s *Shared) (*resilience.Chain, error) {
	bulkhead, err := resilience.NewBulkhead(resilience.DefaultBulkhead())
	if err != nil {
		return nil, err
	}
	return resilience.NewChain(resilience.ChainConfig{
		Breaker: north(s), Budget: s.Budget("north"), Bulkhead: bulkhead, Retry: resilience.DefaultRetry(),
	})
}

func TestEpochs(t *testing.T) {
	t.Parallel()
	for _, late := range []resilience.Outcome{resilience.Success, resilience.Failure} {
		t.Run("resilience case 8: a "+late.String()+" begun while closed changes nothing in half-open", func(t *testing.T) {
			t.Parallel()
			cfg := quick()
			cfg.ProbeLease = time.Hour
			db, all := cluster(t, 2, cfg)
			begun, refused := north(all[1]).Acquire(t.Context())
			if refused != nil {
				t.Fatal(refused)
			}
			trip(t, all[0], all...)
			p := takeProbe(t, all[0])
			before := rowOf(t, db)
			north(all[1]).Done(begun, late)
			flushes(t, all[1])
			if diff := cmp.Diff(before, rowOf(t, db)); diff != "" {
				t.Errorf("the row has changed (-before +after):\n%s", diff)
			}
			north(all[0]).Done(p, resilience.Success)
			inState(t, resilience.Closed, all...)
			north(all[1]).Done(begun, late)
			if got := north(all[1]).Snapshot().Tally; got != (resilience.Tally{}) {
				t.Errorf("the new window has %+v", got)
			}
		})
	}
	t.Run("resilience case 9: late failures while open neither prolong it nor open it again", func(t *testing.T) {
		t.Parallel()
		db, all := cluster(t, 2, shut())
		var begun []resilience.Permit
		for range 30 {
			p, refused := north(all[1]).Acquire(t.Context())
			if refused != nil {
				t.Fatal(refused)
			}
			begun = append(begun, p)
		}
		trip(t, all[0], all...)
		before := rowOf(t, db)
		for _, p := range begun {
			north(all[1]).Done(p, resilience.Failure)
		}
		flushes(t, all[1])
		if diff := cmp.Diff(before, rowOf(t, db)); diff != "" {
			t.Errorf("the row has changed (-before +after):\n%s", diff)
		}
		if got := query[int](t, db, `select count(*) from breaker_events`); got != 1 {
			t.Errorf("%d events, want 1", got)
		}
	})
	t.Run("resilience case 10: all replicas trip at once: one transition, one event each, one epoch", func(t *testing.T) {
		t.Parallel()
		var mu sync.Mutex
		var heard []resilience.Event
		cfg := shut()
		cfg.Listeners = []func(resilience.Event){func(e resilience.Event) {
			mu.Lock()
			defer mu.Unlock()
			heard = append(heard, e)
		}}
		db, all := cluster(t, 6, cfg)
		var each sync.WaitGroup
		for _, s := range all {
			each.Go(func() { record(north(s), resilience.Failure, 200) })
		}
		each.Wait()
		inState(t, resilience.Open, all...)
		eventually(t, "everybody's listener hears", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(heard) >= 6
		})
		mu.Lock()
		defer mu.Unlock()
		for _, e := range heard {
			if e.Epoch != 2 || e.From != resilience.Closed || e.To != resilience.Open || e.OpenFor != time.Hour {
				t.Errorf("event %+v", e)
			}
		}
		if got := query[int](t, db, `select count(*) from breaker_events`); got != 1 || len(heard) != 6 {
			t.Errorf("%d events stored, %d heard, want 1 and 6", got, len(heard))
		}
	})
	t.Run("resilience case 11: after a closing, the old failures do not trip it again", func(t *testing.T) {
		t.Parallel()
		db, all := cluster(t, 2, quick())
		trip(t, all[0], all...)
		north(all[1]).Done(takeProbe(t, all[1]), resilience.Success)
		inState(t, resilience.Closed, all...)
		record(north(all[0]), resilience.Failure, 5) // with the 10 old ones 15 of 20
		record(north(all[1]), resilience.Success, 5)
		flushes(t, all...)
		flushes(t, all[0])
		if got, want := north(all[0]).Snapshot().Tally, (resilience.Tally{Attempts: 10, Failures: 5}); got != want {
			t.Errorf("window %+v, want %+v", got, want)
		}
		if got := query[string](t, db, `select state from breakers`); got != "closed" {
			t.Errorf("state %s", got)
		}
	})
	t.Run("a failover that lost epochs: the row is adopted, and lifted past every epoch that was seen", func(t *testing.T) {
		t.Parallel()
		db, all := cluster(t, 3, shut())
		trip(t, all[0], all...)
		if err := north(all[0]).Force(t.Context(), order(resilience.ForcedClosed, "a higher epoch")); err != nil {
			t.Fatal(err)
		}
		inState(t, resilience.Closed, all...)
		seen := north(all[0]).Snapshot().Epoch
		const rewind = `update breakers set epoch = 1, state = 'open', mode = 'automatic', reason = 'old', cause = 'old',
		  open_until = clock_timestamp() + interval '1 hour', open_for = interval '1 hour'`
		if _, err := db.Pool.Exec(t.Context(), rewind); err != nil {
			t.Fatal(err)
		}
		inState(t, resilience.Open, all...)
		for _, s := range all {
			eventually(t, "all agree", func() bool {
				return north(s).Snapshot().Epoch == uint64(query[int64](t, db, `select epoch from breakers`))
			})
		}
		if got := north(all[0]).Snapshot(); got.Epoch <= seen || !strings.Contains(got.Reason, "older state: old") {
			t.Errorf("epoch %d (%s) after %d was seen", got.Epoch, got.Reason, seen)
		}
		if _, err := db.Owner().Exec(t.Context(), `delete from breakers`); err != nil {
			t.Fatal(err)
		}
		inState(t, resilience.Closed, all...)
		if got := query[int64](t, db, `select epoch from breakers`); got <= int64(seen)+1 {
			t.Errorf("epoch %d after the row was lost at %d", got, seen+1)
		}
	})
}

func rowOf(tb testing.TB, db *pgtest.DB) string {
	tb.Helper()
	return query[string](tb, db, `select row_to_json(b)::text from breakers b`)
}

package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"text/tabwriter"
	"time"

	"paymentsd/internal/benchkit"
	"paymentsd/resilience"
	"paymentsd/resilience/shared"
)

// opening is one measured opening.
type opening struct {
	spread time.Duration // from the first replica that refuses to the last
	trip   time.Duration // from the call whose failure passes the rule to the last replica that refuses
}

// openings opens the breaker by way of each replica in turn, and times when each of them refuses.
func openings(ctx context.Context, url string, o options, stdout io.Writer, figures map[string]float64) error {
	breaker := resilience.DefaultBreaker()
	breaker.OpenFor, breaker.OpenMax = time.Hour, time.Hour // it is closed by hand
	all, err := cluster(ctx, url, shared.Acquirer{Name: "openings", Breaker: breaker, Budget: resilience.DefaultBudget()})
	if err != nil {
		return err
	}
	defer closeAll(all)
	breakers := make([]*shared.Breaker, len(all))
	for i, s := range all {
		breakers[i] = s.Breaker("openings")
	}
	var spreads, trips []time.Duration
	for began := time.Now(); len(spreads) < o.rounds && time.Since(began) < o.roundsTimeMax; {
		got, err := open(ctx, breakers, len(spreads)%len(breakers), breaker.MinAttempts)
		if err != nil {
			return fmt.Errorf("opening %d: %w", len(spreads)+1, err)
		}
		spreads, trips = append(spreads, got.spread), append(trips, got.trip)
	}
	fmt.Fprintf(stdout, "\n%d openings, each by %d failures at one replica:\n\n", len(spreads), breaker.MinAttempts)
	table := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "ms, until the last of 12 refuses\tp50\tp99\tmax\t")
	for _, row := range []struct {
		from, figure string
		times        []time.Duration
	}{{"from the first that refuses", "open", spreads}, {"from the failure that passes the rule", "trip", trips}} {
		p50, p99, most := benchkit.PercentileMS(row.times, 50), benchkit.PercentileMS(row.times, 99), benchkit.PercentileMS(row.times, 100)
		fmt.Fprintf(table, "%s\t%.1f\t%.1f\t%.1f\t\n", row.from, p50, p99, most)
		figures[row.figure+"_p50_ms"], figures[row.figure+"_p99_ms"], figures[row.figure+"_max_ms"] = p50, p99, most
	}
	figures["openings"] = float64(len(spreads))
	return table.Flush()
}

// open is one round: the breaker is closed everywhere before and after.
func open(ctx context.Context, all []*shared.Breaker, opener, failures int) (opening, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	refused := make([]time.Time, len(all))
	var watching, done sync.WaitGroup
	for i, b := range all {
		watching.Add(1)
		done.Go(func() { refused[i] = refusedAt(ctx, b, watching.Done) })
	}
	watching.Wait()
	time.Sleep(rand.N(50 * time.Millisecond)) // not in step with the flushes
	var tripped time.Time
	for range failures {
		p, no := all[opener].Acquire(ctx)
		if no != nil {
			return opening{}, fmt.Errorf("refused before the rule was passed: %w", no)
		}
		tripped = time.Now()
		all[opener].Done(p, resilience.Failure)
	}
	done.Wait()
	if ctx.Err() != nil {
		return opening{}, fmt.Errorf("not every replica refused within %v", patience)
	}
	first, last := refused[0], refused[0]
	for i, b := range all {
		if refused[i].Before(first) {
			first = refused[i]
		}
		if refused[i].After(last) {
			last = refused[i]
		}
		if _, no := b.Acquire(ctx); no == nil {
			return opening{}, fmt.Errorf("a replica that had refused admits a call")
		}
	}
	return opening{spread: last.Sub(first), trip: last.Sub(tripped)}, shut(ctx, all)
}

// refusedAt waits until a replica refuses, and says when that was; zero if ctx ends first.
func refusedAt(ctx context.Context, b *shared.Breaker, watching func()) time.Time {
	for ready := watching; ; {
		refused, changed := b.Peek()
		if refused != nil {
			return time.Now()
		}
		if ready != nil {
			ready()
			ready = nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return time.Time{}
		}
	}
}

// shut closes the breaker by hand, and gives it back to its rules with an empty window.
func shut(ctx context.Context, all []*shared.Breaker) error {
	for _, mode := range []resilience.Mode{resilience.ForcedClosed, resilience.Automatic} {
		order := resilience.Order{Mode: mode, Why: "the next round", Actor: "bench", Act: fmt.Sprint("round ", rand.Uint64())}
		var err error
		if forced := eventually(ctx, "the breaker is forced", func() bool {
			err = all[0].Force(ctx, order)
			return err == nil
		}); forced != nil {
			return fmt.Errorf("%w: %w", forced, err)
		}
	}
	epoch := all[0].Snapshot().Epoch
	return eventually(ctx, "every replica knows that it is closed", func() bool {
		for _, b := range all {
			if b.Snapshot().Epoch < epoch {
				return false
			}
		}
		return true
	})
}

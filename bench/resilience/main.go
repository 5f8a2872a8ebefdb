// Command resilience measures what one call costs under our policies, beside gobreaker and failsafe-go in
// the same run. It is a module of its own, so that the peers are no dependency of the service.
//
// Every contestant runs once in every round, so that noise hits all alike, and medians of the rounds
// are compared. A round alone is itself the median of slices of a fraction of a millisecond: most
// of them see no other process, even on a machine with many. What comes rarely and late, as the work
// of the collector does, is therefore left out, which favours who allocates. The shared form runs on
// a real Postgres, with its flushes going on. It prints a table, and as its last line one JSON object
// with the figures.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"paymentsd/internal/benchkit"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("resilience", flag.ContinueOnError)
	flags.SetOutput(stderr)
	rounds := flags.Int("rounds", 5, "rounds; medians are printed")
	length := flags.Duration("time", 150*time.Millisecond, "how long each contestant runs in a round, alone and in parallel")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *rounds < 1 || *length <= 0 {
		return fmt.Errorf("-rounds is %d and -time %v: want at least 1, and more than 0", *rounds, *length)
	}
	testing.Init() // testing.Benchmark reads its flags
	if err := flag.Set("test.benchtime", length.String()); err != nil {
		return err
	}
	ours, err := start(ctx)
	if err != nil {
		return err
	}
	defer ours.stop()
	groups, err := ours.groups()
	if err != nil {
		return err
	}
	for range *rounds {
		for _, g := range groups {
			for _, c := range g.contestants {
				if err := ctx.Err(); err != nil {
					return err
				}
				if err := c.round(*length); err != nil {
					return fmt.Errorf("%s, %s: %w", g.name, c.name, err)
				}
			}
		}
	}
	fmt.Fprintf(stdout, "Medians of %d rounds of %v. In parallel: on every core at once.\n", *rounds, *length)
	figures := map[string]float64{}
	for _, g := range groups {
		if err := g.print(stdout, figures); err != nil {
			return err
		}
	}
	fmt.Fprintln(stdout)
	return benchkit.PrintJSON(stdout, figures)
}

// group is what is compared: every contestant with the first.
type group struct {
	name        string
	contestants []*contestant
}

// contestant is one way to do it.
type contestant struct {
	name string
	// figure is its name in the JSON; empty if it is not there.
	figure string
	// call is one call; false means that it did not do what the group is about.
	call func() bool

	alone, parallel, bytes, allocs []float64
}

// sliceTime is about how long a slice is.
const sliceTime = 300 * time.Microsecond

var errFoul = errors.New("the call was refused, or was not")

// round measures alone and in parallel.
func (c *contestant) round(length time.Duration) error {
	alone, err := c.slices(length)
	if err != nil {
		return err
	}
	var fouls atomic.Int64
	parallel := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if !c.call() {
					fouls.Add(1)
				}
			}
		})
	})
	if fouls.Load() > 0 {
		return errFoul
	}
	c.alone, c.parallel = append(c.alone, alone), append(c.parallel, float64(parallel.T.Nanoseconds())/float64(parallel.N))
	c.bytes, c.allocs = append(c.bytes, float64(parallel.AllocedBytesPerOp())), append(c.allocs, float64(parallel.AllocsPerOp()))
	return nil
}

// slices gives the nanoseconds a call in the median slice.
func (c *contestant) slices(length time.Duration) (float64, error) {
	var times []float64
	calls := 16
	for began := time.Now(); time.Since(began) < length; {
		took, ok := c.slice(calls)
		switch {
		case !ok:
			return 0, errFoul
		case len(times) == 0 && took < sliceTime/2:
			calls *= 2 // still warming up
		default:
			times = append(times, float64(took.Nanoseconds())/float64(calls))
		}
	}
	if len(times) == 0 {
		return 0, fmt.Errorf("%v is too short for one slice", length)
	}
	return benchkit.Median(times), nil
}

func (c *contestant) slice(calls int) (time.Duration, bool) {
	ok := true
	began := time.Now()
	for range calls {
		ok = c.call() && ok
	}
	return time.Since(began), ok
}

func (g group) print(stdout io.Writer, figures map[string]float64) error {
	table := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "\n%s\tns\tratio\tns in parallel\tratio\tB\tallocations\t\n", g.name)
	first := g.contestants[0]
	for _, c := range g.contestants {
		alone, parallel := benchkit.Median(c.alone), benchkit.Median(c.parallel)
		fmt.Fprintf(table, "%s\t%.1f\t%.2f\t%.1f\t%.2f\t%.0f\t%.0f\t\n", c.name, alone, alone/benchkit.Median(first.alone),
			parallel, parallel/benchkit.Median(first.parallel), benchkit.Median(c.bytes), benchkit.Median(c.allocs))
		if c.figure != "" {
			figures[c.figure+"_ns"], figures[c.figure+"_parallel_ns"] = alone, parallel
			figures[c.figure+"_allocs"] = benchkit.Median(c.allocs)
		}
	}
	return table.Flush()
}

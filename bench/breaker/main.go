// Command breaker measures what twelve replicas agree on through one Postgres: how long an opening takes
// from the first replica to the last, how many probes are in flight while 48 callers contend, are lost,
// report late and lose their replicas, and what a retry budget grants under contention.
//
// It prints tables, and as its last line one JSON object with the figures. It fails if a second probe
// was in flight, a lost or late one changed anything, or a budget granted more than its rule.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
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

// options are the size of a run.
type options struct {
	rounds        int
	roundsTimeMax time.Duration
	probes        time.Duration
	budget        time.Duration
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("breaker", flag.ContinueOnError)
	flags.SetOutput(stderr)
	var o options
	flags.IntVar(&o.rounds, "rounds", 200, "openings to measure")
	flags.DurationVar(&o.roundsTimeMax, "rounds-time", time.Minute, "end the openings after this time, however many there were")
	flags.DurationVar(&o.probes, "probes-time", 10*time.Second, "how long callers contend for probes")
	flags.DurationVar(&o.budget, "budget-time", 70*time.Second, "how long callers contend for retries; a minute is judged only if it is longer")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if o.rounds < 1 {
		return fmt.Errorf("-rounds is %d: want at least 1", o.rounds)
	}
	postgres, err := benchkit.StartPostgres(ctx, nil)
	if err != nil {
		return err
	}
	defer postgres.Stop()
	fmt.Fprintf(stdout, "%d replicas in one process, each with its own connections, and Postgres share this machine.\n", replicas)
	figures := map[string]float64{}
	for _, part := range []func(context.Context, string, options, io.Writer, map[string]float64) error{openings, probes, budgets} {
		if err := part(ctx, postgres.URL(), o, stdout, figures); err != nil {
			return err
		}
	}
	fmt.Fprintln(stdout)
	return benchkit.PrintJSON(stdout, figures)
}

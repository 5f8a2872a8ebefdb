// Command charge measures POST /v1/charges in a closed loop beside pgbench, which runs the same two durable
// statements on the same Postgres in the same run, so that the ratio says what the service costs
// above the database and holds on a noisy machine.
//
// It prints a table, and as its last line one JSON object with the figures.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
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

// options are the size of a run.
type options struct {
	rounds  int
	seconds int
	conns   int
	latency time.Duration
}

// clients are how many callers are in the loop at once.
var clients = []int{1, 8, 64}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("charge", flag.ContinueOnError)
	flags.SetOutput(stderr)
	var o options
	flags.IntVar(&o.rounds, "rounds", 3, "rounds for each number of clients; medians are printed")
	flags.IntVar(&o.seconds, "seconds", 4, "seconds of load in a round, for each side")
	flags.IntVar(&o.conns, "conns", 24, "database connections of the service")
	flags.DurationVar(&o.latency, "acquirer-latency", 0, "what the simulated acquirer takes for a capture")
	if err := flags.Parse(args); err != nil {
		return err
	}
	bed, err := startBed(ctx, o, stderr)
	if err != nil {
		return err
	}
	defer bed.Stop()
	fmt.Fprintf(stdout, "fsync and synchronous_commit are on; service, load, acquirer and Postgres share this machine.\n\n")
	table := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "clients\tcharges/s\tpgbench/s\tratio\tp50 ms\tp99 ms\tstatements\tcommits\tWAL bytes\t")
	figures := map[string]float64{}
	for _, n := range clients {
		m, err := bed.measure(ctx, n)
		if err != nil {
			return err
		}
		fmt.Fprintf(table, "%d\t%.0f\t%.0f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%.0f\t\n", n, m.charges, m.pgbench, m.ratio,
			m.p50, m.p99, m.statements, m.commits, m.walBytes)
		figures[fmt.Sprintf("ratio_c%d", n)] = m.ratio
		if n == clients[len(clients)-1] {
			figures["charges_per_second"], figures["pgbench_per_second"] = m.charges, m.pgbench
			figures["p50_ms"], figures["p99_ms"] = m.p50, m.p99
			figures["statements_per_charge"], figures["commits_per_charge"] = m.statements, m.commits
			figures["wal_bytes_per_charge"] = m.walBytes
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "\nMedians of %d rounds of %d s a side, side by side. Times are above the acquirer's own %v. Statements, commits and\nWAL bytes are per charge, by the counters of the service and of Postgres.\n", o.rounds, o.seconds, o.latency)
	return benchkit.PrintJSON(stdout, figures)
}

package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"paymentsd/internal/benchkit"
)

func (p phases) print(out io.Writer, o options) error {
	fmt.Fprintf(out, "Of one kind alone the service does %.0f charges/s or %.0f lists/s (64 and 32 clients). Offered are 60 %% of that as checkout,\n"+
		"120 %% as lists, and 120 %% as batch charges (Priority: low): three times capacity, for %d s, an acquirer of %v.\n\n", p.charges, p.reads, o.seconds, o.latency)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "\t\twith shedding:\t\t\t\t\twithout:\t\t\t\t\t")
	fmt.Fprintln(table, "priority\toffered/s\tsuccess %\tshed %\tgave up %\tp50 ms\tp99 ms\tsuccess %\trefused %\tgave up %\tp50 ms\tp99 ms\t")
	seconds := float64(o.seconds)
	for i, on := range p.on {
		off := p.off[i]
		fmt.Fprintf(table, "%s\t%.0f\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t\n", on.name, float64(on.offered)/seconds,
			on.percent(on.succeeded), on.percent(on.shed), on.percent(on.gaveUp), on.p(50), on.p(99),
			off.percent(off.succeeded), off.percent(off.shed), off.percent(off.gaveUp), off.p(50), off.p(99))
	}
	fmt.Fprintf(table, "unloaded\t%.0f\t%.1f\t\t\t%.1f\t%.1f\t\t\t\t\t\t\n", float64(p.unloaded.offered)/seconds,
		p.unloaded.percent(p.unloaded.succeeded), p.unloaded.p(50), p.unloaded.p(99))
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nTimes are of successes, from when a request should have been sent; a client gives up after %v. Requests were sent %.1f ms late\n"+
		"(p99) with shedding, %.1f ms without. Outcomes not written in time, so that the charge is unknown: %d with shedding, %d without.\n",
		patience, lateness(p.on), lateness(p.off), p.lostOn, p.lostOff)
	return benchkit.PrintJSON(out, p.figures())
}

func lateness(all []tally) float64 {
	var late []time.Duration
	for _, t := range all {
		late = slices.Concat(late, t.late)
	}
	return benchkit.PercentileMS(late, 99)
}

func (p phases) figures() map[string]float64 {
	figures := map[string]float64{
		"charges_per_second": p.charges, "lists_per_second": p.reads,
		"unloaded_p50_ms": p.unloaded.p(50), "unloaded_p99_ms": p.unloaded.p(99),
		"critical_p99_ratio": p.on[0].p(99) / max(p.unloaded.p(99), .001),
		"unknown_on":         float64(p.lostOn), "unknown_off": float64(p.lostOff),
	}
	for way, tallies := range map[string][]tally{"on": p.on, "off": p.off} {
		for _, t := range tallies {
			figures[t.name+"_success_"+way] = t.percent(t.succeeded)
			figures[t.name+"_shed_"+way] = t.percent(t.shed)
			figures[t.name+"_p50_ms_"+way], figures[t.name+"_p99_ms_"+way] = t.p(50), t.p(99)
		}
	}
	return figures
}

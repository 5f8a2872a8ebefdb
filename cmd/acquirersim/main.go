// Command acquirersim runs a simulated acquirer: see docs/simulator.md.
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"paymentsd/acquirer/sim"
	"paymentsd/money"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
}

// flags are the command line; every one is described in docs/simulator.md.
type flags struct {
	Addr             string         `default:"127.0.0.1:0" help:"Address to listen on; port 0 takes any."`
	Name             string         `default:"sim" help:"Name, in capture ids and settlement files."`
	Account          string         `default:"main" help:"The merchant's account, in settlement files."`
	Book             string         `help:"File that keeps the book; without it the book is in memory." placeholder:"FILE"`
	Capacity         int            `help:"Requests accepted in a second; 0 for no limit."`
	Latency          time.Duration  `help:"Time before a capture is processed."`
	Slow             time.Duration  `default:"3s" help:"Latency of slow captures."`
	HoldMax          time.Duration  `default:"60s" help:"How long a timeout holds its connection."`
	LookupLag        time.Duration  `help:"How long a capture stays hidden from inquiries."`
	Pending          time.Duration  `default:"2s" help:"How long a pending capture stays pending."`
	Variant          []string       `help:"How to differ: forgets-failures, replays-errors, no-keys, no-lookup; comma-separated."`
	KeyTTL           time.Duration  `name:"key-ttl" help:"Forget keys after this; 0 for never."`
	Exponents        map[string]int `help:"Decimals that differ from ISO 4217, e.g. CLP=2;KWD=2." placeholder:"CODE=N"`
	FeeBP            int            `name:"fee-bp" default:"140" help:"Fee in basis points of a capture."`
	FeeFixed         int            `name:"fee-fixed" default:"25" help:"Fee for each capture in minor units."`
	Format           string         `default:"canonical" help:"Format of settlement files for which none is asked: canonical, stripe, adyen, paypal, csv:checkout, csv:mollie or csv:worldpay." placeholder:"NAME"`
	Lost             bool           `help:"Name lost requests as capture_failed in settlement files."`
	EventsURL        string         `name:"events-url" help:"Tell this address of captures, as docs/acquirer-protocol.md says." placeholder:"URL"`
	EventsDelay      time.Duration  `help:"Time between a capture and its event."`
	EventsLoss       int            `help:"Percentage of the events that are never sent."`
	EventsDuplicates int            `help:"Percentage of the events that are sent twice."`
	EventsReorder    int            `help:"Percentage of the events that are held back, so that later ones overtake them."`
	Seed             uint64         `default:"1" help:"Seed of the dice for faults by percentage."`
}

// run is main without the operating system. It gives the exit code: 0 stopped, 1 failed, 2 used wrongly.
func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	var f flags
	exited := -1
	parser, err := kong.New(&f, kong.Name("acquirersim"), kong.Writers(stdout, stderr),
		kong.Description("A simulated card acquirer. ACQUIRERSIM_SECRET, if set, is the bearer token to ask for; ACQUIRERSIM_EVENTS_SECRET (whsec_...) signs events."),
		kong.Exit(func(code int) { exited = code }))
	if err != nil {
		fmt.Fprintln(stderr, "acquirersim:", err)
		return 1
	}
	if _, err = parser.Parse(args); exited >= 0 {
		return exited
	}
	var cfg sim.Config
	if err == nil {
		cfg, err = f.config(getenv)
	}
	if err != nil {
		fmt.Fprintf(stderr, "acquirersim: %v\nRun acquirersim --help for what there is.\n", err)
		return 2
	}
	cfg.Logger = slog.New(slog.NewTextHandler(stderr, nil))
	if err := serve(ctx, cfg, f.Addr, stdout); err != nil {
		fmt.Fprintln(stderr, "acquirersim:", err)
		return 1
	}
	return 0
}

func serve(ctx context.Context, cfg sim.Config, addr string, stdout io.Writer) error {
	s, err := sim.New(cfg)
	if err != nil {
		return err
	}
	server, err := sim.Serve(s, addr)
	if err != nil {
		_ = s.Close() // nothing was written yet
		return err
	}
	fmt.Fprintf(stdout, "acquirer %s at %s\n", cfg.Name, server.URL())
	<-ctx.Done()
	return server.Close()
}

// config checks what the flags mean together.
func (f flags) config(getenv func(string) string) (sim.Config, error) {
	cfg := sim.Config{
		Secret: getenv("ACQUIRERSIM_SECRET"),
		Name:   f.Name, Account: f.Account, BookFile: f.Book, CapacityPerSecond: f.Capacity,
		Latency: f.Latency, SlowLatency: f.Slow, HoldMax: f.HoldMax, LookupLag: f.LookupLag, PendingFor: f.Pending,
		FeeBasisPoints: f.FeeBP, FeeFixedMinor: f.FeeFixed, ReportsLost: f.Lost, Format: f.Format, Seed: f.Seed,
		Variant: sim.Variant{KeyTTL: f.KeyTTL}, Exponents: map[money.Currency]int{},
	}
	cfg.Events = sim.Events{
		URL: f.EventsURL, Secret: getenv("ACQUIRERSIM_EVENTS_SECRET"), Delay: f.EventsDelay,
		LossPercent: f.EventsLoss, DuplicatePercent: f.EventsDuplicates, ReorderPercent: f.EventsReorder,
	}
	variants := map[string]*bool{
		"forgets-failures": &cfg.Variant.ForgetsFailures,
		"replays-errors":   &cfg.Variant.ReplaysServerErrors,
		"no-keys":          &cfg.Variant.NoKeys,
		"no-lookup":        &cfg.Variant.NoLookup,
	}
	for _, name := range f.Variant {
		on, known := variants[name]
		if !known {
			names := make([]string, 0, len(variants))
			for n := range variants {
				names = append(names, n)
			}
			slices.Sort(names)
			return cfg, fmt.Errorf("--variant: %q is not known; use %s", name, strings.Join(names, ", "))
		}
		*on = true
	}
	for code, decimals := range f.Exponents {
		currency, err := money.ParseCurrency(code)
		if err != nil {
			return cfg, fmt.Errorf("--exponents: %w", err)
		}
		if decimals < 0 || decimals > 4 {
			return cfg, fmt.Errorf("--exponents: %s=%d: want 0 to 4 decimals", code, decimals)
		}
		cfg.Exponents[currency] = decimals
	}
	return cfg, cfg.Validate()
}

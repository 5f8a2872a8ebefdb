// Command shed measures what load shedding is worth: paymentsd serve under three times what it can do, with
// all three priorities mixed, once with shedding and once without.
//
// The load is an open loop: requests come at random whatever becomes of the others, and a request's time
// counts from when it should have been sent. It prints a table, and as its last line one JSON object.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"paymentsd/internal/benchkit/bed"
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

type options struct {
	seconds  int
	conns    int
	latency  time.Duration
	seed     uint64
	settings string
}

// sequence numbers every request of a run, so that no two charges share a key.
var sequence atomic.Int64

type statusError int

func (e statusError) Error() string { return fmt.Sprintf("answered %d", int(e)) }

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("shed", flag.ContinueOnError)
	flags.SetOutput(stderr)
	var o options
	flags.IntVar(&o.seconds, "seconds", 12, "seconds of each phase of load")
	flags.IntVar(&o.conns, "conns", 16, "database connections of the service")
	flags.DurationVar(&o.latency, "acquirer-latency", 50*time.Millisecond, "what the simulated acquirer takes for a capture")
	flags.Uint64Var(&o.seed, "seed", 1, "of the arrivals")
	flags.StringVar(&o.settings, "shedding", "", "settings of shedding: beside enabled, as in YAML")
	if err := flags.Parse(args); err != nil {
		return err
	}
	errors := &errorLines{}
	service, err := bed.Start(ctx, o.latency, errors)
	if err != nil {
		return err
	}
	defer service.Stop()
	b := &bench{options: o, bed: service, errors: errors}
	p, err := b.run(ctx)
	if err != nil {
		return err
	}
	return p.print(stdout, o)
}

// errorLines counts what the service reports as an error: under overload, outcomes that it could not
// write in time, whose charges are unknown until they are reconciled.
type errorLines struct{ n atomic.Int64 }

func (e *errorLines) Write(text []byte) (int, error) {
	e.n.Add(int64(bytes.Count(text, []byte("the outcome could not be written"))))
	return len(text), nil
}

type bench struct {
	options
	bed    *bed.Bed
	errors *errorLines
	addr   string
}

func (b *bench) serve(ctx context.Context, shedding bool) (*wire, error) {
	err := b.bed.Serve(ctx, fmt.Sprintf("server: {database_conns: %d}\nshedding: {enabled: %v%s}", b.conns, shedding, b.settings))
	if err != nil {
		return nil, err
	}
	b.addr = strings.TrimPrefix(b.bed.Service.URL, "http://")
	return &wire{addr: b.addr}, nil
}

func (b *bench) post(n int64, more string) []byte {
	body := `{"amount":"49.99","currency":"USD","payment_method":"tok_ok"}`
	return fmt.Appendf(nil, "POST /v1/charges HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nIdempotency-Key: shed-%d\r\n"+
		"Content-Type: application/json\r\nRequest-Timeout: 3\r\n%sContent-Length: %d\r\n\r\n%s", b.addr, b.bed.Key, n, more, len(body), body)
}

func (b *bench) checkout(n int64) []byte { return b.post(n, "") }
func (b *bench) batch(n int64) []byte    { return b.post(n, "Priority: low\r\n") }
func (b *bench) list(int64) []byte {
	return fmt.Appendf(nil, "GET /v1/charges?limit=50 HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nRequest-Timeout: 3\r\n\r\n", b.addr, b.bed.Key)
}

// phases are what one run measured.
type phases struct {
	charges, reads  float64 // a second, of one kind alone
	unloaded        tally   // checkout alone, for a tenth of what can be done
	on, off         []tally // by priority
	lostOn, lostOff int64   // outcomes that the service could not write down in time
}

func (b *bench) run(ctx context.Context) (p phases, err error) {
	length := time.Duration(b.seconds) * time.Second
	w, err := b.serve(ctx, false)
	if err != nil {
		return p, err
	}
	if p.charges, err = capacity(ctx, w, length/3, 64, b.checkout); err != nil {
		return p, fmt.Errorf("charges alone: %w", err)
	}
	if p.reads, err = capacity(ctx, w, length/3, 32, b.list); err != nil {
		return p, fmt.Errorf("lists alone: %w", err)
	}
	mix := []stream{
		{"critical", .6 * p.charges, b.checkout},
		{"normal", 1.2 * p.reads, b.list},
		{"low", 1.2 * p.charges, b.batch},
	}
	p.off = play(ctx, w, length, b.seed, mix...)
	w.close()
	if w, err = b.serve(ctx, true); err != nil {
		return p, err
	}
	defer w.close()
	p.lostOff = b.errors.n.Load()
	p.unloaded = play(ctx, w, length, b.seed, stream{"critical", .1 * p.charges, b.checkout})[0]
	p.on = play(ctx, w, length, b.seed, mix...)
	p.lostOn = b.errors.n.Load() - p.lostOff
	return p, ctx.Err()
}

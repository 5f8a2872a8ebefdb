package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/alecthomas/kong"

	"paymentsd/api"
	"paymentsd/internal/postgres"
	"paymentsd/merchant"
	"paymentsd/payment"
	"paymentsd/reconcile"
)

// cli is the command line.
type cli struct {
	Run        runCommand        `cmd:"" help:"Take in settlement files, end unknowns, and report what differs."`
	Report     reportCommand     `cmd:"" help:"Print the report of an acquirer's last run as things stand now."`
	Exceptions exceptionsCommand `cmd:"" help:"List exceptions, the gravest first."`
	Verify     verifyCommand     `cmd:"" help:"Prove that the books are whole. Changes nothing."`
}

// common is what every command takes.
type common struct {
	DatabaseURL string `name:"database-url" env:"DATABASE_URL" help:"The service's Postgres: postgres://user@host:port/name." placeholder:"URL"`
	Output      string `help:"table, json or csv." enum:"table,json,csv" default:"table"`
	AsOf        string `name:"as-of" env:"RECONCILE_AS_OF" help:"The UTC day to which ages and cut-offs count (default: today)." placeholder:"YYYY-MM-DD"`
	Cutoff      int    `env:"RECONCILE_CUTOFF" help:"Business days in which a capture's line may still come." default:"5"`
	Quiet       bool   `short:"q" help:"No progress."`
}

type runCommand struct {
	common
	Acquirer string        `env:"RECONCILE_ACQUIRER" required:"" help:"Whose files these are."`
	Feed     []string      `env:"RECONCILE_FEED" required:"" help:"A file, - for standard input, a directory, or an address: of a file, or of an index of files such as the simulator's /settlement." placeholder:"FILE|DIR|URL" sep:"none"`
	Also     []string      `arg:"" optional:"" name:"feeds" help:"Further feeds."`
	Format   string        `env:"RECONCILE_FORMAT" help:"The format of the files: canonical, stripe, adyen, paypal, or csv: and a profile (checkout, mollie, worldpay). Nothing is detected. Default: canonical, or that of --profile." placeholder:"NAME"`
	Profile  string        `env:"RECONCILE_PROFILE" help:"A profile of your own for CSV files, as docs/settlement-formats.md describes." placeholder:"FILE" type:"path"`
	Lookback int           `env:"RECONCILE_LOOKBACK" help:"Days before the cut-off in which captured charges are looked for in the files. Longer than the job may ever rest." default:"30"`
	Wait     time.Duration `env:"RECONCILE_WAIT" help:"How long to wait for another run of the same acquirer." default:"30s"`
}

type reportCommand struct {
	common
	Acquirer string `env:"RECONCILE_ACQUIRER" required:"" help:"Whose report."`
}

type exceptionsCommand struct {
	common
	Acquirer string `env:"RECONCILE_ACQUIRER" help:"Only of this acquirer."`
	Class    string `help:"Only of this class, such as duplicate_capture."`
	All      bool   `help:"Closed ones, too."`
}

type verifyCommand struct{ common }

// command is a parsed command line.
type command interface {
	execute(ctx context.Context, p *process) (int, error)
}

// process is what a command needs of the process it runs in.
type process struct {
	stdin          io.Reader
	stdout, stderr io.Writer
}

// refusedError is a setting or a feed that cannot be used.
type refusedError struct{ error }

func (e *refusedError) Unwrap() error { return e.error }

func refuse(format string, args ...any) error { return &refusedError{fmt.Errorf(format, args...)} }

// exited carries the code with which kong wanted to leave (after --help).
type exited int

// parse reads the command line and the environment; ok is false if there is nothing to execute.
func parse(args []string, getenv func(string) string, stdout, stderr io.Writer) (c command, code int, ok bool) {
	var line cli
	defer func() {
		if e, left := recover().(exited); left {
			c, code, ok = nil, int(e), false
		}
	}()
	parser, err := kong.New(&line, kong.Name("reconcile"), kong.Writers(stdout, stderr), kong.Exit(func(code int) { panic(exited(code)) }),
		kong.Description("Compares charges with acquirers' settlement files. Exit codes: 0 clean, 1 exceptions, 2 no usable file or a failed control, 3 internal error."),
		kong.Resolvers(environment(getenv)))
	if err != nil {
		fmt.Fprintf(stderr, "reconcile: %v\n", err)
		return nil, exitInternal, false
	}
	parsed, err := parser.Parse(args)
	if err != nil {
		fmt.Fprintf(stderr, "reconcile: %v (reconcile --help shows every setting)\n", err)
		return nil, exitRefused, false
	}
	return map[string]command{"run": &line.Run, "report": &line.Report, "exceptions": &line.Exceptions, "verify": &line.Verify}[parsed.Selected().Name], 0, true
}

// environment reads the flags that have an env tag through getenv, so that tests need no process
// environment.
func environment(getenv func(string) string) kong.Resolver {
	return kong.ResolverFunc(func(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
		for _, name := range flag.Envs {
			if value := getenv(name); value != "" {
				return value, nil
			}
		}
		return nil, nil
	})
}

// day reads --as-of.
func (c common) day() (time.Time, error) {
	if c.AsOf == "" {
		return time.Now().UTC(), nil
	}
	day, err := time.Parse(time.DateOnly, c.AsOf)
	if err != nil {
		return time.Time{}, refuse("--as-of %q is not a day such as 2026-01-31", c.AsOf)
	}
	return day, nil
}

// statementTimeMax is for one statement over a whole file.
const statementTimeMax = 15 * time.Minute

// open connects to the store. The returned function closes it.
func (c common) open(ctx context.Context, p *process, change func(*reconcile.Config)) (*reconcile.Reconciler, func(), error) {
	if c.DatabaseURL == "" {
		return nil, nil, refuse("--database-url (or DATABASE_URL) is not set: give the service's Postgres as postgres://user@host:port/name")
	}
	if c.Cutoff < 1 || c.Cutoff > 60 {
		return nil, nil, refuse("--cutoff %d is not 1 to 60 business days", c.Cutoff)
	}
	pool, err := postgres.Open(ctx, postgres.Config{
		URL: c.DatabaseURL, Role: postgres.ServiceRole, MaxConns: 4, StatementTimeout: statementTimeMax, Name: "reconcile",
	})
	if err != nil {
		return nil, nil, fmt.Errorf("--database-url: %w", err)
	}
	log := slog.New(slog.NewTextHandler(p.stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	config := reconcile.Config{
		Pool: pool, Merchants: merchant.NewStore(pool, time.Now), Now: time.Now, Log: log, Cutoff: c.Cutoff,
		Resolver: payment.NewResolver(payment.ResolverConfig{Pool: pool, Render: api.Render, Now: time.Now, Log: log}),
	}
	change(&config)
	return reconcile.New(config), pool.Close, nil
}

// checkAcquirer refuses a name that is misspelt: about another acquirer there is nothing to report, which
// looks as if all were well.
func checkAcquirer(ctx context.Context, r *reconcile.Reconciler, name string) error {
	err := r.CheckAcquirer(ctx, name)
	if errors.Is(err, reconcile.ErrAcquirer) {
		return refuse("--acquirer: %w", err)
	}
	return err
}

func (c *runCommand) execute(ctx context.Context, p *process) (int, error) {
	asOf, err := c.day()
	if err != nil {
		return exitRefused, err
	}
	if c.Lookback < 1 || c.Lookback > 3650 {
		return exitRefused, refuse("--lookback %d is not 1 to 3650 days", c.Lookback)
	}
	format, own, err := c.format()
	if err != nil {
		return exitRefused, err
	}
	feeds, err := findFeeds(ctx, p.stdin, append(c.Feed, c.Also...))
	if err != nil {
		return codeOf(err), err
	}
	show := newProgress(p.stderr, c.Quiet)
	r, closePool, err := c.open(ctx, p, func(config *reconcile.Config) {
		config.Lookback, config.LockWait, config.Progress, config.Formats = c.Lookback, c.Wait, show.update, own
	})
	if err != nil {
		return codeOf(err), err
	}
	defer closePool()
	report, err := r.Run(ctx, reconcile.Request{Acquirer: c.Acquirer, Format: format, AsOf: asOf, Feeds: feeds})
	show.finish()
	switch {
	case errors.Is(err, reconcile.ErrAcquirer):
		return exitRefused, fmt.Errorf("--acquirer: %w", err)
	case errors.Is(err, reconcile.ErrInvalidRequest):
		return exitRefused, fmt.Errorf("--format: %w", err)
	case errors.Is(err, reconcile.ErrTooLarge):
		return exitRefused, fmt.Errorf("--feed: %w", err)
	case err != nil:
		return codeOf(err), err
	}
	if err := report.Write(p.stdout, c.Output); err != nil {
		return exitInternal, err
	}
	return report.ExitCode(), nil
}

func (c *reportCommand) execute(ctx context.Context, p *process) (int, error) {
	r, closePool, err := c.open(ctx, p, func(*reconcile.Config) {})
	if err != nil {
		return codeOf(err), err
	}
	defer closePool()
	if err := checkAcquirer(ctx, r, c.Acquirer); err != nil {
		return codeOf(err), err
	}
	report, err := r.Latest(ctx, c.Acquirer)
	if errors.Is(err, reconcile.ErrNoRun) {
		return exitRefused, fmt.Errorf("--acquirer: %w", err)
	}
	if err != nil {
		return exitInternal, err
	}
	if err := report.Write(p.stdout, c.Output); err != nil {
		return exitInternal, err
	}
	if report.Unfinished != "" {
		return exitInternal, nil
	}
	return report.ExitCode(), nil
}

func (c *exceptionsCommand) execute(ctx context.Context, p *process) (int, error) {
	asOf, err := c.day()
	if err != nil {
		return exitRefused, err
	}
	class := reconcile.Class(c.Class)
	if _, ok := class.Info(); c.Class != "" && !ok {
		return exitRefused, refuse("--class %q is none; see the list in docs/reconciliation.md", c.Class)
	}
	r, closePool, err := c.open(ctx, p, func(*reconcile.Config) {})
	if err != nil {
		return codeOf(err), err
	}
	defer closePool()
	if c.Acquirer != "" {
		if err := checkAcquirer(ctx, r, c.Acquirer); err != nil {
			return codeOf(err), err
		}
	}
	filter := reconcile.ExceptionFilter{Acquirer: c.Acquirer, Class: class, State: "open", Limit: 1000}
	if c.All {
		filter.State = ""
	}
	var all []reconcile.Exception
	for more := true; more; {
		var found []reconcile.Exception
		if found, more, err = r.Exceptions(ctx, filter); err != nil {
			return exitInternal, err
		}
		all = append(all, found...)
		if len(found) > 0 {
			filter.StartingAfter = found[len(found)-1].ID
		}
	}
	if err := reconcile.WriteExceptions(p.stdout, c.Output, all, asOf); err != nil {
		return exitInternal, err
	}
	if len(all) == 0 && c.Output == "table" {
		fmt.Fprintln(p.stdout, "No exceptions.")
	}
	for _, e := range all {
		if e.Closed == nil {
			return exitExceptions, nil
		}
	}
	return exitClean, nil
}

func (c *verifyCommand) execute(ctx context.Context, p *process) (int, error) {
	if c.Output == "csv" {
		return exitRefused, refuse("--output csv is for exceptions; verify writes table or json")
	}
	r, closePool, err := c.open(ctx, p, func(*reconcile.Config) {})
	if err != nil {
		return codeOf(err), err
	}
	defer closePool()
	checks, err := r.Verify(ctx)
	if err != nil {
		return exitInternal, err
	}
	if err := checks.Write(p.stdout, c.Output); err != nil {
		return exitInternal, err
	}
	if !checks.Sound() {
		return exitExceptions, nil
	}
	return exitClean, nil
}

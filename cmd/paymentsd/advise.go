package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"paymentsd/internal/postgres"
	"paymentsd/migrations"
	"paymentsd/payment"
	"paymentsd/resilience/shared"
)

type adviseCommand struct {
	database
	Config   string `env:"PAYMENTSD_CONFIG" help:"YAML file with acquirers and limits." placeholder:"FILE"`
	Days     int    `default:"7" help:"How many days of attempts to read, at most 90."`
	AsOf     string `help:"The last UTC day to read, or a moment such as 2026-01-31T12:00:00Z (default: now)." placeholder:"DAY"`
	Replicas int    `help:"How many replicas share the traffic (default: as many as reported calls in the last two minutes)." placeholder:"N"`
	JSON     bool   `name:"json" help:"Write JSON."`
	Quiet    bool   `short:"q" help:"No progress."`
}

// The exit codes of advise beside 0, all in line.
const (
	exitOutOfLine = 1
	exitNoAdvice  = 2 // the configuration or the database cannot be read
)

// adviseStatementMax is for one statement, a week of one merchant.
const adviseStatementMax = 15 * time.Minute

// Run reads what was, and holds it against what is configured. It changes nothing.
func (c *adviseCommand) Run(ctx context.Context, p *process) error {
	report, err := c.advise(ctx, p)
	if err == nil {
		err = report.write(p.stdout, c.JSON)
	}
	switch {
	case err != nil:
		return &exitError{code: exitNoAdvice, cause: err}
	case !report.InLine:
		return &exitError{code: exitOutOfLine}
	}
	return nil
}

func (c *adviseCommand) advise(ctx context.Context, p *process) (adviceReport, error) {
	period, periodErr := c.period(time.Now())
	settings, err := c.settings()
	if err := errors.Join(c.check(), err, periodErr); err != nil {
		return adviceReport{}, err
	}
	pool, err := postgres.Open(ctx, postgres.Config{
		URL: c.DatabaseURL, Role: postgres.ServiceRole, MaxConns: 2, Name: "paymentsd advise", StatementTimeout: adviseStatementMax,
	})
	if err != nil {
		return adviceReport{}, fmt.Errorf("DATABASE_URL: %w", err)
	}
	defer pool.Close()
	if err := migrations.Check(ctx, pool); err != nil {
		return adviceReport{}, err
	}
	replicas, how, err := c.replicas(ctx, pool)
	if err != nil {
		return adviceReport{}, err
	}
	progress, finish := c.progress(p.stderr)
	period.Progress = progress
	traffic, err := payment.NewResolver(payment.ResolverConfig{Pool: pool, Now: time.Now, Log: slog.New(slog.DiscardHandler)}).Traffic(ctx, period)
	finish()
	if err != nil {
		return adviceReport{}, err
	}
	return newAdviceReport(settings, traffic, period, replicas, how), nil
}

// settings is the configuration, of which the policies have to be usable.
func (c *adviseCommand) settings() (config, error) {
	settings, err := (&serveCommand{Config: c.Config}).file()
	if err != nil {
		return settings, err
	}
	var problems []error
	for i, a := range settings.Acquirers {
		if err := a.policies().Validate(); err != nil {
			problems = append(problems, fmt.Errorf("acquirers[%d] (%s): %w", i, a.Name, err))
		}
	}
	return settings, errors.Join(problems...)
}

func (c *adviseCommand) period(now time.Time) (payment.TrafficQuery, error) {
	if c.Days < 1 || c.Days > 90 {
		return payment.TrafficQuery{}, fmt.Errorf("--days is %d: it must be 1 to 90", c.Days)
	}
	to := now
	if c.AsOf != "" {
		day, err := time.Parse(time.DateOnly, c.AsOf)
		to = day.AddDate(0, 0, 1)
		if err != nil {
			to, err = time.Parse(time.RFC3339, c.AsOf)
		}
		if err != nil {
			return payment.TrafficQuery{}, fmt.Errorf("--as-of is %q: it must be a day such as 2026-01-31, or a moment such as 2026-01-31T12:00:00Z", c.AsOf)
		}
	}
	to = to.UTC().Truncate(time.Second)
	return payment.TrafficQuery{From: to.AddDate(0, 0, -c.Days), To: to}, nil
}

// replicas says how many share the traffic, and how that is known.
func (c *adviseCommand) replicas(ctx context.Context, pool *pgxpool.Pool) (int, string, error) {
	if c.Replicas < 0 || c.Replicas > 10_000 {
		return 0, "", fmt.Errorf("--replicas is %d: it must be 1 to 10000", c.Replicas)
	}
	if c.Replicas > 0 {
		return c.Replicas, "by --replicas", nil
	}
	found, err := shared.Replicas(ctx, pool)
	if err != nil {
		return 0, "", err
	}
	if found > 0 {
		return found, fmt.Sprintf("reported calls in the last %v; --replicas says otherwise", shared.ReplicasWithin), nil
	}
	return 1, fmt.Sprintf("assumed, since none reported calls in the last %v; --replicas says otherwise", shared.ReplicasWithin), nil
}

// progress shows where a person looks on how far the reading is.
func (c *adviseCommand) progress(out io.Writer) (update func(merchants int, attempts int64), finish func()) {
	f, ok := out.(*os.File)
	if !ok || c.Quiet || !term.IsTerminal(int(f.Fd())) {
		return nil, func() {}
	}
	const unknown = -1
	bar := progressbar.NewOptions(unknown, progressbar.OptionSetWriter(out), progressbar.OptionShowCount(), progressbar.OptionShowIts(),
		progressbar.OptionSetItsString("attempts"), progressbar.OptionClearOnFinish(), progressbar.OptionSpinnerType(14))
	return func(merchants int, attempts int64) {
		bar.Describe(fmt.Sprintf("attempts of %d merchants", merchants))
		_ = bar.Set64(attempts)
	}, func() { _ = bar.Finish() }
}

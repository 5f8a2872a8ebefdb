package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/shopspring/decimal"

	"paymentsd/money"
)

// Report is what a run shows. It is read from the tables after the run, never counted along the way:
// the same state of things gives the same bytes, whether a run did all of it or came after one that
// was killed.
type Report struct {
	Acquirer   string
	AsOf       time.Time
	Unfinished string // why the run stopped half-way, if it did: lines are left that nobody looked at
	Files      []ReportedFile
	Lines      LineCounts
	Resolved   []Total // unknowns that a line of these files ended, by outcome
	Unknown    []Total // unknowns that are still open, by currency
	AtRisk     []Total // of the open exceptions, by currency
	Exceptions []Exception
}

// ReportedFile is a file as it was handed in.
type ReportedFile struct {
	Name string // as handed in this time
	File File
}

// Duplicate is the name under which the same bytes were handed in first, if it was another.
func (f ReportedFile) Duplicate() string {
	if f.Name == f.File.Name {
		return ""
	}
	return f.File.Name
}

// LineCounts says what became of the lines of the reported files.
type LineCounts struct {
	Matched     int64 // stand for a charge, alone or with others
	Duplicate   int64 // came in once too often
	Unmatched   int64 // fit no charge
	Waiting     int64 // their charge is still being asked for
	Withdrawn   int64 // taken back by a re-issue
	NotExamined int64 // nobody looked at them yet: says nothing about them
	NoMerchant  int64 // fees, payouts and what names no charge of ours
	Repeated    int64 // known from other files
	Bad         int64 // cannot be used
}

// Total is a number of things with what they are worth.
type Total struct {
	Word   string
	Count  int64
	Amount money.Amount
}

// Status is how a run with this report ends.
func (r Report) Status() RunStatus {
	usable := false
	for _, f := range r.Files {
		if f.File.Status == Quarantined {
			return RunRefused
		}
		usable = true
	}
	switch {
	case !usable:
		return RunRefused
	case len(r.Exceptions) > 0:
		return RunExceptions
	}
	return RunClean
}

// ExitCode is 0 clean, 1 exceptions, 2 no usable file or a failed control.
func (r Report) ExitCode() int {
	return map[RunStatus]int{RunClean: 0, RunExceptions: 1, RunRefused: 2}[r.Status()]
}

const latestRun = `
select ` + runColumns + ` from recon_runs r where r.acquirer = @acquirer order by r.started_at desc, r.run_id desc limit 1`

// Latest reads the report of the newest run of an acquirer as things stand now, or ErrNoRun.
func (r *Reconciler) Latest(ctx context.Context, acquirer string) (Report, error) {
	rows, err := r.Pool.Query(ctx, latestRun, pgx.NamedArgs{"acquirer": acquirer})
	if err != nil {
		return Report{}, fmt.Errorf("find the last run: %w", err)
	}
	run, err := pgx.CollectExactlyOneRow(rows, scanRun)
	if errors.Is(err, pgx.ErrNoRows) {
		return Report{}, fmt.Errorf("%w: %s", ErrNoRun, acquirer)
	}
	if err != nil {
		return Report{}, fmt.Errorf("find the last run: %w", err)
	}
	report, err := r.report(ctx, run)
	switch run.Status {
	case RunFailed:
		report.Unfinished = "the run failed: " + run.Error
	case RunRunning:
		report.Unfinished = "the run is still going on, or was killed: run it again"
	}
	return report, err
}

func (r *Reconciler) report(ctx context.Context, run Run) (Report, error) {
	report := Report{Acquirer: run.Acquirer, AsOf: run.AsOf.UTC()}
	for i, id := range run.FileIDs {
		f, ok, err := file(ctx, r.Pool, id)
		if err != nil || !ok {
			return Report{}, errors.Join(err, fmt.Errorf("settlement file %s of the run is not on record", id))
		}
		report.Files = append(report.Files, ReportedFile{Name: run.FileNames[i], File: f})
	}
	for _, read := range []func(context.Context, []string, *Report) error{r.readLines, r.readResolved, r.readUnknown, r.readExceptions} {
		if err := read(ctx, run.FileIDs, &report); err != nil {
			return Report{}, err
		}
	}
	return report, nil
}

const sumLines = `
select count(*) filter (where l.state = 'counted' and l.merchant_id is null),
       count(*) filter (where l.state = 'counted' and l.merchant_id is not null),
       count(*) filter (where l.state = 'withdrawn' and l.merchant_id is null),
       count(*) filter (where l.state = 'repeated'), count(*) filter (where l.state = 'bad')
  from settlement_lines l where l.file_id = any(@files)`

// sumClaims is a report over all merchants.
const sumClaims = `
select c.state, count(*) from settlement_claims c where c.file_id = any(@files) group by c.state`

func (r *Reconciler) readLines(ctx context.Context, files []string, report *Report) error {
	n := &report.Lines
	var claimable, withdrawn int64
	args := pgx.NamedArgs{"files": files}
	if err := r.Pool.QueryRow(ctx, sumLines, args).Scan(&n.NoMerchant, &claimable, &withdrawn, &n.Repeated, &n.Bad); err != nil {
		return fmt.Errorf("count the lines: %w", err)
	}
	rows, err := r.Pool.Query(ctx, sumClaims, args)
	if err != nil {
		return fmt.Errorf("count the lines: %w", err)
	}
	var state claimState
	var count, examined int64
	_, err = pgx.ForEachRow(rows, []any{&state, &count}, func() error {
		switch state {
		case stateMatched, statePart:
			n.Matched += count
		case stateDuplicate:
			n.Duplicate += count
		case stateUnmatched:
			n.Unmatched += count
		case stateWaiting:
			n.Waiting += count
		case stateWithdrawn:
			n.Withdrawn += count
			return nil
		case stateNew:
			return nil
		}
		examined += count
		return nil
	})
	// What is not examined is what is left: lines that no merchant was given yet are among it.
	n.Withdrawn, n.NotExamined = n.Withdrawn+withdrawn, max(claimable-examined, 0)
	return err
}

// sumResolved is a report over all merchants.
const sumResolved = `
select case c.kind when 'capture' then 'captured' else 'failed' end, count(*), sum(c.gross), c.currency
  from settlement_claims c where c.file_id = any(@files) and c.resolved
 group by 1, c.currency order by 1, c.currency`

func (r *Reconciler) readResolved(ctx context.Context, files []string, report *Report) error {
	rows, err := r.Pool.Query(ctx, sumResolved, pgx.NamedArgs{"files": files})
	if err != nil {
		return fmt.Errorf("sum what was resolved: %w", err)
	}
	report.Resolved, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (t Total, err error) {
		var sum decimal.Decimal
		var currency money.Currency
		if err = row.Scan(&t.Word, &t.Count, &sum, &currency); err != nil {
			return Total{}, err
		}
		t.Amount, err = money.Total(sum, currency)
		return t, err
	})
	return err
}

func (r *Reconciler) readUnknown(ctx context.Context, _ []string, report *Report) error {
	exposures, err := r.Resolver.Exposures(ctx)
	if err != nil {
		return err
	}
	for _, e := range exposures {
		if e.Acquirer == report.Acquirer {
			report.Unknown = append(report.Unknown, Total{Word: "unknown", Count: int64(e.Count), Amount: e.Sum})
		}
	}
	return nil
}

// reportedMax bounds the exceptions of one report; the rest is counted, and listed by Exceptions.
const reportedMax = 100_000

// readExceptions reads the open exceptions of the acquirer, whichever run found them.
func (r *Reconciler) readExceptions(ctx context.Context, _ []string, report *Report) error {
	const pageSize = 1000
	for after := ""; len(report.Exceptions) < reportedMax; {
		found, more, err := r.Exceptions(ctx, ExceptionFilter{Acquirer: report.Acquirer, State: "open", StartingAfter: after, Limit: pageSize})
		if err != nil {
			return err
		}
		report.Exceptions = append(report.Exceptions, found...)
		if !more {
			break
		}
		after = found[len(found)-1].ID
	}
	report.AtRisk = atRisk(report.Exceptions)
	return nil
}

// atRisk sums what exceptions put at risk. One charge may be in several: it is a bound, not a loss.
func atRisk(exceptions []Exception) (totals []Total) {
	for _, e := range exceptions {
		c := e.AtRisk.Currency()
		if c == "" || e.AtRisk.Sign() == 0 {
			continue
		}
		at := slices.IndexFunc(totals, func(t Total) bool { return t.Amount.Currency() == c })
		if at < 0 {
			totals, at = append(totals, Total{Word: "at_risk", Amount: money.Zero(c)}), len(totals)
		}
		totals[at].Count++
		totals[at].Amount, _ = totals[at].Amount.Add(e.AtRisk) // one currency
	}
	slices.SortFunc(totals, func(a, b Total) int { return strings.Compare(string(a.Amount.Currency()), string(b.Amount.Currency())) })
	return totals
}

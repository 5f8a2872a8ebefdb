package reconcile

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"paymentsd/internal/postgres"
)

// Feed is one settlement file to take in.
type Feed struct {
	Name string
	Open func(ctx context.Context) (io.ReadCloser, error)
}

// Request says what to reconcile.
type Request struct {
	Acquirer string
	Format   string
	AsOf     time.Time // a UTC day: ages and cut-offs count to it
	Feeds    []Feed    // taken in, in this order
}

// RunStatus is how a run ended.
type RunStatus string

// The states of a run.
const (
	RunRunning    RunStatus = "running"    // or killed, if nothing holds its lock
	RunClean      RunStatus = "clean"      // nothing to look at
	RunExceptions RunStatus = "exceptions" // differences remain
	RunRefused    RunStatus = "refused"    // a file failed a control, or none was usable
	RunFailed     RunStatus = "failed"     // the run could not go on; run it again
)

// Run is one run as it is on record.
type Run struct {
	ID         string
	Acquirer   string
	AsOf       time.Time
	Status     RunStatus
	FileIDs    []string
	FileNames  []string // as handed in, of each FileID
	Examined   int64    // references
	Captured   int64    // unknowns that this run ended
	Failed     int64
	Exceptions int64 // open when it ended
	Error      string
	StartedAt  time.Time
	FinishedAt time.Time // zero while running
}

// Run imports the feeds, ends every unknown for which they are proof, posts their lines, and reports
// what differs. It may be killed at any point, and run again, also twice at once: the end is the
// same. An error means that it stopped half-way; what it had done stands.
//
// Errors: ErrAcquirer, ErrInvalidRequest, ErrBusy, and what a feed or the database returned.
func (r *Reconciler) Run(ctx context.Context, q Request) (Report, error) {
	if err := r.CheckAcquirer(ctx, q.Acquirer); err != nil {
		return Report{}, err
	}
	if q.AsOf.IsZero() {
		return Report{}, fmt.Errorf("%w: a run needs the day that it is for", ErrInvalidRequest)
	}
	l, err := r.lock(ctx, q.Acquirer)
	if err != nil {
		return Report{}, err
	}
	defer l.release(ctx)
	run := Run{
		ID: "rr_" + strings.ToLower(rand.Text()), Acquirer: q.Acquirer, AsOf: dayOf(q.AsOf), Status: RunRunning,
		FileIDs: []string{}, FileNames: []string{}, StartedAt: r.now(),
	}
	if err := r.beginRun(ctx, run); err != nil {
		return Report{}, err
	}
	r.Fault("run_started")
	report, err := r.work(ctx, l, q, &run)
	if err != nil {
		run.Status, run.Error = RunFailed, short(err.Error(), 1000)
	} else {
		run.Status = report.Status()
		run.Exceptions = int64(len(report.Exceptions))
	}
	run.FinishedAt = r.now()
	return report, errors.Join(err, r.endRun(ctx, run))
}

// work is the run itself, between its two notes in the book of runs.
func (r *Reconciler) work(ctx context.Context, l *locks, q Request, run *Run) (Report, error) {
	for i, feed := range q.Feeds {
		imported, err := r.importFeed(ctx, q, feed)
		if err != nil {
			return Report{}, err
		}
		run.FileIDs, run.FileNames = append(run.FileIDs, imported.File.ID), append(run.FileNames, short(feed.Name, 255))
		r.Progress(Progress{Stage: "import", Text: describe(feed.Name, imported), Done: i + 1, Total: len(q.Feeds)})
	}
	if err := r.recordGaps(ctx, q.Acquirer); err != nil {
		return Report{}, err
	}
	if err := r.claimLines(ctx, q.Acquirer); err != nil {
		return Report{}, err
	}
	r.Fault("lines_claimed")
	m := &matching{Reconciler: r, acquirer: q.Acquirer, asOf: run.AsOf, locks: l}
	err := m.all(ctx)
	run.Examined, run.Captured, run.Failed = int64(m.examined), int64(m.captured), int64(m.failed)
	if err != nil {
		return Report{}, err
	}
	r.Fault("matched")
	return r.report(ctx, *run)
}

func (r *Reconciler) importFeed(ctx context.Context, q Request, feed Feed) (Imported, error) {
	layout, err := r.formatNamed(q.Format)
	if err != nil {
		return Imported{}, err
	}
	in, err := feed.Open(ctx)
	if err != nil {
		return Imported{}, fmt.Errorf("open settlement file %s: %w", feed.Name, err)
	}
	defer in.Close()
	spooled, err := r.spool(in)
	if err != nil {
		return Imported{}, fmt.Errorf("take in %s: %w", feed.Name, err)
	}
	defer spooled.close()
	return r.importFile(ctx, q.Acquirer, layout, feed.Name, spooled)
}

// describe tells a person what became of a file.
func describe(name string, i Imported) string {
	f := i.File
	switch {
	case f.Status == Quarantined:
		return fmt.Sprintf("%s: refused, nothing of it is used: %s", name, f.Reason)
	case i.Known:
		return fmt.Sprintf("%s: taken in before as %s, nothing to do", name, f.Name)
	}
	text := fmt.Sprintf("%s: %s, %d lines, %d new", name, f.Status, f.Lines, f.Counted)
	if f.Repeated > 0 {
		text += fmt.Sprintf(", %d known from other files", f.Repeated)
	}
	if f.Bad > 0 {
		text += fmt.Sprintf(", %d not usable", f.Bad)
	}
	if len(f.Ignored) > 0 {
		text += ", columns not used: " + strings.Join(f.Ignored, ", ")
	}
	return text
}

// A run that is still 'running' though its acquirer's lock was free was killed.
const endKilled = `
update recon_runs r set status = 'failed', finished_at = @now, error = 'the run was killed; a later one took its work up'
 where r.acquirer = @acquirer and r.status = 'running'`

const insertRun = `
insert into recon_runs (run_id, acquirer, as_of, status, started_at) values (@id, @acquirer, @as_of, 'running', @now)`

func (r *Reconciler) beginRun(ctx context.Context, run Run) error {
	args := pgx.NamedArgs{"id": run.ID, "acquirer": run.Acquirer, "as_of": run.AsOf, "now": run.StartedAt}
	for _, sql := range []string{endKilled, insertRun} {
		if _, err := r.Pool.Exec(ctx, sql, args); err != nil {
			return fmt.Errorf("note the start of the run: %w", err)
		}
	}
	return nil
}

const finishRun = `
update recon_runs r
   set status = @status, file_ids = @ids, file_names = @names, examined = @examined, captured = @captured, failed = @failed,
       exceptions = @exceptions, error = @error, finished_at = @now
 where r.run_id = @id`

// endTries is more than a pool has connections: after a restart of the database each of them fails once.
const endTries = 20

// endRun also notes the end of a run that was told to stop, or that lost its connections.
func (r *Reconciler) endRun(ctx context.Context, run Run) error {
	const patience = 5 * time.Second
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	args := pgx.NamedArgs{
		"id": run.ID, "status": run.Status, "ids": run.FileIDs, "names": run.FileNames, "examined": run.Examined, "captured": run.Captured,
		"failed": run.Failed, "exceptions": run.Exceptions, "error": run.Error, "now": run.FinishedAt,
	}
	for try := 1; ; try++ {
		_, err := r.Pool.Exec(ctx, finishRun, args)
		if err == nil {
			return nil
		}
		if try == endTries || ctx.Err() != nil || !postgres.Unavailable(err) {
			return fmt.Errorf("note the end of the run: %w", err)
		}
	}
}

const runColumns = `r.run_id, r.acquirer, r.as_of, r.status, r.file_ids, r.file_names, r.examined, r.captured, r.failed, r.exceptions,
  r.error, r.started_at, coalesce(r.finished_at, 'epoch')`

const listRuns = `
select ` + runColumns + `
  from recon_runs r
 where (@acquirer = '' or r.acquirer = @acquirer)
   and (@after = '' or (r.started_at, r.run_id) < (select a.started_at, a.run_id from recon_runs a where a.run_id = @after))
 order by r.started_at desc, r.run_id desc limit @limit`

const runExists = `select count(*) from recon_runs r where r.run_id = @id`

// RunFilter says which runs to list.
type RunFilter struct {
	Acquirer      string // all if empty
	StartingAfter string // a run id of an earlier page
	Limit         int    // 1 to 100
}

// Runs lists runs, newest first, and says whether there are more. A cursor that names no run is
// ErrInvalidCursor.
func (r *Reconciler) Runs(ctx context.Context, f RunFilter) ([]Run, bool, error) {
	if f.Limit < 1 || f.Limit > 100 {
		return nil, false, fmt.Errorf("list runs: %w: the limit %d is not 1 to 100", ErrInvalidRequest, f.Limit)
	}
	if f.StartingAfter != "" {
		if err := r.checkCursor(ctx, runExists, f.StartingAfter); err != nil {
			return nil, false, err
		}
	}
	rows, err := r.Pool.Query(ctx, listRuns, pgx.NamedArgs{"acquirer": f.Acquirer, "after": f.StartingAfter, "limit": f.Limit + 1})
	if err != nil {
		return nil, false, fmt.Errorf("list runs: %w", err)
	}
	return page(rows, f.Limit, scanRun)
}

func (r *Reconciler) checkCursor(ctx context.Context, sql, id string) error {
	var n int
	if err := r.Pool.QueryRow(ctx, sql, pgx.NamedArgs{"id": id}).Scan(&n); err != nil {
		return fmt.Errorf("check the cursor: %w", err)
	}
	if n == 0 {
		return fmt.Errorf("%w: %.40q", ErrInvalidCursor, id)
	}
	return nil
}

func scanRun(row pgx.CollectableRow) (Run, error) {
	run, err := pgx.RowToStructByPos[Run](row)
	run.StartedAt, run.FinishedAt = run.StartedAt.UTC(), run.FinishedAt.UTC()
	if run.FinishedAt.Unix() == 0 {
		run.FinishedAt = time.Time{}
	}
	return run, err
}

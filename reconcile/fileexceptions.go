package reconcile

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/shopspring/decimal"

	"paymentsd/internal/postgres"
	"paymentsd/money"
)

func fileScope(id string) string      { return "file:" + id }
func reportScope(f File) string       { return "report:" + f.BusinessID() }
func gapScope(acquirer string) string { return "gaps:" + acquirer }

const closeLines = `
update recon_exceptions x
   set state = 'closed', closed_at = @now, closed_by = 'reconcile', close_reason = @reason, updated_at = @now
 where x.state = 'open' and x.line_no is not null and x.scope = any(
         select 'file:' || f.file_id from settlement_files f
          where f.acquirer = @acquirer and f.account = @account and f.family = @family and f.file_id <> @file)
   and not exists (select 1 from settlement_lines l where l.file_id = x.file_id and l.line_no = x.line_no and l.state = 'counted')`

// recordFile writes the exceptions of a file that was accepted, and closes those that it settles.
func (r *Reconciler) recordFile(ctx context.Context, tx pgx.Tx, f File) error {
	if f.Status == Superseded || f.Status == Duplicate {
		return r.recordIn(ctx, tx, []string{reportScope(f)}, nil, "file "+f.Name+" was whole")
	}
	var found []Exception
	if f.Removed+f.Changed > 0 {
		found = append(found, Exception{
			Acquirer: f.Acquirer, Class: ReissuedFile, FileID: f.ID, Since: f.since(), Ours: "report " + f.BusinessID() + " as it stood",
			Theirs: fmt.Sprintf("%s: %d added, %d removed, %d changed", f.Name, f.Added, f.Removed, f.Changed),
			Detail: "The lines removed or changed are taken back in the ledger; charges they had resolved stay as they are.",
		}.identify(fileScope(f.ID)))
	}
	// The file itself may have been in quarantine, until its format could be read.
	if err := r.recordIn(ctx, tx, []string{reportScope(f), fileScope(f.ID)}, found, "file "+f.Name+" was accepted"); err != nil {
		return err
	}
	args := pgx.NamedArgs{"acquirer": f.Acquirer, "account": f.Account, "family": f.Family, "file": f.ID, "now": r.now(), "reason": f.Name + " replaces the file"}
	if _, err := tx.Exec(ctx, closeLines, args); err != nil {
		return fmt.Errorf("close the exceptions of earlier issues: %w", err)
	}
	return r.recordLines(ctx, tx, f)
}

// Bad lines, and good ones about a charge that is no merchant's of ours.
const selectOddLines = `
select l.line_no, l.natural_key, l.kind, l.source_kind, l.reference, l.capture_id, coalesce(l.currency, ''), coalesce(l.gross, 0),
       coalesce(l.occurred_at, 'epoch'), coalesce(l.problem, ''), l.field, l.value, l.reason
  from settlement_lines l
 where l.file_id = @file and l.line_no > @after
   and (l.state = 'bad' or (l.state = 'counted' and l.merchant_id is null and l.kind in ('capture', 'partial_capture_reversal',
        'capture_failed', 'refund', 'refund_reversal', 'chargeback', 'chargeback_reversal')))
 order by l.line_no limit @limit`

// oddLine is a line that no merchant's examination will come by.
type oddLine struct {
	No                                                 int
	NaturalKey, Kind, SourceKind, Reference, CaptureID string
	Currency                                           money.Currency
	Gross                                              decimal.Decimal
	OccurredAt                                         time.Time
	Problem, Field, Value, Reason                      string
}

// oddLinesAtOnce bounds what is held in memory of a file full of bad lines.
const oddLinesAtOnce = 1000

func (r *Reconciler) recordLines(ctx context.Context, tx pgx.Tx, f File) error {
	for after := 0; ; {
		rows, err := tx.Query(ctx, selectOddLines, pgx.NamedArgs{"file": f.ID, "after": after, "limit": oddLinesAtOnce})
		if err != nil {
			return err
		}
		lines, err := pgx.CollectRows(rows, pgx.RowToStructByPos[oddLine])
		if err != nil || len(lines) == 0 {
			return err
		}
		found := make([]Exception, 0, len(lines))
		for _, l := range lines {
			found = append(found, l.exception(f))
		}
		if err := r.recordIn(ctx, tx, nil, found, ""); err != nil {
			return err
		}
		after = lines[len(lines)-1].No
	}
}

func (l oddLine) exception(f File) Exception {
	e := Exception{
		Acquirer: f.Acquirer, Class: Class(l.Problem), FileID: f.ID, LineNo: l.No, Since: l.OccurredAt, AcqRef: l.Reference,
		Theirs: fmt.Sprintf("%s %s, reference %s, capture %s", l.Kind, l.NaturalKey, quoted(l.Reference), quoted(l.CaptureID)),
	}
	if l.Currency != "" {
		if gross, err := money.Total(l.Gross, l.Currency); err == nil {
			e.AtRisk = gross
			e.Theirs = fmt.Sprintf("%s, %s %s", e.Theirs, gross, l.Currency)
		}
	}
	switch {
	case l.Problem != "":
		e.Ours, e.Detail = "not used", l.Reason
		if l.Field != "" || l.Value != "" {
			e.Theirs = fmt.Sprintf("%s: %s", l.Field, quoted(l.Value))
		}
	case l.Reference == "":
		e.Class, e.Ours, e.Detail = NoReference, "nothing to match", "The line is about a charge but has no reference of ours."
	default:
		e.Class, e.Ours, e.Detail = MissingWithUs, "no such charge", "The reference is none of ours: another system's, or damaged on its way."
	}
	if l.OccurredAt.Unix() <= 0 {
		e.Since = f.since()
	}
	return e.identify(fileScope(f.ID), strconv.Itoa(l.No))
}

const findAccepted = `
select exists (select 1 from settlement_files f
 where f.acquirer = @acquirer and f.account = @account and f.sequence = @sequence::bigint and f.status in ('accepted', 'superseded', 'duplicate'))`

// quarantine notes that a file was refused, and why. Nothing else of it is kept.
func (r *Reconciler) quarantine(ctx context.Context, f *File, why *refusalError) error {
	f.Status, f.Class, f.Reason, f.Lines = Quarantined, why.class, why.reason, 0
	return postgres.InTx(ctx, r.Pool, func(tx pgx.Tx) error {
		if err := insertFileRow(ctx, tx, *f); err != nil {
			return err
		}
		scope, since := fileScope(f.ID), f.ReceivedAt
		if f.Sequence > 0 && f.Class != string(WrongAcquirer) {
			scope, since = reportScope(*f), f.since()
			var settled bool
			args := pgx.NamedArgs{"acquirer": f.Acquirer, "account": f.Account, "sequence": f.Sequence}
			if err := tx.QueryRow(ctx, findAccepted, args).Scan(&settled); err != nil || settled {
				return err
			}
		}
		e := Exception{
			Acquirer: f.Acquirer, Class: Class(f.Class), FileID: f.ID, Since: since, Ours: "not used", Theirs: f.Name, Detail: f.Reason,
		}.identify(scope, f.ID)
		return r.recordIn(ctx, tx, nil, []Exception{e}, "")
	})
}

package reconcile

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

const insertFile = `
insert into settlement_files (file_id, acquirer, format, name, sha256, bytes, account, sequence, replaces, period_from, period_to,
  ignored_columns, status, class, reason, received_at, starts_anywhere)
values (@id, @acquirer, @format, @name, @sha256, @bytes, @account, nullif(@sequence::bigint, 0),
  case when @sequence > 0 then @replaces::bigint end, @from::timestamptz, @to::timestamptz, @ignored, @status, nullif(@class, ''),
  @reason, @now, @anywhere)
on conflict (file_id) do update set account = excluded.account, sequence = excluded.sequence, replaces = excluded.replaces,
  period_from = excluded.period_from, period_to = excluded.period_to, ignored_columns = excluded.ignored_columns,
  status = excluded.status, class = excluded.class, reason = excluded.reason, starts_anywhere = excluded.starts_anywhere`

// insertFileRow adds a file, or takes one out of quarantine for another look.
func insertFileRow(ctx context.Context, tx pgx.Tx, f File) error {
	_, err := tx.Exec(ctx, insertFile, pgx.NamedArgs{
		"id": f.ID, "acquirer": f.Acquirer, "format": f.Format, "name": f.Name, "sha256": f.SHA256, "bytes": f.Bytes,
		"account": f.Account, "sequence": f.Sequence, "replaces": f.Replaces, "from": timeOrNull(f.From), "to": timeOrNull(f.To), "ignored": f.Ignored,
		"status": f.Status, "class": f.Class, "reason": short(f.Reason, 1000), "now": f.ReceivedAt,
		"anywhere": f.StartsAnywhere,
	})
	return err
}

func timeOrNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// findFamily is the report that the file is an issue of: a re-issue of a re-issue is one of the first. It is 0
// of an unnumbered file, which no statement finds: such a file is stored without a family.
const findFamily = `
select coalesce(
  (select f.family from settlement_files f
    where f.acquirer = @acquirer and f.account = @account and f.sequence = @replaces
      and f.status in ('accepted', 'superseded', 'duplicate') order by f.family limit 1),
  nullif(@replaces::bigint, 0), @sequence::bigint)`

// findNewer finds an accepted issue of the same report that outranks this one: files may come in any
// order.
const findNewer = `
select coalesce(max(f.name), '') from settlement_files f
 where f.acquirer = @acquirer and f.account = @account and f.family = @family and f.status = 'accepted'
   and (f.sequence, (f.replaces > 0)) > (@sequence::bigint, (@replaces::bigint > 0))`

// A line id that is in the file twice, too far apart for the reader to remember.
const markRepetitions = `
update settlement_lines l
   set state = 'bad', field = 'id', value = left(l.natural_key, 80), reason = 'the id of line ' || first.line_no || ', far above',
       problem = case when (l.kind, l.reference, l.capture_id, l.payout, l.currency, l.gross, l.fee, l.net, l.occurred_at,
                         l.settled_currency, l.settled_fee, l.settled_net)
                         is not distinct from (first.kind, first.reference, first.capture_id, first.payout, first.currency,
                         first.gross, first.fee, first.net, first.occurred_at, first.settled_currency, first.settled_fee, first.settled_net)
                      then 'duplicate_line' else 'same_key_other_content' end
  from (select r.natural_key, r.line_no, row_number() over (partition by r.natural_key order by r.line_no) as n,
               min(r.line_no) over (partition by r.natural_key) as first_no
          from settlement_lines r where r.file_id = @file and r.state = 'repeated') repeats
  join settlement_lines first on first.file_id = @file and first.line_no = repeats.first_no
 where l.file_id = @file and l.line_no = repeats.line_no and repeats.n > 1`

// Lines that stood in an earlier issue of the report and that this one has otherwise, or not at all.
// One that it has, but so that it cannot be read, stays: a person looks at it.
const withdrawChanged = `
update settlement_lines l set state = 'withdrawn'
  from settlement_files i, settlement_lines n
 where i.acquirer = @acquirer and i.account = @account and i.family = @family and i.status in ('accepted', 'superseded')
   and l.file_id = i.file_id and l.state = 'counted'
   and n.file_id = @file and n.state = 'repeated' and n.natural_key = l.natural_key
   and (l.kind, l.reference, l.capture_id, l.payout, l.currency, l.gross, l.fee, l.net, l.occurred_at,
        l.settled_currency, l.settled_fee, l.settled_net) is distinct from
       (n.kind, n.reference, n.capture_id, n.payout, n.currency, n.gross, n.fee, n.net, n.occurred_at,
        n.settled_currency, n.settled_fee, n.settled_net)`

const withdrawRemoved = `
update settlement_lines l set state = 'withdrawn'
  from settlement_files i
 where i.acquirer = @acquirer and i.account = @account and i.family = @family and i.status in ('accepted', 'superseded')
   and l.file_id = i.file_id and l.state = 'counted'
   and not exists (select 1 from settlement_lines n where n.file_id = @file and n.natural_key = l.natural_key)`

// A good line whose key is counted in another report with other content.
const markConflicts = `
update settlement_lines l
   set state = 'bad', problem = 'same_key_other_content', field = 'id', value = left(l.natural_key, 80),
       reason = 'line ' || c.line_no || ' of file ' || c.file_id || ' has this id and says something else'
  from settlement_lines c
 where l.file_id = @file and l.state = 'repeated'
   and c.acquirer = @acquirer and c.account = @account and c.natural_key = l.natural_key and c.state = 'counted'
   and (l.kind, l.reference, l.capture_id, l.payout, l.currency, l.gross, l.fee, l.net, l.occurred_at,
        l.settled_currency, l.settled_fee, l.settled_net) is distinct from
       (c.kind, c.reference, c.capture_id, c.payout, c.currency, c.gross, c.fee, c.net, c.occurred_at,
        c.settled_currency, c.settled_fee, c.settled_net)`

const countNews = `
update settlement_lines l
   set state = 'counted', revision = coalesce((select max(w.revision) + 1 from settlement_lines w
         where w.acquirer = @acquirer and w.account = @account and w.natural_key = l.natural_key and w.state = 'withdrawn'), 0)
 where l.file_id = @file and l.state = 'repeated'
   and not exists (select 1 from settlement_lines c
         where c.acquirer = @acquirer and c.account = @account and c.natural_key = l.natural_key and c.state = 'counted')`

// A line that the re-issue takes back stands all the same if another report has it, too.
const countElsewhere = `
with found as materialized (
  select distinct on (o.natural_key) o.file_id, o.line_no,
         (select max(v.revision) + 1 from settlement_lines v
           where v.acquirer = @acquirer and v.account = @account and v.natural_key = o.natural_key and v.state = 'withdrawn') as revision
    from settlement_files i
    join settlement_lines w on w.file_id = i.file_id and w.state = 'withdrawn'
    join settlement_lines o on o.acquirer = @acquirer and o.account = @account and o.natural_key = w.natural_key and o.state = 'repeated'
    join settlement_files s on s.file_id = o.file_id and s.status in ('accepted', 'superseded') and s.family <> @family
   where i.acquirer = @acquirer and i.account = @account and i.family = @family
     and not exists (select 1 from settlement_lines c
           where c.acquirer = @acquirer and c.account = @account and c.natural_key = o.natural_key and c.state = 'counted')
   order by o.natural_key, o.file_id, o.line_no
), moved as (
  update settlement_lines l set state = 'counted', revision = found.revision
    from found where l.file_id = found.file_id and l.line_no = found.line_no
  returning l.file_id
)
update settlement_files f set claimed = false where f.file_id in (select m.file_id from moved m)`

const countLines = `
select count(*) filter (where l.state = 'counted'), count(*) filter (where l.state = 'repeated'), count(*) filter (where l.state = 'bad'),
       count(*) filter (where l.state = 'counted' and l.revision = 0)
  from settlement_lines l where l.file_id = @file`

const supersede = `
update settlement_files f set claimed = false, status = 'superseded',
       reason = case when f.status = 'accepted' then 'issued again as ' || @name else f.reason end
 where f.acquirer = @acquirer and f.account = @account and f.family = @family and f.status in ('accepted', 'superseded')`

const finishFile = `
update settlement_files f
   set status = @status, reason = @reason, family = nullif(@family::bigint, 0), first_line_at = @first_line, lines = @lines, counted = @counted, repeated = @repeated, bad = @bad,
       added = @added, removed = @removed, changed = @changed, claimed = false
 where f.file_id = @file`

// accept makes out which of the staged lines are news, and what a re-issue takes back, all in the
// transaction that staged them.
func (r *Reconciler) accept(ctx context.Context, tx pgx.Tx, f *File) error {
	args := pgx.NamedArgs{
		"file": f.ID, "acquirer": f.Acquirer, "account": f.Account, "sequence": f.Sequence, "replaces": f.Replaces, "name": f.Name,
	}
	if err := tx.QueryRow(ctx, findFamily, args).Scan(&f.Family); err != nil {
		return fmt.Errorf("find what the file re-issues: %w", err)
	}
	args["family"] = f.Family
	var newer string
	if err := tx.QueryRow(ctx, findNewer, args).Scan(&newer); err != nil {
		return fmt.Errorf("find newer issues: %w", err)
	}
	f.Status = Accepted
	if newer != "" {
		f.Status, f.Reason = Superseded, "came after its re-issue "+newer
	} else if err := r.compare(ctx, tx, f, args); err != nil {
		return err
	}
	var fresh int64
	if err := tx.QueryRow(ctx, countLines, args).Scan(&f.Counted, &f.Repeated, &f.Bad, &fresh); err != nil {
		return fmt.Errorf("count the lines: %w", err)
	}
	if err := r.settleIssues(ctx, tx, f, fresh, args); err != nil {
		return err
	}
	for name, value := range map[string]any{
		"status": f.Status, "reason": short(f.Reason, 1000), "lines": f.Lines, "counted": f.Counted, "repeated": f.Repeated, "bad": f.Bad,
		"added": f.Added, "removed": f.Removed, "changed": f.Changed, "first_line": timeOrNull(f.FirstLineAt),
	} {
		args[name] = value
	}
	if _, err := tx.Exec(ctx, finishFile, args); err != nil {
		return fmt.Errorf("accept the file: %w", err)
	}
	return r.recordFile(ctx, tx, *f)
}

// compare gives each line its state, set by set.
func (r *Reconciler) compare(ctx context.Context, tx pgx.Tx, f *File, args pgx.NamedArgs) error {
	for _, step := range []struct {
		sql   string
		count *int64
	}{
		{markRepetitions, nil}, {withdrawChanged, &f.Changed}, {withdrawRemoved, &f.Removed}, {markConflicts, nil}, {countNews, nil},
	} {
		tag, err := tx.Exec(ctx, step.sql, args)
		if err != nil {
			return fmt.Errorf("compare the lines with what is known: %w", err)
		}
		if step.count != nil {
			*step.count = tag.RowsAffected()
		}
	}
	if f.Removed > 0 {
		if _, err := tx.Exec(ctx, countElsewhere, args); err != nil {
			return fmt.Errorf("count the removed lines that other reports have: %w", err)
		}
	}
	return nil
}

const countIssues = `
select count(*), count(*) filter (where (f.period_from, f.period_to) is not distinct from (@from::timestamptz, @to::timestamptz))
  from settlement_files f
 where f.acquirer = @acquirer and f.account = @account and f.family = @family and f.status = 'accepted'`

// settleIssues lets the file take the place of earlier issues of its report, if it says anything new.
func (r *Reconciler) settleIssues(ctx context.Context, tx pgx.Tx, f *File, fresh int64, args pgx.NamedArgs) error {
	var issues, samePeriod int64
	args["from"], args["to"] = timeOrNull(f.From), timeOrNull(f.To)
	if err := tx.QueryRow(ctx, countIssues, args).Scan(&issues, &samePeriod); err != nil {
		return fmt.Errorf("find earlier issues: %w", err)
	}
	if issues == 0 || f.Status == Superseded {
		return nil
	}
	f.Added = fresh
	// The same lines over a longer period are news: that there was nothing more until then.
	if f.Added+f.Removed+f.Changed+f.Bad == 0 && samePeriod > 0 {
		f.Status, f.Reason = Duplicate, "other bytes, but the lines that are known"
		return nil
	}
	if _, err := tx.Exec(ctx, supersede, args); err != nil {
		return fmt.Errorf("supersede earlier issues: %w", err)
	}
	f.Reason = fmt.Sprintf("issued again: %d lines added, %d removed, %d changed", f.Added, f.Removed, f.Changed)
	return nil
}

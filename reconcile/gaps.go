package reconcile

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"paymentsd/internal/postgres"
)

// Sequences run from 1 without a gap in every account, or from wherever the first file that came has it, if
// its format says so; a re-issue stands for the report it replaces.
const findGaps = `
with present as (
  select distinct f.account, s.sequence, bool_or(f.starts_anywhere) over (partition by f.account) as starts_anywhere,
         max(coalesce(f.period_from, f.first_line_at, f.received_at)) over (partition by f.account, s.sequence) as period_from
    from settlement_files f, lateral (values (f.sequence), (f.family)) s (sequence)
   where f.acquirer = @acquirer and f.status in ('accepted', 'duplicate', 'superseded') and s.sequence is not null
), steps as (
  select p.account, p.sequence, p.period_from,
         lag(p.sequence, 1, case when p.starts_anywhere then p.sequence - 1 else 0 end)
           over (partition by p.account order by p.sequence) as before
    from present p
)
select s.account, s.before + 1, s.sequence - 1, s.period_from from steps s
 where s.sequence > s.before + 1 order by s.account, s.before limit @limit`

// gapsMax bounds how many gaps are listed: a broken sequence number is one gap.
const gapsMax = 1000

type gap struct {
	Account     string
	First, Last int64
	Before      time.Time // the period after the gap
}

func (r *Reconciler) findGaps(ctx context.Context, acquirer string) ([]gap, error) {
	rows, err := r.Pool.Query(ctx, findGaps, pgx.NamedArgs{"acquirer": acquirer, "limit": gapsMax})
	if err != nil {
		return nil, fmt.Errorf("look for missing files: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[gap])
}

// recordGaps makes each run of missing sequence numbers an exception.
func (r *Reconciler) recordGaps(ctx context.Context, acquirer string) error {
	gaps, err := r.findGaps(ctx, acquirer)
	if err != nil {
		return err
	}
	found := make([]Exception, 0, len(gaps))
	for _, g := range gaps {
		numbers := strconv.FormatInt(g.First, 10)
		if g.Last > g.First {
			numbers = fmt.Sprintf("%d to %d", g.First, g.Last)
		}
		found = append(found, Exception{
			Acquirer: acquirer, Class: MissingFile, Since: g.Before,
			Ours: fmt.Sprintf("no file %s of account %s", numbers, g.Account), Theirs: fmt.Sprintf("file %d came", g.Last+1),
			Detail: "Until it is here, the absence of a line proves nothing about charges of that time.",
		}.identify(gapScope(acquirer), g.Account, strconv.FormatInt(g.First, 10)))
	}
	return r.record(ctx, []string{gapScope(acquirer)}, found, "the file has come")
}

// A file whose lines are not with their merchants yet covers nothing: the line in question may be in it. Nor does
// one that does not say which time it covers; its account has to be covered all the same.
const listPeriods = `
select f.account, coalesce(f.family, 0), coalesce(f.period_from, 'epoch'), coalesce(f.period_to, 'epoch') from settlement_files f
 where f.acquirer = @acquirer and f.status = 'accepted' and f.claimed order by f.account, f.period_from, f.family`

type period struct {
	Account  string
	Family   int64
	From, To time.Time
}

// coverage is what the accepted files of one acquirer cover, without holes.
type coverage struct {
	acquirer string
	periods  []period // by account and time
	gaps     []gap
}

func (r *Reconciler) coverage(ctx context.Context, db postgres.DB, acquirer string) (coverage, error) {
	c := coverage{acquirer: acquirer}
	rows, err := db.Query(ctx, listPeriods, pgx.NamedArgs{"acquirer": acquirer})
	if err == nil {
		c.periods, err = pgx.CollectRows(rows, pgx.RowToStructByPos[period])
	}
	if err != nil {
		return coverage{}, fmt.Errorf("read what the files of %s cover: %w", acquirer, err)
	}
	c.gaps, err = r.findGaps(ctx, acquirer)
	return c, err
}

// covers reports whether the files of every account cover [from, to) without a hole; if not, why.
func (c coverage) covers(from, to time.Time) (bool, string) {
	if len(c.periods) == 0 {
		return false, "no examined file of " + c.acquirer
	}
	for account := range slices.Values(c.accounts()) {
		reached := from
		for _, p := range c.periods {
			if p.Account == account && !p.From.After(reached) && p.To.After(reached) {
				reached = p.To.UTC()
			}
		}
		if reached.Equal(from) {
			return false, fmt.Sprintf("no file of %s, account %s, says that it covers the time from %s", c.acquirer, account, from.Format(time.DateOnly))
		}
		if reached.Before(to) {
			return false, fmt.Sprintf("the files of %s, account %s, cover the time from %s only until %s",
				c.acquirer, account, from.Format(time.DateOnly), reached.Format(time.DateOnly))
		}
	}
	for _, g := range c.gaps {
		if g.Before.After(from) {
			return false, fmt.Sprintf("file %d of %s, account %s, is missing", g.First, c.acquirer, g.Account)
		}
	}
	return true, ""
}

func (c coverage) accounts() (names []string) {
	for _, p := range c.periods {
		if !slices.Contains(names, p.Account) {
			names = append(names, p.Account)
		}
	}
	return names
}

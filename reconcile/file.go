package reconcile

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"paymentsd/internal/postgres"
)

// FileStatus is what became of a settlement file.
type FileStatus string

// The states of a file.
const (
	Staged      FileStatus = "staged"      // being read; never seen from outside
	Accepted    FileStatus = "accepted"    // whole, and the acquirer's last word about its report
	Duplicate   FileStatus = "duplicate"   // other bytes, but nothing that was not known
	Quarantined FileStatus = "quarantined" // failed a control: it proves nothing
	Superseded  FileStatus = "superseded"  // re-issued by another file
)

// File is one settlement file that was handed in.
type File struct {
	ID         string
	Acquirer   string
	Format     string
	Name       string // as it was first handed in
	SHA256     []byte
	Bytes      int64
	Account    string
	Sequence   int64 // 0 if the header could not be read
	Replaces   int64
	Family     int64     // the sequence of the report that this file first was
	From, To   time.Time // zero if the file does not say which time it covers
	Ignored    []string  // columns that the format does not use
	Status     FileStatus
	Class      string // of the failed control, when quarantined
	Reason     string
	Lines      int64 // = Counted + Repeated + Bad, and those withdrawn since
	Counted    int64 // lines that were news
	Repeated   int64 // lines that an earlier file had
	Bad        int64
	Added      int64 // of a re-issue, against what stood
	Removed    int64
	Changed    int64
	ReceivedAt time.Time

	StartsAnywhere bool      // the account's first sequence need not be 1
	FirstLineAt    time.Time // the earliest of its lines, zero if there is none
}

// BusinessID is what the acquirer calls the report; of files without a number it is the account alone.
func (f File) BusinessID() string {
	if f.Sequence == 0 {
		return f.Acquirer + "/" + f.Account
	}
	return fmt.Sprintf("%s/%s/%d", f.Acquirer, f.Account, f.Sequence)
}

// noAccount stands for the account in files of formats that do not name it.
const noAccount = "-"

// since is the day that a file is about, as far as it says so.
func (f File) since() time.Time {
	switch {
	case !f.From.IsZero():
		return f.From
	case !f.FirstLineAt.IsZero():
		return f.FirstLineAt
	}
	return f.ReceivedAt
}

const fileColumns = `f.file_id, f.acquirer, f.format, f.name, f.sha256, f.bytes, f.account, coalesce(f.sequence, 0), coalesce(f.replaces, 0),
  coalesce(f.family, 0), coalesce(f.period_from, 'epoch'), coalesce(f.period_to, 'epoch'), f.ignored_columns, f.status,
  coalesce(f.class, ''), f.reason, f.lines, f.counted, f.repeated, f.bad, f.added, f.removed, f.changed, f.received_at,
  f.starts_anywhere, coalesce(f.first_line_at, 'epoch')`

func scanFile(row pgx.CollectableRow) (File, error) {
	f, err := pgx.RowToStructByPos[File](row)
	for _, t := range []*time.Time{&f.From, &f.To, &f.FirstLineAt, &f.ReceivedAt} {
		if *t = t.UTC(); t.Unix() == 0 {
			*t = time.Time{}
		}
	}
	return f, err
}

const selectFile = `select ` + fileColumns + ` from settlement_files f where f.file_id = @id`

// file reads one file; ok is false if it was never handed in.
func file(ctx context.Context, db postgres.DB, id string) (f File, ok bool, err error) {
	rows, err := db.Query(ctx, selectFile, pgx.NamedArgs{"id": id})
	if err == nil {
		f, err = pgx.CollectExactlyOneRow(rows, scanFile)
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return File{}, false, nil
	}
	if err != nil {
		return File{}, false, fmt.Errorf("read settlement file %s: %w", id, err)
	}
	return f, true, nil
}

// FileFilter says which files to list.
type FileFilter struct {
	Acquirer      string // all if empty
	Status        FileStatus
	StartingAfter string // a file id of an earlier page
	Limit         int    // 1 to 100
}

const listFiles = `
select ` + fileColumns + `
  from settlement_files f
 where (@acquirer = '' or f.acquirer = @acquirer) and (@status = '' or f.status = @status)
   and (@after = '' or (f.received_at, f.file_id) <
        (select a.received_at, a.file_id from settlement_files a where a.file_id = @after))
 order by f.received_at desc, f.file_id desc limit @limit`

// Files lists settlement files, newest first, and says whether there are more. A cursor that names no
// file is ErrInvalidCursor.
func (r *Reconciler) Files(ctx context.Context, f FileFilter) ([]File, bool, error) {
	if f.Limit < 1 || f.Limit > 100 {
		return nil, false, fmt.Errorf("list settlement files: %w: the limit %d is not 1 to 100", ErrInvalidRequest, f.Limit)
	}
	if f.StartingAfter != "" {
		if _, ok, err := file(ctx, r.Pool, f.StartingAfter); err != nil || !ok {
			return nil, false, errors.Join(err, fmt.Errorf("%w: %.40q", ErrInvalidCursor, f.StartingAfter))
		}
	}
	rows, err := r.Pool.Query(ctx, listFiles, pgx.NamedArgs{
		"acquirer": f.Acquirer, "status": f.Status, "after": f.StartingAfter, "limit": f.Limit + 1,
	})
	if err != nil {
		return nil, false, fmt.Errorf("list settlement files: %w", err)
	}
	return page(rows, f.Limit, scanFile)
}

// page collects up to limit rows of limit+1 that were asked for.
func page[T any](rows pgx.Rows, limit int, scan pgx.RowToFunc[T]) ([]T, bool, error) {
	all, err := pgx.CollectRows(rows, scan)
	if err != nil {
		return nil, false, err
	}
	if len(all) > limit {
		return all[:limit], true, nil
	}
	return all, false, nil
}

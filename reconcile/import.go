package reconcile

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"paymentsd/internal/postgres"
	"paymentsd/settlement"
)

// Imported is the answer to a file that was handed in.
type Imported struct {
	File File
	// Known reports that these very bytes were taken before: nothing was done.
	Known bool
}

// Usable reports whether the file is whole.
func (i Imported) Usable() bool { return i.File.Status != Quarantined }

// ImportFile takes one settlement file in: all of it in one transaction, or, if it fails a control, nothing of
// it but a note why (its status is Quarantined then, and there is no error). The same bytes again
// change nothing. What the lines prove is for Run.
//
// Errors: ErrAcquirer, ErrTooLarge, ErrInvalidRequest (format), ErrBusy, and what r or the database
// returned.
func (r *Reconciler) ImportFile(ctx context.Context, acquirer, format, name string, in io.Reader) (Imported, error) {
	if err := r.CheckAcquirer(ctx, acquirer); err != nil {
		return Imported{}, err
	}
	layout, err := r.formatNamed(format)
	if err != nil {
		return Imported{}, err
	}
	spooled, err := r.spool(in) // before any lock: a sender that is slow must not stop the nightly run
	if err != nil {
		return Imported{}, fmt.Errorf("take in %s: %w", name, err)
	}
	defer spooled.close()
	end, err := r.turn(ctx)
	if err != nil {
		return Imported{}, err
	}
	defer end()
	l, err := r.lock(ctx, acquirer)
	if err != nil {
		return Imported{}, err
	}
	defer l.release(ctx)
	imported, err := r.importFile(ctx, acquirer, layout, name, spooled)
	if err != nil {
		return Imported{}, err
	}
	return imported, r.recordGaps(ctx, acquirer)
}

// turn waits until no other file is being taken in by this process: each holds a connection while it waits
// for the acquirer's lock and works on another, so that many at once would leave the pool, which charges
// share, without any.
func (r *Reconciler) turn(ctx context.Context) (end func(), err error) {
	patience := time.NewTimer(r.LockWait)
	defer patience.Stop()
	select {
	case r.turns <- struct{}{}:
		return func() { <-r.turns }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-patience.C:
		return nil, fmt.Errorf("%w: other files are being taken in; waited %s, try again when they are", ErrBusy, r.LockWait)
	}
}

func (r *Reconciler) formatNamed(name string) (settlement.Format, error) {
	for _, f := range r.Formats {
		if f.Name() == name {
			return f, nil
		}
	}
	layout, err := settlement.FormatNamed(name)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidRequest, err)
	}
	return layout, nil
}

// importFile takes in a file that is on disk, for who holds the acquirer's lock.
func (r *Reconciler) importFile(ctx context.Context, acquirer string, layout settlement.Format, name string, spooled *spooled) (Imported, error) {
	format := layout.Name()
	id := fileID(acquirer, format, spooled.sha256)
	before, known, err := file(ctx, r.Pool, id)
	if err != nil {
		return Imported{}, err
	}
	if known && before.Status != Quarantined {
		return Imported{File: before, Known: true}, nil
	}
	f := File{
		ID: id, Acquirer: acquirer, Format: format, Name: short(name, 255), SHA256: spooled.sha256, Bytes: spooled.size,
		Status: Staged, Ignored: []string{}, ReceivedAt: r.now(),
	}
	refusal, err := r.stage(ctx, &f, layout, spooled)
	if err != nil {
		return Imported{}, fmt.Errorf("take in %s: %w", name, err)
	}
	if refusal != nil {
		if err := r.quarantine(ctx, &f, refusal); err != nil {
			return Imported{}, fmt.Errorf("put %s into quarantine: %w", name, err)
		}
	}
	r.Fault("file_imported")
	after, _, err := file(ctx, r.Pool, id)
	return Imported{File: after, Known: known}, err
}

// fileID is derived from what a file is, so that it is the same whenever it comes.
func fileID(acquirer, format string, sum []byte) string {
	hash := sha256.New()
	fmt.Fprintf(hash, "%s|%s|%x", acquirer, format, sum)
	return "sf_" + hex.EncodeToString(hash.Sum(nil))[:24]
}

// spooled is a file on disk while it is taken in: its hash is needed before its first line is.
type spooled struct {
	file   *os.File
	sha256 []byte
	size   int64
}

func (r *Reconciler) spool(in io.Reader) (*spooled, error) {
	f, err := os.CreateTemp("", "settlement-*")
	if err != nil {
		return nil, fmt.Errorf("make a temporary file: %w", err)
	}
	s, hash := &spooled{file: f}, sha256.New()
	s.size, err = io.Copy(io.MultiWriter(f, hash), io.LimitReader(in, r.SizeMax+1))
	if err == nil && s.size > r.SizeMax {
		err = fmt.Errorf("%w: over %d bytes; set a larger limit, or ask the acquirer for smaller files", ErrTooLarge, r.SizeMax)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	s.sha256 = hash.Sum(nil)
	return s, nil
}

func (s *spooled) close() {
	_ = s.file.Close()
	_ = os.Remove(s.file.Name())
}

// stage reads the file into the tables in one transaction. A refusal is what the file itself is wrong
// in; then nothing is written.
func (r *Reconciler) stage(ctx context.Context, f *File, layout settlement.Format, s *spooled) (refusal *refusalError, err error) {
	staged := *f
	err = postgres.InTx(ctx, r.Pool, func(tx pgx.Tx) error {
		*f = staged // a lost deadlock runs this again
		if _, err := tx.Exec(ctx, importPatience); err != nil {
			return err
		}
		if _, err := s.file.Seek(0, io.SeekStart); err != nil {
			return err
		}
		header, lines, err := layout.Open(s.file)
		if err != nil {
			return refused(err)
		}
		f.Account, f.Sequence, f.Replaces = header.Account, int64(header.Sequence), int64(header.Replaces)
		f.From, f.To, f.Ignored = header.From, header.To, []string{}
		for _, name := range header.IgnoredColumns {
			f.Ignored = append(f.Ignored, short(name, 255))
		}
		f.StartsAnywhere = header.StartsAnywhere
		if f.Account == "" {
			f.Account = noAccount
		}
		if header.Acquirer != "" && header.Acquirer != f.Acquirer {
			return &refusalError{string(WrongAcquirer), fmt.Sprintf("the file is of acquirer %q", header.Acquirer)}
		}
		return r.stageLines(ctx, tx, f, lines)
	})
	if refusal, ok := errors.AsType[*refusalError](err); ok {
		return refusal, nil
	}
	return nil, err
}

func (r *Reconciler) stageLines(ctx context.Context, tx pgx.Tx, f *File, lines iter.Seq2[settlement.Line, error]) error {
	if err := insertFileRow(ctx, tx, *f); err != nil {
		return err
	}
	rows := r.newLineRows(ctx, *f, lines)
	defer rows.stop()
	n, err := tx.CopyFrom(ctx, pgx.Identifier{"settlement_lines"}, lineColumns(), rows)
	if rows.refusal != nil {
		return refused(rows.refusal)
	}
	if err != nil {
		return err
	}
	f.Lines, f.FirstLineAt = n, rows.first
	r.Fault("lines_staged")
	return r.accept(ctx, tx, f)
}

// importPatience lets one transaction take as long as a file of the largest size does.
const importPatience = `select set_config('statement_timeout', '15min', true), set_config('idle_in_transaction_session_timeout', '5min', true)`

// refusalError is why a file is quarantined.
type refusalError struct{ class, reason string }

func (e *refusalError) Error() string { return e.reason + " (" + e.class + ")" }

// refused tells what is wrong with a file from what went wrong with reading it, which says nothing
// about the file.
func refused(err error) error {
	if class := settlement.ClassOf(err); class != "" {
		return &refusalError{string(class), err.Error()}
	}
	return err
}

package reconcile

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/shopspring/decimal"

	"paymentsd/internal/postgres"
	"paymentsd/merchant"
	"paymentsd/money"
)

// ExceptionFilter says which exceptions to list.
type ExceptionFilter struct {
	Acquirer      string // all if empty
	Class         Class
	Severity      Severity
	State         string // "open", "closed" or empty
	Merchant      *merchant.ID
	ChargeID      string
	StartingAfter string // an exception id of an earlier page
	Limit         int    // 1 to 1,000
}

const exceptionColumns = `x.exception_id, x.scope, x.acquirer, x.class, x.severity, x.state, x.merchant_id, coalesce(x.charge_id, ''),
  coalesce(x.acq_ref, ''), coalesce(x.file_id, ''), coalesce(x.line_no, 0), coalesce(x.currency, ''), coalesce(x.at_risk, 0),
  x.ours, x.theirs, x.detail, x.since, x.opened_at, coalesce(x.closed_at, 'epoch'), coalesce(x.closed_by, ''), coalesce(x.close_reason, '')`

// The gravest come first, then the oldest; the order has no ties, so pages neither skip nor repeat.
const listExceptions = `
with place as (
  select p.exception_id, p.since, array_position(array['critical', 'high', 'warning'], p.severity) as rank
    from recon_exceptions p where p.exception_id = @after
)
select ` + exceptionColumns + `
  from recon_exceptions x
 where (@acquirer = '' or x.acquirer = @acquirer) and (@class = '' or x.class = @class)
   and (@severity = '' or x.severity = @severity) and (@state = '' or x.state = @state)
   and (@merchant::bigint is null or x.merchant_id = @merchant) and (@charge = '' or x.charge_id = @charge)
   and (@after = '' or (array_position(array['critical', 'high', 'warning'], x.severity), x.since, x.exception_id) >
        (select p.rank, p.since, p.exception_id from place p))
 order by array_position(array['critical', 'high', 'warning'], x.severity), x.since, x.exception_id limit @limit`

const exceptionExists = `select count(*) from recon_exceptions x where x.exception_id = @id`

// Exceptions lists exceptions, the gravest first and then the oldest, and says whether there are more. A
// cursor that names no exception is ErrInvalidCursor.
func (r *Reconciler) Exceptions(ctx context.Context, f ExceptionFilter) ([]Exception, bool, error) {
	const limitMax = 1000
	if f.Limit < 1 || f.Limit > limitMax {
		return nil, false, fmt.Errorf("list exceptions: %w: the limit %d is not 1 to %d", ErrInvalidRequest, f.Limit, limitMax)
	}
	if f.StartingAfter != "" {
		if err := r.checkCursor(ctx, exceptionExists, f.StartingAfter); err != nil {
			return nil, false, err
		}
	}
	rows, err := r.Pool.Query(ctx, listExceptions, pgx.NamedArgs{
		"acquirer": f.Acquirer, "class": f.Class, "severity": f.Severity, "state": f.State, "merchant": f.Merchant, "charge": f.ChargeID,
		"after": f.StartingAfter, "limit": f.Limit + 1,
	})
	if err != nil {
		return nil, false, fmt.Errorf("list exceptions: %w", err)
	}
	return page(rows, f.Limit, scanException)
}

func scanException(row pgx.CollectableRow) (e Exception, err error) {
	var state string
	var currency money.Currency
	var risk decimal.Decimal
	var closed Closing
	err = row.Scan(&e.ID, &e.scope, &e.Acquirer, &e.Class, &e.Severity, &state, &e.Merchant, &e.ChargeID, &e.AcqRef, &e.FileID, &e.LineNo,
		&currency, &risk, &e.Ours, &e.Theirs, &e.Detail, &e.Since, &e.OpenedAt, &closed.At, &closed.By, &closed.Reason)
	if err != nil {
		return Exception{}, err
	}
	e.Since, e.OpenedAt, closed.At = e.Since.UTC(), e.OpenedAt.UTC(), closed.At.UTC()
	if state == "closed" {
		e.Closed = &closed
	}
	if currency != "" {
		e.AtRisk, err = money.Total(risk, currency)
	}
	return e, err
}

const selectException = `select ` + exceptionColumns + ` from recon_exceptions x where x.exception_id = @id`

// Exception reads one exception, or ErrNoException.
func (r *Reconciler) Exception(ctx context.Context, id string) (Exception, error) {
	rows, err := r.Pool.Query(ctx, selectException, pgx.NamedArgs{"id": id})
	if err != nil {
		return Exception{}, fmt.Errorf("read exception %.40q: %w", id, err)
	}
	e, err := pgx.CollectExactlyOneRow(rows, scanException)
	if errors.Is(err, pgx.ErrNoRows) {
		return Exception{}, fmt.Errorf("%w: %.40q", ErrNoException, id)
	}
	return e, err
}

const closeException = `
update recon_exceptions x
   set state = 'closed', closed_at = @now, closed_by = @actor, close_reason = @reason, updated_at = @now
 where x.exception_id = @id and x.state = 'open'`

// CloseException is a person's word that an exception is dealt with. It moves no money and changes no
// charge. A later run opens it again only if it finds something else there than was closed.
//
// Errors: ErrNoException, ErrClosed (also if somebody was faster), ErrInvalidRequest.
func (r *Reconciler) CloseException(ctx context.Context, id, actor, reason string) (Exception, error) {
	if err := checkText(actor, "actor", 200); err != nil {
		return Exception{}, err
	}
	if err := checkText(reason, "reason", 1000); err != nil {
		return Exception{}, err
	}
	if actor == closedByRun {
		return Exception{}, fmt.Errorf("%w: %q is not a person", ErrInvalidRequest, actor)
	}
	now := r.now()
	tag, err := r.Pool.Exec(ctx, closeException, pgx.NamedArgs{"id": id, "actor": actor, "reason": reason, "now": now})
	if err != nil {
		return Exception{}, fmt.Errorf("close exception %.40q: %w", id, err)
	}
	e, err := r.Exception(ctx, id)
	if err != nil {
		return Exception{}, err
	}
	if tag.RowsAffected() == 0 {
		return e, fmt.Errorf("%w: %s, by %s", ErrClosed, id, e.Closed.By)
	}
	act := fmt.Sprintf("close:%s:%d", id, now.UnixMicro())
	return e, r.Resolver.AuditAppend(ctx, actor, "exception.close", id, short(string(e.Class)+": "+reason, 4000), act)
}

// Note is what a person wrote about an exception.
type Note struct {
	ID        string
	Exception string
	Actor     string
	Text      string
	At        time.Time
}

const insertNote = `
insert into recon_notes (note_id, exception_id, actor, note, created_at) values (@id, @exception, @actor, @note, @now)`

// AddNote keeps what a person found out about an exception.
//
// Errors: ErrNoException, ErrInvalidRequest.
func (r *Reconciler) AddNote(ctx context.Context, id, actor, text string) (Note, error) {
	if err := checkText(actor, "actor", 200); err != nil {
		return Note{}, err
	}
	if err := checkText(text, "note", 2000); err != nil {
		return Note{}, err
	}
	n := Note{ID: "rn_" + strings.ToLower(rand.Text()), Exception: id, Actor: actor, Text: text, At: r.now()}
	_, err := r.Pool.Exec(ctx, insertNote, pgx.NamedArgs{"id": n.ID, "exception": id, "actor": actor, "note": text, "now": n.At})
	if postgres.SQLState(err) == "23503" {
		return Note{}, fmt.Errorf("%w: %.40q", ErrNoException, id)
	}
	if err != nil {
		return Note{}, fmt.Errorf("keep the note: %w", err)
	}
	return n, r.Resolver.AuditAppend(ctx, actor, "exception.note", id, short(text, 4000), n.ID)
}

const listNotes = `
select n.note_id, n.exception_id, n.actor, n.note, n.created_at
  from recon_notes n where n.exception_id = @exception order by n.created_at, n.note_id limit 1000`

// Notes reads the first 1,000 notes about an exception, oldest first.
func (r *Reconciler) Notes(ctx context.Context, id string) ([]Note, error) {
	rows, err := r.Pool.Query(ctx, listNotes, pgx.NamedArgs{"exception": id})
	if err != nil {
		return nil, fmt.Errorf("read the notes of %.40q: %w", id, err)
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (Note, error) {
		n, err := pgx.RowToStructByPos[Note](row)
		n.At = n.At.UTC()
		return n, err
	})
}

func checkText(s, name string, limit int) error {
	if strings.TrimSpace(s) == "" || len(s) > limit {
		return fmt.Errorf("%w: %s must have 1 to %d bytes", ErrInvalidRequest, name, limit)
	}
	return nil
}

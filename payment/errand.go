package payment

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"paymentsd/internal/postgres"
	"paymentsd/merchant"
)

// ErrandKind is what an errand does.
type ErrandKind string

// The kinds of errands.
const (
	ErrandInquiry ErrandKind = "inquiry" // ask an acquirer what became of an unknown charge
	ErrandCharge  ErrandKind = "charge"  // carry out a queued charge
)

// Errand is something that has to be done about a charge. The row is the truth; the job that carries it
// out is a wake-up, which may be lost or come twice.
type Errand struct {
	Merchant  merchant.ID
	ChargeID  string
	Kind      ErrandKind
	Tries     int // that used a try
	Deferrals int // that were put off without a call
	Note      string
	DueAt     time.Time
	EndedAt   time.Time // zero while it goes on
	Due       bool      // by the database's clock
}

// Ended reports that nothing more is done by itself.
func (e Errand) Ended() bool { return !e.EndedAt.IsZero() }

const errandColumns = `
       e.merchant_id, e.charge_id, e.kind, e.tries, e.deferrals, coalesce(e.note, ''), e.due_at,
       coalesce(e.ended_at, 'epoch'::timestamptz), e.due_at <= now()`

func scanErrand(row pgx.CollectableRow) (e Errand, err error) {
	err = row.Scan(&e.Merchant, &e.ChargeID, &e.Kind, &e.Tries, &e.Deferrals, &e.Note, &e.DueAt, &e.EndedAt, &e.Due)
	e.DueAt, e.EndedAt = e.DueAt.UTC(), e.EndedAt.UTC()
	if e.EndedAt.Unix() == 0 {
		e.EndedAt = time.Time{}
	}
	return e, err
}

const selectErrand = `select` + errandColumns + `
  from errands e where e.merchant_id = @merchant and e.charge_id = @charge and e.kind = @kind`

// Errand reads an errand, or ErrNotFound: there is none, or it is done.
func (r *Resolver) Errand(ctx context.Context, m merchant.ID, chargeID string, kind ErrandKind) (Errand, error) {
	rows, err := r.pool.Query(ctx, selectErrand, pgx.NamedArgs{"merchant": m, "charge": chargeID, "kind": kind})
	if err != nil {
		return Errand{}, fmt.Errorf("read an errand: %w", err)
	}
	e, err := pgx.CollectExactlyOneRow(rows, scanErrand)
	if errors.Is(err, pgx.ErrNoRows) {
		return Errand{}, fmt.Errorf("%w with an errand: %s", ErrNotFound, chargeID)
	}
	return e, err
}

// listErrandsToWake finds candidates without locking any. Those that were never tried go first, so that
// errands that fail again and again do not starve them.
const listErrandsToWake = `select` + errandColumns + `
  from errands e where e.ended_at is null and e.wake_at <= now()
 order by (e.tries + e.deferrals > 0), e.wake_at, e.merchant_id, e.charge_id limit @limit`

// ErrandsToWake lists errands for which a job has to be made, fresh ones first.
func (r *Resolver) ErrandsToWake(ctx context.Context, limit int) ([]Errand, error) {
	rows, err := r.pool.Query(ctx, listErrandsToWake, pgx.NamedArgs{"limit": limit})
	if err != nil {
		return nil, fmt.Errorf("look for errands: %w", err)
	}
	return pgx.CollectRows(rows, scanErrand)
}

const claimErrands = `
with due as materialized (
  select e.charge_id, e.kind from errands e
   where e.merchant_id = @merchant and e.charge_id = any(@charges) and e.ended_at is null and e.wake_at <= now()
     for update skip locked
)
update errands e set wake_at = now() + @lease::interval
  from due where e.merchant_id = @merchant and e.charge_id = due.charge_id and e.kind = due.kind
returning` + errandColumns

// ClaimErrands takes those errands of a merchant that still have to be woken: nobody else wakes them for
// the time of the lease, after which the wake-up counts as lost.
func (r *Resolver) ClaimErrands(ctx context.Context, m merchant.ID, charges []string, lease time.Duration) ([]Errand, error) {
	rows, err := r.pool.Query(ctx, claimErrands, pgx.NamedArgs{"merchant": m, "charges": charges, "lease": lease})
	if err != nil {
		return nil, fmt.Errorf("claim errands: %w", err)
	}
	return pgx.CollectRows(rows, scanErrand)
}

const insertErrand = `
insert into errands (merchant_id, charge_id, kind, due_at, wake_at, tries, deferrals, created_at)
select @merchant, @charge, @kind, @due, @wake, 0, 0, @now
  from charges c where c.merchant_id = @merchant and c.charge_id = @charge and c.status = @while
on conflict (merchant_id, charge_id, kind) do nothing`

// addErrand makes an errand, if the charge is still in the state that asks for it. Wake is when its job counts
// as lost.
func addErrand(ctx context.Context, db postgres.DB, e Errand, while Status, wake, now time.Time) error {
	_, err := db.Exec(ctx, insertErrand, pgx.NamedArgs{
		"merchant": e.Merchant, "charge": e.ChargeID, "kind": e.Kind, "due": e.DueAt, "wake": wake, "while": while, "now": now,
	})
	if err != nil {
		return fmt.Errorf("make an errand: %w", err)
	}
	return nil
}

const updateErrand = `
update errands e
   set due_at = now() + @wait::interval, wake_at = now() + @wait::interval, tries = @tries, deferrals = @deferrals, note = @note
 where e.merchant_id = @merchant and e.charge_id = @charge and e.kind = @kind and e.ended_at is null
   and e.tries <= @tries and e.deferrals <= @deferrals`

// again puts an errand off. Tries and deferrals are those of e; another worker's newer ones stand.
func (r *Resolver) again(ctx context.Context, e Errand, wait time.Duration) error {
	_, err := r.pool.Exec(ctx, updateErrand, pgx.NamedArgs{
		"merchant": e.Merchant, "charge": e.ChargeID, "kind": e.Kind, "wait": wait,
		"tries": e.Tries, "deferrals": e.Deferrals, "note": optional(e.Note),
	})
	if err != nil {
		return fmt.Errorf("put an errand off: %w", err)
	}
	return nil
}

const endErrand = `
update errands e set ended_at = @now, tries = @tries, note = @note
 where e.merchant_id = @merchant and e.charge_id = @charge and e.kind = @kind and e.ended_at is null`

// giveUp ends an errand that was not successful: a person has to see to it. False if it had ended before.
func (r *Resolver) giveUp(ctx context.Context, e Errand) (bool, error) {
	tag, err := r.pool.Exec(ctx, endErrand, pgx.NamedArgs{
		"merchant": e.Merchant, "charge": e.ChargeID, "kind": e.Kind, "tries": e.Tries, "note": optional(e.Note), "now": r.moment(),
	})
	if err != nil {
		return false, fmt.Errorf("end an errand: %w", err)
	}
	return tag.RowsAffected() == 1, nil
}

const deleteErrand = `
delete from errands e where e.merchant_id = @merchant and e.charge_id = @charge and e.kind = @kind`

// done deletes an errand whose charge does not need it any more.
func (r *Resolver) done(ctx context.Context, db postgres.DB, m merchant.ID, chargeID string, kind ErrandKind) error {
	_, err := db.Exec(ctx, deleteErrand, pgx.NamedArgs{"merchant": m, "charge": chargeID, "kind": kind})
	if err != nil {
		return fmt.Errorf("delete an errand: %w", err)
	}
	return nil
}

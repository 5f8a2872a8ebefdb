package idempotency

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"paymentsd/internal/postgres"
	"paymentsd/merchant"
)

// A key is claimed, finished and freed by the functions of the charge path, together with its charge
// (migrations: charge_begin_v1, charge_finish_v1). Here is what else is done with keys.

const lookupKey = `
select k.state, k.fingerprint, k.charge_id, k.fence, k.created_at, coalesce(k.response_on, 'epoch'::date)
  from idempotency_keys k where k.merchant_id = @merchant and k.key = @key`

// Lookup reads a key, or ErrNotFound if it is free.
func Lookup(ctx context.Context, db postgres.DB, m merchant.ID, key string) (Record, error) {
	record := Record{Merchant: m, Key: key}
	var fingerprint []byte
	err := db.QueryRow(ctx, lookupKey, pgx.NamedArgs{"merchant": m, "key": key}).
		Scan(&record.State, &fingerprint, &record.ChargeID, &record.Fence, &record.CreatedAt, &record.ResponseOn)
	if errors.Is(err, pgx.ErrNoRows) {
		return Record{}, ErrNotFound
	}
	copy(record.Fingerprint[:], fingerprint)
	return record, err
}

const readResponse = `
select r.status, r.content_type, r.location, r.body
  from idempotency_responses r
 where r.merchant_id = @merchant and r.key = @key and r.stored_on = @on`

// ReadResponse reads the frozen answer of a key that is done, or ErrExpired if retention dropped it.
func ReadResponse(ctx context.Context, db postgres.DB, m merchant.ID, key string, on time.Time) (Response, error) {
	var r Response
	err := db.QueryRow(ctx, readResponse, pgx.NamedArgs{"merchant": m, "key": key, "on": on}).
		Scan(&r.Status, &r.ContentType, &r.Location, &r.Body)
	if errors.Is(err, pgx.ErrNoRows) {
		return Response{}, ErrExpired
	}
	return r, err
}

const freezeUnknown = `
update idempotency_keys k set state = 'done', response_on = @on
 where k.merchant_id = @merchant and k.key = @key and k.charge_id = @charge and k.state = 'unknown'`

const insertResponse = `
insert into idempotency_responses (merchant_id, key, stored_on, status, content_type, location, body)
values (@merchant, @key, @on, @status, @content_type, @location, @body)`

// Freeze ends an unknown key of a charge with its answer, in the transaction that resolves the charge.
// It reports false, and writes nothing, if the key is not unknown any more.
func Freeze(ctx context.Context, tx pgx.Tx, m merchant.ID, key, chargeID string, answer Response, now time.Time) (bool, error) {
	on := now.UTC().Truncate(24 * time.Hour)
	tag, err := tx.Exec(ctx, freezeUnknown, pgx.NamedArgs{"merchant": m, "key": key, "charge": chargeID, "on": on})
	if err != nil {
		return false, fmt.Errorf("end the key: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return false, nil
	}
	_, err = tx.Exec(ctx, insertResponse, pgx.NamedArgs{
		"merchant": m, "key": key, "on": on,
		"status": answer.Status, "content_type": answer.ContentType, "location": answer.Location, "body": answer.Body,
	})
	if err != nil {
		return false, fmt.Errorf("freeze the answer: %w", err)
	}
	return true, nil
}

// Abandoned names a key whose holder let the lease pass.
type Abandoned struct {
	Merchant merchant.ID
	Key      string
	ChargeID string
}

// listAbandoned finds candidates of all merchants without locking any.
const listAbandoned = `
select k.merchant_id, k.key, k.charge_id
  from idempotency_keys k
 where k.state = 'in_flight' and k.lease_until < now()
 order by k.lease_until limit @limit`

// ListAbandoned finds keys in flight whose lease has passed by the database's clock, longest first.
func ListAbandoned(ctx context.Context, db postgres.DB, limit int) ([]Abandoned, error) {
	rows, err := db.Query(ctx, listAbandoned, pgx.NamedArgs{"limit": limit})
	if err != nil {
		return nil, fmt.Errorf("find abandoned keys: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Abandoned])
}

const takeOver = `
with held as materialized (
  select k.key from idempotency_keys k
   where k.merchant_id = @merchant and k.key = @key and k.charge_id = @charge
     and k.state = 'in_flight' and k.lease_until < now()
     for update skip locked
)
update idempotency_keys k set state = 'unknown', lease_until = null, fence = k.fence + 1
  from held where k.merchant_id = @merchant and k.key = held.key`

// TakeOver moves an abandoned key to unknown and fences its holder off. It reports false if the
// holder came back, or another sweep was faster.
func TakeOver(ctx context.Context, tx pgx.Tx, a Abandoned) (bool, error) {
	tag, err := tx.Exec(ctx, takeOver, pgx.NamedArgs{"merchant": a.Merchant, "key": a.Key, "charge": a.ChargeID})
	if err != nil {
		return false, fmt.Errorf("take the key over: %w", err)
	}
	return tag.RowsAffected() == 1, nil
}

const postpone = `
update idempotency_keys k set lease_until = now() + @wait::interval
 where k.merchant_id = @merchant and k.key = @key and k.charge_id = @charge
   and k.state = 'in_flight' and k.lease_until < now()`

// Postpone puts an abandoned key that cannot be taken over to the end of the line, so that it never
// starves fresh ones.
func Postpone(ctx context.Context, db postgres.DB, a Abandoned, wait time.Duration) error {
	_, err := db.Exec(ctx, postpone, pgx.NamedArgs{"merchant": a.Merchant, "key": a.Key, "charge": a.ChargeID, "wait": wait})
	return err
}

const maintainResponses = `select m.o_made, m.o_dropped from maintain_responses_v1(@today, @ahead, @keep) m`

// partitionsAhead is how many days of partitions stand ready.
const partitionsAhead = 7

// maintainPatience is until the end of the transaction: the pool's own limit is for a charge's writes, which
// deleting a day of answers may outlast.
const maintainPatience = `select set_config('statement_timeout', '50s', true)`

// Maintain makes the coming days' partitions of frozen answers and drops those older than retention.
// It never touches a key: a key whose answer is gone is a tombstone. It may take 50 s, whatever the limit of the
// pool's statements.
func Maintain(ctx context.Context, db postgres.Beginner, today time.Time, retention time.Duration) (made, dropped int, err error) {
	days := int(retention / (24 * time.Hour))
	err = postgres.InTx(ctx, db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, maintainPatience); err != nil {
			return err
		}
		return tx.QueryRow(ctx, maintainResponses, pgx.NamedArgs{"today": today.UTC(), "ahead": partitionsAhead, "keep": days}).
			Scan(&made, &dropped)
	})
	if err != nil {
		return 0, 0, fmt.Errorf("maintain the partitions of frozen answers: %w", err)
	}
	return made, dropped, nil
}

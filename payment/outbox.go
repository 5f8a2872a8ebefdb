package payment

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"paymentsd/merchant"
)

// OutboxEvent is one row of the outbox: what happened to a charge, for whoever has to tell it or act on it.
type OutboxEvent struct {
	Merchant  merchant.ID
	ID        string // unique for the merchant; the same again is the same event
	Kind      string // charge.queued, charge.captured, charge.declined, charge.failed, charge.unknown, charge.resolved
	ChargeID  string
	CreatedAt time.Time
	Tries     int // how often it was claimed, this time included
}

// The kinds of OutboxEvent that jobs follow.
const (
	EventQueued  = "charge.queued"
	EventUnknown = "charge.unknown"
)

// listOutboxMerchants finds candidates without locking any: the merchants of the rows that are due longest.
const listOutboxMerchants = `
select d.merchant_id from (
  select o.merchant_id, o.due_at from outbox o
   where o.relayed_at is null and o.due_at <= now()
   order by o.due_at limit @limit
) d group by d.merchant_id order by min(d.due_at)`

// OutboxMerchants lists merchants that have events to relay, the longest waiting first. It looks at the first
// limit events.
func (r *Resolver) OutboxMerchants(ctx context.Context, limit int) ([]merchant.ID, error) {
	rows, err := r.pool.Query(ctx, listOutboxMerchants, pgx.NamedArgs{"limit": limit})
	if err != nil {
		return nil, fmt.Errorf("look for events to relay: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowTo[merchant.ID])
}

const claimEvents = `
with due as materialized (
  select o.event_id from outbox o
   where o.merchant_id = @merchant and o.relayed_at is null and o.due_at <= now()
   order by o.due_at, o.event_id limit @limit for update skip locked
)
update outbox o set due_at = now() + @lease::interval, tries = o.tries + 1
  from due where o.merchant_id = @merchant and o.event_id = due.event_id
returning o.event_id, o.kind, o.charge_id, o.created_at, o.tries`

// ClaimEvents takes at most limit due events of a merchant: nobody else gets them for the time of the lease,
// after which they are due again. Their order means nothing.
func (r *Resolver) ClaimEvents(ctx context.Context, m merchant.ID, limit int, lease time.Duration) ([]OutboxEvent, error) {
	rows, err := r.pool.Query(ctx, claimEvents, pgx.NamedArgs{"merchant": m, "limit": limit, "lease": lease})
	if err != nil {
		return nil, fmt.Errorf("claim events: %w", err)
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (OutboxEvent, error) {
		e := OutboxEvent{Merchant: m}
		err := row.Scan(&e.ID, &e.Kind, &e.ChargeID, &e.CreatedAt, &e.Tries)
		e.CreatedAt = e.CreatedAt.UTC()
		return e, err
	})
}

const markRelayed = `
update outbox o set relayed_at = @now
 where o.merchant_id = @merchant and o.event_id = any(@events) and o.relayed_at is null`

// MarkRelayed says that all who wanted these events have them.
func (r *Resolver) MarkRelayed(ctx context.Context, m merchant.ID, events []string) error {
	_, err := r.pool.Exec(ctx, markRelayed, pgx.NamedArgs{"merchant": m, "events": events, "now": r.moment()})
	if err != nil {
		return fmt.Errorf("mark events as relayed: %w", err)
	}
	return nil
}

const postponeEvent = `
update outbox o set due_at = now() + @wait::interval
 where o.merchant_id = @merchant and o.event_id = @event and o.relayed_at is null`

// PostponeEvent puts an event that somebody could not take behind the others.
func (r *Resolver) PostponeEvent(ctx context.Context, m merchant.ID, event string, wait time.Duration) error {
	_, err := r.pool.Exec(ctx, postponeEvent, pgx.NamedArgs{"merchant": m, "event": event, "wait": wait})
	if err != nil {
		return fmt.Errorf("postpone event %s: %w", event, err)
	}
	return nil
}

// listRelayed finds candidates for the purge.
const listRelayed = `
select d.merchant_id from (
  select o.merchant_id from outbox o where o.relayed_at < @before order by o.relayed_at limit @limit
) d group by d.merchant_id`

const purgeEvents = `
delete from outbox o
 where o.merchant_id = @merchant and o.event_id = any(array(
   select p.event_id from outbox p where p.merchant_id = @merchant and p.relayed_at < @before order by p.relayed_at limit @limit))`

// purgeBatch bounds one step of PurgeEvents.
const purgeBatch = 1000

// PurgeEvents deletes a batch of events that were relayed before then, and says whether there may be more.
func (r *Resolver) PurgeEvents(ctx context.Context, before time.Time) (more bool, err error) {
	rows, err := r.pool.Query(ctx, listRelayed, pgx.NamedArgs{"before": before, "limit": purgeBatch})
	if err != nil {
		return false, fmt.Errorf("look for relayed events: %w", err)
	}
	merchants, err := pgx.CollectRows(rows, pgx.RowTo[merchant.ID])
	if err != nil {
		return false, fmt.Errorf("look for relayed events: %w", err)
	}
	for _, m := range merchants {
		if _, err := r.pool.Exec(ctx, purgeEvents, pgx.NamedArgs{"merchant": m, "before": before, "limit": purgeBatch}); err != nil {
			return false, fmt.Errorf("delete relayed events: %w", err)
		}
	}
	return len(merchants) > 0, nil
}

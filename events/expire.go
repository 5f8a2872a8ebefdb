package events

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// What an event changed, noted or raised stands on its body: such events are kept for good.
const expireEvents = `
delete from acquirer_events e
 where (e.acquirer, e.event_id) = any(array(
   select (d.acquirer, d.event_id) from acquirer_events d
    where d.outcome in ('agreed', 'ignored') and d.handled_at < @before
    order by d.handled_at limit @limit for update skip locked))`

// expireBatch bounds one look for events that can go.
const expireBatch = 500

// Expire deletes events that said nothing new and were handled before a moment, a batch at a time, and
// reports whether there may be more. An event of which nothing is left may be received again: it says
// what is known, and does nothing. What still waits, and what is evidence, is never touched.
func (s *Service) Expire(ctx context.Context, before time.Time) (more bool, err error) {
	tag, err := s.Pool.Exec(ctx, expireEvents, pgx.NamedArgs{"before": before.UTC(), "limit": expireBatch})
	if err != nil {
		return false, fmt.Errorf("delete events past their retention: %w", err)
	}
	return tag.RowsAffected() == expireBatch, nil
}

package events

import (
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Past retention only events go that said nothing new; what waits and what is evidence stays for good.
func TestExpire(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec(`insert into acquirer_events (acquirer, event_id, sha256, body, sent_at, received_at, state, outcome, tries, next_try_at, handled_at)
		select 'north', o || '-' || age, sha256(''), '', now() - age * interval '1 day', now() - age * interval '1 day',
		       case o when 'received' then 'received' else 'handled' end, nullif(o, 'received'), 1,
		       case o when 'received' then now() + interval '1 hour' end, case when o <> 'received' then now() - age * interval '1 day' end
		  from unnest(array['received', 'applied', 'agreed', 'noted', 'exception', 'ignored']) o, unnest(array[1, 40]) age`)
	w.exec(`insert into acquirer_events (acquirer, event_id, sha256, body, sent_at, received_at, state, outcome, tries, handled_at)
		select 'south', 'many-' || n, sha256(''), '', now(), now(), 'handled', 'agreed', 1, now() - interval '50 days' from generate_series(1, $1::int) n`, expireBatch)
	before := time.Now().Add(-30 * 24 * time.Hour)
	for i, want := range []bool{true, false, false} {
		if more, err := w.Expire(t.Context(), before); err != nil || more != want {
			t.Errorf("batch %d: more %v, %v", i+1, more, err)
		}
	}
	rows, err := w.owner.Query(t.Context(), `select event_id from acquirer_events order by event_id`)
	if err != nil {
		t.Fatal(err)
	}
	left, err := pgx.CollectRows(rows, pgx.RowTo[string])
	want := []string{"agreed-1", "applied-1", "applied-40", "exception-1", "exception-40", "ignored-1", "noted-1", "noted-40", "received-1", "received-40"}
	if err != nil || !slices.Equal(left, want) {
		t.Errorf("left: %v, %v; want %v", left, err, want)
	}
}

package shared

import (
	"fmt"
	"strings"
	"testing"

	"paymentsd/internal/pgtest"
	"paymentsd/resilience"
)

// An order and its record in the audit log are one statement: whatever fails, there are both or neither.
func TestForceIsAudited(t *testing.T) {
	t.Parallel()
	records := func(t *testing.T, db *pgtest.DB) string {
		t.Helper()
		return query[string](t, db, `select coalesce(string_agg(action || ' ' || subject || ' ' || detail, '; ' order by seq), '') from audit_log`)
	}
	t.Run("every order has its record, and the same act has one", func(t *testing.T) {
		t.Parallel()
		db, all := cluster(t, 2, quick())
		stop := order(resilience.ForcedOpen, "maintenance")
		for _, s := range all {
			if err := north(s).Force(t.Context(), stop); err != nil {
				t.Fatal(err)
			}
		}
		if err := north(all[1]).Force(t.Context(), order(resilience.Automatic, "over")); err != nil {
			t.Fatal(err)
		}
		if got, want := records(t, db), "breaker.force north open: maintenance; breaker.force north auto: over"; got != want {
			t.Errorf("audited %q, want %q", got, want)
		}
	})
	t.Run("nobody's order is refused", func(t *testing.T) {
		t.Parallel()
		db, all := cluster(t, 1, quick())
		for _, o := range []resilience.Order{{Mode: resilience.ForcedOpen, Actor: "me"}, {Mode: resilience.ForcedOpen, Act: "1"}} {
			if err := north(all[0]).Force(t.Context(), o); err == nil || !strings.Contains(err.Error(), "audited") {
				t.Errorf("%+v: %v", o, err)
			}
		}
		if got := north(all[0]).Snapshot(); got.Mode != resilience.Automatic || records(t, db) != "" {
			t.Errorf("%+v, audited %q", got, records(t, db))
		}
	})
	for table, fault := range map[string]string{
		"audit_log":      "the audit log cannot be written",
		"breakers":       "the breaker cannot be written",
		"breaker_events": "the process dies after the breaker was written, before the statement ends",
	} {
		t.Run(fault+": neither the order nor its record", func(t *testing.T) {
			t.Parallel()
			db, all := cluster(t, 2, quick())
			owner := db.Owner()
			do := func(sql string) {
				t.Helper()
				if _, err := owner.Exec(t.Context(), sql); err != nil {
					t.Fatal(err)
				}
			}
			// 57P01 is what a connection that is cut off says: the transaction is rolled back.
			do(`create function fault() returns trigger language plpgsql as $$ begin raise exception 'on purpose' using errcode = '57P01'; end $$`)
			do(fmt.Sprintf(`create trigger fault before insert or update on %s for each row execute function fault()`, table))
			before := north(all[0]).Snapshot().Epoch
			err := north(all[0]).Force(t.Context(), order(resilience.ForcedOpen, "stop"))
			if err == nil || !strings.Contains(err.Error(), "on purpose") || !strings.Contains(err.Error(), "look at it") {
				t.Errorf("error %v", err)
			}
			do(fmt.Sprintf(`drop trigger fault on %s`, table))
			flushes(t, all...)
			for _, s := range all {
				if got := north(s).Snapshot(); got.Mode != resilience.Automatic || got.State != resilience.Closed || got.Epoch != before {
					t.Errorf("%+v", got)
				}
			}
			if got := records(t, db) + query[string](t, db, `select coalesce(max(reason), '') from breaker_events`); got != "" {
				t.Errorf("left behind: %q", got)
			}
			if err := north(all[0]).Force(t.Context(), order(resilience.ForcedOpen, "stop")); err != nil {
				t.Fatal(err)
			}
			inState(t, resilience.Open, all...)
			if got, want := records(t, db), "breaker.force north open: stop"; got != want {
				t.Errorf("audited %q, want %q", got, want)
			}
		})
	}
}

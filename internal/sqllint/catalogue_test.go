package sqllint_test

import (
	"strings"
	"testing"

	"paymentsd/internal/pgtest"
	"paymentsd/internal/sqllint"
)

// TestCatalogueFinds damages a migrated schema in one way at a time.
func TestCatalogueFinds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, ddl, where, what string }{
		{"a table nobody owns", `create table stray (n int)`, "stray", "list of owners"},
		{"a missing table", `drop table outbox`, "outbox", "not in the schema"},
		{"a tenant table without the merchant", `drop table outbox; create table outbox (event_id text)`, "outbox", "without merchant_id"},
		{"a merchant that may be null", `alter table outbox drop constraint outbox_pkey; alter table outbox alter merchant_id drop not null`, "outbox", "without merchant_id"},
		{"a unique index not led by the merchant", `create unique index bad on charges (charge_id)`, "bad", "does not lead"},
		{"a unique constraint that has the merchant last", `alter table charges add constraint bad unique (charge_id, merchant_id)`, "bad", "does not lead"},
		{"a unique index on an expression", `create unique index bad on charges (lower(charge_id), merchant_id)`, "bad", "does not lead"},
		{"a unique index on one partition", `create unique index bad on idempotency_responses_default (key)`, "bad", "does not lead"},
		{"a foreign key that has the merchant last", `alter table outbox add constraint bad foreign key (charge_id, merchant_id) references charges (charge_id, merchant_id)`, "bad", "foreign key of a tenant table that does not lead"},
		{"a foreign key to a control table", `alter table outbox add constraint bad foreign key (event_id) references api_keys (key_id)`, "bad", "between a tenant and a control"},
		{"a foreign key from a control table", `alter table api_keys add constraint bad foreign key (merchant_id) references merchants (merchant_id)`, "bad", "between a tenant and a control"},
		{"set null on delete", `alter table outbox add constraint bad foreign key (merchant_id, charge_id) references charges (merchant_id, charge_id) on delete set null`, "bad", "sets columns on delete"},
		{"a deferrable constraint", `alter table outbox add constraint bad foreign key (merchant_id, charge_id) references charges (merchant_id, charge_id) deferrable`, "bad", "deferrable"},
		{"a trigger", `create function f() returns trigger language plpgsql as 'begin return new; end'; create trigger bad before insert on charges for each row execute function f()`, "bad", "trigger"},
		{"a rule", `create rule bad as on delete to charges do instead nothing`, "bad", "rule"},
		{"row-level security", `alter table charges enable row level security`, "charges", "row-level security"},
		{"a serial column", `alter table outbox add column bad bigserial`, "outbox.bad", "numbers"},
		{"an identity column", `alter table outbox add column bad bigint generated always as identity`, "outbox.bad", "numbers"},
		{"a grant by column", `grant update (detail) on charges to paymentsd_service`, "charges.detail", "granted by column"},
		{"a long name of an index", `create index a23456789_123456789_123456789_123456789_123456789_1234 on charges (merchant_id); create index b23456789_123456789_123456789_123456789_123456789_12345 on charges (merchant_id)`, "b23456789_123456789_123456789_123456789_123456789_12345", "54 bytes"},
		{"a long name of a constraint", `alter table charges add constraint b23456789_123456789_123456789_123456789_123456789_12345 check (true)`, "b23456789_123456789_123456789_123456789_123456789_12345", "54 bytes"},
		{"update on what is append-only", `grant update on ledger_transfers to paymentsd_service`, "ledger_transfers UPDATE", "more than the service"},
		{"delete on what is append-only", `grant delete on resolutions to paymentsd_service`, "resolutions DELETE", "more than the service"},
		{"everything on the audit log, by way of everyone", `grant all on audit_log to public`, "audit_log TRUNCATE", "more than the service"},
		{"truncate on any table", `grant truncate on charges to paymentsd_service`, "charges TRUNCATE", "more than the service"},
		{"the service owns a table", `alter table ledger_transfers owner to paymentsd_service`, "ledger_transfers owner", "more than the service"},
		{"a definer with an open search path", `create function bad() returns int language sql security definer as 'select 1'`, "bad()", "search path"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			conn := pgtest.New(t).Owner()
			if _, err := conn.Exec(t.Context(), c.ddl); err != nil {
				t.Fatal(err)
			}
			problems, err := sqllint.OurSchema().Catalogue(t.Context(), conn, sqllint.OurAppendOnly())
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range problems {
				if p.Where == c.where && strings.Contains(p.What, c.what) {
					return
				}
			}
			t.Errorf("no problem %q with %q in %v", c.what, c.where, problems)
		})
	}
}

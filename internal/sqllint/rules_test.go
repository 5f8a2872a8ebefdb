package sqllint

import (
	"strings"
	"testing"
	"testing/fstest"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		pkg  string // default payment
		doc  string
		sql  string
		want string // part of the one problem; "" for none
	}{
		// Rule 4: the merchant on every table reference.
		{"bound by a named parameter", "", "", `select c.status from charges c where c.merchant_id = @m and c.charge_id = @c`, ""},
		{"bound by a numbered parameter, without alias", "", "", `select status from charges where merchant_id = $1`, ""},
		{"bound inside parentheses", "", "", `select status from charges c where (c.merchant_id = $1 and (c.status = 'a' or c.status = 'b'))`, ""},
		{"not bound", "", "", `select c.status from charges c where c.charge_id = @c`, "charges is read or written without its merchant"},
		{"bound under an or", "", "", `select c.status from charges c where c.merchant_id = $1 or c.charge_id = $2`, "without its merchant"},
		{"an or inside case is no or of the condition", "", "", `select c.status from charges c where c.merchant_id = $1 and case when $2 or c.status = 'x' then true else false end`, ""},
		{"bound only by a join", "", "", `select a.n from charges c join attempts a on a.merchant_id = c.merchant_id where c.merchant_id = $1`, "attempts is read"},
		{"bound on each side of a join", "", "", `select a.n from charges c join attempts a on a.charge_id = c.charge_id and a.merchant_id = $1 where c.merchant_id = $1`, ""},
		{"one alias bound, the other side of a comma not", "", "", `select a.n from charges c, attempts a where c.merchant_id = $1`, "attempts is read"},
		{"bound without alias does not do for two tables", "", "", `select 1 from charges c join attempts a using (charge_id) where merchant_id = $1`, "without its merchant"},
		{"not bound in a lateral sub-select", "", "", `select l.n from charges c left join lateral (select a.n from attempts a where a.charge_id = c.charge_id limit 1) l on true where c.merchant_id = $1`, "attempts is read"},
		{"not bound in a scalar sub-select", "", "", `select (select count(*) from attempts a where a.merchant_id = c.merchant_id) from charges c where c.merchant_id = $1`, "attempts is read"},
		{"not bound in one branch of a union", "", "", `select c.status from charges c where c.merchant_id = $1 union all select c.status from charges c`, "charges is read"},
		{"not bound in a common table expression", "", "", `with x as (select c.status from charges c) select x.status from x`, "charges is read"},
		{"bound to a column is not bound", "", "", `select c.status from charges c where c.merchant_id = c.other`, "without its merchant"},
		{"a comment and a string do not bind", "", "", `select c.status from charges c where c.detail = ' c.merchant_id = 1' -- c.merchant_id = $1`, "without its merchant"},
		{"an update binds the merchant of its target", "", "", `update charges c set status = 'x' from attempts a where a.merchant_id = $1`, "charges is read or written"},
		{"a delete binds the merchant", "", "", `delete from outbox o where o.event_id = $1`, "outbox is read or written"},
		{"a delete using another tenant table", "", "", `delete from outbox o using charges c where o.merchant_id = $1`, "charges is read"},
		{"an insert names the merchant", "", "", `insert into outbox (event_id, kind) values ($1, $2)`, "does not name merchant_id"},
		{"an insert without columns", "", "", `insert into outbox values ($1, $2)`, "does not name merchant_id"},
		{"an insert with the merchant", "", "", `insert into outbox (merchant_id, event_id) values ($1, $2) on conflict (merchant_id, event_id) do nothing`, ""},
		{"the same words as columns are no tables", "", "", `select c.attempts, outbox from charges c where c.merchant_id = $1 order by charges, c.attempts`, ""},
		{"is distinct from is no from", "", "", `select 1 from charges c where c.merchant_id = $1 and c.status is distinct from charges`, ""},
		{"a function is no table", "", "", `select f.o from charges(@m) f`, ""},
		{"a schema before the table hides nothing", "", "", `select c.status from public.charges as c`, "charges is read"},
		{"quotes hide nothing", "", "", `select c.status from "charges" c`, "charges is read"},
		{"parentheses in the from list hide nothing", "", "", `select 1 from (charges c cross join attempts a) where c.merchant_id = $1`, "attempts is read"},
		// Rule 12 and rule 9: what the marks lift and what not.
		{"a report reads over all merchants", "", "x is a report over all merchants.", `select count(*) from charges c`, ""},
		{"candidates are read over all merchants", "", "x finds candidates.", `select c.charge_id from charges c where c.status = 'unknown' limit 10`, ""},
		{"a report does not write", "", "a report over all merchants", `update charges c set status = 'failed' where c.status = 'unknown'`, "mark for reads"},
		{"candidates are not locked", "", "candidates", `select c.charge_id from charges c for update skip locked`, "FOR UPDATE on charges without its merchant"},
		{"locked with the merchant", "", "", `select c.charge_id from charges c where c.merchant_id = $1 for no key update`, ""},
		// Rule 9: LIMIT and SKIP LOCKED.
		{"skip locked in a plain sub-select", "", "", `delete from outbox o where o.merchant_id = $1 and o.event_id in (select i.event_id from outbox i where i.merchant_id = $1 limit 1 for update skip locked)`, "LIMIT with SKIP LOCKED"},
		{"skip locked in a CTE that may be inlined", "", "", `with x as (select i.event_id from outbox i where i.merchant_id = $1 limit 1 for update skip locked) select x.event_id from x`, "LIMIT with SKIP LOCKED"},
		{"skip locked in a materialized CTE", "", "", `with x as materialized (select i.event_id from outbox i where i.merchant_id = $1 limit 1 for update skip locked) select x.event_id from x`, ""},
		{"skip locked in an array", "", "", `delete from outbox o where o.merchant_id = $1 and o.event_id = any(array(select i.event_id from outbox i where i.merchant_id = $1 limit 1 for update skip locked))`, ""},
		// Rule 11.
		{"star", "", "", `select * from charges c where c.merchant_id = $1`, "name the columns"},
		{"star of an alias", "", "", `select c.charge_id, c.* from charges c where c.merchant_id = $1`, "name the columns"},
		{"returning star", "", "", `update charges c set status = 'x' where c.merchant_id = $1 returning *`, "name the columns"},
		{"count(*) and products are no stars", "", "", `select count(*), c.amount * 2 from charges c where c.merchant_id = $1`, ""},
		{"exists of nothing", "", "", `select exists (select from charges c where c.merchant_id = $1)`, "without a column"},
		{"merge", "", "", `merge into scratch b using x on true when matched then delete`, "MERGE"},
		{"insert select returning without alias", "", "", `insert into outbox (merchant_id, kind) select c.merchant_id, 'x' from charges c where c.merchant_id = $1 returning kind`, "needs an alias"},
		{"insert select returning with alias", "", "", `insert into outbox as o (merchant_id, kind) select c.merchant_id, 'x' from charges c where c.merchant_id = $1 returning o.kind`, ""},
		// Rules 7 and 8.
		{"insert inside with, on the charge path", "", "", `with x as (insert into outbox (merchant_id) values ($1) returning merchant_id) select x.merchant_id from x`, "no INSERT inside WITH"},
		{"volatile in an update", "", "", `update charges c set updated_at = clock_timestamp() where c.merchant_id = $1`, "clock_timestamp in an UPDATE"},
		{"clock in do update", "", "", `insert into outbox (merchant_id, created_at) values ($1, now()) on conflict (merchant_id) do update set created_at = now()`, "now in DO UPDATE"},
		{"excluded in do update", "", "", `insert into outbox (merchant_id, created_at) values ($1, now()) on conflict (merchant_id) do update set created_at = excluded.created_at`, ""},
		{"interval on the column's side", "", "", `delete from outbox o where o.merchant_id = $1 and o.created_at + interval '1 day' < now()`, "an interval is added to the column created_at"},
		{"interval on the parameter's side", "", "", `delete from outbox o where o.merchant_id = $1 and o.created_at < @now - interval '1 day'`, ""},
		{"a row moves to another merchant", "", "", `update charges c set status = 'x', merchant_id = $2 where c.merchant_id = $1`, "never moves"},
		// Ownership.
		{"another package's table", "api", "", `select c.status from charges c where c.merchant_id = $1`, "only payment may"},
		{"another package's control table", "payment", "", `select k.role from api_keys k where k.key_id = $1`, "only merchant may"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if c.pkg == "" {
				c.pkg = "payment"
			}
			got := OurSchema().Check(Statement{Package: c.pkg, Name: "x", Doc: c.doc, SQL: c.sql})
			switch {
			case c.want == "" && len(got) != 0:
				t.Errorf("found %v in a good statement", got)
			case c.want != "" && (len(got) == 0 || !strings.Contains(got[0].What, c.want)):
				t.Errorf("found %v, want %q", got, c.want)
			}
		})
	}
}

func TestStatementsAreFound(t *testing.T) {
	t.Parallel()
	found, err := InPackage("testdata", "testdata/statements")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]Statement{}
	for _, s := range found {
		got[s.Name] = s
	}
	if want := "select a, b from charges c where c.merchant_id = @m"; got["built"].SQL != want {
		t.Errorf("put together from other constants: %q, want %q", got["built"].SQL, want)
	}
	for name, doc := range map[string]string{"plain": "", "documented": "a report over all merchants", "grouped": "candidates", "built": "", "local": ""} {
		s, ok := got[name]
		if !ok || !strings.Contains(s.Doc, doc) || s.Package != "statements" {
			t.Errorf("%s: %+v", name, s)
		}
		delete(got, name)
	}
	if len(got) != 0 {
		t.Errorf("taken for SQL: %v", got)
	}
}

func TestCheckCallsFinds(t *testing.T) {
	t.Parallel()
	problems, err := CheckCalls("testdata/statements", "none")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"calls.go:11: SendBatch", "calls.go:17: SERIALIZABLE", "calls.go:18: SQL that is no constant"} {
		found := false
		for _, p := range problems {
			found = found || strings.HasPrefix(p.String(), want)
		}
		if !found {
			t.Errorf("no problem %q in %v", want, problems)
		}
	}
	if len(problems) != 3 {
		t.Errorf("problems %v, want 3", problems)
	}
}

func TestCheckFunctionsFinds(t *testing.T) {
	t.Parallel()
	const bad = `
create function good_v1(p_merchant bigint) returns void language plpgsql as $$
begin
  if p_merchant > 0 then
    update charges c set status = case when c.status = 'a' then 'b' else 'c' end where c.merchant_id = p_merchant;
  end if;
end $$;
create function bad_v1(p_merchant bigint) returns void language plpgsql as $f$
declare v text;
begin
  for v in select c.status from charges c loop
    perform 1 from attempts a where a.merchant_id = p_merchant;
    if exists (select 1 from outbox o where o.kind = v) then
      delete from ledger_rollups r where r.merchant_id = p_merchant or true;
    end if;
  end loop;
end $f$;`
	problems, err := OurSchema().CheckFunctions(fstest.MapFS{"1.up.sql": {Data: []byte(bad)}})
	if err != nil {
		t.Fatal(err)
	}
	for i, table := range []string{"charges", "outbox", "ledger_rollups"} {
		if i >= len(problems) || !strings.Contains(problems[i].String(), "bad_v1") || !strings.Contains(problems[i].What, table) {
			t.Errorf("no problem with %s in %v", table, problems)
		}
	}
	if len(problems) != 3 {
		t.Errorf("problems %v, want 3", problems)
	}
	if _, err := OurSchema().CheckFunctions(fstest.MapFS{"1.up.sql": {Data: []byte("create table x ()")}}); err == nil {
		t.Error("a folder without functions passes")
	}
}

package sqllint

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// AppendOnly lists tables that the service may add to and never change.
type AppendOnly struct {
	Role   string
	Tables []string
}

// Catalogue holds a migrated database to the rules of its schema: what a cluster would refuse or
// quietly not enforce, and what must be refused to the service.
func (schema Schema) Catalogue(ctx context.Context, conn *pgx.Conn, appendOnly AppendOnly) (out []Problem, err error) {
	owned := make([]string, 0, len(schema.Owners))
	for name := range schema.Owners {
		owned = append(owned, name)
	}
	args := pgx.NamedArgs{"tenant": schema.Tenant, "owned": owned, "append_only": appendOnly.Tables, "role": appendOnly.Role}
	for _, check := range []struct{ what, sql string }{
		{"is a table without a row in the list of owners", tablesUnowned},
		{"has a row in a list of tables but is not in the schema", tablesMissing},
		{"is a tenant table without merchant_id bigint not null", tenantWithoutMerchant},
		{"is a key of a tenant table that does not lead with merchant_id", keysNotLed},
		{"is a foreign key of a tenant table that does not lead with merchant_id on both sides", foreignKeysNotLed},
		{"is a foreign key between a tenant and a control table", foreignKeysAcross},
		{"is a foreign key that sets columns on delete", foreignKeysSetting},
		{"is deferrable", deferrable},
		{"is a trigger on a tenant table", triggers},
		{"is a rule on a tenant table", rules},
		{"is a tenant table with row-level security", rowSecurity},
		{"is a tenant column that the database numbers", numbered},
		{"is granted by column", columnGrants},
		{"is a name of more than 54 bytes", longNames},
		{"is more than the service may do", privileges},
		{"is security definer and leaves the search path to its caller", openDefiners},
	} {
		rows, err := conn.Query(ctx, check.sql, args)
		if err != nil {
			return nil, fmt.Errorf("what %s: %w", check.what, err)
		}
		found, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return nil, fmt.Errorf("what %s: %w", check.what, err)
		}
		for _, name := range found {
			out = append(out, Problem{Where: name, What: check.what})
		}
	}
	return out, nil
}

// The tables of the schema; tenant tables with their partitions, which go by their parent's name in
// `root`. What follows the with of a query.
const relations = ` rel as (
  select c.oid, c.relname::text as name, coalesce(p.relname, c.relname)::text as root, c.relkind, c.relrowsecurity, c.relispartition
    from pg_class c left join pg_inherits i on i.inhrelid = c.oid and c.relispartition left join pg_class p on p.oid = i.inhparent
   where c.relnamespace = current_schema()::regnamespace and c.relkind in ('r', 'p')
), tenant as (
  select rel.oid, rel.name, rel.root from rel where rel.root = any(@tenant)
)`

const tablesUnowned = `with` + relations + `
select rel.name from rel where rel.root <> all(@owned::text[]) and rel.name <> 'schema_migrations' order by 1`

const tablesMissing = `
select distinct l.name from unnest(@owned::text[] || @tenant::text[] || @append_only::text[]) as l (name)
 where not exists (select 1 from pg_class c where c.relname = l.name and c.relnamespace = current_schema()::regnamespace) order by 1`

const tenantWithoutMerchant = `with` + relations + `
select t.name from tenant t where not exists (select 1 from pg_attribute a
 where a.attrelid = t.oid and a.attname = 'merchant_id' and a.atttypid = 'bigint'::regtype and a.attnotnull) order by 1`

const keysNotLed = `with` + relations + `
select i.indexrelid::regclass::text from tenant t join pg_index i on i.indrelid = t.oid
  left join pg_attribute a on a.attrelid = t.oid and a.attnum = i.indkey[0]
 where (i.indisunique or i.indisexclusion) and a.attname is distinct from 'merchant_id' order by 1`

const foreignKeysNotLed = `with` + relations + `
select f.conname::text from tenant t join pg_constraint f on f.conrelid = t.oid and f.contype = 'f'
  join pg_attribute a on a.attrelid = f.conrelid and a.attnum = f.conkey[1]
  join pg_attribute b on b.attrelid = f.confrelid and b.attnum = f.confkey[1]
 where a.attname <> 'merchant_id' or b.attname <> 'merchant_id' order by 1`

const foreignKeysAcross = `with` + relations + `
select f.conname::text from rel t join pg_constraint f on f.conrelid = t.oid and f.contype = 'f' join rel r on r.oid = f.confrelid
 where (t.root = any(@tenant)) <> (r.root = any(@tenant)) order by 1`

const foreignKeysSetting = `with` + relations + `
select f.conname::text from tenant t join pg_constraint f on f.conrelid = t.oid
 where f.contype = 'f' and (f.confdeltype in ('n', 'd') or f.confupdtype in ('n', 'd')) order by 1`

const deferrable = `with` + relations + `
select f.conname::text from tenant t join pg_constraint f on f.conrelid = t.oid where f.condeferrable order by 1`

const triggers = `with` + relations + `
select g.tgname::text from tenant t join pg_trigger g on g.tgrelid = t.oid where not g.tgisinternal order by 1`

const rules = `with` + relations + `
select r.rulename::text from tenant t join pg_rewrite r on r.ev_class = t.oid order by 1`

const rowSecurity = `with` + relations + `
select t.name from tenant t join rel on rel.oid = t.oid
 where rel.relrowsecurity or exists (select 1 from pg_policy p where p.polrelid = t.oid) order by 1`

const numbered = `with` + relations + `
select t.name || '.' || a.attname from tenant t join pg_attribute a on a.attrelid = t.oid and a.attnum > 0
  left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
 where a.attidentity <> '' or pg_get_expr(d.adbin, d.adrelid) like 'nextval(%' order by 1`

const columnGrants = `with` + relations + `
select t.name || '.' || a.attname from tenant t join pg_attribute a on a.attrelid = t.oid where a.attacl is not null order by 1`

const longNames = `
select n.name from (
  select c.relname::text as name from pg_class c where c.relkind in ('i', 'I') and c.relnamespace = current_schema()::regnamespace
  union
  select f.conname::text from pg_constraint f where f.connamespace = current_schema()::regnamespace
) n where octet_length(n.name) > 54 order by 1`

const privileges = `with` + relations + `
select rel.name || ' ' || p.privilege from rel, unnest(array['UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER']) as p (privilege)
 where has_table_privilege(@role, rel.oid, p.privilege) and (rel.root = any(@append_only) or p.privilege not in ('UPDATE', 'DELETE'))
union all
select rel.name || ' owner' from rel join pg_class c on c.oid = rel.oid where pg_has_role(@role, c.relowner, 'member')
order by 1`

const openDefiners = `
select f.oid::regprocedure::text from pg_proc f
 where f.pronamespace = current_schema()::regnamespace and f.prosecdef
   and not exists (select 1 from unnest(f.proconfig) as s (setting) where s.setting like 'search_path=%') order by 1`

-- The role under which the service runs. It owns nothing, so that append-only tables can refuse it
-- UPDATE and DELETE by privilege. Roles belong to the whole cluster: it may be there already.
do $$
begin
  if not exists (select 1 from pg_roles where rolname = 'paymentsd_service') then
    create role paymentsd_service nologin;
  end if;
exception when duplicate_object or unique_violation then
  null; -- another database of this cluster is being migrated at the same moment
end $$;

do $$
begin
  execute format('grant usage on schema %I to paymentsd_service', current_schema());
  -- The service looks whether the schema is the one it was built for.
  grant select on schema_migrations to paymentsd_service;
end $$;

-- Where the Citus extension is present a tenant table is distributed by its merchant; elsewhere
-- these two do nothing, so that one schema serves one Postgres and a cluster (docs/scale.md).
create function distribute_table(p_table regclass) returns void language plpgsql as $$
begin
  if exists (select 1 from pg_extension where extname = 'citus') then
    execute format('select create_distributed_table(%L, %L, colocate_with => %L)', p_table, 'merchant_id',
      case when p_table::text = 'merchants' then 'none' else 'merchants' end);
  end if;
end $$;

create function distribute_function(p_function regprocedure) returns void language plpgsql as $$
begin
  if exists (select 1 from pg_extension where extname = 'citus') then
    execute format('select create_distributed_function(%L, %L, colocate_with => %L)',
      p_function::text, 'p_merchant', 'merchants');
  end if;
end $$;

-- Merchants (tenants). The number is allotted at random, because it shows at acquirers as the
-- first six characters of every reference: 22 letters x 32^5.
create table merchants (
  merchant_id bigint primary key check (merchant_id between 0 and 738197503),
  name        text not null check (length(name) between 1 and 200),
  acquirers   text[] not null check (cardinality(acquirers) between 1 and 8),
  created_at  timestamptz not null
);
select distribute_table('merchants');
grant select, insert, update on merchants to paymentsd_service;

-- API keys are read before the merchant is known, so they are a control table. Only a hash is
-- kept. A key without a merchant is the platform's own (ops).
create table api_keys (
  key_id      text primary key check (key_id ~ '^[0-9a-z]{12}$'),
  secret_hash bytea not null check (octet_length(secret_hash) = 32),
  merchant_id bigint,
  role        text not null check (role in ('charges', 'read', 'ops')),
  name        text not null check (length(name) between 1 and 200),
  created_at  timestamptz not null,
  revoked_at  timestamptz,
  constraint api_keys_merchant_unless_ops check (merchant_id is not null or role = 'ops')
);
grant select, insert, update on api_keys to paymentsd_service;

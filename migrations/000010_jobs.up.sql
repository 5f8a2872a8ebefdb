-- Jobs that run beside charges (docs/jobs.md), in two parts. The queue itself is river's and stands in a schema
-- of its own: control side, no statement touches it together with a merchant's tables. Ours are tenant
-- tables: what has to be done about a charge is a row, a job is only a wake-up that may be lost or doubled.

-- Part 1: river's own migrations 1 to 8 of its line "main" (github.com/riverqueue/river v0.51.2), as it
-- prints them, in schema river. One difference: the state 'pending', which its fourth migration adds, is in the
-- type from the start, because a new value of an enum cannot be used in the transaction that adds it. A test
-- compares the result with what river's own migrator makes.
create schema river;
grant usage on schema river to paymentsd_service;

-- river: 001_create_river_migration.up.sql
CREATE TABLE river.river_migration(
  id bigserial PRIMARY KEY,
  created_at timestamptz NOT NULL DEFAULT NOW(),
  version bigint NOT NULL,
  CONSTRAINT version CHECK (version >= 1)
);

CREATE UNIQUE INDEX ON river.river_migration USING btree(version);

-- river: 002_initial_schema.up.sql
CREATE TYPE river.river_job_state AS ENUM(
  'available',
  'cancelled',
  'completed',
  'discarded',
  'pending',
  'retryable',
  'running',
  'scheduled'
);

CREATE TABLE river.river_job(
  -- 8 bytes
  id bigserial PRIMARY KEY,

  -- 8 bytes (4 bytes + 2 bytes + 2 bytes)
  --
  -- `state` is kept near the top of the table for operator convenience -- when
  -- looking at jobs with `SELECT *` it'll appear first after ID. The other two
  -- fields aren't as important but are kept adjacent to `state` for alignment
  -- to get an 8-byte block.
  state river.river_job_state NOT NULL DEFAULT 'available',
  attempt smallint NOT NULL DEFAULT 0,
  max_attempts smallint NOT NULL,

  -- 8 bytes each (no alignment needed)
  attempted_at timestamptz,
  created_at timestamptz NOT NULL DEFAULT NOW(),
  finalized_at timestamptz,
  scheduled_at timestamptz NOT NULL DEFAULT NOW(),

  -- 2 bytes (some wasted padding probably)
  priority smallint NOT NULL DEFAULT 1,

  -- types stored out-of-band
  args jsonb,
  attempted_by text[],
  errors jsonb[],
  kind text NOT NULL,
  metadata jsonb NOT NULL DEFAULT '{}',
  queue text NOT NULL DEFAULT 'default',
  tags varchar(255)[],

  CONSTRAINT finalized_or_finalized_at_null CHECK ((state IN ('cancelled', 'completed', 'discarded') AND finalized_at IS NOT NULL) OR finalized_at IS NULL),
  CONSTRAINT max_attempts_is_positive CHECK (max_attempts > 0),
  CONSTRAINT priority_in_range CHECK (priority >= 1 AND priority <= 4),
  CONSTRAINT queue_length CHECK (char_length(queue) > 0 AND char_length(queue) < 128),
  CONSTRAINT kind_length CHECK (char_length(kind) > 0 AND char_length(kind) < 128)
);

-- We may want to consider adding another property here after `kind` if it seems
-- like it'd be useful for something.
CREATE INDEX river_job_kind ON river.river_job USING btree(kind);

CREATE INDEX river_job_state_and_finalized_at_index ON river.river_job USING btree(state, finalized_at) WHERE finalized_at IS NOT NULL;

CREATE INDEX river_job_prioritized_fetching_index ON river.river_job USING btree(state, queue, priority, scheduled_at, id);

CREATE INDEX river_job_args_index ON river.river_job USING GIN(args);

CREATE INDEX river_job_metadata_index ON river.river_job USING GIN(metadata);

CREATE OR REPLACE FUNCTION river.river_job_notify()
  RETURNS TRIGGER
  AS $$
DECLARE
  payload json;
BEGIN
  IF NEW.state = 'available' THEN
    -- Notify will coalesce duplicate notifications within a transaction, so
    -- keep these payloads generalized:
    payload = json_build_object('queue', NEW.queue);
    PERFORM
      pg_notify('river_insert', payload::text);
  END IF;
  RETURN NULL;
END;
$$
LANGUAGE plpgsql;

CREATE TRIGGER river_notify
  AFTER INSERT ON river.river_job
  FOR EACH ROW
  EXECUTE PROCEDURE river.river_job_notify();

CREATE UNLOGGED TABLE river.river_leader(
    -- 8 bytes each (no alignment needed)
    elected_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,

    -- types stored out-of-band
    leader_id text NOT NULL,
    name text PRIMARY KEY,

    CONSTRAINT name_length CHECK (char_length(name) > 0 AND char_length(name) < 128),
    CONSTRAINT leader_id_length CHECK (char_length(leader_id) > 0 AND char_length(leader_id) < 128)
);

-- river: 003_river_job_tags_non_null.up.sql
ALTER TABLE river.river_job ALTER COLUMN tags SET DEFAULT '{}';
UPDATE river.river_job SET tags = '{}' WHERE tags IS NULL;
ALTER TABLE river.river_job ALTER COLUMN tags SET NOT NULL;

-- river: 004_pending_and_more.up.sql
-- The args column never had a NOT NULL constraint or default value at the
-- database level, though we tried to ensure one at the application level.
ALTER TABLE river.river_job ALTER COLUMN args SET DEFAULT '{}';
UPDATE river.river_job SET args = '{}' WHERE args IS NULL;
ALTER TABLE river.river_job ALTER COLUMN args SET NOT NULL;
ALTER TABLE river.river_job ALTER COLUMN args DROP DEFAULT;

-- The metadata column never had a NOT NULL constraint or default value at the
-- database level, though we tried to ensure one at the application level.
ALTER TABLE river.river_job ALTER COLUMN metadata SET DEFAULT '{}';
UPDATE river.river_job SET metadata = '{}' WHERE metadata IS NULL;
ALTER TABLE river.river_job ALTER COLUMN metadata SET NOT NULL;

-- The 'pending' job state will be used for upcoming functionality:
-- (see above)

ALTER TABLE river.river_job DROP CONSTRAINT finalized_or_finalized_at_null;
ALTER TABLE river.river_job ADD CONSTRAINT finalized_or_finalized_at_null CHECK (
    (finalized_at IS NULL AND state NOT IN ('cancelled', 'completed', 'discarded')) OR
    (finalized_at IS NOT NULL AND state IN ('cancelled', 'completed', 'discarded'))
);

DROP TRIGGER river_notify ON river.river_job;
DROP FUNCTION river.river_job_notify;

--
-- Create table `river_queue`.
--

CREATE TABLE river.river_queue (
    name text PRIMARY KEY NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    metadata jsonb NOT NULL DEFAULT '{}' ::jsonb,
    paused_at timestamptz,
    updated_at timestamptz NOT NULL
);

--
-- Alter `river_leader` to add a default value of 'default` to `name`.
--

ALTER TABLE river.river_leader
    ALTER COLUMN name SET DEFAULT 'default',
    DROP CONSTRAINT name_length,
    ADD CONSTRAINT name_length CHECK (name = 'default');

-- river: 005_migration_unique_client.up.sql
--
-- Rebuild the migration table so it's based on `(line, version)`.
--

DO
$body$
BEGIN
    -- Tolerate users who may be using their own migration system rather than
    -- River's. If they are, they will have skipped version 001 containing
    -- `CREATE TABLE river_migration`, so this table won't exist.
    IF (SELECT to_regclass('river.river_migration') IS NOT NULL) THEN
        ALTER TABLE river.river_migration
            RENAME TO river_migration_old;

        CREATE TABLE river.river_migration(
            line TEXT NOT NULL,
            version bigint NOT NULL,
            created_at timestamptz NOT NULL DEFAULT NOW(),
            CONSTRAINT line_length CHECK (char_length(line) > 0 AND char_length(line) < 128),
            CONSTRAINT version_gte_1 CHECK (version >= 1),
            PRIMARY KEY (line, version)
        );

        INSERT INTO river.river_migration
            (created_at, line, version)
        SELECT created_at, 'main', version
        FROM river.river_migration_old;

        DROP TABLE river.river_migration_old;
    END IF;
END;
$body$
LANGUAGE 'plpgsql'; 

--
-- Add `river_job.unique_key` and bring up an index on it.
--

-- These statements use `IF NOT EXISTS` to allow users with a `river_job` table
-- of non-trivial size to build the index `CONCURRENTLY` out of band of this
-- migration, then follow by completing the migration.
ALTER TABLE river.river_job
    ADD COLUMN IF NOT EXISTS unique_key bytea;

CREATE UNIQUE INDEX IF NOT EXISTS river_job_kind_unique_key_idx ON river.river_job (kind, unique_key) WHERE unique_key IS NOT NULL;

--
-- Create `river_client` and derivative.
--
-- This feature hasn't quite yet been implemented, but we're taking advantage of
-- the migration to add the schema early so that we can add it later without an
-- additional migration.
--

CREATE UNLOGGED TABLE river.river_client (
    id text PRIMARY KEY NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    metadata jsonb NOT NULL DEFAULT '{}',
    paused_at timestamptz,
    updated_at timestamptz NOT NULL,
    CONSTRAINT name_length CHECK (char_length(id) > 0 AND char_length(id) < 128)
);

-- Differs from `river_queue` in that it tracks the queue state for a particular
-- active client.
CREATE UNLOGGED TABLE river.river_client_queue (
    river_client_id text NOT NULL REFERENCES river.river_client (id) ON DELETE CASCADE,
    name text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    max_workers bigint NOT NULL DEFAULT 0,
    metadata jsonb NOT NULL DEFAULT '{}',
    num_jobs_completed bigint NOT NULL DEFAULT 0,
    num_jobs_running bigint NOT NULL DEFAULT 0,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (river_client_id, name),
    CONSTRAINT name_length CHECK (char_length(name) > 0 AND char_length(name) < 128),
    CONSTRAINT num_jobs_completed_zero_or_positive CHECK (num_jobs_completed >= 0),
    CONSTRAINT num_jobs_running_zero_or_positive CHECK (num_jobs_running >= 0)
);

-- river: 006_bulk_unique.up.sql
CREATE OR REPLACE FUNCTION river.river_job_state_in_bitmask(bitmask BIT(8), state river.river_job_state)
RETURNS boolean
LANGUAGE SQL
IMMUTABLE
AS $$
    SELECT CASE state
        WHEN 'available' THEN get_bit(bitmask, 7)
        WHEN 'cancelled' THEN get_bit(bitmask, 6)
        WHEN 'completed' THEN get_bit(bitmask, 5)
        WHEN 'discarded' THEN get_bit(bitmask, 4)
        WHEN 'pending'   THEN get_bit(bitmask, 3)
        WHEN 'retryable' THEN get_bit(bitmask, 2)
        WHEN 'running'   THEN get_bit(bitmask, 1)
        WHEN 'scheduled' THEN get_bit(bitmask, 0)
        ELSE 0
    END = 1;
$$;

--
-- Add `river_job.unique_states` and bring up an index on it.
--
-- This column may exist already if users manually created the column and index
-- as instructed in the changelog so the index could be created `CONCURRENTLY`.
--
ALTER TABLE river.river_job ADD COLUMN IF NOT EXISTS unique_states BIT(8);

-- This statement uses `IF NOT EXISTS` to allow users with a `river_job` table
-- of non-trivial size to build the index `CONCURRENTLY` out of band of this
-- migration, then follow by completing the migration.
CREATE UNIQUE INDEX IF NOT EXISTS river_job_unique_idx ON river.river_job (unique_key)
    WHERE unique_key IS NOT NULL
      AND unique_states IS NOT NULL
      AND river.river_job_state_in_bitmask(unique_states, state);

-- Remove the old unique index. Users who are actively using the unique jobs
-- feature and who wish to avoid deploy downtime may want od drop this in a
-- subsequent migration once all jobs using the old unique system have been
-- completed (i.e. no more rows with non-null unique_key and null
-- unique_states).
DROP INDEX river.river_job_kind_unique_key_idx;

-- river: 007_notification_outbox_sqlite_jsonb_and_sql_cleanup.up.sql
--
-- Notification outbox.
--

CREATE TABLE river.river_notification (
    id bigserial PRIMARY KEY,
    created_at timestamptz NOT NULL DEFAULT now(),
    payload text NOT NULL,
    topic text NOT NULL,
    CONSTRAINT topic_length CHECK (length(topic) > 0 AND length(topic) < 128)
);

CREATE INDEX river_notification_created_at_idx ON river.river_notification (created_at);
CREATE INDEX river_notification_topic_id_idx ON river.river_notification (topic, id);

--
-- SQLite JSONB conversion.
--
-- No-op. Postgres already stores River JSON columns as jsonb.

--
-- SQL cleanup.
--

--
-- Drop unused tables `river_client` and `river_client_queue`.
--

DROP TABLE river.river_client_queue;
DROP TABLE river.river_client;

--
-- Adds `DEFAULT 25` to `river_job.max_attempts`.
--

ALTER TABLE river.river_job
    ALTER COLUMN max_attempts SET DEFAULT 25;

--
-- Changes `river_queue.updated_at` to have a default of `CURRENT_TIMESTAMP`.
--

ALTER TABLE river.river_queue
    ALTER COLUMN updated_at SET DEFAULT CURRENT_TIMESTAMP;

-- river: 008_job_id_autoincrement.up.sql
-- No-op. Postgres sequences already prevent automatically generated job IDs
-- from being reused.
SELECT 1;


insert into river.river_migration (line, version)
select 'main', v from generate_series(1, 8) as v on conflict do nothing;

grant select, insert, update, delete on all tables in schema river to paymentsd_service;
grant usage, select on all sequences in schema river to paymentsd_service;


-- Part 2: ours.

-- The outbox is read by a relay (payment/outbox.go): due_at is when a row may be taken next, by the database's
-- clock; tries is how often it was taken; relayed_at is when all who wanted it had it.
do $$
begin
  alter table outbox
    add column due_at timestamptz not null default now(),
    add column tries int not null default 0 check (tries >= 0),
    add column relayed_at timestamptz,
    drop constraint outbox_kind_check,
    add constraint outbox_kind_check check (kind in
      ('charge.queued', 'charge.captured', 'charge.declined', 'charge.failed', 'charge.unknown', 'charge.resolved'));
  create index outbox_due on outbox (due_at, merchant_id, event_id) where relayed_at is null;
  create index outbox_relayed on outbox (relayed_at) where relayed_at is not null;
end $$;

-- What an inquiry found, for evidence that is noted and for the rule of absence.
alter table resolutions add column finding text
  check (finding in ('captured', 'declined', 'not_found', 'pending', 'unclear'));

-- What has to be done about a charge: ask what became of an unknown (inquiry), or carry out a queued one
-- (charge). due_at: not before. wake_at: when a job is made for it next, later than due_at while one is
-- believed to be under way. ended_at: nothing more is done by itself, a person has to.
create table errands (
  merchant_id bigint not null,
  charge_id   text collate "C" not null,
  kind        text not null check (kind in ('inquiry', 'charge')),
  due_at      timestamptz not null,
  wake_at     timestamptz not null,
  tries       int not null check (tries >= 0),
  deferrals   int not null check (deferrals >= 0), -- put off without a call, and without using up a try
  note        text check (length(note) <= 500), -- what the last one brought
  created_at  timestamptz not null,
  ended_at    timestamptz,
  primary key (merchant_id, charge_id, kind),
  foreign key (merchant_id, charge_id) references charges (merchant_id, charge_id)
);
create index errands_to_wake on errands (wake_at, merchant_id, charge_id) where ended_at is null;
select distribute_table('errands');
grant select, insert, update, delete on errands to paymentsd_service;

-- A key of a queued charge has no lease: nobody works on it, and no sweep may take it for lost.
do $$
begin
  alter table idempotency_keys
    drop constraint idempotency_keys_state_check,
    add constraint idempotency_keys_state_check check (state in ('queued', 'in_flight', 'done', 'unknown'));
end $$;

-- A queued charge may be carried out several times before it is certain: each time at up to 8 acquirers.
do $$
begin
  alter table attempts drop constraint attempts_n_check, add constraint attempts_n_check check (n between 1 and 64);
end $$;

-- The queue's own T1: claim the key and insert the charge, queued; no attempt, no lease. It answers like
-- charge_begin_v1, with o_state 'queued' for what it claimed.
create function charge_enqueue_v1(
  p_merchant bigint, p_now timestamptz, p_wake_after interval,
  p_key text[], p_fingerprint bytea[], p_charge text[], p_generation int[], p_acq_ref text[],
  p_amount numeric[], p_currency text[], p_reference text[], p_allow_concurrent boolean[],
  p_payment_method text[], p_description text[], p_acquirer text[], p_reason text[], p_detail text[]
) returns table (
  o_ord int, o_outcome text, o_charge text, o_fence bigint, o_state text, o_fingerprint bytea,
  o_response_on date, o_generation int, o_created_at timestamptz
) language plpgsql as $$
begin
  for o_ord in select s.ord from unnest(p_key) with ordinality as s (key, ord) order by s.key, s.ord loop
    o_outcome := null; o_charge := p_charge[o_ord]; o_fence := null; o_state := null; o_fingerprint := null;
    o_response_on := null; o_generation := null; o_created_at := null;

    insert into idempotency_keys (merchant_id, key, state, fingerprint, charge_id, fence, created_at)
    values (p_merchant, p_key[o_ord], 'queued', p_fingerprint[o_ord], p_charge[o_ord], 1, p_now)
    on conflict (merchant_id, key) do nothing;

    if not found then
      select k.charge_id, k.fence, k.state, k.fingerprint, k.response_on, k.created_at
        into o_charge, o_fence, o_state, o_fingerprint, o_response_on, o_created_at
        from idempotency_keys k where k.merchant_id = p_merchant and k.key = p_key[o_ord];
      o_outcome := case when found then 'exists' else 'again' end;
      return next;
      continue;
    end if;

    select coalesce(max(c.generation) + 1, 0) into o_generation
      from charges c where c.merchant_id = p_merchant and c.idempotency_key = p_key[o_ord];
    if o_generation <> p_generation[o_ord] then
      o_outcome := 'generation';
    else
      if p_reference[o_ord] is not null and not p_allow_concurrent[o_ord] then
        select c.charge_id into o_charge from charges c
         where c.merchant_id = p_merchant and c.reference = p_reference[o_ord]
           and c.status in ('pending', 'queued', 'unknown') limit 1;
        if found then
          o_outcome := 'reference_open';
        end if;
      end if;
      if o_outcome is null then
        insert into charges (merchant_id, charge_id, idempotency_key, generation, acq_ref, amount, currency, reference,
          allow_concurrent, payment_method, description, status, acquirer, reason, detail, created_at, updated_at)
        values (p_merchant, p_charge[o_ord], p_key[o_ord], p_generation[o_ord], p_acq_ref[o_ord], p_amount[o_ord],
          p_currency[o_ord], p_reference[o_ord], p_allow_concurrent[o_ord], p_payment_method[o_ord], p_description[o_ord],
          'queued', p_acquirer[o_ord], p_reason[o_ord], p_detail[o_ord], p_now, p_now)
        on conflict do nothing;
        if found then
          insert into errands (merchant_id, charge_id, kind, due_at, wake_at, tries, deferrals, created_at)
          values (p_merchant, p_charge[o_ord], 'charge', clock_timestamp(), clock_timestamp() + p_wake_after, 0, 0, p_now);
          insert into outbox (merchant_id, event_id, kind, charge_id, created_at)
          values (p_merchant, p_charge[o_ord] || ':queued', 'charge.queued', p_charge[o_ord], p_now);
          o_outcome := 'claimed'; o_charge := p_charge[o_ord]; o_fence := 1; o_state := 'queued'; o_created_at := p_now;
        else
          select c.charge_id into o_charge from charges c
           where c.merchant_id = p_merchant and c.reference = p_reference[o_ord]
             and c.status in ('pending', 'queued', 'unknown') limit 1;
          o_outcome := case when found then 'reference_open' else 'again' end;
        end if;
      end if;
    end if;

    if o_outcome <> 'claimed' then
      delete from idempotency_keys k
       where k.merchant_id = p_merchant and k.key = p_key[o_ord] and k.charge_id = p_charge[o_ord] and k.fence = 1;
    end if;
    return next;
  end loop;
end $$;
select distribute_function('charge_enqueue_v1(bigint,timestamptz,interval,text[],bytea[],text[],int[],text[],numeric[],text[],text[],boolean[],text[],text[],text[],text[],text[])');
grant execute on function charge_enqueue_v1 to paymentsd_service;

-- A worker takes a queued charge: the key in flight under a new fence, the charge pending, and an attempt
-- written before its first byte. An attempt of which nothing was sent is used again. No row: the charge is
-- not queued any more, and whoever asks may send nothing.
create function charge_start_v1(
  p_merchant bigint, p_now timestamptz, p_lease interval, p_key text, p_charge text, p_acquirer text
) returns table (o_fence bigint, o_attempt int) language plpgsql as $$
declare
  v_last attempts%rowtype;
begin
  update idempotency_keys k
     set state = 'in_flight', lease_until = now() + p_lease, fence = k.fence + 1
   where k.merchant_id = p_merchant and k.key = p_key and k.charge_id = p_charge and k.state = 'queued'
  returning k.fence into o_fence;
  if not found then
    return;
  end if;
  update charges c set status = 'pending', acquirer = p_acquirer, reason = null, detail = null, updated_at = p_now
   where c.merchant_id = p_merchant and c.charge_id = p_charge and c.status = 'queued';
  if not found then
    raise exception 'charge % is not queued though its key is', p_charge using errcode = 'PD003';
  end if;
  select a.n, a.state, a.calls into v_last.n, v_last.state, v_last.calls
    from attempts a where a.merchant_id = p_merchant and a.charge_id = p_charge order by a.n desc limit 1;
  if found and v_last.state = 'not_sent' and v_last.calls = 0 then
    o_attempt := v_last.n;
    update attempts a
       set acquirer = p_acquirer, state = 'started', http_status = null, code = null, reason = null, detail = null,
           started_at = p_now, finished_at = null
     where a.merchant_id = p_merchant and a.charge_id = p_charge and a.n = o_attempt;
  else
    o_attempt := coalesce(v_last.n, 0) + 1;
    insert into attempts (merchant_id, charge_id, n, acquirer, state, calls, started_at)
    values (p_merchant, p_charge, o_attempt, p_acquirer, 'started', 0, p_now);
  end if;
  return next;
end $$;
select distribute_function('charge_start_v1(bigint,timestamptz,interval,text,text,text)');
grant execute on function charge_start_v1 to paymentsd_service;

-- The other end of a try that proves that nothing was executed: back into the queue, fenced by the key.
-- p_used says whether it counts as a try, p_wait how long until the next.
-- outcome: applied, already, fenced, as charge_finish_v1 has them.
create function charge_requeue_v1(
  p_merchant bigint, p_now timestamptz, p_key text, p_charge text, p_fence bigint, p_attempt int,
  p_state text, p_calls int, p_http_status int, p_code text, p_reason text, p_detail text,
  p_wait interval, p_used boolean
) returns text language plpgsql as $$
declare
  v_due timestamptz := clock_timestamp() + p_wait;
begin
  if p_state not in ('not_sent', 'refused') then
    raise exception 'attempt state % is no proof that nothing was executed', p_state using errcode = 'PD002';
  end if;
  update idempotency_keys k set state = 'queued', lease_until = null
   where k.merchant_id = p_merchant and k.key = p_key and k.charge_id = p_charge and k.fence = p_fence and k.state = 'in_flight';
  if not found then
    perform 1 from idempotency_keys k
     where k.merchant_id = p_merchant and k.key = p_key and k.charge_id = p_charge and k.fence = p_fence and k.state = 'queued';
    return case when found then 'already' else 'fenced' end;
  end if;
  update attempts a
     set state = p_state, calls = p_calls, http_status = p_http_status, code = p_code, reason = p_reason,
         detail = p_detail, finished_at = p_now
   where a.merchant_id = p_merchant and a.charge_id = p_charge and a.n = p_attempt and a.state = 'started';
  if not found then
    raise exception 'attempt % of charge % is not open', p_attempt, p_charge using errcode = 'PD003';
  end if;
  update charges c set status = 'queued', reason = p_reason, detail = p_detail, updated_at = p_now
   where c.merchant_id = p_merchant and c.charge_id = p_charge and c.status = 'pending';
  if not found then
    raise exception 'charge % is not pending', p_charge using errcode = 'PD003';
  end if;
  insert into errands (merchant_id, charge_id, kind, due_at, wake_at, tries, deferrals, note, created_at)
  values (p_merchant, p_charge, 'charge', v_due, v_due, p_used::int, (not p_used)::int, p_reason, p_now)
  on conflict (merchant_id, charge_id, kind) do update
     set due_at = excluded.due_at, wake_at = excluded.wake_at, tries = errands.tries + excluded.tries,
         deferrals = errands.deferrals + excluded.deferrals, note = excluded.note;
  insert into outbox (merchant_id, event_id, kind, charge_id, created_at)
  values (p_merchant, p_charge || ':queued', 'charge.queued', p_charge, p_now)
  on conflict (merchant_id, event_id) do nothing;
  return 'applied';
end $$;
select distribute_function('charge_requeue_v1(bigint,timestamptz,text,text,bigint,int,text,int,int,text,text,text,interval,boolean)');
grant execute on function charge_requeue_v1 to paymentsd_service;

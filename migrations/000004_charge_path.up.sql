-- The writes of the charge path: one round trip and one commit each, called bare in autocommit with
-- parameters only. They take one merchant and arrays of rows, so that many requests can share a
-- statement and a commit. Names carry a version: old replicas run beside new ones.
-- Rows are visited in the order of their keys, so that two groups do not deadlock over keys. Two groups
-- that hold the same order references in crossed order can: the loser (40P01) has written nothing and
-- is run again by its caller.

-- T1: claim the key, insert the charge and its first attempt, all pending.
-- outcome: claimed          the rows are ours under o_fence
--          exists           somebody's key: o_charge, o_state, o_fingerprint, o_response_on say whose
--          generation       the key was freed before: come again with generation o_generation
--          reference_open   another charge of the same order reference, o_charge, is still open
--          again            the row that stood in the way is gone: come again
create function charge_begin_v1(
  p_merchant bigint, p_now timestamptz, p_lease interval,
  p_key text[], p_fingerprint bytea[], p_charge text[], p_generation int[], p_acq_ref text[],
  p_amount numeric[], p_currency text[], p_reference text[], p_allow_concurrent boolean[],
  p_payment_method text[], p_description text[], p_acquirer text[]
) returns table (
  o_ord int, o_outcome text, o_charge text, o_fence bigint, o_state text, o_fingerprint bytea,
  o_response_on date, o_generation int, o_created_at timestamptz
) language plpgsql as $$
declare
  v_lease_until timestamptz;
begin
  for o_ord in select s.ord from unnest(p_key) with ordinality as s (key, ord) order by s.key, s.ord loop
    o_outcome := null; o_charge := p_charge[o_ord]; o_fence := null; o_state := null; o_fingerprint := null;
    o_response_on := null; o_generation := null; o_created_at := null;
    v_lease_until := clock_timestamp() + p_lease; -- the database's clock, never a replica's

    insert into idempotency_keys (merchant_id, key, state, fingerprint, charge_id, fence, lease_until, created_at)
    values (p_merchant, p_key[o_ord], 'in_flight', p_fingerprint[o_ord], p_charge[o_ord], 1, v_lease_until, p_now)
    on conflict (merchant_id, key) do nothing;

    if not found then
      -- A fresh snapshot: a loser that waited for the winner sees the winner's row.
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
          allow_concurrent, payment_method, description, status, acquirer, created_at, updated_at)
        values (p_merchant, p_charge[o_ord], p_key[o_ord], p_generation[o_ord], p_acq_ref[o_ord], p_amount[o_ord],
          p_currency[o_ord], p_reference[o_ord], p_allow_concurrent[o_ord], p_payment_method[o_ord], p_description[o_ord],
          'pending', p_acquirer[o_ord], p_now, p_now)
        on conflict do nothing;
        if found then
          insert into attempts (merchant_id, charge_id, n, acquirer, state, calls, started_at)
          values (p_merchant, p_charge[o_ord], 1, p_acquirer[o_ord], 'started', 0, p_now);
          o_outcome := 'claimed'; o_charge := p_charge[o_ord]; o_fence := 1; o_state := 'in_flight'; o_created_at := p_now;
        else
          -- The guard of one open charge per reference caught a concurrent one.
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
select distribute_function('charge_begin_v1(bigint,timestamptz,interval,text[],bytea[],text[],int[],text[],numeric[],text[],text[],boolean[],text[],text[],text[])');
grant execute on function charge_begin_v1 to paymentsd_service;

-- Failover: end attempt n with a proof that nothing was executed and begin attempt n+1, before its
-- first byte. False means that the lease was taken over: nothing may be sent.
create function charge_failover_v1(
  p_merchant bigint, p_now timestamptz, p_key text, p_charge text, p_fence bigint, p_attempt int,
  p_state text, p_calls int, p_http_status int, p_code text, p_reason text, p_detail text, p_next_acquirer text
) returns boolean language plpgsql as $$
begin
  if p_state not in ('not_sent', 'refused') then
    raise exception 'attempt state % is no proof that nothing was executed', p_state using errcode = 'PD002';
  end if;
  perform 1 from idempotency_keys k
   where k.merchant_id = p_merchant and k.key = p_key and k.charge_id = p_charge and k.fence = p_fence and k.state = 'in_flight'
     for update;
  if not found then
    return false;
  end if;
  update attempts a
     set state = p_state, calls = p_calls, http_status = p_http_status, code = p_code, reason = p_reason,
         detail = p_detail, finished_at = p_now
   where a.merchant_id = p_merchant and a.charge_id = p_charge and a.n = p_attempt and a.state = 'started';
  if not found then
    -- An earlier try of this same write may have been committed, though its answer was lost.
    perform 1 from attempts a
     where a.merchant_id = p_merchant and a.charge_id = p_charge and a.n = p_attempt + 1
       and a.acquirer = p_next_acquirer and a.state = 'started';
    return found;
  end if;
  insert into attempts (merchant_id, charge_id, n, acquirer, state, calls, started_at)
  values (p_merchant, p_charge, p_attempt + 1, p_next_acquirer, 'started', 0, p_now);
  update charges c set acquirer = p_next_acquirer, updated_at = p_now
   where c.merchant_id = p_merchant and c.charge_id = p_charge and c.status = 'pending';
  return found;
end $$;
select distribute_function('charge_failover_v1(bigint,timestamptz,text,text,bigint,int,text,int,int,text,text,text,text)');
grant execute on function charge_failover_v1 to paymentsd_service;

-- T2: what the attempt brought, the charge, the key with its frozen answer, the ledger transfer and the
-- event, all or none, fenced by the key.
-- outcome: applied   written
--          already   an earlier try of this same write was committed, though its answer was lost
--          fenced    the lease was taken over: nothing was written, what is in hand is evidence
create function charge_finish_v1(
  p_merchant bigint, p_now timestamptz,
  p_key text[], p_charge text[], p_fence bigint[], p_attempt int[],
  p_state text[], p_calls int[], p_http_status int[], p_code text[], p_reason text[], p_detail text[],
  p_status text[], p_capture_id text[], p_decline_code text[],
  p_response_status int[], p_response_type text[], p_response_location text[], p_response_body bytea[],
  p_transfer_kind text[], p_debit text[], p_credit text[]
) returns table (o_ord int, o_outcome text) language plpgsql as $$
declare
  v_today date := (p_now at time zone 'UTC')::date;
  v_amount numeric;
  v_currency text;
begin
  for o_ord in select s.ord from unnest(p_key) with ordinality as s (key, ord) order by s.key, s.ord loop
    o_outcome := 'applied';
    if p_status[o_ord] = 'captured' then
      update idempotency_keys k set state = 'done', lease_until = null, response_on = v_today
       where k.merchant_id = p_merchant and k.key = p_key[o_ord] and k.charge_id = p_charge[o_ord]
         and k.fence = p_fence[o_ord] and k.state = 'in_flight';
    elsif p_status[o_ord] = 'unknown' then
      update idempotency_keys k set state = 'unknown', lease_until = null
       where k.merchant_id = p_merchant and k.key = p_key[o_ord] and k.charge_id = p_charge[o_ord]
         and k.fence = p_fence[o_ord] and k.state = 'in_flight';
    elsif p_status[o_ord] in ('declined', 'failed') then
      delete from idempotency_keys k
       where k.merchant_id = p_merchant and k.key = p_key[o_ord] and k.charge_id = p_charge[o_ord]
         and k.fence = p_fence[o_ord] and k.state = 'in_flight';
    else
      raise exception 'a charge cannot finish as %', p_status[o_ord] using errcode = 'PD002';
    end if;

    if not found then
      -- A sweep leaves the same status unknown behind, but a higher fence.
      perform 1 from charges c
       where c.merchant_id = p_merchant and c.charge_id = p_charge[o_ord] and c.status = p_status[o_ord] and c.evidence is null
         and (c.status <> 'unknown' or exists (
           select 1 from idempotency_keys k
            where k.merchant_id = p_merchant and k.key = p_key[o_ord] and k.charge_id = p_charge[o_ord] and k.fence = p_fence[o_ord]));
      o_outcome := case when found then 'already' else 'fenced' end;
      return next;
      continue;
    end if;

    update attempts a
       set state = p_state[o_ord], calls = p_calls[o_ord], http_status = p_http_status[o_ord], code = p_code[o_ord],
           reason = p_reason[o_ord], detail = p_detail[o_ord], finished_at = p_now
     where a.merchant_id = p_merchant and a.charge_id = p_charge[o_ord] and a.n = p_attempt[o_ord] and a.state = 'started';
    if not found then
      raise exception 'attempt % of charge % is not open', p_attempt[o_ord], p_charge[o_ord] using errcode = 'PD003';
    end if;

    update charges c
       set status = p_status[o_ord], capture_id = p_capture_id[o_ord], decline_code = p_decline_code[o_ord],
           reason = p_reason[o_ord], detail = p_detail[o_ord], updated_at = p_now
     where c.merchant_id = p_merchant and c.charge_id = p_charge[o_ord] and c.status = 'pending'
    returning c.amount, c.currency into v_amount, v_currency;
    if not found then
      raise exception 'charge % is not pending', p_charge[o_ord] using errcode = 'PD003';
    end if;

    if p_status[o_ord] = 'captured' then
      insert into idempotency_responses (merchant_id, key, stored_on, status, content_type, location, body)
      values (p_merchant, p_key[o_ord], v_today, p_response_status[o_ord], p_response_type[o_ord],
        p_response_location[o_ord], p_response_body[o_ord]);
      perform ledger_post_v1(p_merchant, p_charge[o_ord] || ':' || p_transfer_kind[o_ord], p_charge[o_ord],
        p_transfer_kind[o_ord], p_debit[o_ord], p_credit[o_ord], v_amount, v_currency);
    end if;

    insert into outbox (merchant_id, event_id, kind, charge_id, created_at)
    values (p_merchant, p_charge[o_ord] || ':' || p_status[o_ord], 'charge.' || p_status[o_ord], p_charge[o_ord], p_now);
    return next;
  end loop;
end $$;
select distribute_function('charge_finish_v1(bigint,timestamptz,text[],text[],bigint[],int[],text[],int[],int[],text[],text[],text[],text[],text[],text[],int[],text[],text[],bytea[],text[],text[],text[])');
grant execute on function charge_finish_v1 to paymentsd_service;

-- Partitions of the frozen answers: makes those of today and p_ahead days more, drops those older
-- than p_keep days. Runs as the owner, because making a partition is DDL. Returns how many were
-- made and dropped. A key whose answer is dropped stays as a tombstone.
create function maintain_responses_v1(p_today date, p_ahead int, p_keep int, out o_made int, out o_dropped int)
language plpgsql security definer set search_path from current set lock_timeout = '2s' as $$
declare
  v_day date;
  v_name text;
begin
  if p_ahead not between 0 and 60 or p_keep not between 1 and 3650 then
    raise exception 'keep between 1 and 3650 days and make between 0 and 60 ahead' using errcode = 'PD002';
  end if;
  o_made := 0; o_dropped := 0;
  if not pg_try_advisory_xact_lock(hashtext('maintain_responses')) then
    return; -- another replica is at it
  end if;
  for v_day in select p_today + s.d from generate_series(0, p_ahead) as s (d) loop
    v_name := 'idempotency_responses_' || to_char(v_day, 'YYYYMMDD');
    if to_regclass(v_name) is null
       and not exists (select 1 from idempotency_responses_default d where d.stored_on = v_day) then
      execute format('create table %I partition of idempotency_responses for values from (%L) to (%L)', v_name, v_day, v_day + 1);
      o_made := o_made + 1;
    end if;
  end loop;
  for v_name in
    select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
     where i.inhparent = 'idempotency_responses'::regclass
       and c.relname ~ '^idempotency_responses_[0-9]{8}$'
       and to_date(right(c.relname, 8), 'YYYYMMDD') < p_today - p_keep
  loop
    execute format('drop table %I', v_name);
    o_dropped := o_dropped + 1;
  end loop;
  delete from idempotency_responses_default d where d.stored_on < p_today - p_keep;
end $$;
revoke all on function maintain_responses_v1 from public;
grant execute on function maintain_responses_v1 to paymentsd_service;

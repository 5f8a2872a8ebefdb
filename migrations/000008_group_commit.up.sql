-- T1 and T2 for groups of many requests (docs/decisions/0012): what version 1 did with one statement for
-- each row and table is done with one for each table, and each row has its own moment, because the answer
-- that is frozen with it says so. Version 1 stays for replicas that still run beside new ones.
--
-- Rows are taken in the order of their keys, new charges then in the order of their references, and only
-- then does anything else follow: whoever waits holds nothing that stands later in this order, so two
-- groups cannot deadlock. p_patience is how many milliseconds a lock may be waited for, 0 for as long as the
-- statement may take: a group that would stand behind one row gives up (55P03) and has written nothing.
-- Plans are made once for groups of any size: made for the size at hand, they would be made every time.

-- T1. outcome: as of charge_begin_v1. A row whose key stands in the group before it is answered as
-- if it had come after the first.
create function charge_begin_v2(
  p_merchant bigint, p_patience int, p_lease interval, p_now timestamptz[],
  p_key text[], p_fingerprint bytea[], p_charge text[], p_generation int[], p_acq_ref text[],
  p_amount numeric[], p_currency text[], p_reference text[], p_allow_concurrent boolean[],
  p_payment_method text[], p_description text[], p_acquirer text[]
) returns table (
  o_ord int, o_outcome text, o_charge text, o_fence bigint, o_state text, o_fingerprint bytea,
  o_response_on date, o_generation int, o_created_at timestamptz
) language plpgsql set plan_cache_mode = force_generic_plan as $$
declare
  v_lease_until timestamptz := clock_timestamp() + p_lease; -- the database's clock, never a replica's
  v_id text;
  v_open text;
  v_first int;
  v_count int;
  v_mine text[] := '{}';       -- the charges whose keys were free
  v_good int[] := '{}';        -- the rows that are claimed
  v_references text[] := '{}'; -- of the rows that are claimed, each beside its charge
  v_holders text[] := '{}';
  v_outcome text[] := array_fill(null::text, array[cardinality(p_key)]);
  v_told text[] := v_outcome;  -- the charge that is named
  v_generation int[] := array_fill(null::int, array[cardinality(p_key)]);
begin
  if p_patience > 0 then
    v_id := set_config('lock_timeout', p_patience::text, true);
  end if;

  for v_id in
    insert into idempotency_keys as k (merchant_id, key, state, fingerprint, charge_id, fence, lease_until, created_at)
    select p_merchant, p_key[s.ord], 'in_flight', p_fingerprint[s.ord], p_charge[s.ord], 1, v_lease_until, p_now[s.ord]
      from generate_series(1, cardinality(p_key)) as s (ord)
    on conflict (merchant_id, key) do nothing
    returning k.charge_id
  loop
    v_mine := array_append(v_mine, v_id);
  end loop;

  for o_ord, v_id, o_generation, v_open in
    select s.ord, p_charge[s.ord],
           coalesce((select max(c.generation) + 1 from charges c where c.merchant_id = p_merchant and c.idempotency_key = p_key[s.ord]), 0),
           case when p_reference[s.ord] is not null and not p_allow_concurrent[s.ord] then (
             select c.charge_id from charges c
              where c.merchant_id = p_merchant and c.reference = p_reference[s.ord] and c.status in ('pending', 'queued', 'unknown') limit 1) end
      from generate_series(1, cardinality(p_key)) as s (ord)
     where p_charge[s.ord] = any (v_mine)
  loop
    if o_generation <> p_generation[o_ord] then
      v_outcome[o_ord] := 'generation'; v_generation[o_ord] := o_generation;
      continue;
    end if;
    if p_reference[o_ord] is not null then
      if v_open is null and not p_allow_concurrent[o_ord] then
        v_open := v_holders[array_position(v_references, p_reference[o_ord])];
      end if;
      if v_open is not null then
        v_outcome[o_ord] := 'reference_open'; v_told[o_ord] := v_open;
        continue;
      end if;
      v_references := array_append(v_references, p_reference[o_ord]); v_holders := array_append(v_holders, v_id);
    end if;
    v_good := array_append(v_good, o_ord);
  end loop;

  insert into charges (merchant_id, charge_id, idempotency_key, generation, acq_ref, amount, currency, reference,
    allow_concurrent, payment_method, description, status, acquirer, created_at, updated_at)
  select p_merchant, p_charge[s.ord], p_key[s.ord], p_generation[s.ord], p_acq_ref[s.ord], p_amount[s.ord], p_currency[s.ord],
         p_reference[s.ord], p_allow_concurrent[s.ord], p_payment_method[s.ord], p_description[s.ord], 'pending', p_acquirer[s.ord],
         p_now[s.ord], p_now[s.ord]
    from unnest(v_good) as s (ord)
   order by p_reference[s.ord] collate "C"
  on conflict do nothing;
  get diagnostics v_count = row_count;

  if v_count < cardinality(v_good) then
    -- The guard of one open charge per reference caught a concurrent one.
    for o_ord, v_open in
      select s.ord, (
        select c.charge_id from charges c
         where c.merchant_id = p_merchant and c.reference = p_reference[s.ord] and c.status in ('pending', 'queued', 'unknown') limit 1)
        from unnest(v_good) as s (ord)
       where (select c.charge_id from charges c where c.merchant_id = p_merchant and c.charge_id = p_charge[s.ord]) is null
    loop
      v_good := array_remove(v_good, o_ord);
      v_outcome[o_ord] := case when v_open is null then 'again' else 'reference_open' end;
      v_told[o_ord] := v_open;
    end loop;
  end if;

  insert into attempts (merchant_id, charge_id, n, acquirer, state, calls, started_at)
  select p_merchant, p_charge[s.ord], 1, p_acquirer[s.ord], 'started', 0, p_now[s.ord]
    from unnest(v_good) as s (ord);

  for i in 1 .. cardinality(p_key) loop
    o_ord := i; o_outcome := v_outcome[i]; o_charge := coalesce(v_told[o_ord], p_charge[o_ord]); o_generation := v_generation[o_ord];
    o_fence := null; o_state := null; o_fingerprint := null; o_response_on := null; o_created_at := null;
    if o_ord = any (v_good) then
      o_outcome := 'claimed'; o_fence := 1; o_state := 'in_flight'; o_created_at := p_now[o_ord]; o_generation := p_generation[o_ord];
    elsif o_outcome is not null then
      delete from idempotency_keys k
       where k.merchant_id = p_merchant and k.key = p_key[o_ord] and k.charge_id = p_charge[o_ord] and k.fence = 1;
    else
      v_first := array_position(p_key, p_key[o_ord]);
      if v_outcome[v_first] is null or v_first = o_ord then
        -- A fresh snapshot: a loser that waited for the winner sees the winner's row.
        select k.charge_id, k.fence, k.state, k.fingerprint, k.response_on, k.created_at
          into o_charge, o_fence, o_state, o_fingerprint, o_response_on, o_created_at
          from idempotency_keys k where k.merchant_id = p_merchant and k.key = p_key[o_ord];
        o_outcome := case when found then 'exists' else 'again' end;
      elsif v_outcome[v_first] = 'generation' and p_generation[o_ord] <> v_generation[v_first] then
        o_outcome := 'generation'; o_generation := v_generation[v_first];
      elsif v_outcome[v_first] = 'reference_open' and p_reference[o_ord] = p_reference[v_first] and not p_allow_concurrent[o_ord] then
        o_outcome := 'reference_open'; o_charge := v_told[v_first];
      else
        o_outcome := 'again';
      end if;
    end if;
    return next;
  end loop;
end $$;
select distribute_function('charge_begin_v2(bigint,int,interval,timestamptz[],text[],bytea[],text[],int[],text[],numeric[],text[],text[],boolean[],text[],text[],text[])');
grant execute on function charge_begin_v2 to paymentsd_service;

-- Many transfers at once; the rules are those of ledger_post_v1.
create function ledger_post_v2(
  p_merchant bigint, p_transfer text[], p_charge text[], p_kind text[],
  p_debit text[], p_credit text[], p_amount numeric[], p_currency text[]
) returns int language plpgsql set plan_cache_mode = force_generic_plan as $$
declare
  v_now timestamptz := clock_timestamp();
  v_count int;
  v_other text;
begin
  insert into ledger_transfers as l (merchant_id, transfer_id, charge_id, kind, debit_account, credit_account, amount, currency, posted_at)
  select p_merchant, p_transfer[s.n], p_charge[s.n], p_kind[s.n], p_debit[s.n], p_credit[s.n], p_amount[s.n], p_currency[s.n], v_now
    from generate_series(1, cardinality(p_transfer)) as s (n)
  on conflict (merchant_id, transfer_id) do nothing;
  get diagnostics v_count = row_count;
  if v_count < cardinality(p_transfer) then
    select p_transfer[s.n] into v_other
      from generate_series(1, cardinality(p_transfer)) as s (n)
     where (select l.kind = p_kind[s.n] and l.charge_id is not distinct from p_charge[s.n] and l.debit_account = p_debit[s.n]
                   and l.credit_account = p_credit[s.n] and l.amount = p_amount[s.n] and l.currency = p_currency[s.n]
              from ledger_transfers l where l.merchant_id = p_merchant and l.transfer_id = p_transfer[s.n]) is not true
     limit 1;
    if found then
      raise exception 'transfer % is posted already with other content', v_other using errcode = 'PD001';
    end if;
  end if;
  return v_count;
end $$;
select distribute_function('ledger_post_v2(bigint,text[],text[],text[],text[],text[],numeric[],text[])');
grant execute on function ledger_post_v2 to paymentsd_service;

-- T2. outcome: as of charge_finish_v1.
create function charge_finish_v2(
  p_merchant bigint, p_patience int, p_now timestamptz[],
  p_key text[], p_charge text[], p_fence bigint[], p_attempt int[],
  p_state text[], p_calls int[], p_http_status int[], p_code text[], p_reason text[], p_detail text[],
  p_status text[], p_capture_id text[], p_decline_code text[],
  p_response_status int[], p_response_type text[], p_response_location text[], p_response_body bytea[],
  p_transfer_kind text[], p_debit text[], p_credit text[]
) returns table (o_ord int, o_outcome text) language plpgsql set plan_cache_mode = force_generic_plan as $$
declare
  v_text text;
  v_number numeric;
  v_ours int[] := '{}';       -- the rows whose keys were theirs to end
  v_captured int[] := '{}';   -- those of them that are captured, each beside its transfer
  v_transfers text[] := '{}';
  v_charges text[] := '{}';
  v_kinds text[] := '{}';
  v_debits text[] := '{}';
  v_credits text[] := '{}';
  v_amounts numeric[] := '{}';
  v_currencies text[] := '{}';
begin
  if p_patience > 0 then
    v_text := set_config('lock_timeout', p_patience::text, true);
  end if;

  for i in 1 .. cardinality(p_key) loop
    o_ord := i;
    if p_status[o_ord] = 'captured' then
      update idempotency_keys k set state = 'done', lease_until = null, response_on = (p_now[o_ord] at time zone 'UTC')::date
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
    continue when not found;

    update attempts a
       set state = p_state[o_ord], calls = p_calls[o_ord], http_status = p_http_status[o_ord], code = p_code[o_ord],
           reason = p_reason[o_ord], detail = p_detail[o_ord], finished_at = p_now[o_ord]
     where a.merchant_id = p_merchant and a.charge_id = p_charge[o_ord] and a.n = p_attempt[o_ord] and a.state = 'started';
    if not found then
      raise exception 'attempt % of charge % is not open', p_attempt[o_ord], p_charge[o_ord] using errcode = 'PD003';
    end if;

    update charges c
       set status = p_status[o_ord], capture_id = p_capture_id[o_ord], decline_code = p_decline_code[o_ord],
           reason = p_reason[o_ord], detail = p_detail[o_ord], updated_at = p_now[o_ord]
     where c.merchant_id = p_merchant and c.charge_id = p_charge[o_ord] and c.status = 'pending'
    returning c.amount, c.currency into v_number, v_text;
    if not found then
      raise exception 'charge % is not pending', p_charge[o_ord] using errcode = 'PD003';
    end if;

    v_ours := array_append(v_ours, o_ord);
    if p_status[o_ord] = 'captured' then
      v_captured := array_append(v_captured, o_ord);
      v_transfers := array_append(v_transfers, p_charge[o_ord] || ':' || p_transfer_kind[o_ord]);
      v_charges := array_append(v_charges, p_charge[o_ord]);
      v_kinds := array_append(v_kinds, p_transfer_kind[o_ord]);
      v_debits := array_append(v_debits, p_debit[o_ord]);
      v_credits := array_append(v_credits, p_credit[o_ord]);
      v_amounts := array_append(v_amounts, v_number);
      v_currencies := array_append(v_currencies, v_text);
    end if;
  end loop;

  if cardinality(v_captured) > 0 then
    insert into idempotency_responses (merchant_id, key, stored_on, status, content_type, location, body)
    select p_merchant, p_key[s.ord], (p_now[s.ord] at time zone 'UTC')::date, p_response_status[s.ord], p_response_type[s.ord],
           p_response_location[s.ord], p_response_body[s.ord]
      from unnest(v_captured) as s (ord);
    perform ledger_post_v2(p_merchant, v_transfers, v_charges, v_kinds, v_debits, v_credits, v_amounts, v_currencies);
  end if;

  insert into outbox (merchant_id, event_id, kind, charge_id, created_at)
  select p_merchant, p_charge[s.ord] || ':' || p_status[s.ord], 'charge.' || p_status[s.ord], p_charge[s.ord], p_now[s.ord]
    from unnest(v_ours) as s (ord);

  for i in 1 .. cardinality(p_key) loop
    o_ord := i; o_outcome := 'applied';
    if o_ord = any (v_ours) then
      return next;
      continue;
    end if;
    -- A sweep leaves the same status unknown behind, but a higher fence.
    perform 1 from charges c
     where c.merchant_id = p_merchant and c.charge_id = p_charge[o_ord] and c.status = p_status[o_ord] and c.evidence is null
       and (c.status <> 'unknown' or exists (
         select 1 from idempotency_keys k
          where k.merchant_id = p_merchant and k.key = p_key[o_ord] and k.charge_id = p_charge[o_ord] and k.fence = p_fence[o_ord]));
    o_outcome := case when found then 'already' else 'fenced' end;
    return next;
  end loop;
end $$;
select distribute_function('charge_finish_v2(bigint,int,timestamptz[],text[],text[],bigint[],int[],text[],int[],int[],text[],text[],text[],text[],text[],text[],int[],text[],text[],bytea[],text[],text[],text[])');
grant execute on function charge_finish_v2 to paymentsd_service;

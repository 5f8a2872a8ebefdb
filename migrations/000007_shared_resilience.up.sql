-- The breaker and the retry budget that all replicas share (docs/resilience.md). Control tables, all of
-- them: no statement here touches a merchant's. Leases and windows run on the database's clock.

-- One row per acquirer. The epoch rises at every transition and is the fencing token: whoever acts on
-- another epoch than the row's changes nothing.
create table breakers (
  acquirer        text collate "C" primary key check (acquirer ~ '^[a-z0-9_-]{1,40}$'),
  epoch           bigint not null check (epoch >= 1),
  state           text not null check (state in ('closed', 'open', 'half_open')),
  mode            text not null check (mode in ('automatic', 'forced_open', 'forced_closed')),
  reason          text not null check (length(reason) <= 300),
  cause           text not null check (length(cause) <= 300), -- why it opened first, kept through failed probes
  replica         text not null check (length(replica) <= 120), -- which began this epoch
  changed_at      timestamptz not null, -- when
  open_until      timestamptz,
  open_for        interval,
  probe_until     timestamptz, -- the end of the lease; null while no probe is out
  probe_lease     interval,
  probe_owner     text,
  probe_successes int not null check (probe_successes >= 0), -- in a row
  closed_at       timestamptz, -- by a probe, the last time
  reopenings      int not null check (reopenings >= 0), -- in a row, soon after closing
  ramping         boolean not null, -- closed by a probe: callers come back step by step
  constraint breakers_mode_holds_state check (mode = 'automatic'
    or (mode = 'forced_open' and state = 'open') or (mode = 'forced_closed' and state = 'closed')),
  constraint breakers_open_has_end check ((state = 'open' and mode = 'automatic') = (open_until is not null and open_for is not null)),
  constraint breakers_probe_has_lease check ((probe_until is null) = (probe_lease is null) and (probe_until is null) = (probe_owner is null)),
  constraint breakers_probe_half_open check (probe_until is null or state = 'half_open')
);
grant select, insert, update on breakers to paymentsd_service;

-- Every transition, kept for 90 days.
create table breaker_events (
  acquirer   text collate "C" not null,
  epoch      bigint not null, -- that begins with it
  from_state text not null,
  to_state   text not null,
  mode       text not null,
  reason     text not null,
  replica    text not null,
  at         timestamptz not null,
  primary key (acquirer, epoch)
);
create index breaker_events_by_time on breaker_events (at);
grant select, insert, delete on breaker_events to paymentsd_service;

-- What each replica saw, a row a flush. The same seq again replaces the row: a flush whose answer was
-- lost is sent again with what came since, and nothing counts twice. Unlogged: a crash of the database
-- forgets a minute of outcomes.
create unlogged table outcome_windows (
  acquirer  text collate "C" not null,
  replica   text collate "C" not null,
  seq       bigint not null,
  epoch     bigint not null,
  sec       bigint not null, -- since 1970
  attempts  bigint not null check (attempts >= 0),
  failures  bigint not null check (failures >= 0),
  slow      bigint not null check (slow >= 0),
  successes bigint not null check (successes >= 0), -- for the retry budget, whatever the epoch
  primary key (acquirer, replica, seq)
);
create index outcome_windows_by_time on outcome_windows (acquirer, sec);
grant select, insert, update, delete on outcome_windows to paymentsd_service;

-- Retries granted, by tenths of a second; logged, so that the bound survives a crash. The row of
-- retry_budgets is the lock under which they are counted and granted.
create table retry_budgets (
  acquirer text collate "C" primary key
);
-- A row lock asks for the privilege to update.
grant select, insert, update on retry_budgets to paymentsd_service;

create table retry_windows (
  acquirer text collate "C" not null,
  tick     bigint not null, -- tenths of a second since 1970
  retries  bigint not null check (retries >= 0),
  primary key (acquirer, tick)
);
grant select, insert, update, delete on retry_windows to paymentsd_service;

create function breaker_ms_v1(p_interval interval) returns bigint language sql immutable as $$
  select ceil(extract(epoch from p_interval) * 1000)::bigint
$$;

-- A row as replicas are told it, in answers and notifications alike: durations, since their clocks
-- are their own; null where there is none.
create function breaker_row_v1(p_row breakers, p_now timestamptz) returns text language sql stable as $$
  select json_build_object(
    'acquirer', p_row.acquirer, 'epoch', p_row.epoch, 'state', p_row.state, 'mode', p_row.mode,
    'reason', p_row.reason, 'cause', p_row.cause, 'replica', p_row.replica,
    'age_ms', greatest(0, breaker_ms_v1(p_now - p_row.changed_at)),
    'open_ms', greatest(0, breaker_ms_v1(least(p_row.open_until - p_now, p_row.open_for))),
    'open_for_ms', breaker_ms_v1(p_row.open_for),
    'probe_ms', greatest(0, breaker_ms_v1(least(p_row.probe_until - p_now, p_row.probe_lease))),
    'probing', p_row.probe_until is not null,
    'owner', coalesce(p_row.probe_owner, ''), 'successes', p_row.probe_successes,
    'closed_ms', greatest(0, breaker_ms_v1(p_now - p_row.closed_at)), 'closed', p_row.closed_at is not null,
    'reopenings', p_row.reopenings, 'ramping', p_row.ramping)::text
$$;

-- Locks an acquirer's row, which it makes if need be, and reads it as it is under the lock. An epoch that
-- somebody has seen is never given out again, even if the database has lost it (p_seen).
create function breaker_lock_v1(p_acquirer text, p_seen bigint) returns breakers language plpgsql set lock_timeout = '100ms' as $$
declare
  v breakers;
begin
  perform 1 from breakers b where b.acquirer = p_acquirer for update;
  if not found then
    insert into breakers (acquirer, epoch, state, mode, reason, cause, replica, changed_at, probe_successes, reopenings, ramping)
    values (p_acquirer, greatest(p_seen, 0) + 1, 'closed', 'automatic', 'started', '', '', clock_timestamp(), 0, 0, false)
    on conflict do nothing;
    perform 1 from breakers b where b.acquirer = p_acquirer for update;
  end if;
  v := (select b from breakers b where b.acquirer = p_acquirer);
  return v;
end $$;

-- Begins an epoch on a row that is locked: the row, the event and the notification, all or none.
create function breaker_enter_v1(p_next breakers, p_from text, p_notify boolean) returns text language plpgsql as $$
declare
  v_row text;
begin
  p_next.reason := left(p_next.reason, 300);
  p_next.cause := left(p_next.cause, 300);
  update breakers b
     set epoch = p_next.epoch, state = p_next.state, mode = p_next.mode, reason = p_next.reason, cause = p_next.cause,
         replica = p_next.replica, changed_at = p_next.changed_at, open_until = p_next.open_until, open_for = p_next.open_for,
         probe_until = p_next.probe_until, probe_lease = p_next.probe_lease, probe_owner = p_next.probe_owner,
         probe_successes = p_next.probe_successes, closed_at = p_next.closed_at, reopenings = p_next.reopenings,
         ramping = p_next.ramping
   where b.acquirer = p_next.acquirer;
  insert into breaker_events (acquirer, epoch, from_state, to_state, mode, reason, replica, at)
  values (p_next.acquirer, p_next.epoch, p_from, p_next.state, p_next.mode, p_next.reason, p_next.replica, p_next.changed_at)
  on conflict do nothing;
  v_row := breaker_row_v1(p_next, p_next.changed_at);
  if p_notify then
    perform pg_notify('paymentsd_breakers', v_row);
  end if;
  return v_row;
end $$;

-- One replica's second: adds what it saw at all acquirers, and reads where they stand. The sums are of
-- the row's epoch. p_epoch is what the replica knows: a row below it was lost in a failover, and is
-- lifted past it. With p_window_count, the newest seconds that hold so many attempts count.
-- A replica sees failures when at least a tenth of its attempts failed or were slow.
create function breakers_flush_v1(
  p_replica text, p_acquirer text[], p_seq bigint[], p_epoch bigint[],
  p_attempts bigint[], p_failures bigint[], p_slow bigint[], p_successes bigint[],
  p_window int[], p_window_count int[]
) returns table (
  o_row text, o_attempts bigint, o_failures bigint, o_slow bigint, o_reporting bigint, o_seeing bigint,
  o_retries_60s bigint, o_retries_1s bigint, o_successes_60s bigint, o_successes_5s bigint
) language plpgsql as $$
declare
  i int;
  v breakers;
  v_now timestamptz;
  v_sec bigint;
  v_tick bigint;
  v_after bigint;
begin
  for i in select s.ord from unnest(p_acquirer) with ordinality as s (name, ord) order by s.name loop
    v := (select b from breakers b where b.acquirer = p_acquirer[i]);
    if v.acquirer is null or v.epoch < p_epoch[i] then
      v := breaker_lock_v1(p_acquirer[i], p_epoch[i]);
      if v.epoch < p_epoch[i] then
        v.epoch := p_epoch[i] + 1;
        v.reason := 'the database came back with an older state: ' || v.reason;
        v.replica := p_replica;
        v.changed_at := clock_timestamp();
        perform breaker_enter_v1(v, v.state, true);
      end if;
    end if;
    v_now := clock_timestamp();
    v_sec := floor(extract(epoch from v_now));
    v_tick := floor(extract(epoch from v_now) * 10);

    if p_attempts[i] > 0 or p_successes[i] > 0 then
      insert into outcome_windows (acquirer, replica, seq, epoch, sec, attempts, failures, slow, successes)
      values (p_acquirer[i], p_replica, p_seq[i], p_epoch[i], v_sec, p_attempts[i], p_failures[i], p_slow[i], p_successes[i])
      on conflict (acquirer, replica, seq) do update
        set epoch = excluded.epoch, sec = excluded.sec, attempts = excluded.attempts, failures = excluded.failures,
            slow = excluded.slow, successes = excluded.successes;
    end if;

    v_after := v_sec - p_window[i];
    if p_window_count[i] > 0 then
      select coalesce(min(n.sec) - 1, v_after) into v_after
        from (select s.sec, sum(s.attempts) over (order by s.sec desc) - s.attempts as newer
                from (select w.sec, sum(w.attempts) as attempts from outcome_windows w
                       where w.acquirer = p_acquirer[i] and w.epoch = v.epoch and w.sec > v_after group by w.sec) s) n
       where n.newer < p_window_count[i];
    end if;
    select coalesce(sum(r.attempts), 0), coalesce(sum(r.failures), 0), coalesce(sum(r.slow), 0),
           count(*) filter (where r.attempts > 0),
           count(*) filter (where r.attempts > 0 and (r.failures * 10 >= r.attempts or r.slow * 10 >= r.attempts))
      into o_attempts, o_failures, o_slow, o_reporting, o_seeing
      from (select w.replica, sum(w.attempts) as attempts, sum(w.failures) as failures, sum(w.slow) as slow
              from outcome_windows w
             where w.acquirer = p_acquirer[i] and w.epoch = v.epoch and w.sec > v_after group by w.replica) r;

    select coalesce(sum(w.successes), 0), coalesce(sum(w.successes) filter (where w.sec > v_sec - 5), 0)
      into o_successes_60s, o_successes_5s
      from outcome_windows w where w.acquirer = p_acquirer[i] and w.sec > v_sec - 60;
    select coalesce(sum(t.retries), 0), coalesce(sum(t.retries) filter (where t.tick > v_tick - 11), 0)
      into o_retries_60s, o_retries_1s
      from retry_windows t where t.acquirer = p_acquirer[i] and t.tick > v_tick - 601;
    o_row := breaker_row_v1(v, v_now);
    return next;
  end loop;
end $$;

-- Opens a breaker that is closed in the epoch that was judged.
create function breaker_open_v1(p_acquirer text, p_epoch bigint, p_open_for_ms bigint, p_reopenings int, p_reason text, p_replica text,
  out o_done boolean, out o_row text) language plpgsql as $$
declare
  v breakers := breaker_lock_v1(p_acquirer, p_epoch);
  v_now timestamptz := clock_timestamp();
begin
  o_done := v.state = 'closed' and v.mode = 'automatic' and v.epoch = p_epoch;
  if not o_done then
    o_row := breaker_row_v1(v, v_now);
    return;
  end if;
  v.epoch := v.epoch + 1;
  v.state := 'open'; v.reason := p_reason; v.cause := p_reason; v.replica := p_replica; v.changed_at := v_now;
  v.open_for := make_interval(secs => p_open_for_ms / 1000.0);
  v.open_until := v_now + v.open_for;
  v.reopenings := p_reopenings; v.ramping := false;
  o_row := breaker_enter_v1(v, 'closed', true);
end $$;

-- Takes the probe, if it is due and nobody has it. Sends no notification: to the others a breaker that is
-- half open is as closed to calls as one that is open. If the database's clock was set back, what
-- runs is begun again, so that nothing lasts longer than it was meant to.
create function breaker_claim_v1(p_acquirer text, p_replica text, p_lease_ms bigint, p_seen bigint,
  out o_done boolean, out o_row text) language plpgsql as $$
declare
  v breakers := breaker_lock_v1(p_acquirer, p_seen);
  v_now timestamptz := clock_timestamp();
  v_from text := v.state;
begin
  if v.open_until > v_now + v.open_for or v.probe_until > v_now + v.probe_lease then
    v.open_until := v_now + v.open_for;
    v.probe_until := v_now + v.probe_lease;
    update breakers b set open_until = v.open_until, probe_until = v.probe_until where b.acquirer = p_acquirer;
  end if;
  o_done := coalesce(v.mode = 'automatic' and (v.state = 'open' and v.open_until <= v_now
    or v.state = 'half_open' and (v.probe_until is null or v.probe_until <= v_now)), false);
  if not o_done then
    o_row := breaker_row_v1(v, v_now);
    return;
  end if;
  v.reason := case
    when v.state = 'open' then 'probe, opened by ' || v.cause
    when v.probe_until is not null then format('the probe of epoch %s by %s was not heard of for %s ms, another goes out',
      v.epoch, v.probe_owner, breaker_ms_v1(v.probe_lease))
    else format('probe after %s that succeeded, opened by %s', v.probe_successes, v.cause) end;
  v.epoch := greatest(v.epoch, p_seen) + 1;
  v.state := 'half_open'; v.replica := p_replica; v.changed_at := v_now;
  v.open_until := null; v.open_for := null;
  v.probe_lease := make_interval(secs => p_lease_ms / 1000.0);
  v.probe_until := v_now + v.probe_lease;
  v.probe_owner := p_replica;
  o_row := breaker_enter_v1(v, v_from, false);
end $$;

-- What came of a probe: 'close', 'open', or 'release' for the next call to try. Only by its owner, in its
-- epoch and within its lease; else nothing changes.
create function breaker_finish_v1(p_acquirer text, p_epoch bigint, p_replica text, p_result text, p_open_for_ms bigint, p_successes int,
  p_reason text, out o_done boolean, out o_row text) language plpgsql as $$
declare
  v breakers := breaker_lock_v1(p_acquirer, p_epoch);
  v_now timestamptz := clock_timestamp();
begin
  o_done := coalesce(v.state = 'half_open' and v.epoch = p_epoch and v.probe_until > v_now and v.probe_owner = p_replica, false);
  if not o_done then
    o_row := breaker_row_v1(v, v_now);
    return;
  end if;
  v.epoch := v.epoch + 1;
  v.reason := p_reason; v.replica := p_replica; v.changed_at := v_now;
  v.probe_until := null; v.probe_lease := null; v.probe_owner := null; v.probe_successes := p_successes;
  case p_result
    when 'close' then
      v.state := 'closed'; v.closed_at := v_now; v.ramping := true;
    when 'open' then
      v.state := 'open';
      v.open_for := make_interval(secs => p_open_for_ms / 1000.0);
      v.open_until := v_now + v.open_for;
    when 'release' then
      null;
  end case;
  o_row := breaker_enter_v1(v, 'half_open', true);
end $$;

-- Holds a breaker open or closed, or gives it back to its own rules: after open the next call may
-- probe, after closed it starts with an empty window.
create function breaker_force_v1(p_acquirer text, p_mode text, p_why text, p_replica text, p_seen bigint) returns text language plpgsql as $$
declare
  v breakers := breaker_lock_v1(p_acquirer, p_seen);
  v_now timestamptz := clock_timestamp();
  v_from text := v.state;
begin
  if v.mode = 'automatic' and p_mode = 'automatic' then
    return breaker_row_v1(v, v_now);
  end if;
  v.open_until := null; v.open_for := null;
  case p_mode
    when 'forced_open' then
      v.state := 'open'; v.cause := 'forced open: ' || p_why;
    when 'forced_closed' then
      v.state := 'closed';
    when 'automatic' then
      if v.state = 'open' then
        v.open_for := interval '0'; v.open_until := v_now;
      end if;
  end case;
  v.epoch := greatest(v.epoch, p_seen) + 1;
  v.mode := p_mode; v.reason := p_why; v.replica := p_replica; v.changed_at := v_now;
  v.probe_until := null; v.probe_lease := null; v.probe_owner := null; v.probe_successes := 0; v.ramping := false;
  return breaker_enter_v1(v, v_from, true);
end $$;

-- Grants up to p_wanted retries. The lock comes first and the sums in a statement of their own: a
-- statement that locks one row and sums others reads them as they were before it waited, and overspends.
-- Retries count over one bucket more than the rule's minute and second, so that it holds for any of them.
create function retry_take_v1(p_acquirer text, p_wanted int, p_floor bigint, p_percent bigint, p_burst_floor bigint,
  out o_granted bigint, out o_retries_60s bigint, out o_limit_60s bigint, out o_retries_1s bigint, out o_limit_1s bigint,
  out o_successes_60s bigint, out o_wait_ms bigint) language plpgsql set lock_timeout = '100ms' as $$
declare
  v_now timestamptz;
  v_sec bigint;
  v_tick bigint;
  v_successes_5s bigint;
  v_first_60s bigint;
  v_first_1s bigint;
begin
  perform 1 from retry_budgets r where r.acquirer = p_acquirer for update;
  if not found then
    insert into retry_budgets (acquirer) values (p_acquirer) on conflict do nothing;
    perform 1 from retry_budgets r where r.acquirer = p_acquirer for update;
  end if;
  v_now := clock_timestamp();
  v_sec := floor(extract(epoch from v_now));
  v_tick := floor(extract(epoch from v_now) * 10);
  select coalesce(sum(w.successes), 0), coalesce(sum(w.successes) filter (where w.sec > v_sec - 5), 0)
    into o_successes_60s, v_successes_5s
    from outcome_windows w where w.acquirer = p_acquirer and w.sec > v_sec - 60;
  select coalesce(sum(t.retries), 0), coalesce(sum(t.retries) filter (where t.tick > v_tick - 11), 0),
         min(t.tick), min(t.tick) filter (where t.tick > v_tick - 11)
    into o_retries_60s, o_retries_1s, v_first_60s, v_first_1s
    from retry_windows t where t.acquirer = p_acquirer and t.tick > v_tick - 601 and t.retries > 0;
  o_limit_60s := greatest(p_floor, o_successes_60s * p_percent / 100);
  o_limit_1s := greatest(p_burst_floor, v_successes_5s * p_percent / 500);
  o_granted := greatest(0, least(p_wanted, o_limit_60s - o_retries_60s, o_limit_1s - o_retries_1s));
  o_wait_ms := 0;
  if o_granted > 0 then
    insert into retry_windows (acquirer, tick, retries) values (p_acquirer, v_tick, o_granted)
    on conflict (acquirer, tick) do update set retries = retry_windows.retries + excluded.retries;
    o_retries_60s := o_retries_60s + o_granted;
    o_retries_1s := o_retries_1s + o_granted;
  elsif o_retries_60s >= o_limit_60s then
    o_wait_ms := greatest(1, coalesce((v_first_60s + 601) * 100, 0) - floor(extract(epoch from v_now) * 1000)::bigint);
  else
    o_wait_ms := greatest(1, coalesce((v_first_1s + 11) * 100, 0) - floor(extract(epoch from v_now) * 1000)::bigint);
  end if;
end $$;

-- Forgets what no window reads any more.
create function resilience_prune_v1() returns void language plpgsql as $$
declare
  v_sec bigint := floor(extract(epoch from clock_timestamp()));
  v_events timestamptz := clock_timestamp() - interval '90 days';
begin
  delete from outcome_windows w where w.sec < v_sec - 600;
  delete from retry_windows t where t.tick < (v_sec - 600) * 10;
  delete from breaker_events e where e.at < v_events;
end $$;

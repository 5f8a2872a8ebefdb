-- Every act of a person or a key with ops rights, written after the act it records. Append-only; each
-- row carries a hash over itself and the row before, so that a change shows.
create table audit_log (
  seq        bigint primary key,
  at         timestamptz not null,
  actor      text not null check (length(actor) between 1 and 200),
  action     text not null check (action ~ '^[a-z_.]{1,60}$'),
  subject    text not null check (length(subject) between 1 and 200),
  detail     text not null check (length(detail) <= 4000),
  act_id     text not null unique,
  hash       bytea not null check (octet_length(hash) = 32)
);
grant select, insert on audit_log to paymentsd_service;

-- Appends one act; the same act_id again is harmless. The lock makes the chain one row long at its
-- head: acts are rare.
create function audit_append_v1(p_at timestamptz, p_actor text, p_action text, p_subject text, p_detail text, p_act_id text)
returns boolean language plpgsql as $$
declare
  v_seq bigint;
  v_before bytea;
begin
  perform pg_advisory_xact_lock(hashtext('audit_log'));
  perform 1 from audit_log a where a.act_id = p_act_id;
  if found then
    return false;
  end if;
  select a.seq, a.hash into v_seq, v_before from audit_log a order by a.seq desc limit 1;
  insert into audit_log (seq, at, actor, action, subject, detail, act_id, hash)
  values (coalesce(v_seq, 0) + 1, p_at, p_actor, p_action, p_subject, p_detail, p_act_id,
    audit_hash_v1(coalesce(v_before, '\x'::bytea), coalesce(v_seq, 0) + 1, p_at, p_actor, p_action, p_subject, p_detail, p_act_id));
  return true;
end $$;

-- The hash of one row over the hash before it. Lengths stand before the texts, so that no two rows
-- read the same.
create function audit_hash_v1(p_before bytea, p_seq bigint, p_at timestamptz, p_actor text, p_action text, p_subject text, p_detail text, p_act_id text)
returns bytea language sql immutable as $$
  select sha256(p_before || convert_to(
    p_seq || '|' || (extract(epoch from p_at) * 1000000)::bigint || '|' ||
    length(p_actor) || ':' || p_actor || length(p_action) || ':' || p_action || length(p_subject) || ':' || p_subject ||
    length(p_detail) || ':' || p_detail || length(p_act_id) || ':' || p_act_id, 'UTF8'))
$$;
grant execute on function audit_append_v1 to paymentsd_service;
grant execute on function audit_hash_v1 to paymentsd_service;

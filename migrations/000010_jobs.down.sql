drop function charge_requeue_v1;
drop function charge_start_v1;
drop function charge_enqueue_v1;
drop table errands;
alter table resolutions drop column finding;
drop schema river cascade;
do $$
begin
  alter table attempts drop constraint attempts_n_check, add constraint attempts_n_check check (n between 1 and 16);
end $$;
do $$
begin
  alter table idempotency_keys
    drop constraint idempotency_keys_state_check,
    add constraint idempotency_keys_state_check check (state in ('in_flight', 'done', 'unknown'));
end $$;
do $$
begin
  alter table outbox
    drop column due_at, drop column tries, drop column relayed_at,
    drop constraint outbox_kind_check,
    add constraint outbox_kind_check check (kind in ('charge.captured', 'charge.declined', 'charge.failed', 'charge.unknown', 'charge.resolved'));
end $$;

-- One row per Idempotency-Key in use. It is deleted when it is certain that nothing happened, and
-- is otherwise kept for good: after retention it is a tombstone that names the charge.
-- There is no foreign key to merchants on the charge path: all charges of one merchant would lock
-- that one row. The API key proves the merchant.
create table idempotency_keys (
  merchant_id bigint not null,
  key         text collate "C" not null check (octet_length(key) between 1 and 255),
  state       text not null check (state in ('in_flight', 'done', 'unknown')),
  fingerprint bytea not null check (octet_length(fingerprint) = 33),
  charge_id   text collate "C" not null,
  fence       bigint not null check (fence >= 1),
  lease_until timestamptz,
  created_at  timestamptz not null,
  response_on date,
  primary key (merchant_id, key),
  constraint keys_lease_iff_in_flight check ((state = 'in_flight') = (lease_until is not null)),
  constraint keys_response_iff_done check ((state = 'done') = (response_on is not null))
);
create index keys_by_lease on idempotency_keys (lease_until) where state = 'in_flight';
select distribute_table('idempotency_keys');
grant select, insert, update, delete on idempotency_keys to paymentsd_service;

-- The frozen answer of a key that is done. Partitioned by day so that retention is a dropped
-- partition; the default partition only catches what comes while no partition was made.
create table idempotency_responses (
  merchant_id  bigint not null,
  key          text collate "C" not null,
  stored_on    date not null,
  status       int not null check (status between 200 and 499),
  content_type text not null,
  location     text not null,
  body         bytea not null check (octet_length(body) <= 65536),
  primary key (merchant_id, key, stored_on)
) partition by range (stored_on);
create table idempotency_responses_default partition of idempotency_responses default;
select distribute_table('idempotency_responses');
grant select, insert, delete on idempotency_responses to paymentsd_service;

create table charges (
  merchant_id      bigint not null,
  charge_id        text collate "C" not null check (charge_id ~ '^ch_[0-9A-HJKMNP-TV-Z]{26}$'),
  idempotency_key  text collate "C" not null,
  generation       int not null check (generation >= 0),
  acq_ref          text collate "C" not null check (acq_ref ~ '^[A-HJKMNP-TV-Z][0-9A-HJKMNP-TV-Z]{19}$'),
  amount           numeric not null check (amount > 0 and amount < 1000000000000 and scale(amount) <= 4),
  currency         text not null check (currency ~ '^[A-Z]{3}$'),
  reference        text check (length(reference) between 1 and 255),
  allow_concurrent boolean not null,
  payment_method   text not null check (length(payment_method) between 1 and 255),
  description      text check (length(description) between 1 and 255),
  status           text not null check (status in ('pending', 'queued', 'captured', 'declined', 'failed', 'unknown')),
  acquirer         text not null,
  capture_id       text,
  decline_code     text,
  reason           text,
  detail           text,
  evidence         text check (evidence in ('late_answer', 'inquiry', 'event', 'settlement', 'operator')),
  created_at       timestamptz not null,
  updated_at       timestamptz not null,
  primary key (merchant_id, charge_id),
  constraint charges_one_per_generation unique (merchant_id, idempotency_key, generation),
  constraint charges_one_per_acq_ref unique (merchant_id, acq_ref),
  -- The reference says whose it is: with the unique constraint it is unique everywhere.
  constraint charges_acq_ref_names_merchant check (left(acq_ref, 6) =
    substr('ABCDEFGHJKMNPQRSTVWXYZ', (merchant_id / 33554432)::int + 1, 1) ||
    substr('0123456789ABCDEFGHJKMNPQRSTVWXYZ', (merchant_id / 1048576 % 32)::int + 1, 1) ||
    substr('0123456789ABCDEFGHJKMNPQRSTVWXYZ', (merchant_id / 32768 % 32)::int + 1, 1) ||
    substr('0123456789ABCDEFGHJKMNPQRSTVWXYZ', (merchant_id / 1024 % 32)::int + 1, 1) ||
    substr('0123456789ABCDEFGHJKMNPQRSTVWXYZ', (merchant_id / 32 % 32)::int + 1, 1) ||
    substr('0123456789ABCDEFGHJKMNPQRSTVWXYZ', (merchant_id % 32)::int + 1, 1)),
  constraint charges_captured_has_capture_id check (status <> 'captured' or capture_id is not null),
  constraint charges_declined_has_code check (status <> 'declined' or decline_code is not null)
);
-- At most one open charge per order reference: the commonest double charge is a new key for an
-- order whose first charge is still unknown.
create unique index charges_one_open on charges (merchant_id, reference)
  where status in ('pending', 'queued', 'unknown') and not allow_concurrent;
create index charges_by_reference on charges (merchant_id, reference, charge_id) where reference is not null;
create index charges_unknown on charges (created_at, merchant_id, charge_id) where status = 'unknown';
select distribute_table('charges');
grant select, insert, update on charges to paymentsd_service;

-- Every acquirer that we may have reached, written BEFORE the first byte is sent.
create table attempts (
  merchant_id  bigint not null,
  charge_id    text collate "C" not null,
  n            int not null check (n between 1 and 16),
  acquirer     text not null,
  state        text not null check (state in ('started', 'captured', 'declined', 'rejected', 'not_sent', 'refused', 'in_progress', 'unclear')),
  calls        int not null check (calls between 0 and 100),
  http_status  int check (http_status between 100 and 999),
  code         text,
  reason       text,
  detail       text,
  started_at   timestamptz not null,
  finished_at  timestamptz,
  primary key (merchant_id, charge_id, n),
  foreign key (merchant_id, charge_id) references charges (merchant_id, charge_id),
  constraint attempts_finished_unless_started check ((state = 'started') = (finished_at is null))
);
select distribute_table('attempts');
grant select, insert, update on attempts to paymentsd_service;

-- Evidence about an unknown charge, applied or not. Append-only: no UPDATE, no DELETE.
create table resolutions (
  merchant_id   bigint not null,
  charge_id     text collate "C" not null,
  resolution_id text collate "C" not null check (length(resolution_id) between 1 and 200),
  evidence      text not null check (evidence in ('late_answer', 'inquiry', 'event', 'settlement', 'operator')),
  outcome       text not null check (outcome in ('captured', 'failed', 'none')),
  applied       boolean not null,
  acquirer      text,
  capture_id    text,
  amount        numeric check (amount >= 0),
  currency      text check (currency ~ '^[A-Z]{3}$'),
  actor         text not null check (length(actor) between 1 and 200),
  reason        text not null check (length(reason) between 1 and 1000),
  file_id       text,
  line_no       int check (line_no >= 1),
  created_at    timestamptz not null,
  primary key (merchant_id, charge_id, resolution_id),
  foreign key (merchant_id, charge_id) references charges (merchant_id, charge_id),
  constraint resolutions_operator_decides check (evidence <> 'operator' or outcome <> 'none'),
  constraint resolutions_settlement_cites check (evidence <> 'settlement' or (file_id is not null and line_no is not null)),
  constraint resolutions_none_is_not_applied check (outcome <> 'none' or not applied)
);
create unique index resolutions_one_applied on resolutions (merchant_id, charge_id) where applied;
create index resolutions_by_operator on resolutions (created_at) where evidence = 'operator';
select distribute_table('resolutions');
grant select, insert on resolutions to paymentsd_service;

-- What has to be told or done after a charge. Jobs are fed from here, never inside the
-- transaction of a charge.
create table outbox (
  merchant_id bigint not null,
  event_id    text collate "C" not null,
  kind        text not null check (kind in ('charge.captured', 'charge.declined', 'charge.failed', 'charge.unknown', 'charge.resolved')),
  charge_id   text collate "C" not null,
  created_at  timestamptz not null,
  primary key (merchant_id, event_id)
);
select distribute_table('outbox');
grant select, insert, update, delete on outbox to paymentsd_service;

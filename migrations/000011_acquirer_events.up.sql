-- Control: what acquirers tell of their own accord, exactly as received, once per event. Written only after
-- the signature was verified, and before the acquirer is told that we have it: from then on nothing of
-- it can be lost. The body and who sent it never change; what became of it does.
--
-- received   it still has to be handled, at next_try_at
-- handled    outcome says what came of it:
--   applied     it closed an unknown charge
--   agreed      it says what we knew
--   noted       evidence about a charge that it does not settle
--   exception   a person has to look: recon_exceptions says at what
--   ignored     no news of a capture, such as a type that is not known
create table acquirer_events (
  acquirer    text collate "C" not null check (acquirer ~ '^[a-z0-9_-]{1,40}$'),
  event_id    text collate "C" not null check (event_id ~ '^[!-~]{1,100}$'),
  sha256      bytea not null check (octet_length(sha256) = 32),
  body        bytea not null check (octet_length(body) <= 65536),
  sent_at     timestamptz not null,
  received_at timestamptz not null,
  state       text not null check (state in ('received', 'handled')),
  outcome     text check (outcome in ('applied', 'agreed', 'noted', 'exception', 'ignored')),
  type        text not null default '' check (length(type) <= 100),
  merchant_id bigint,
  charge_id   text collate "C",
  tries       int not null check (tries >= 0),
  next_try_at timestamptz,
  last_error  text not null default '' check (length(last_error) <= 1000),
  handled_at  timestamptz,
  primary key (acquirer, event_id),
  constraint events_outcome_iff_handled check ((state = 'handled') = (outcome is not null and handled_at is not null)),
  constraint events_try_iff_received check ((state = 'received') = (next_try_at is not null)),
  constraint events_charge_names_merchant check (charge_id is null or merchant_id is not null)
);
create index events_due on acquirer_events (next_try_at, acquirer, event_id) where state = 'received';
create index events_to_expire on acquirer_events (handled_at) where outcome in ('agreed', 'ignored');
grant select, insert, delete, update (state, outcome, type, merchant_id, charge_id, tries, next_try_at, last_error, handled_at)
  on acquirer_events to paymentsd_service;

alter table recon_exceptions drop constraint recon_exceptions_class_check;
alter table recon_exceptions add constraint recon_exceptions_class_check check (class in (
    'missing_file', 'reissued_file', 'empty_or_truncated', 'count_mismatch', 'sum_mismatch', 'hash_mismatch', 'wrong_layout',
    'bad_line', 'unknown_kind', 'bad_amount', 'bad_date', 'identity_broken', 'no_reference', 'duplicate_line',
    'same_key_other_content', 'bad_event',
    'missing_with_us', 'missing_at_acquirer', 'amount_mismatch', 'currency_mismatch', 'duplicate_capture', 'captured_at_both',
    'captured_though_failed', 'captured_though_declined', 'reference_conflict', 'wrong_acquirer', 'before_first_attempt',
    'refund_without_capture', 'refund_above_capture', 'contradicted_later', 'unknown_past_cutoff'));

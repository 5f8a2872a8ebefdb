-- What acquirers send, and what comparing it with our charges showed (docs/reconciliation.md).

-- Control: one row per settlement file that was ever handed in. The id is derived from the acquirer, the
-- format and the bytes, so that the same file twice is one row. Written when the file is read to its
-- end, with its lines in the same transaction: a killed import leaves nothing.
create table settlement_files (
  file_id         text collate "C" primary key check (file_id ~ '^sf_[0-9a-f]{24}$'),
  acquirer        text not null check (acquirer ~ '^[a-z0-9_-]{1,40}$'),
  format          text not null check (length(format) between 1 and 40),
  name            text not null check (length(name) between 1 and 255),
  sha256          bytea not null check (octet_length(sha256) = 32),
  bytes           bigint not null check (bytes >= 0),
  -- of the header; empty if the file is quarantined because its header cannot be read
  account         text not null default '' check (length(account) <= 255),
  sequence        bigint check (sequence >= 1),
  replaces        bigint check (replaces >= 0),
  family          bigint check (family >= 1), -- the sequence of the report that this file first was
  period_from     timestamptz,
  period_to       timestamptz,
  ignored_columns text[] not null default '{}',
  status          text not null check (status in ('staged', 'accepted', 'duplicate', 'quarantined', 'superseded')),
  class           text check (class ~ '^[a-z_]{1,40}$'),
  reason          text not null default '' check (length(reason) <= 1000),
  -- counted + repeated + bad = lines; added, removed and changed compare a re-issue with what stood
  lines           bigint not null default 0 check (lines >= 0),
  counted         bigint not null default 0 check (counted >= 0),
  repeated        bigint not null default 0 check (repeated >= 0),
  bad             bigint not null default 0 check (bad >= 0),
  added           bigint not null default 0 check (added >= 0),
  removed         bigint not null default 0 check (removed >= 0),
  changed         bigint not null default 0 check (changed >= 0),
  claimed         boolean not null default false, -- its lines are with their merchants
  received_at     timestamptz not null,
  constraint files_class_iff_quarantined check ((status = 'quarantined') = (class is not null)),
  constraint files_header_unless_quarantined check (status in ('staged', 'quarantined') or
    (account <> '' and sequence is not null and replaces is not null and family is not null
     and period_from is not null and period_to > period_from))
);
create index files_by_report on settlement_files (acquirer, account, family);
create index files_by_time on settlement_files (received_at, file_id);
grant select, insert, update on settlement_files to paymentsd_service;

-- Control: lines exactly as received. A line of an account is counted once, however many files have it:
-- counted    this is the one; repeated: another file's is; withdrawn: it was, until a re-issue took it
--            back; bad: it cannot be used, problem says why
-- Nobody changes what was received: only state, revision and what is wrong with it.
create table settlement_lines (
  file_id      text collate "C" not null references settlement_files (file_id),
  line_no      int not null check (line_no >= 1),
  acquirer     text not null,
  account      text not null,
  natural_key  text collate "C" not null check (length(natural_key) <= 255),
  kind         text not null check (kind in ('capture', 'partial_capture_reversal', 'refund', 'refund_reversal',
    'chargeback', 'chargeback_reversal', 'capture_failed', 'fee', 'adjustment', 'conversion', 'reserve',
    'balance_transfer', 'payout', 'unknown')),
  source_kind  text not null check (length(source_kind) <= 4096),
  reference    text collate "C" not null check (length(reference) <= 4096),
  merchant_id  bigint, -- whose charge the reference names; null if it names none
  capture_id   text not null check (length(capture_id) <= 4096),
  payout       text not null check (length(payout) <= 4096),
  currency     text check (currency ~ '^[A-Z]{3}$'),
  gross        numeric check (abs(gross) < 1000000000000 and scale(gross) <= 4),
  fee          numeric check (abs(fee) < 1000000000000 and scale(fee) <= 4),
  net          numeric check (abs(net) < 1000000000000 and scale(net) <= 4),
  occurred_at  timestamptz,
  state        text not null check (state in ('counted', 'repeated', 'withdrawn', 'bad')),
  revision     int not null default 0 check (revision >= 0),
  problem      text check (problem ~ '^[a-z_]{1,40}$'),
  field        text not null default '' check (length(field) <= 80),
  value        text not null default '' check (length(value) <= 255),
  reason       text not null default '' check (length(reason) <= 1000),
  primary key (file_id, line_no),
  constraint lines_problem_iff_bad check ((state = 'bad') = (problem is not null)),
  constraint lines_whole_unless_bad check (state = 'bad' or (natural_key <> '' and currency is not null
    and gross is not null and fee is not null and net = gross - fee and occurred_at is not null))
);
create unique index lines_counted_once on settlement_lines (acquirer, account, natural_key) where state = 'counted';
create index lines_withdrawn on settlement_lines (acquirer, account, natural_key) where state = 'withdrawn';
create index lines_to_claim on settlement_lines (file_id, merchant_id, line_no) where merchant_id is not null;
create index lines_nobodys on settlement_lines (acquirer, currency, gross)
  where state = 'counted' and kind = 'capture' and merchant_id is null;
create index lines_bad on settlement_lines (acquirer, file_id, line_no) where state = 'bad';
grant select, insert, update (state, revision, problem, field, value, reason) on settlement_lines to paymentsd_service;

-- Tenant: the counted lines whose reference names a charge of the merchant, and what became of each.
-- matched    the line of its kind that stands for the charge: one per charge and kind
-- part       a further line of that kind that belongs to the same sum
-- duplicate  money that came in once too often
-- unmatched  examined, and it fits no charge: an exception says why
-- waiting    its charge is still being asked for
-- withdrawn  a re-issued file took it back
create table settlement_claims (
  merchant_id  bigint not null,
  file_id      text collate "C" not null,
  line_no      int not null check (line_no >= 1),
  acquirer     text not null,
  account      text not null,
  natural_key  text collate "C" not null check (length(natural_key) between 1 and 255),
  revision     int not null check (revision >= 0),
  kind         text not null check (kind in ('capture', 'partial_capture_reversal', 'refund', 'refund_reversal',
    'chargeback', 'chargeback_reversal', 'capture_failed', 'fee')),
  acq_ref      text collate "C" not null check (length(acq_ref) = 20),
  capture_id   text not null,
  payout       text not null,
  currency     text not null check (currency ~ '^[A-Z]{3}$'),
  gross        numeric not null check (abs(gross) < 1000000000000 and scale(gross) <= 4),
  fee          numeric not null check (abs(fee) < 1000000000000 and scale(fee) <= 4),
  net          numeric not null check (net = gross - fee),
  occurred_at  timestamptz not null,
  state        text not null check (state in ('new', 'matched', 'part', 'duplicate', 'unmatched', 'waiting', 'withdrawn')),
  charge_id    text collate "C",
  resolved     boolean not null default false, -- this line ended an unknown
  posted       boolean not null default false, -- its transfers are in the ledger
  reversed     boolean not null default false, -- and were taken back
  primary key (merchant_id, file_id, line_no),
  constraint claims_one_per_line unique (merchant_id, acquirer, account, natural_key, revision),
  constraint claims_charge_if_matched check (state not in ('matched', 'part', 'duplicate', 'waiting') or charge_id is not null),
  constraint claims_examined_are_posted check (state in ('new', 'waiting', 'withdrawn') or posted),
  constraint claims_reversed_if_withdrawn check (not reversed or (state = 'withdrawn' and posted))
);
create unique index claims_one_of_a_kind on settlement_claims (merchant_id, charge_id, kind) where state = 'matched';
create index claims_by_reference on settlement_claims (merchant_id, acq_ref);
create index claims_to_examine on settlement_claims (merchant_id, acquirer, acq_ref)
  where state in ('new', 'waiting') or (state = 'withdrawn' and posted and not reversed);
create index claims_of_no_charge on settlement_claims (merchant_id, acquirer, currency, gross) where state in ('new', 'unmatched');
select distribute_table('settlement_claims');
grant select, insert, update on settlement_claims to paymentsd_service;

-- Control: what each run did. A run that is 'running' without its lock was killed: run it again.
create table recon_runs (
  run_id      text collate "C" primary key check (run_id ~ '^rr_[0-9a-z]{10,40}$'),
  acquirer    text not null check (acquirer ~ '^[a-z0-9_-]{1,40}$'),
  as_of       date not null,
  status      text not null check (status in ('running', 'clean', 'exceptions', 'refused', 'failed')),
  file_ids    text[] not null default '{}',
  file_names  text[] not null default '{}',
  examined    bigint not null default 0 check (examined >= 0),
  captured    bigint not null default 0 check (captured >= 0),
  failed      bigint not null default 0 check (failed >= 0),
  exceptions  bigint not null default 0 check (exceptions >= 0),
  error       text not null default '' check (length(error) <= 1000),
  started_at  timestamptz not null,
  finished_at timestamptz,
  constraint runs_finished_unless_running check ((status = 'running') = (finished_at is null)),
  constraint runs_names_of_files check (cardinality(file_ids) = cardinality(file_names)),
  constraint runs_error_iff_failed check ((status = 'failed') = (error <> ''))
);
create index runs_by_time on recon_runs (started_at, run_id);
grant select, insert, update on recon_runs to paymentsd_service;

-- Control: every difference. The id is derived from what differs, so that a later run updates the
-- row and never adds a second one. scope is what is examined as a whole: when it is, its
-- exceptions that no longer hold are closed.
create table recon_exceptions (
  exception_id text collate "C" primary key check (exception_id ~ '^ex_[0-9a-f]{24}$'),
  scope        text collate "C" not null check (length(scope) between 1 and 400),
  acquirer     text not null check (acquirer ~ '^[a-z0-9_-]{1,40}$'),
  class        text not null check (class in (
    'missing_file', 'reissued_file', 'empty_or_truncated', 'count_mismatch', 'sum_mismatch', 'hash_mismatch', 'wrong_layout',
    'bad_line', 'unknown_kind', 'bad_amount', 'bad_date', 'identity_broken', 'no_reference', 'duplicate_line',
    'same_key_other_content',
    'missing_with_us', 'missing_at_acquirer', 'amount_mismatch', 'currency_mismatch', 'duplicate_capture', 'captured_at_both',
    'captured_though_failed', 'captured_though_declined', 'reference_conflict', 'wrong_acquirer', 'before_first_attempt',
    'refund_without_capture', 'refund_above_capture', 'contradicted_later', 'unknown_past_cutoff')),
  severity     text not null check (severity in ('warning', 'high', 'critical')),
  state        text not null check (state in ('open', 'closed')),
  merchant_id  bigint,
  charge_id    text collate "C",
  acq_ref      text collate "C",
  file_id      text collate "C",
  line_no      int check (line_no >= 1),
  currency     text check (currency ~ '^[A-Z]{3}$'),
  at_risk      numeric check (at_risk >= 0),
  ours         text not null check (length(ours) <= 500),
  theirs       text not null check (length(theirs) <= 500),
  detail       text not null check (length(detail) <= 1000),
  since        date not null, -- age counts from this day
  opened_at    timestamptz not null,
  updated_at   timestamptz not null,
  closed_at    timestamptz,
  closed_by    text check (length(closed_by) between 1 and 200),
  close_reason text check (length(close_reason) between 1 and 1000),
  constraint exceptions_closed_by_someone check ((state = 'closed') = (closed_at is not null and closed_by is not null and close_reason is not null)),
  constraint exceptions_risk_has_currency check ((at_risk is null) = (currency is null))
);
create index exceptions_by_scope on recon_exceptions (scope) where state = 'open';
create index exceptions_of_merchant on recon_exceptions (merchant_id, acquirer, acq_ref) where state = 'open';
create index exceptions_of_acquirer on recon_exceptions (acquirer, state, exception_id);
grant select, insert, update on recon_exceptions to paymentsd_service;

-- Control: what people wrote about an exception. Append-only.
create table recon_notes (
  note_id      text collate "C" primary key check (note_id ~ '^rn_[0-9a-z]{10,40}$'),
  exception_id text collate "C" not null references recon_exceptions (exception_id),
  actor        text not null check (length(actor) between 1 and 200),
  note         text not null check (length(note) between 1 and 2000),
  created_at   timestamptz not null
);
create index notes_of_exception on recon_notes (exception_id, created_at, note_id);
grant select, insert on recon_notes to paymentsd_service;

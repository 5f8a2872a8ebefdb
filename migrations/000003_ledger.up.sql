-- One debit account, one credit account, one positive amount: zero-sum by construction.
-- Append-only: the service may not UPDATE or DELETE. transfer_id is derived from what moved the
-- money, so that the same movement cannot be posted twice.
create table ledger_transfers (
  merchant_id    bigint not null,
  transfer_id    text collate "C" not null check (length(transfer_id) between 1 and 200),
  charge_id      text collate "C",
  kind           text not null check (kind ~ '^[a-z_]{1,40}$'),
  debit_account  text not null check (debit_account ~ '^[a-z_]{1,40}(:[a-z0-9_-]{1,40})?$'),
  credit_account text not null check (credit_account ~ '^[a-z_]{1,40}(:[a-z0-9_-]{1,40})?$'),
  amount         numeric not null check (amount > 0 and amount < 1000000000000 and scale(amount) <= 4),
  currency       text not null check (currency ~ '^[A-Z]{3}$'),
  posted_at      timestamptz not null,
  primary key (merchant_id, transfer_id),
  constraint ledger_two_accounts check (debit_account <> credit_account)
);
create index ledger_by_time on ledger_transfers (merchant_id, posted_at, transfer_id);
select distribute_table('ledger_transfers');
grant select, insert on ledger_transfers to paymentsd_service;

-- Sums of all transfers of a merchant up to a moment. A later moment adds rows and changes none, so
-- that writers never queue and two roll-ups at once are harmless.
create table ledger_rollups (
  merchant_id bigint not null,
  through     timestamptz not null,
  account     text not null,
  currency    text not null,
  debits      numeric not null check (debits >= 0),
  credits     numeric not null check (credits >= 0),
  primary key (merchant_id, through, account, currency)
);
select distribute_table('ledger_rollups');
grant select, insert, delete on ledger_rollups to paymentsd_service;

-- The one place that inserts a transfer. posted_at is the database's clock, because a roll-up
-- relies on no transfer appearing before its moment later than a transaction may last.
create function ledger_post_v1(
  p_merchant bigint, p_transfer text, p_charge text, p_kind text,
  p_debit text, p_credit text, p_amount numeric, p_currency text
) returns boolean language plpgsql as $$
declare
  v_now timestamptz := clock_timestamp();
begin
  insert into ledger_transfers as l (merchant_id, transfer_id, charge_id, kind, debit_account, credit_account, amount, currency, posted_at)
  values (p_merchant, p_transfer, p_charge, p_kind, p_debit, p_credit, p_amount, p_currency, v_now)
  on conflict (merchant_id, transfer_id) do nothing;
  if found then
    return true;
  end if;
  -- The same movement again is harmless; another movement under the same name is a fault.
  perform 1 from ledger_transfers l
   where l.merchant_id = p_merchant and l.transfer_id = p_transfer and l.kind = p_kind
     and l.charge_id is not distinct from p_charge
     and l.debit_account = p_debit and l.credit_account = p_credit
     and l.amount = p_amount and l.currency = p_currency;
  if not found then
    raise exception 'transfer % is posted already with other content', p_transfer using errcode = 'PD001';
  end if;
  return false;
end $$;
select distribute_function('ledger_post_v1(bigint,text,text,text,text,text,numeric,text)');
grant execute on function ledger_post_v1 to paymentsd_service;

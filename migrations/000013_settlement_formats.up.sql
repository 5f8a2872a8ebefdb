-- Files of acquirers' own formats (docs/settlement-formats.md) do not always say which account, report or
-- period they are, and pay some charges in another currency than they were charged in.

-- An unnumbered file belongs to no report: it is neither re-issued nor missing. One without a period covers
-- no time, so that nothing is proven by what is not in it.
alter table settlement_files
  add column starts_anywhere boolean not null default false, -- the first sequence that came need not be 1
  add column first_line_at timestamptz,                      -- the earliest line: when a file without a period is of
  drop constraint files_header_unless_quarantined,
  add constraint files_header_unless_quarantined check (status in ('staged', 'quarantined') or
    (account <> '' and (sequence is null) = (family is null) and (sequence is null) = (replaces is null)
     and (period_from is null) = (period_to is null) and (period_from is null or period_to > period_from)));

-- settled_net + settled_fee is what was paid for gross, in another currency; fee is 0 and net is gross then.
alter table settlement_lines
  add column settled_currency text check (settled_currency ~ '^[A-Z]{3}$'),
  add column settled_fee numeric check (abs(settled_fee) < 1000000000000 and scale(settled_fee) <= 4),
  add column settled_net numeric check (abs(settled_net) < 1000000000000 and scale(settled_net) <= 4),
  add column fx_rate text check (length(fx_rate) between 1 and 40), -- as the file has it
  add constraint lines_settled_whole check ((settled_currency is null) = (settled_net is null)
    and (settled_currency is null) = (settled_fee is null) and (settled_currency is null or settled_currency <> currency));

alter table settlement_claims
  add column settled_currency text check (settled_currency ~ '^[A-Z]{3}$'),
  add column settled_fee numeric check (abs(settled_fee) < 1000000000000 and scale(settled_fee) <= 4),
  add column settled_net numeric check (abs(settled_net) < 1000000000000 and scale(settled_net) <= 4),
  add constraint claims_settled_whole check ((settled_currency is null) = (settled_net is null)
    and (settled_currency is null) = (settled_fee is null) and (settled_currency is null or settled_currency <> currency));

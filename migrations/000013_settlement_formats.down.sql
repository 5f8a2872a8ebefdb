alter table settlement_claims drop constraint claims_settled_whole,
  drop column settled_currency, drop column settled_fee, drop column settled_net;
alter table settlement_lines drop constraint lines_settled_whole,
  drop column settled_currency, drop column settled_fee, drop column settled_net, drop column fx_rate;
alter table settlement_files drop constraint files_header_unless_quarantined,
  drop column starts_anywhere, drop column first_line_at,
  add constraint files_header_unless_quarantined check (status in ('staged', 'quarantined') or
    (account <> '' and sequence is not null and replaces is not null and family is not null
     and period_from is not null and period_to > period_from));

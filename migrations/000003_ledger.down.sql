drop function ledger_post_v1(bigint, text, text, text, text, text, numeric, text);
drop table ledger_rollups;
drop table ledger_transfers;

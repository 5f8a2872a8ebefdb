drop function charge_finish_v2(bigint, int, timestamptz[], text[], text[], bigint[], int[], text[], int[], int[], text[], text[], text[], text[], text[], text[], int[], text[], text[], bytea[], text[], text[], text[]);
drop function ledger_post_v2(bigint, text[], text[], text[], text[], text[], numeric[], text[]);
drop function charge_begin_v2(bigint, int, interval, timestamptz[], text[], bytea[], text[], int[], text[], numeric[], text[], text[], boolean[], text[], text[], text[]);

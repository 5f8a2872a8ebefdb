drop function maintain_responses_v1(date, int, int);
drop function charge_finish_v1(bigint, timestamptz, text[], text[], bigint[], int[], text[], int[], int[], text[], text[], text[], text[], text[], text[], int[], text[], text[], bytea[], text[], text[], text[]);
drop function charge_failover_v1(bigint, timestamptz, text, text, bigint, int, text, int, int, text, text, text, text);
drop function charge_begin_v1(bigint, timestamptz, interval, text[], bytea[], text[], int[], text[], numeric[], text[], text[], boolean[], text[], text[], text[]);

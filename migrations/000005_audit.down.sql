drop function audit_append_v1(timestamptz, text, text, text, text, text);
drop function audit_hash_v1(bytea, bigint, timestamptz, text, text, text, text, text);
drop table audit_log;

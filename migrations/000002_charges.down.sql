drop table outbox;
drop table resolutions;
drop table attempts;
drop table charges;
drop table idempotency_responses;
drop table idempotency_keys;

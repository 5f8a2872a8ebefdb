delete from recon_notes n using recon_exceptions x where x.exception_id = n.exception_id and x.class = 'bad_event';
delete from recon_exceptions x where x.class = 'bad_event';
alter table recon_exceptions drop constraint recon_exceptions_class_check;
alter table recon_exceptions add constraint recon_exceptions_class_check check (class in (
    'missing_file', 'reissued_file', 'empty_or_truncated', 'count_mismatch', 'sum_mismatch', 'hash_mismatch', 'wrong_layout',
    'bad_line', 'unknown_kind', 'bad_amount', 'bad_date', 'identity_broken', 'no_reference', 'duplicate_line',
    'same_key_other_content',
    'missing_with_us', 'missing_at_acquirer', 'amount_mismatch', 'currency_mismatch', 'duplicate_capture', 'captured_at_both',
    'captured_though_failed', 'captured_though_declined', 'reference_conflict', 'wrong_acquirer', 'before_first_attempt',
    'refund_without_capture', 'refund_above_capture', 'contradicted_later', 'unknown_past_cutoff'));
drop table acquirer_events;

package acquirertest

import (
	"time"

	"paymentsd/acquirer"
	"paymentsd/money"
)

// Scenario is one recorded exchange and what it has to prove.
type Scenario struct {
	Name string
	// Of a capture, unless Found is set.
	Class      acquirer.Class
	Failure    bool
	RetryAfter time.Duration
	Amount     string // 49.99 USD if empty
	Currency   money.Currency
	// Of an inquiry.
	Found acquirer.Found
}

// Scenarios is the list that every adapter has to have recorded.
func Scenarios() []Scenario {
	return []Scenario{
		{Name: "captured", Class: acquirer.Captured},
		{Name: "captured_replayed", Class: acquirer.Captured},
		{Name: "captured_jpy", Class: acquirer.Captured, Amount: "80", Currency: "JPY"},
		{Name: "captured_kwd", Class: acquirer.Captured, Amount: "5.124", Currency: "KWD"},
		{Name: "declined", Class: acquirer.Declined},

		{Name: "rejected_malformed", Class: acquirer.Rejected},
		{Name: "rejected_credentials", Class: acquirer.Rejected},
		{Name: "rejected_forbidden", Class: acquirer.Rejected},
		{Name: "rejected_not_found", Class: acquirer.Rejected},
		{Name: "rejected_invalid", Class: acquirer.Rejected},

		{Name: "refused_rate", Class: acquirer.Refused, RetryAfter: 7 * time.Second},
		{Name: "refused_rate_until_date", Class: acquirer.Refused, RetryAfter: 90 * time.Second},
		{Name: "refused_unprocessed", Class: acquirer.Refused, Failure: true, RetryAfter: 2 * time.Second},
		{Name: "in_progress", Class: acquirer.InProgress},

		{Name: "unclear_error", Class: acquirer.Unclear, Failure: true},
		{Name: "unclear_gateway_page", Class: acquirer.Unclear, Failure: true},
		{Name: "unclear_unavailable", Class: acquirer.Unclear, Failure: true, RetryAfter: 30 * time.Second},
		{Name: "unclear_pending", Class: acquirer.Unclear, Failure: true},
		{Name: "unclear_unknown_result", Class: acquirer.Unclear, Failure: true},
		{Name: "unclear_status_inside", Class: acquirer.Unclear, Failure: true},
		{Name: "unclear_maintenance", Class: acquirer.Unclear, Failure: true},
		{Name: "unclear_garbled", Class: acquirer.Unclear, Failure: true},
		{Name: "unclear_empty", Class: acquirer.Unclear, Failure: true},
		{Name: "unclear_media_type", Class: acquirer.Unclear, Failure: true},
		{Name: "unclear_truncated", Class: acquirer.Unclear, Failure: true},
		{Name: "unclear_trailing_data", Class: acquirer.Unclear, Failure: true},
		{Name: "unclear_field_twice", Class: acquirer.Unclear, Failure: true},
		{Name: "unclear_redirect", Class: acquirer.Unclear, Failure: true},
		{Name: "unclear_reference", Class: acquirer.Unclear, Failure: true},
		{Name: "unclear_no_reference", Class: acquirer.Unclear, Failure: true},
		{Name: "unclear_amount", Class: acquirer.Unclear, Failure: true},
		{Name: "unclear_amount_form", Class: acquirer.Unclear, Failure: true},
		{Name: "unclear_currency", Class: acquirer.Unclear, Failure: true},
		{Name: "unclear_no_id", Class: acquirer.Unclear, Failure: true},
		{Name: "unclear_contradiction", Class: acquirer.Unclear, Failure: true},
		{Name: "unclear_decline_garbled", Class: acquirer.Unclear},
		{Name: "unclear_decline_of_other", Class: acquirer.Unclear, Failure: true},
		{Name: "unclear_refusal", Class: acquirer.Unclear},
		{Name: "unclear_key_reused", Class: acquirer.Unclear},

		{Name: "lookup_captured", Found: acquirer.FoundCaptured},
		{Name: "lookup_declined", Found: acquirer.FoundDeclined},
		{Name: "lookup_not_found", Found: acquirer.FoundNothing},
		{Name: "lookup_pending", Found: acquirer.FoundPending},
		{Name: "lookup_maintenance", Found: acquirer.FoundUnclear},
		{Name: "lookup_error", Found: acquirer.FoundUnclear},
		{Name: "lookup_missing_route", Found: acquirer.FoundUnclear},
		{Name: "lookup_forbidden", Found: acquirer.FoundUnclear},
		{Name: "lookup_other_reference", Found: acquirer.FoundUnclear},
		{Name: "lookup_other_capture", Found: acquirer.FoundUnclear},
		{Name: "lookup_two_captures", Found: acquirer.FoundUnclear},
		{Name: "lookup_unknown_status", Found: acquirer.FoundUnclear},
		{Name: "lookup_unreadable_amount", Found: acquirer.FoundUnclear},
		{Name: "lookup_truncated", Found: acquirer.FoundUnclear},
	}
}

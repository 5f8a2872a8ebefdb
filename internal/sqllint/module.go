package sqllint

import "paymentsd/internal/postgres"

// OurSchema is the schema of this module: a new table fails the tests until it has a row here.
func OurSchema() Schema {
	return Schema{
		Owners: map[string]string{
			"merchants":             "merchant",
			"api_keys":              "merchant",
			"idempotency_keys":      "idempotency",
			"idempotency_responses": "idempotency",
			"charges":               "payment",
			"attempts":              "payment",
			"resolutions":           "payment",
			"outbox":                "payment",
			"errands":               "payment",
			"ledger_transfers":      "ledger",
			"ledger_rollups":        "ledger",
			"settlement_files":      "reconcile",
			"settlement_lines":      "reconcile",
			"settlement_claims":     "reconcile",
			"recon_runs":            "reconcile",
			"recon_exceptions":      "reconcile",
			"recon_notes":           "reconcile",
			"audit_log":             "payment",
			"acquirer_events":       "events",
			"breakers":              "resilience/shared",
			"breaker_events":        "resilience/shared",
			"outcome_windows":       "resilience/shared",
			"retry_budgets":         "resilience/shared",
			"retry_windows":         "resilience/shared",
		},
		Tenant: []string{
			"merchants", "idempotency_keys", "idempotency_responses", "charges", "attempts", "resolutions",
			"ledger_transfers", "ledger_rollups", "outbox", "errands", "settlement_claims",
		},
		ChargePath: []string{"idempotency", "payment", "ledger"},
	}
}

// OurAppendOnly lists what the service may only add to.
func OurAppendOnly() AppendOnly {
	return AppendOnly{Role: postgres.ServiceRole, Tables: []string{"ledger_transfers", "resolutions", "audit_log"}}
}

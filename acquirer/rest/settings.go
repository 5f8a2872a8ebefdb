package rest

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"paymentsd/acquirer"
	"paymentsd/money"
)

const exponentMax = 4

// defaults are the promises of docs/acquirer-protocol.md, which our simulator keeps.
func defaults() acquirer.Capabilities {
	return acquirer.Capabilities{
		DeduplicatesByKey:  true,
		KeyLifetime:        24 * time.Hour,
		LooksUpByReference: true,
		// Longer than a request can be under way: before that "not found" may only mean "not yet".
		TrustDelay: 10 * time.Second,
	}
}

// setters is the list of settings, one line each.
func setters(c *acquirer.Capabilities) map[string]func(string) error {
	return map[string]func(string) error{
		"deduplicates":          flag(&c.DeduplicatesByKey),
		"key_lifetime":          duration(&c.KeyLifetime),
		"forgets_failures":      flag(&c.ForgetsFailures),
		"replays_server_errors": flag(&c.ReplaysServerErrors),
		"looks_up":              flag(&c.LooksUpByReference),
		"trust_delay":           duration(&c.TrustDelay),
		"exponents":             exponents(&c.Exponents),
	}
}

// capabilities reads Config.Settings; an error names the setting.
func capabilities(settings map[string]string) (acquirer.Capabilities, error) {
	c := defaults()
	known := setters(&c)
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		set, ok := known[name]
		if !ok {
			return c, fmt.Errorf("setting %q is not known; use %s", name,
				strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
		if err := set(settings[name]); err != nil {
			return c, fmt.Errorf("setting %q: %w", name, err)
		}
	}
	return c, nil
}

func flag(to *bool) func(string) error {
	return func(s string) error {
		if s != "true" && s != "false" {
			return fmt.Errorf("%q is not true or false", s)
		}
		*to = s == "true"
		return nil
	}
}

func duration(to *time.Duration) func(string) error {
	return func(s string) error {
		d, err := time.ParseDuration(s)
		if err != nil || d < 0 {
			return fmt.Errorf("%q is not a duration such as 30s or 24h", s)
		}
		*to = d
		return nil
	}
}

// exponents reads "CLP=2,JPY=0".
func exponents(to *map[money.Currency]int) func(string) error {
	return func(s string) error {
		table := map[money.Currency]int{}
		for pair := range strings.SplitSeq(s, ",") {
			code, digits, _ := strings.Cut(strings.TrimSpace(pair), "=")
			currency, err := money.ParseCurrency(code)
			if err != nil {
				return err
			}
			n, err := strconv.Atoi(digits)
			if err != nil || n < 0 || n > exponentMax {
				return fmt.Errorf("%q: want CODE=DECIMALS with 0 to %d decimals", pair, exponentMax)
			}
			if _, twice := table[currency]; twice {
				return fmt.Errorf("%s is there twice", currency)
			}
			table[currency] = n
		}
		*to = table
		return nil
	}
}

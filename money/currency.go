package money

import (
	"fmt"

	"github.com/bojanz/currency"
)

// Currency is an ISO 4217 code in upper case.
type Currency string

// ParseCurrency accepts an upper-case code of ISO 4217 that is in use.
func ParseCurrency(s string) (Currency, error) {
	if c := Currency(s); c.Known() {
		return c, nil
	}
	return "", fmt.Errorf("%w: %q", ErrCurrency, clip(s))
}

// Known reports whether the code is in ISO 4217. No code is none, though the library takes it for one.
func (c Currency) Known() bool { return c != "" && currency.IsValid(string(c)) }

// Exponent is the number of decimals that ISO 4217 gives the currency (USD 2, JPY 0, KWD 3), 0 for
// an unknown one. Acquirers may differ: see acquirer.Capabilities.
func (c Currency) Exponent() int {
	digits, _ := currency.GetDigits(string(c))
	return int(digits)
}

// Package money is an exact amount with its currency, parsed and printed without loss.
package money

import (
	"errors"
	"fmt"
	"strings"

	"github.com/shopspring/decimal"
)

// MaxIntegerDigits bounds an amount: at most 12 digits before the point, so that every amount
// in every currency's minor units fits an int64.
const MaxIntegerDigits = 12

// The reasons why a text is not an amount. Each is wrapped with what was seen.
var (
	ErrSyntax           = errors.New("not a plain decimal number")
	ErrTooPrecise       = errors.New("more decimals than the currency has")
	ErrTooLarge         = fmt.Errorf("more than %d digits before the point", MaxIntegerDigits)
	ErrCurrency         = errors.New("not a currency code of ISO 4217")
	ErrCurrencyMismatch = errors.New("amounts are in different currencies")
)

// Amount is an exact sum of money. The zero value has no currency and is not a valid amount.
// Compare with Equal, never with ==: equal sums may differ inside.
type Amount struct {
	value    decimal.Decimal
	currency Currency
}

// New makes an amount from a decimal. It fails if d has more decimals than the currency.
func New(d decimal.Decimal, c Currency) (Amount, error) {
	if !c.Known() {
		return Amount{}, fmt.Errorf("%w: %q", ErrCurrency, string(c))
	}
	if !d.Equal(d.Truncate(int32(c.Exponent()))) {
		return Amount{}, fmt.Errorf("%w: %s has %d", ErrTooPrecise, c, c.Exponent())
	}
	if d.Abs().GreaterThanOrEqual(tooLarge) {
		return Amount{}, ErrTooLarge
	}
	return Amount{value: d, currency: c}, nil
}

// Total makes a sum of many amounts, which may be larger than any one of them may be.
func Total(d decimal.Decimal, c Currency) (Amount, error) {
	if !c.Known() {
		return Amount{}, fmt.Errorf("%w: %q", ErrCurrency, string(c))
	}
	return Amount{value: d, currency: c}, nil
}

var tooLarge = decimal.New(1, MaxIntegerDigits)

// Parse reads a plain decimal: digits, at most one point with digits on both sides, an optional
// leading minus. No exponent, no plus, no separators, no blanks, no leading zeros, and at most
// the currency's decimals ("10.0" and "10.00" are the same amount of USD; "10.001" is none).
func Parse(s string, c Currency) (Amount, error) {
	if !plainDecimal(s) {
		return Amount{}, fmt.Errorf("%w: %q", ErrSyntax, clip(s))
	}
	if !c.Known() {
		return Amount{}, fmt.Errorf("%w: %q", ErrCurrency, clip(string(c)))
	}
	whole, fraction, _ := strings.Cut(strings.TrimPrefix(s, "-"), ".")
	if len(whole) > MaxIntegerDigits {
		return Amount{}, ErrTooLarge
	}
	if len(fraction) > c.Exponent() {
		return Amount{}, fmt.Errorf("%w: %s has %d", ErrTooPrecise, c, c.Exponent())
	}
	d, err := decimal.NewFromString(s)
	if err != nil {
		return Amount{}, fmt.Errorf("%w: %q", ErrSyntax, clip(s))
	}
	return Amount{value: d, currency: c}, nil
}

// FromMinor makes an amount from integer units of 10^-exponent (a feed's or a wire's own
// exponent, which may differ from the currency's).
func FromMinor(units int64, exponent int, c Currency) (Amount, error) {
	return New(decimal.New(units, -int32(exponent)), c)
}

// Zero is nothing, in a currency.
func Zero(c Currency) Amount { return Amount{currency: c} }

// plainDecimal accepts -?(0|[1-9][0-9]*)(\.[0-9]+)? in at most 40 bytes.
func plainDecimal(s string) bool {
	s = strings.TrimPrefix(s, "-")
	if s == "" || len(s) > 40 {
		return false
	}
	whole, fraction, point := strings.Cut(s, ".")
	if whole == "" || (point && fraction == "") || (len(whole) > 1 && whole[0] == '0') {
		return false
	}
	return allDigits(whole) && allDigits(fraction)
}

func allDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}

func clip(s string) string {
	if len(s) > 40 {
		return s[:40] + "..."
	}
	return s
}

// Currency is the amount's currency.
func (a Amount) Currency() Currency { return a.currency }

// Decimal is the amount in major units.
func (a Amount) Decimal() decimal.Decimal { return a.value }

// String prints the amount in major units with exactly the currency's decimals: "10.00".
func (a Amount) String() string { return a.value.StringFixed(int32(a.currency.Exponent())) }

// Minor is the amount in integer units of 10^-exponent; it fails rather than round.
func (a Amount) Minor(exponent int) (int64, error) {
	shifted := a.value.Shift(int32(exponent))
	if !shifted.IsInteger() {
		return 0, fmt.Errorf("%w: %s %s cannot be written with %d decimals", ErrTooPrecise, a, a.currency, exponent)
	}
	big := shifted.BigInt()
	if !big.IsInt64() {
		return 0, ErrTooLarge
	}
	return big.Int64(), nil
}

// Add is a+b; it fails if the currencies differ.
func (a Amount) Add(b Amount) (Amount, error) {
	if a.currency != b.currency {
		return Amount{}, fmt.Errorf("%w: %s and %s", ErrCurrencyMismatch, a.currency, b.currency)
	}
	return Amount{value: a.value.Add(b.value), currency: a.currency}, nil
}

// Sub is a-b; it fails if the currencies differ.
func (a Amount) Sub(b Amount) (Amount, error) { return a.Add(b.Neg()) }

// Neg is -a.
func (a Amount) Neg() Amount { return Amount{value: a.value.Neg(), currency: a.currency} }

// Equal reports whether both sum and currency are the same.
func (a Amount) Equal(b Amount) bool { return a.currency == b.currency && a.value.Equal(b.value) }

// Sign is -1, 0 or 1.
func (a Amount) Sign() int { return a.value.Sign() }

// IsPositive reports whether the amount is more than nothing.
func (a Amount) IsPositive() bool { return a.value.Sign() > 0 }

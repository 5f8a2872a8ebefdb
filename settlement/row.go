package settlement

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/shopspring/decimal"

	"paymentsd/money"
)

// row is one row of a table. Whoever reads a field that cannot be read spoils the row, once.
type row struct {
	*table
	fields []string
	line   int
	raw    string
	bad    *LineError
	unread bool // a sum of money in it cannot be read, and so not be added up
}

// text is a field as it is, empty if the file has no such column.
func (r *row) text(column string) string {
	i, ok := r.at[column]
	if !ok || i >= len(r.fields) {
		return ""
	}
	return r.fields[i]
}

// reference is a field without outer blanks: nothing else is done to it.
func (r *row) reference(column string) string { return strings.TrimSpace(r.text(column)) }

// spoil keeps the first thing that is wrong.
func (r *row) spoil(column string, class Class, reason string) {
	if r.bad == nil {
		r.bad = &LineError{Line: r.line, Field: column, Value: clip(r.text(column)), Class: class, Reason: reason}
	}
}

// unreadable spoils the row for the sums of the file, too.
func (r *row) unreadable(column string, err error) {
	r.unread = true
	r.spoil(column, BadAmount, err.Error())
}

// currency reads a code. Some acquirers write it in lower case in some rows.
func (r *row) currency(column string) money.Currency {
	c, err := money.ParseCurrency(strings.ToUpper(r.text(column)))
	if err != nil {
		r.unreadable(column, err)
	}
	return c
}

// major reads an amount in major units; it is nothing if it cannot be read, and the row is spoiled.
func (r *row) major(column string, c money.Currency) money.Amount {
	a, err := parseMajor(r.text(column), c)
	if err != nil {
		r.unreadable(column, err)
		return money.Zero(c)
	}
	return a
}

// unsigned reads an amount that may be missing and has its sign elsewhere.
func (r *row) unsigned(column string, c money.Currency) money.Amount {
	if r.text(column) == "" {
		return money.Zero(c)
	}
	a := r.major(column, c)
	if a.Sign() < 0 {
		r.unreadable(column, errors.New("a sign in a column that says which way the money goes"))
	}
	return a
}

// parseMajor is money.Parse, but for decimals beyond the currency's that are all zero: some acquirers
// print every currency with two.
func parseMajor(text string, c money.Currency) (money.Amount, error) {
	if whole, fraction, point := strings.Cut(text, "."); point && c.Known() && len(fraction) > c.Exponent() {
		if trimmed := fraction[:c.Exponent()]; strings.Trim(fraction[c.Exponent():], "0") == "" {
			text = strings.TrimSuffix(whole+"."+trimmed, ".")
		}
	}
	return money.Parse(text, c)
}

// at reads a date by its layout. The zone is one that is stated: an offset in the text, or loc.
func (r *row) date(column, text, layout string, loc *time.Location) time.Time {
	t, err := time.ParseInLocation(layout, text, loc)
	if err != nil {
		r.spoil(column, BadDate, fmt.Sprintf("%q is not a time like %s", clip(text), layout))
		return time.Time{}
	}
	return t.UTC()
}

// paid makes the amounts of a line that is paid in the currency in which it was charged.
func (r *row) paid(line *Line, gross, fee, net money.Amount) {
	if r.bounded(gross, fee, net); !r.unread {
		line.Gross, line.Fee, line.Net = gross, fee, net
	}
}

// bounded refuses sums of amounts that are larger than any one of them may be.
func (r *row) bounded(amounts ...money.Amount) {
	for _, a := range amounts {
		if _, err := money.New(a.Decimal(), a.Currency()); err != nil {
			r.unreadable("", err)
		}
	}
}

// paidAs makes the amounts of a line that is paid in another currency than it was charged in. With
// a rate, the amount charged times the rate must be what was paid for it.
func (r *row) paidAs(line *Line, charged money.Amount, fee, net money.Amount, rate, rateColumn string) {
	if r.bounded(charged, fee, net); r.unread {
		return
	}
	line.Gross, line.Fee, line.Net = charged, money.Zero(charged.Currency()), charged
	line.Settled = &Settled{Fee: fee, Net: net, Rate: rate}
	if rate == "" {
		return
	}
	if !rateText(rate) {
		r.spoil(rateColumn, BadAmount, "not a plain decimal number")
		return
	}
	paid, _ := net.Add(fee) // of one currency: both were read in it
	factor, err := decimal.NewFromString(rate)
	if exact := charged.Decimal().Mul(factor).Round(int32(paid.Currency().Exponent())); err != nil || !exact.Equal(paid.Decimal()) {
		r.spoil(rateColumn, IdentityBroken, fmt.Sprintf("%s %s at this rate is %s, but %s %s net and %s in fees were paid",
			charged, charged.Currency(), exact, paid.Currency(), net, fee))
	}
}

// rateText accepts digits with at most one point among them: no sign, no exponent.
func rateText(s string) bool {
	const longest = 40
	whole, fraction, point := strings.Cut(s, ".")
	digits := whole + fraction
	return whole != "" && (!point || fraction != "") && len(s) <= longest && strings.Trim(digits, "0123456789") == ""
}

// naturalKey joins what tells a line from others. A text that is too long or not plain is replaced by its
// hash, so that a key is always fit to be one.
func naturalKey(parts ...string) string {
	key := strings.Join(parts, "/")
	if strings.TrimSpace(key) == key && plainText(key) == nil {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return "sha256:" + hex.EncodeToString(sum[:])
}

package settlement

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/shopspring/decimal"

	"paymentsd/money"
)

// payoutsMax bounds the payouts of one file whose sums are kept.
const payoutsMax = 1 << 16

// add counts a line into the controls that the profile has.
func (r *csvReport) add(row *row, kind Kind, gross, fee, net money.Amount) {
	r.total.gross, r.total.fee, r.total.net = r.total.gross.Add(gross.Decimal()), r.total.fee.Add(fee.Decimal()), r.total.net.Add(net.Decimal())
	key := string(net.Currency())
	switch {
	case r.Controls.Payouts:
		key += " in payout " + strconv.Quote(row.text(r.Columns.Payout))
	case !r.Controls.ZeroSum:
		return
	}
	if _, ok := r.net[key]; !ok && len(r.net) == payoutsMax {
		row.unreadable(r.Columns.Payout, fmt.Errorf("more than %d payouts in a file", payoutsMax))
		return
	}
	r.net[key] = r.net[key].Add(net.Decimal())
}

// trailer compares what the last row declares with what came before it.
func (r *csvReport) trailer(row *row) error {
	t := r.Controls.Trailer
	if found := strconv.Itoa(r.rows); t.Count != "" && row.text(t.Count) != found {
		return &ControlError{Control: ControlCount, Line: row.line, Declared: clip(row.text(t.Count)), Computed: found, Class: CountMismatch}
	}
	fee := r.total.fee
	if r.FeeSign == feeWhenTaken {
		fee = fee.Neg()
	}
	for _, sum := range []struct {
		column string
		found  decimal.Decimal
	}{{t.Gross, r.total.gross}, {t.Fee, fee}, {t.Net, r.total.net}} {
		if sum.column == "" {
			continue
		}
		plain, err := r.plain(row.text(sum.column))
		var declared decimal.Decimal
		if err == nil {
			declared, err = exact(plain)
		}
		if err != nil {
			return &ParseError{Line: row.line, Field: sum.column, Class: WrongLayout, Reason: err.Error()}
		}
		if !declared.Equal(sum.found) {
			return &ControlError{Control: ControlSum, Line: row.line, Declared: sum.column + " " + clip(row.text(sum.column)), Computed: sum.found.String(), Class: SumMismatch}
		}
	}
	return errIgnored
}

// exact reads a plain decimal of any number of decimals.
func exact(plain string) (decimal.Decimal, error) {
	unsigned := plain
	if plain != "" && plain[0] == '-' {
		unsigned = plain[1:]
	}
	if !rateText(unsigned) {
		return decimal.Zero, fmt.Errorf("%w: %q", money.ErrSyntax, clip(plain))
	}
	return decimal.NewFromString(plain)
}

// end checks what the whole file has to meet.
func (r *csvReport) end() error {
	if r.Controls.Trailer != nil && r.ended == 0 {
		return r.truncated(fmt.Sprintf("the end of the file after line %d", r.number))
	}
	for _, key := range slices.Sorted(maps.Keys(r.net)) {
		if !r.net[key].IsZero() {
			return &ControlError{Control: ControlSum, Line: r.number, Declared: "0 net, " + clip(key), Computed: r.net[key].String(), Class: SumMismatch}
		}
	}
	return nil
}

package settlement

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/shopspring/decimal"

	"paymentsd/money"
)

// parseDigits reads an unsigned integer of at most 14 digits, the longest amount that money takes.
func parseDigits(s string) (int64, error) {
	const longest = money.MaxIntegerDigits + paypalDecimals
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, fmt.Errorf("%q is not digits only", clip(s))
		}
	}
	if s == "" || len(s) > longest {
		return 0, fmt.Errorf("%q is not 1 to %d digits", clip(s), longest)
	}
	return strconv.ParseInt(s, 10, 64)
}

// count checks "SC", "RC" or "FF" with the number of rows. There is one section in the report and one report
// in the file, so that all three count the same.
func (p *paypalReport) count(fields []string, line int) error {
	declared := ""
	if len(fields) > 1 {
		declared = fields[1]
	}
	if found := strconv.Itoa(p.rows); declared != found {
		return &ControlError{Control: ControlCount, Line: line, Declared: fields[0] + " " + clip(declared), Computed: found, Class: CountMismatch}
	}
	return nil
}

// footer checks "SF" or "RF" of a currency: gross in, gross out, fees in, fees out. The balances behind them
// cannot be recomputed from the file.
func (p *paypalReport) footer(fields []string, line int, declared map[money.Currency]bool) error {
	const currency, first, width = 1, 2, 6
	if len(fields) < width {
		return &ParseError{Line: line, Field: fields[0], Class: WrongLayout, Reason: fmt.Sprintf("%d fields; it has a currency and four sums", len(fields))}
	}
	c, err := money.ParseCurrency(fields[currency])
	if err != nil {
		return &ParseError{Line: line, Field: fields[0], Class: WrongLayout, Reason: err.Error()}
	}
	if declared[c] {
		return &ParseError{Line: line, Field: fields[0], Class: WrongLayout, Reason: fmt.Sprintf("the sums of %s are declared twice", c)}
	}
	declared[c] = true
	var sums [4]decimal.Decimal
	for i := range sums {
		units, err := parseDigits(fields[first+i])
		if err != nil {
			return &ParseError{Line: line, Field: fields[0], Class: WrongLayout, Reason: err.Error()}
		}
		sums[i] = decimal.NewFromInt(units)
	}
	want := paypalSums{grossIn: sums[0], grossOut: sums[1], feeIn: sums[2], feeOut: sums[3]}
	if !want.equal(p.sums[c]) {
		return &ControlError{Control: ControlSum, Line: line, Declared: string(c) + " " + want.String(), Computed: p.sums[c].String(), Class: SumMismatch}
	}
	return nil
}

// undeclared checks the currencies without a footer: only one of which everything was converted has none.
func (p *paypalReport) undeclared(declared map[money.Currency]bool, line int) error {
	for _, c := range slices.Sorted(maps.Keys(p.sums)) {
		if !declared[c] && !p.sums[c].net().IsZero() {
			return &ControlError{Control: ControlSum, Line: line, Declared: "no sums of " + string(c), Computed: p.sums[c].String(), Class: SumMismatch}
		}
	}
	return nil
}

package sim

import (
	"slices"
	"strings"
	"time"

	"github.com/shopspring/decimal"

	"paymentsd/money"
	"paymentsd/settlement"
)

// linesOf is what a file says: the records that it knew, as they stood when it was issued, whose
// money moved within its period.
func linesOf(i issue, records []Record) []settlement.Line {
	records = records[:i.Records]
	captured := map[string]bool{}
	for _, r := range records {
		if r, _ = r.asOf(i.AsOf); r.Status == StatusCaptured {
			captured[r.Reference] = true
		}
	}
	var lines []settlement.Line
	for _, r := range records {
		r, at := r.asOf(i.AsOf)
		if at.Before(i.From) || !at.Before(i.To) || r.Status == StatusLost && captured[r.Reference] {
			continue
		}
		if line, settles := r.line(at); settles {
			lines = append(lines, line)
		}
	}
	slices.SortStableFunc(lines, func(a, b settlement.Line) int {
		if c := a.OccurredAt.Compare(b.OccurredAt); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return lines
}

// line is the settlement line of a record, if it has one.
func (r Record) line(at time.Time) (settlement.Line, bool) {
	line := settlement.Line{
		ID: "line_" + r.ID, Kind: settlement.Capture, Reference: r.Reference, CaptureID: r.ID, OccurredAt: at.UTC(),
	}
	if r.Status == StatusLost || r.Status == StatusCaptured && r.Settles == settlesFailed {
		if r.Status == StatusLost {
			line.CaptureID = "" // there never was one
		}
		nothing := money.Zero(r.Currency)
		line.Kind, line.Gross, line.Fee, line.Net = settlement.CaptureFailed, nothing, nothing, nothing
		return line, true
	}
	if r.Status != StatusCaptured || r.Settles == settlesNever {
		return line, false
	}
	gross := r.Amount
	if r.Settles == settlesShort {
		gross = gross.Sub(decimal.New(1, -int32(r.Currency.Exponent())))
	}
	fee := decimal.Min(r.Fee, gross)
	line.Gross, line.Fee, line.Net = r.money(gross), r.money(fee), r.money(gross.Sub(fee))
	line.Payout = "po" + at.UTC().Format("_20060102")
	return line, line.Gross.IsPositive()
}

// money is a sum in the record's currency. Amount and Fee have no more decimals than it.
func (r Record) money(d decimal.Decimal) money.Amount {
	a, err := money.New(d, r.Currency)
	if err != nil {
		return money.Zero(r.Currency)
	}
	return a
}

// fee is the fee of a capture: basis points of it, rounded half up to the currency's decimals,
// and a fixed part; never more than the capture.
func (c Config) fee(of decimal.Decimal, currency money.Currency) decimal.Decimal {
	decimals := int32(currency.Exponent())
	share := of.Mul(decimal.New(int64(c.FeeBasisPoints), -4)).Round(decimals)
	return decimal.Min(of, share.Add(decimal.New(int64(c.FeeFixedMinor), -decimals)))
}

func sameLines(a, b []settlement.Line) bool {
	return slices.EqualFunc(a, b, func(x, y settlement.Line) bool {
		return x.ID == y.ID && x.Kind == y.Kind && x.OccurredAt.Equal(y.OccurredAt) && x.Gross.Equal(y.Gross) && x.Fee.Equal(y.Fee)
	})
}

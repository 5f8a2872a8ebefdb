package feedtest

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"paymentsd/money"
	"paymentsd/settlement"
)

var paypalCodes = map[settlement.Kind]string{
	settlement.Capture: "T0006", settlement.Refund: "T1107", settlement.Chargeback: "T1106", settlement.ChargebackReversal: "T1202",
	settlement.Fee: "T0106", settlement.Conversion: "T0200", settlement.Payout: "T0400", settlement.BalanceTransfer: "T0300",
	settlement.Reserve: "T1110", settlement.Adjustment: "T1900",
}

var paypalColumns = columnsOf{
	"Transaction ID", "Invoice ID", "PayPal Reference ID", "PayPal Reference ID Type", "Transaction Event Code", "Transaction Initiation Date",
	"Transaction Completion Date", "Transaction Debit or Credit", "Gross Transaction Amount", "Gross Transaction Currency",
	"Fee Debit or Credit", "Fee Amount", "Fee Currency", "Custom Field", "Consumer ID", "Payment Tracking ID", "Store ID",
}

const paypalTime = "2006/01/02 15:04:05 -0700"

func paypalSays(l settlement.Line) bool {
	const decimals = 2
	_, ok := paypalCodes[l.Kind]
	return ok && l.Settled == nil && (l.Kind != settlement.Fee || loneFee(l)) && l.Gross.Currency().Exponent() <= decimals &&
		aboutCharge(l.Kind) == (l.CaptureID != "")
}

// paypalSums are what a footer declares: gross in, gross out, fees in, fees out.
type paypalSums [4]int64

// writePayPal writes the report of the header's period, which must be of whole seconds to come back as it was.
func writePayPal(f *File, h settlement.Header, lines []settlement.Line) error {
	from, last := seconds(h.From), seconds(h.To.Add(-time.Second))
	if h.From.IsZero() || last.Before(from) {
		return fmt.Errorf("a report has a period, not %s to %s", h.From, h.To)
	}
	f.Header = settlement.Header{Account: h.Account, From: from, To: last.Add(time.Second)}
	if from.Equal(from.Truncate(24*time.Hour)) && f.Header.To.Equal(from.AddDate(0, 0, 1)) {
		f.Header.StartsAnywhere = true
		f.Header.Sequence = 1 + int(from.Sub(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC))/(24*time.Hour))
	}
	f.book = book{delimiter: ",", head: 3, from: 1, trailer: 1}
	f.book.add("RH", f.Header.To.Format(paypalTime), "A", h.Account, "009")
	f.book.add("FH", "01")
	f.book.add("SH", from.Format(paypalTime), last.Format(paypalTime), h.Account, "")
	f.book.add(append([]string{"CH"}, paypalColumns...)...)
	sums := map[money.Currency]*paypalSums{}
	var order []money.Currency
	for _, l := range lines {
		c := l.Gross.Currency()
		if sums[c] == nil {
			order, sums[c] = append(order, c), &paypalSums{}
		}
		if err := f.addPayPal(l, sums[c]); err != nil {
			return err
		}
	}
	slices.Sort(order)
	count := strconv.Itoa(len(lines))
	for _, tags := range [][2]string{{"SF", "SC"}, {"RF", "RC"}} {
		for _, c := range order {
			f.book.add(footer(tags[0], c, *sums[c])...)
		}
		f.book.add(tags[1], count)
	}
	f.book.add("FF", count)
	return nil
}

func footer(tag string, c money.Currency, s paypalSums) []string {
	text := func(n int64) string { return strconv.FormatInt(n, 10) }
	balance := text(s[0] - s[1] + s[2] - s[3])
	return []string{tag, string(c), text(s[0]), text(s[1]), text(s[2]), text(s[3]), "CR", "0", "CR", balance, "CR", "0", "CR", balance, "CR", "0", "CR", "0", "1"}
}

func (f *File) addPayPal(l settlement.Line, sums *paypalSums) error {
	l.OccurredAt = seconds(l.OccurredAt)
	date := l.OccurredAt.Format(paypalTime)
	row := map[string]string{
		"Transaction ID": l.ID, "Invoice ID": l.Reference, "Transaction Event Code": paypalCodes[l.Kind], "Transaction Initiation Date": date,
		"Transaction Completion Date": date, "Gross Transaction Currency": string(l.Gross.Currency()), "Consumer ID": "YM2C",
	}
	switch {
	case l.Kind == settlement.Capture:
		row["Transaction ID"] = l.CaptureID // PayPal has one id for both
	case aboutCharge(l.Kind):
		row["PayPal Reference ID"], row["PayPal Reference ID Type"] = l.CaptureID, "TXN"
	default:
		l.CaptureID = l.ID
	}
	gross, fee := l.Gross, l.Fee
	if loneFee(l) {
		gross, fee = fee.Neg(), money.Zero(fee.Currency())
	}
	var err error
	put := func(side, column string, a money.Amount, in, out *int64) {
		const decimals = 2
		units, problem := a.Minor(decimals)
		if problem != nil {
			err = problem
		}
		row[side], row[column] = "CR", strconv.FormatInt(max(units, -units), 10)
		if units < 0 {
			row[side] = "DR"
			*out -= units
		} else {
			*in += units
		}
	}
	put("Transaction Debit or Credit", "Gross Transaction Amount", gross, &sums[0], &sums[1])
	if fee.Sign() != 0 {
		put("Fee Debit or Credit", "Fee Amount", fee.Neg(), &sums[2], &sums[3])
		row["Fee Currency"] = string(fee.Currency())
	}
	l.SourceKind, l.Payout = paypalCodes[l.Kind], ""
	l.ID = row["Transaction ID"] + "/" + l.SourceKind + "/" + string(l.Gross.Currency())
	f.addLine(l, append([]string{"SB"}, paypalColumns.row(row)...)...)
	return err
}

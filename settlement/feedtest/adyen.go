package feedtest

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"paymentsd/money"
	"paymentsd/settlement"
)

var adyenTypes = map[settlement.Kind]string{
	settlement.Capture: "Settled", settlement.Refund: "Refunded", settlement.RefundReversal: "RefundedReversed",
	settlement.Chargeback: "Chargeback", settlement.ChargebackReversal: "ChargebackReversed", settlement.Fee: "MiscCosts",
	settlement.Payout: "MerchantPayout", settlement.BalanceTransfer: "Balancetransfer", settlement.Reserve: "ReserveAdjustment",
	settlement.Adjustment: "DepositCorrection",
}

var adyenColumns = columnsOf{
	"Company Account", "Merchant Account", "Psp Reference", "Merchant Reference", "Payment Method", "Creation Date", "TimeZone", "Type",
	"Modification Reference", "Gross Currency", "Gross Debit (GC)", "Gross Credit (GC)", "Exchange Rate", "Net Currency", "Net Debit (NC)",
	"Net Credit (NC)", "Commission (NC)", "Markup (NC)", "Scheme Fees (NC)", "Interchange (NC)", "Payment Method Variant",
	"Modification Merchant Reference", "Batch Number", "Reserved4", "Booking Date", "Booking Date TimeZone",
}

// aboutCharge are the kinds that name a payment.
func aboutCharge(k settlement.Kind) bool {
	switch k {
	case settlement.Capture, settlement.PartialCaptureReversal, settlement.Refund, settlement.RefundReversal, settlement.Chargeback,
		settlement.ChargebackReversal, settlement.CaptureFailed:
		return true
	}
	return false
}

func adyenSays(l settlement.Line) bool {
	_, ok := adyenTypes[l.Kind]
	return ok && aboutCharge(l.Kind) == (l.CaptureID != "") && (aboutCharge(l.Kind) || l.Reference == "") &&
		(l.Kind != settlement.Fee || loneFee(l)) && (aboutCharge(l.Kind) || l.Settled == nil) &&
		(aboutCharge(l.Kind) || l.Kind == settlement.Fee || l.Fee.Sign() == 0)
}

// adyenClock is the zone in which the report is made.
var adyenClock = time.FixedZone("CET", 3600)

// writeAdyen ends the batch with a payout in each currency of what is in it: such a report comes to nothing.
func writeAdyen(f *File, h settlement.Header, lines []settlement.Line) error {
	if h.Sequence < 1 {
		return fmt.Errorf("a batch has a number, not %d", h.Sequence)
	}
	f.Header = settlement.Header{Account: h.Account, Sequence: h.Sequence, StartsAnywhere: true}
	if len(lines) == 0 {
		f.Header = settlement.Header{} // the number is in the rows
	}
	f.book = book{delimiter: ","}
	f.book.add(adyenColumns...)
	var order []money.Currency
	left := map[money.Currency]money.Amount{}
	last := h.To
	for _, l := range lines {
		_, _, net := settled(l)
		c := net.Currency()
		if _, ok := left[c]; !ok {
			order, left[c] = append(order, c), money.Zero(c)
		}
		left[c], _ = left[c].Add(net) // of one currency
		if last.IsZero() || l.OccurredAt.After(last) {
			last = l.OccurredAt
		}
		f.addAdyen(h, l)
	}
	for _, c := range order {
		if left[c].Sign() == 0 {
			continue
		}
		out := settlement.Line{
			ID: fmt.Sprintf("TX%d%s batch %d, %s", h.Sequence, c, h.Sequence, h.Account), Kind: settlement.Payout,
			Gross: left[c].Neg(), Fee: money.Zero(c), Net: left[c].Neg(), OccurredAt: last,
		}
		f.addAdyen(h, out)
		f.book.trailer++
	}
	return nil
}

func (f *File) addAdyen(h settlement.Header, l settlement.Line) {
	gross, fee, net := settled(l)
	kind := adyenTypes[l.Kind]
	l.OccurredAt = seconds(l.OccurredAt)
	date := l.OccurredAt.In(adyenClock).Format("2006-01-02 15:04:05")
	batch := strconv.Itoa(h.Sequence)
	row := map[string]string{
		"Company Account": "Shops", "Merchant Account": h.Account, "Psp Reference": l.CaptureID, "Merchant Reference": l.Reference,
		"Creation Date": date, "TimeZone": adyenClock.String(), "Type": kind, "Modification Reference": l.ID,
		"Net Currency": string(net.Currency()), "Batch Number": batch, "Booking Date": date, "Booking Date TimeZone": adyenClock.String(),
	}
	sides(row, "Net Debit (NC)", "Net Credit (NC)", net)
	if aboutCharge(l.Kind) {
		row["Payment Method"], row["Modification Merchant Reference"] = "visa", "<auto>"
		row["Gross Currency"], row["Exchange Rate"] = string(l.Gross.Currency()), "1"
		sides(row, "Gross Debit (GC)", "Gross Credit (GC)", l.Gross)
		if l.Settled != nil {
			const digits = 15
			l.Settled = &settlement.Settled{Fee: fee, Net: net, Rate: gross.Decimal().DivRound(l.Gross.Decimal(), digits).String()}
			row["Exchange Rate"] = l.Settled.Rate
		}
		if fee.Sign() != 0 {
			row["Commission (NC)"] = short(fee)
		}
		l.ID = strings.Join([]string{batch, strings.ToLower(kind), l.CaptureID, l.ID}, "/")
	} else {
		l.ID = strings.Join([]string{batch, strings.ToLower(kind), l.ID, net.String(), string(net.Currency()), date}, "/")
	}
	l.SourceKind, l.Payout = kind, batch
	f.addLine(l, adyenColumns.row(row)...)
}

func sides(row map[string]string, debit, credit string, a money.Amount) {
	if a.Sign() < 0 {
		row[debit] = short(a.Neg())
	} else {
		row[credit] = short(a)
	}
}

package feedtest

import (
	"strings"

	"paymentsd/settlement"
)

var checkoutTypes = map[settlement.Kind]string{
	settlement.Capture: "Charge", settlement.Refund: "Refund", settlement.Chargeback: "Chargeback",
	settlement.ChargebackReversal: "Chargeback Reversal", settlement.Fee: "Account Updater",
}

var checkoutColumns = columnsOf{
	"Client Entity ID", "Client Entity Name", "Type", "Payment ID", "Reference", "Processed On", "Available On", "Holding Currency",
	"Payout ID", "Gross In Holding Currency", "Deduction In Holding Currency", "Net In Holding Currency", "Processing Currency",
	"Gross In Processing Currency", "FX Rate Applied", "Payment Method",
}

func checkoutSays(l settlement.Line) bool {
	_, ok := checkoutTypes[l.Kind]
	return ok && (l.Kind != settlement.Fee || loneFee(l))
}

func writeCheckout(f *File, h settlement.Header, lines []settlement.Line) error {
	f.book = book{delimiter: ","}
	f.book.add(checkoutColumns...)
	if len(lines) > 0 {
		f.Header.Account = h.Account // it is in the rows
	}
	for _, l := range lines {
		l.OccurredAt = seconds(l.OccurredAt)
		gross, fee, net := settled(l)
		date := l.OccurredAt.Format("2006-01-02T15:04:05.000")
		row := map[string]string{
			"Client Entity ID": h.Account, "Client Entity Name": "Shop", "Type": checkoutTypes[l.Kind], "Payment ID": l.CaptureID,
			"Reference": l.Reference, "Processed On": date, "Available On": date, "Holding Currency": string(net.Currency()), "Payout ID": l.Payout,
			"Gross In Holding Currency": short(gross), "Deduction In Holding Currency": short(fee.Neg()), "Net In Holding Currency": short(net),
			"Processing Currency": string(l.Gross.Currency()), "Gross In Processing Currency": short(l.Gross), "FX Rate Applied": "1",
		}
		if l.Settled != nil {
			const digits = 15
			l.Settled = &settlement.Settled{Fee: fee, Net: net, Rate: gross.Decimal().DivRound(l.Gross.Decimal(), digits).String()}
			row["FX Rate Applied"] = l.Settled.Rate
		}
		l.SourceKind = row["Type"]
		l.ID = strings.Join([]string{l.CaptureID, row["Type"], date, net.Decimal().String(), l.Payout}, "/")
		f.addLine(l, checkoutColumns.row(row)...)
	}
	return nil
}

var mollieColumns = columnsOf{
	"Date", "Payment method", "Currency", "Amount", "Status", "ID", "Description", "Consumer name", "Consumer bank account", "Consumer BIC",
	"Settlement currency", "Settlement amount", "Settlement reference", "Amount refunded",
}

// mollieSays: fees are not in the rows of payments, but withheld in rows of their own.
func mollieSays(l settlement.Line) bool {
	switch l.Kind {
	case settlement.Capture, settlement.Refund, settlement.Chargeback:
		return l.Fee.Sign() == 0 && (l.Settled == nil || l.Settled.Fee.Sign() == 0 && l.Settled.Rate == "")
	}
	return loneFee(l) && l.CaptureID == "" && l.Reference == ""
}

func writeMollie(f *File, _ settlement.Header, lines []settlement.Line) error {
	prefixes := map[settlement.Kind]string{settlement.Capture: "tr_", settlement.Refund: "re_", settlement.Chargeback: "chb_"}
	f.book = book{delimiter: ","}
	f.book.add(mollieColumns...)
	for _, l := range lines {
		_, _, net := settled(l)
		local, err := inZone(seconds(l.OccurredAt), "Europe/Amsterdam")
		if err != nil {
			return err
		}
		row := map[string]string{
			"Date": local.Format("2006-01-02 15:04:05"), "Currency": string(l.Gross.Currency()), "Amount": l.Gross.String(), "Status": "paidout",
			"Settlement currency": string(net.Currency()), "Settlement amount": net.String(), "Settlement reference": l.Payout,
		}
		if loneFee(l) {
			row["Amount"], row["Description"] = net.String(), "Withheld transaction fees "+l.ID
			l.Reference, l.SourceKind = row["Description"], row["Description"]+"/"
		} else {
			row["ID"], row["Description"] = prefixes[l.Kind]+l.CaptureID, l.Reference
			l.CaptureID, l.SourceKind = row["ID"], row["Description"]+"/"+row["ID"]
		}
		l.OccurredAt = seconds(l.OccurredAt)
		l.ID = strings.Join([]string{row["ID"], row["Description"], l.Payout}, "/")
		f.addLine(l, mollieColumns.row(row)...)
	}
	return nil
}

var worldpayStatuses = map[settlement.Kind]string{
	settlement.Capture: "CAPTURED", settlement.Refund: "REFUNDED", settlement.Chargeback: "CHARGED_BACK", settlement.ChargebackReversal: "CHARGEBACK_REVERSED",
}

var worldpayColumns = columnsOf{"OrderCode", "Date", "PaymentMethod", "Status", "CurrencyCode", "Amount", "Commission", "BatchId"}

func worldpaySays(l settlement.Line) bool {
	_, ok := worldpayStatuses[l.Kind]
	return ok && l.Settled == nil && l.Reference != ""
}

func writeWorldpay(f *File, _ settlement.Header, lines []settlement.Line) error {
	f.book = book{delimiter: "\t"}
	f.book.add(worldpayColumns...)
	for _, l := range lines {
		l.OccurredAt = seconds(l.OccurredAt)
		local, err := inZone(l.OccurredAt, "Europe/London")
		if err != nil {
			return err
		}
		l.SourceKind, l.CaptureID = worldpayStatuses[l.Kind], ""
		row := map[string]string{
			"OrderCode": l.Reference, "Date": local.Format("2006-01-02 15:04:05"), "PaymentMethod": "VISA-SSL", "Status": l.SourceKind,
			"CurrencyCode": string(l.Gross.Currency()), "Amount": l.Gross.String(), "Commission": l.Fee.String(), "BatchId": l.Payout,
		}
		l.ID = strings.Join([]string{l.Reference, l.SourceKind, row["Date"], l.Gross.Decimal().String(), l.Payout}, "/")
		f.addLine(l, worldpayColumns.row(row)...)
	}
	return nil
}

package feedtest

import (
	"strings"

	"paymentsd/settlement"
)

var stripeCategories = map[settlement.Kind]string{
	settlement.Capture: "charge", settlement.PartialCaptureReversal: "partial_capture_reversal", settlement.Refund: "refund",
	settlement.RefundReversal: "refund_failure", settlement.Chargeback: "dispute", settlement.ChargebackReversal: "dispute_reversal",
	settlement.Fee: "fee", settlement.Payout: "payout", settlement.Adjustment: "other_adjustment", settlement.Reserve: "risk_reserved_funds",
	settlement.BalanceTransfer: "transfer",
}

var stripeColumns = columnsOf{
	"balance_transaction_id", "payment_metadata[acq_ref]", "source_id", "payment_intent_id", "charge_id", "created_utc",
	"available_on_utc", "currency", "gross", "fee", "net", "reporting_category", "customer_facing_amount",
	"customer_facing_currency", "description", "automatic_payout_id",
}

func stripeSays(l settlement.Line) bool {
	_, ok := stripeCategories[l.Kind]
	return ok && (l.Kind != settlement.Fee || loneFee(l)) && (l.Settled == nil || l.Settled.Rate == "")
}

func writeStripe(f *File, _ settlement.Header, lines []settlement.Line) error {
	f.book = book{delimiter: ","}
	f.book.add(stripeColumns...)
	for i, l := range lines {
		l.SourceKind, l.OccurredAt = stripeCategories[l.Kind], seconds(l.OccurredAt)
		gross, fee, net := settled(l)
		row := map[string]string{
			"balance_transaction_id": l.ID, "payment_metadata[acq_ref]": l.Reference, "source_id": l.CaptureID, "charge_id": l.CaptureID,
			"created_utc": l.OccurredAt.Format("2006-01-02 15:04:05"), "available_on_utc": l.OccurredAt.Format("2006-01-02 15:04:05"),
			"currency": string(net.Currency()), "gross": gross.String(), "fee": fee.String(), "net": net.String(),
			"reporting_category": l.SourceKind, "customer_facing_amount": l.Gross.String(), "customer_facing_currency": string(l.Gross.Currency()),
			"description": `Order "` + l.Reference + `", ` + string(l.Kind), "automatic_payout_id": l.Payout,
		}
		if loneFee(l) {
			row["gross"], row["fee"] = neg(fee), "0"
			row["customer_facing_amount"], row["customer_facing_currency"] = "", ""
		}
		if i%2 == 0 { // real reports have both
			row["currency"] = strings.ToLower(row["currency"])
		}
		f.addLine(l, stripeColumns.row(row)...)
	}
	return nil
}

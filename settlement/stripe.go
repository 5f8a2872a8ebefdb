package settlement

import (
	"io"
	"iter"
	"time"

	"paymentsd/money"
)

// stripe is the itemised report about balance transactions, of a payout or of an interval, as CSV:
// docs/settlement-formats.md.
type stripe struct{}

// Name is "stripe".
func (stripe) Name() string { return "stripe" }

// The columns of a Stripe report that are read; most are there only if the report asked for them.
const (
	stripeID        = "balance_transaction_id"
	stripeReference = "payment_metadata[acq_ref]"
	stripeCharge    = "charge_id"
	stripeCreated   = "created_utc"
	stripeCurrency  = "currency"
	stripeGross     = "gross"
	stripeFee       = "fee"
	stripeNet       = "net"
	stripeCategory  = "reporting_category"
	stripePayout    = "automatic_payout_id"
	stripeCharged   = "customer_facing_amount"
	stripeChargedIn = "customer_facing_currency"

	stripeTime = "2006-01-02 15:04:05"
)

// stripeKinds are the reporting categories: type is an older word for the same and is not read.
func stripeKinds() map[string]Kind {
	return map[string]Kind{
		"charge": Capture, "partial_capture_reversal": PartialCaptureReversal, "refund": Refund, "refund_failure": RefundReversal,
		"dispute": Chargeback, "dispute_reversal": ChargebackReversal, "fee": Fee, "network_cost": Fee, "tax": Fee,
		"payout": Payout, "payout_reversal": Payout, "other_adjustment": Adjustment, "risk_reserved_funds": Reserve,
		"topup": BalanceTransfer, "topup_reversal": BalanceTransfer, "transfer": BalanceTransfer, "transfer_reversal": BalanceTransfer,
	}
}

// Open reads the column names.
func (stripe) Open(in io.Reader) (Header, iter.Seq2[Line, error], error) {
	t, err := openTable(in, ',')
	if err != nil {
		return Header{}, nil, err
	}
	required := []string{stripeID, stripeReference, stripeCharge, stripeCreated, stripeCurrency, stripeGross, stripeFee, stripeNet,
		stripeCategory, stripePayout}
	if err := t.head(required, []string{stripeCharged, stripeChargedIn}); err != nil {
		return Header{}, nil, err
	}
	t.names = map[string]string{"id": stripeID, "kind": stripeCategory, "reference": stripeReference, "capture_id": stripeCharge,
		"gross": stripeGross, "fee": stripeFee, "net": stripeNet, "occurred_at": stripeCreated, "payout": stripePayout}
	kinds := stripeKinds()
	parse := func(r *row) (Line, error) { return stripeLine(r, kinds), nil }
	return Header{IgnoredColumns: t.ignored}, t.lines(nil, parse, func() error { return nil }), nil
}

func stripeLine(r *row, kinds map[string]Kind) Line {
	line := Line{
		ID: r.text(stripeID), Kind: Unknown, SourceKind: r.text(stripeCategory), Reference: r.reference(stripeReference),
		CaptureID: r.text(stripeCharge), Payout: r.text(stripePayout),
	}
	if kind, ok := kinds[line.SourceKind]; ok {
		line.Kind = kind
	}
	c := r.currency(stripeCurrency)
	gross, fee, net := r.major(stripeGross, c), r.major(stripeFee, c), r.major(stripeNet, c)
	if line.Kind == Fee && fee.Sign() == 0 {
		gross, fee = money.Zero(c), gross.Neg() // a fee on its own is given as a negative gross
	}
	r.stripeAmounts(&line, gross, fee, net)
	line.OccurredAt = r.date(stripeCreated, r.text(stripeCreated), stripeTime, time.UTC)
	return line
}

// stripeAmounts compares in the currency of the charge, where the report has it.
func (r *row) stripeAmounts(line *Line, gross, fee, net money.Amount) {
	_, aboutCharge := line.Kind.sign()
	if r.unread || !aboutCharge || r.text(stripeChargedIn) == "" {
		r.paid(line, gross, fee, net)
		return
	}
	charged := r.major(stripeCharged, r.currency(stripeChargedIn))
	if charged.Currency() == gross.Currency() {
		r.paid(line, gross, fee, net)
		return
	}
	if left, err := gross.Sub(fee); err != nil || !left.Equal(net) {
		r.spoil(stripeNet, IdentityBroken, "gross "+gross.String()+" - fee "+fee.String()+" = "+left.String())
	}
	if charged.Sign() != gross.Sign() {
		r.spoil(stripeCharged, BadAmount, "has another sign than "+stripeGross)
	}
	r.paidAs(line, charged, fee, net, "", "")
}

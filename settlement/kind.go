package settlement

// known reports whether a line may have the kind; Unknown is what a reader says, not a kind.
func (k Kind) known() bool {
	if _, ok := k.sign(); ok {
		return true
	}
	switch k {
	case Fee, Adjustment, Conversion, Reserve, BalanceTransfer, Payout:
		return true
	}
	return false
}

// sign is the sign that the gross of the kind must have, from the merchant's view, for the kinds
// that are about one charge; ok is false for the kinds that may go either way and name no charge.
func (k Kind) sign() (sign int, ok bool) {
	switch k {
	case Capture, RefundReversal, ChargebackReversal:
		return 1, true
	case PartialCaptureReversal, Refund, Chargeback:
		return -1, true
	case CaptureFailed:
		return 0, true
	}
	return 0, false
}

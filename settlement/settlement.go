// Package settlement turns an acquirer's settlement file into lines. It is pure parsing: it knows
// no database and no charge, and it never guesses.
package settlement

import (
	"fmt"
	"io"
	"iter"
	"time"

	"paymentsd/money"
)

// Kind is what a settlement line says happened. A source kind that is not listed for its format
// becomes Unknown and is an exception for a person, never "other".
type Kind string

// The kinds of lines, from the merchant's view.
const (
	Capture                Kind = "capture"
	PartialCaptureReversal Kind = "partial_capture_reversal"
	Refund                 Kind = "refund"
	RefundReversal         Kind = "refund_reversal"
	Chargeback             Kind = "chargeback"
	ChargebackReversal     Kind = "chargeback_reversal"
	CaptureFailed          Kind = "capture_failed" // explicit negative evidence
	Fee                    Kind = "fee"
	Adjustment             Kind = "adjustment"
	Conversion             Kind = "conversion"
	Reserve                Kind = "reserve"
	BalanceTransfer        Kind = "balance_transfer"
	Payout                 Kind = "payout"
	Unknown                Kind = "unknown"
)

// Line is one line of a settlement file, amounts signed from the merchant's view: a capture is
// positive, a refund negative, Fee is what the acquirer keeps (positive when kept), and
// Gross - Fee = Net.
type Line struct {
	Number     int    // 1-based line number in the file as received
	ID         string // the format's natural key of the line, e.g. the acquirer's line id
	Kind       Kind
	SourceKind string // the kind as the file spells it
	Reference  string // our reference exactly as received; empty when the line has none
	CaptureID  string // the acquirer's id of the capture this line is about
	Gross      money.Amount
	Fee        money.Amount
	Net        money.Amount
	OccurredAt time.Time // UTC
	Payout     string    // the acquirer's payout or batch id, if any

	// Settled is set when the line was paid in another currency than it was charged in. Gross is
	// what was charged then, Fee is zero and Net is Gross: what was kept, was kept of Settled.
	Settled *Settled
}

// Settled is what was paid for a line in another currency than its own: Net for the merchant and
// Fee, in one currency, signed as in Line. Net + Fee is the line's Gross at the acquirer's rate.
type Settled struct {
	Fee, Net money.Amount
	Rate     string // as the file has it; empty if it does not
}

// Header says which report a file is. What a format does not carry is left zero, and nothing takes its
// place: a file that does not say which period it covers is no proof of what is not in it.
type Header struct {
	Acquirer string
	Account  string
	From, To time.Time // the period covered, UTC, half-open [From, To)
	Sequence int       // consecutive per (acquirer, account), from 1; a gap is a missing file
	Replaces int       // the sequence that this file re-issues, 0 for none

	// StartsAnywhere says that the first report that we get may have any Sequence, as with an
	// acquirer's own batch numbers: only what is missing between two is a gap.
	StartsAnywhere bool

	// IgnoredColumns are the columns of a read file that the format does not use, in file order.
	IgnoredColumns []string
}

// BusinessID is what the acquirer calls this report: the same id with other bytes is a re-issue.
func (h Header) BusinessID() string {
	return fmt.Sprintf("%s/%s/%d", h.Acquirer, h.Account, h.Sequence)
}

// Format reads one layout of settlement file.
type Format interface {
	// Name is how configuration names the format.
	Name() string
	// Open reads the head of the file and returns its header and its lines, streaming, in
	// constant memory. The sequence yields either a line or an error; after a *LineError it goes
	// on, after any other error (*ParseError, *ControlError, or what r returned) it ends. A file
	// is good only if the sequence ended without one of the others: the trailer's controls are
	// checked at the end. Beside a *LineError stands what could be read of the line, to show and
	// never to use. The sequence can be ranged over once.
	Open(r io.Reader) (Header, iter.Seq2[Line, error], error)
}

// Formats is THE list of formats, one line each.
func Formats() []Format {
	formats := []Format{
		canonical{},
		stripe{},
		adyen{},
		paypal{},
	}
	return append(formats, shippedProfiles()...)
}

// FormatNamed finds a format by its name.
func FormatNamed(name string) (Format, error) {
	names := make([]string, 0, len(Formats()))
	for _, f := range Formats() {
		if f.Name() == name {
			return f, nil
		}
		names = append(names, f.Name())
	}
	return nil, fmt.Errorf("settlement format %q is not known; use one of %v", name, names)
}

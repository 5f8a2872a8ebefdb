package settlement

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/shopspring/decimal"

	"paymentsd/money"
)

// adyen is the Settlement details report of one batch, as CSV: docs/settlement-formats.md.
type adyen struct{}

// Name is "adyen".
func (adyen) Name() string { return "adyen" }

// The columns of an Adyen report that are read. GC is the currency of the payment, NC that of the payout.
const (
	adyenAccount      = "Merchant Account"
	adyenPayment      = "Psp Reference"
	adyenReference    = "Merchant Reference"
	adyenDate         = "Creation Date"
	adyenZone         = "TimeZone"
	adyenType         = "Type"
	adyenModification = "Modification Reference"
	adyenGrossIn      = "Gross Currency"
	adyenGrossDebit   = "Gross Debit (GC)"
	adyenGrossCredit  = "Gross Credit (GC)"
	adyenRate         = "Exchange Rate"
	adyenNetIn        = "Net Currency"
	adyenNetDebit     = "Net Debit (NC)"
	adyenNetCredit    = "Net Credit (NC)"
	adyenBatch        = "Batch Number"
	adyenCallersOwn   = "Modification Merchant Reference"

	adyenTime = "2006-01-02 15:04:05"
	adyenAuto = "<auto>" // in place of a reference, where Adyen captured by itself
)

// adyenFees are the columns that together are what Adyen and others keep. They may be negative.
func adyenFees() []string {
	return []string{"Commission (NC)", "Markup (NC)", "Scheme Fees (NC)", "Interchange (NC)"}
}

// adyenKinds are the types of rows in lower case: the case varies from file to file.
func adyenKinds() map[string]Kind {
	return map[string]Kind{
		"settled": Capture, "refunded": Refund, "refundedreversed": RefundReversal, "chargeback": Chargeback,
		"secondchargeback": Chargeback, "chargebackreversed": ChargebackReversal, "fee": Fee, "misccosts": Fee, "invoicededuction": Fee,
		"paymentcost": Fee, "depositcorrection": Adjustment, "balancetransfer": BalanceTransfer, "merchantpayout": Payout,
		"reserveadjustment": Reserve,
	}
}

// adyenZones are the abbreviations that mean one offset wherever Adyen writes them. Others, such as IST,
// mean several, and a row that has one is not read.
func adyenZones() map[string]*time.Location {
	const hour = 3600
	zones := map[string]*time.Location{}
	for name, hours := range map[string]int{
		"UTC": 0, "GMT": 0, "WET": 0, "BST": 1, "CET": 1, "CEST": 2, "EET": 2, "EEST": 3, "PST": -8, "PDT": -7, "MST": -7, "MDT": -6,
		"EST": -5, "EDT": -4, "BRT": -3, "SGT": 8, "HKT": 8, "JST": 9, "AEST": 10, "AEDT": 11, "NZST": 12, "NZDT": 13,
	} {
		zones[name] = time.FixedZone(name, hours*hour)
	}
	return zones
}

// adyenBatchFile is a report being read.
type adyenBatchFile struct {
	table   *table
	kinds   map[string]Kind
	zones   map[string]*time.Location
	account string // of the first row, and so of all
	batch   string
	net     map[money.Currency]decimal.Decimal // must come to nothing in each currency
}

// Open reads the column names and looks at the first row: the batch number is in every row, and nowhere else.
func (adyen) Open(in io.Reader) (Header, iter.Seq2[Line, error], error) {
	t, err := openTable(in, ',')
	if err != nil {
		return Header{}, nil, err
	}
	required := append([]string{adyenAccount, adyenPayment, adyenReference, adyenDate, adyenZone, adyenType, adyenModification,
		adyenGrossIn, adyenGrossDebit, adyenGrossCredit, adyenRate, adyenNetIn, adyenNetDebit, adyenNetCredit, adyenBatch}, adyenFees()...)
	if err := t.head(required, []string{adyenCallersOwn}); err != nil {
		return Header{}, nil, err
	}
	t.controlled = true
	t.names = map[string]string{"id": adyenModification, "kind": adyenType, "reference": adyenReference, "capture_id": adyenPayment,
		"gross": adyenGrossCredit, "net": adyenNetCredit, "occurred_at": adyenDate, "payout": adyenBatch}
	b := &adyenBatchFile{table: t, kinds: adyenKinds(), zones: adyenZones(), net: map[money.Currency]decimal.Decimal{}}
	first, err := t.row()
	if errors.Is(err, io.EOF) {
		// A batch that nothing is in: no row says which.
		return Header{IgnoredColumns: t.ignored}, func(func(Line, error) bool) {}, nil
	}
	if err != nil {
		return Header{}, nil, err
	}
	b.account, b.batch = first.text(adyenAccount), first.text(adyenBatch)
	sequence, err := parseCount(b.batch)
	if err != nil || sequence < 1 {
		return Header{}, nil, &ParseError{Line: first.line, Field: adyenBatch, Class: WrongLayout, Reason: fmt.Sprintf("%q is not a batch number", clip(b.batch))}
	}
	if b.account == "" || strings.TrimSpace(b.account) != b.account || plainText(b.account) != nil {
		return Header{}, nil, &ParseError{Line: first.line, Field: adyenAccount, Class: WrongLayout, Reason: fmt.Sprintf("%q names no account", clip(b.account))}
	}
	h := Header{Account: b.account, Sequence: sequence, StartsAnywhere: true, IgnoredColumns: t.ignored}
	return h, t.lines(first, b.line, b.end), nil
}

// line reads a row. An error is about the file: a row of another batch, or one that cannot be added up.
func (b *adyenBatchFile) line(r *row) (Line, error) {
	for column, want := range map[string]string{adyenBatch: b.batch, adyenAccount: b.account} {
		if got := r.text(column); got != want {
			return Line{}, &ParseError{Line: r.line, Field: column, Class: WrongLayout,
				Reason: fmt.Sprintf("%q, but the file began with %q: have one report made for each batch and account", clip(got), clip(want))}
		}
	}
	line := Line{Kind: Unknown, SourceKind: r.text(adyenType), Reference: adyenReferenceOf(r), CaptureID: r.text(adyenPayment), Payout: b.batch}
	if kind, ok := b.kinds[strings.ToLower(line.SourceKind)]; ok {
		line.Kind = kind
	}
	net := b.amounts(r, &line)
	if !r.unread {
		b.net[net.Currency()] = b.net[net.Currency()].Add(net.Decimal())
	}
	kind := strings.ToLower(line.SourceKind)
	if line.CaptureID != "" {
		line.ID = naturalKey(b.batch, kind, line.CaptureID, r.text(adyenModification))
	} else { // a row of no payment has no id: what it says tells it from others
		line.ID = naturalKey(b.batch, kind, r.text(adyenModification), net.String(), string(net.Currency()), r.text(adyenDate))
	}
	if zone, ok := b.zones[r.text(adyenZone)]; ok {
		line.OccurredAt = r.date(adyenDate, r.text(adyenDate), adyenTime, zone)
	} else {
		r.spoil(adyenZone, BadDate, "not an abbreviation that means one offset everywhere")
	}
	return line, nil
}

// adyenReferenceOf is our reference: that of the payment, else that of the call about it.
func adyenReferenceOf(r *row) string {
	if ref := r.reference(adyenReference); ref != "" {
		return ref
	}
	if ref := r.reference(adyenCallersOwn); r.text(adyenPayment) != "" && ref != adyenAuto {
		return ref
	}
	return ""
}

// amounts reads the money of a row, and gives the net, which is what the batch adds up.
func (b *adyenBatchFile) amounts(r *row, line *Line) money.Amount {
	nc := r.currency(adyenNetIn)
	net, fee := r.sided(adyenNetDebit, adyenNetCredit, nc), money.Zero(nc)
	for _, column := range adyenFees() {
		if text := r.text(column); text != "" {
			fee, _ = fee.Add(r.major(column, nc)) // of one currency: it was read in it
		}
	}
	switch {
	case r.unread:
	case r.text(adyenGrossDebit) == "" && r.text(adyenGrossCredit) == "":
		r.withoutGross(line, fee, net)
	default:
		gc := r.currency(adyenGrossIn)
		gross := r.sided(adyenGrossDebit, adyenGrossCredit, gc)
		if gc == nc {
			r.paid(line, gross, fee, net)
			return net
		}
		if r.text(adyenRate) == "" {
			r.spoil(adyenRate, BadAmount, "missing, though the payment and the payout are in two currencies")
		}
		r.paidAs(line, gross, fee, net, r.text(adyenRate), adyenRate)
	}
	return net
}

// withoutGross is about rows that only move the balance: a cost is all fee, anything else is all gross.
func (r *row) withoutGross(line *Line, fee, net money.Amount) {
	if line.Kind == Fee {
		r.paid(line, money.Zero(net.Currency()), net.Neg(), net)
		return
	}
	gross, _ := net.Add(fee) // of one currency, as above
	r.paid(line, gross, fee, net)
}

// sided reads an amount from its debit and credit columns, of which one may have something.
func (r *row) sided(debit, credit string, c money.Currency) money.Amount {
	out, in := r.unsigned(debit, c), r.unsigned(credit, c)
	if out.Sign() != 0 && in.Sign() != 0 {
		r.unreadable(debit, errors.New("there is an amount in "+credit+", too"))
	}
	if out.Sign() != 0 {
		return out.Neg()
	}
	return in
}

// end checks that the batch comes to nothing: whatever came in was paid out or carried on to the next.
func (b *adyenBatchFile) end() error {
	for _, c := range slices.Sorted(maps.Keys(b.net)) {
		if !b.net[c].IsZero() {
			return &ControlError{Control: ControlSum, Line: b.table.number, Declared: fmt.Sprintf("%s 0 net in batch %s", c, strconv.Quote(b.batch)),
				Computed: string(c) + " " + b.net[c].String(), Class: SumMismatch}
		}
	}
	return nil
}

package settlement

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"time"

	"github.com/shopspring/decimal"

	"paymentsd/money"
)

// paypal is the Settlement report (STL) of one account and period: docs/settlement-formats.md.
type paypal struct{}

// Name is "paypal".
func (paypal) Name() string { return "paypal" }

// The columns of the body that are read.
const (
	paypalID         = "Transaction ID"
	paypalInvoice    = "Invoice ID"
	paypalParent     = "PayPal Reference ID"
	paypalParentType = "PayPal Reference ID Type"
	paypalCode       = "Transaction Event Code"
	paypalDate       = "Transaction Completion Date"
	paypalSide       = "Transaction Debit or Credit"
	paypalGross      = "Gross Transaction Amount"
	paypalCurrency   = "Gross Transaction Currency"
	paypalFeeSide    = "Fee Debit or Credit"
	paypalFee        = "Fee Amount"
	paypalFeeIn      = "Fee Currency"
	paypalCustom     = "Custom Field"

	paypalTime     = "2006/01/02 15:04:05 -0700"
	paypalDecimals = 2 // implied in every currency, also in yen
	paypalCredit   = "CR"
	paypalDebit    = "DR"
)

// paypalKinds are the event codes that are understood.
func paypalKinds() map[string]Kind {
	kinds := map[string]Kind{}
	for kind, codes := range map[Kind]string{
		Capture:            "T0002 T0003 T0004 T0005 T0006 T0007 T0011 T0012 T0013",
		Refund:             "T1107",
		Chargeback:         "T1106 T1201",
		ChargebackReversal: "T1202",
		Fee:                "T0100 T0101 T0102 T0103 T0104 T0105 T0106 T0107 T1108 T1109",
		Conversion:         "T0200 T0201 T0202",
		BalanceTransfer:    "T0300",
		Payout:             "T0400 T0401 T0403",
		Reserve:            "T1105 T1110 T1111 T2101 T2102",
		Adjustment:         "T1900",
	} {
		for _, code := range strings.Fields(codes) {
			kinds[code] = kind
		}
	}
	return kinds
}

// Open reads up to the column names.
func (paypal) Open(in io.Reader) (Header, iter.Seq2[Line, error], error) {
	t, err := openTable(in, ',')
	if err != nil {
		return Header{}, nil, err
	}
	t.controlled = true
	t.names = map[string]string{"id": paypalID, "kind": paypalCode, "reference": paypalInvoice, "capture_id": paypalID,
		"currency": paypalCurrency, "gross": paypalGross, "fee": paypalFee, "net": paypalFee, "occurred_at": paypalDate}
	p := &paypalReport{table: t, kinds: paypalKinds(), sums: map[money.Currency]paypalSums{},
		sections: map[money.Currency]bool{}, reports: map[money.Currency]bool{}}
	h, err := p.head()
	if err != nil {
		return Header{}, nil, err
	}
	h.IgnoredColumns = t.ignored
	return h, p.all, nil
}

// paypalReport is a report being read.
type paypalReport struct {
	*table
	kinds    map[string]Kind
	rows     int
	sums     map[money.Currency]paypalSums
	sections map[money.Currency]bool // whose sums the section's footer has declared
	reports  map[money.Currency]bool // and the report's
	at       string                  // the kind of the last record
}

// paypalSums are what a footer declares of a currency, in hundredths.
type paypalSums struct{ grossIn, grossOut, feeIn, feeOut decimal.Decimal }

func (s paypalSums) String() string {
	return fmt.Sprintf("gross %s in, %s out, fees %s in, %s out", s.grossIn, s.grossOut, s.feeIn, s.feeOut)
}

func (s paypalSums) equal(o paypalSums) bool {
	return s.grossIn.Equal(o.grossIn) && s.grossOut.Equal(o.grossOut) && s.feeIn.Equal(o.feeIn) && s.feeOut.Equal(o.feeOut)
}

func (s paypalSums) net() decimal.Decimal {
	return s.grossIn.Sub(s.grossOut).Add(s.feeIn).Sub(s.feeOut)
}

// head reads the headers of report, file and section, the first two of which older reports lack.
func (p *paypalReport) head() (h Header, err error) {
	for {
		raw, _, err := p.record()
		if errors.Is(err, io.EOF) {
			return Header{}, p.nothing("the headers of a Settlement report")
		}
		if err != nil {
			return Header{}, err
		}
		fields, err := split(raw, p.delimiter)
		if err != nil {
			return Header{}, p.wrongLayout("", err.Error())
		}
		switch tag := fields[0]; {
		case tag == "RH" && p.at == "":
		case tag == "FH" && (p.at == "" || p.at == "RH"):
			if len(fields) > 1 && strings.Trim(fields[1], "0") != "1" {
				return Header{}, p.wrongLayout("FH", fmt.Sprintf("file %s of a report in several files: only reports in one file are read", clip(fields[1])))
			}
		case tag == "SH" && p.at != "SH":
			if h, err = p.section(fields); err != nil {
				return Header{}, err
			}
		case tag == "CH" && p.at == "SH":
			p.at = tag
			return h, p.columns(fields[1:], []string{paypalID, paypalInvoice, paypalParent, paypalParentType, paypalCode, paypalDate,
				paypalSide, paypalGross, paypalCurrency, paypalFeeSide, paypalFee, paypalFeeIn}, []string{paypalCustom})
		default:
			return Header{}, p.wrongLayout("", fmt.Sprintf("a Settlement report begins with the records RH, FH, SH and CH, not with %q%s", clip(tag), p.hint(fields)))
		}
		p.at = fields[0]
	}
}

// section reads "SH", begin, end (its last second), account. The report of one whole day has the day's
// number, counted from 2000, as its sequence: a day without one is missing.
func (p *paypalReport) section(fields []string) (Header, error) {
	const begin, end, account, width = 1, 2, 3, 4
	if len(fields) < width {
		return Header{}, p.wrongLayout("SH", fmt.Sprintf("%d fields; it has period and account", len(fields)))
	}
	from, err := time.Parse(paypalTime, fields[begin])
	if err != nil {
		return Header{}, p.wrongLayout("SH", fmt.Sprintf("%q is not a time like %s", clip(fields[begin]), paypalTime))
	}
	last, err := time.Parse(paypalTime, fields[end])
	if err != nil || last.Before(from) {
		return Header{}, p.wrongLayout("SH", fmt.Sprintf("%q is not a time like %s at which the period ends", clip(fields[end]), paypalTime))
	}
	h := Header{Account: fields[account], From: from.UTC(), To: last.Add(time.Second).UTC()}
	if y := h.From.Year(); y < firstYear || y > lastYear || h.To.Year() > lastYear {
		return Header{}, p.wrongLayout("SH", fmt.Sprintf("the year must be from %d to %d", firstYear, lastYear))
	}
	if h.Account == "" || strings.TrimSpace(h.Account) != h.Account || plainText(h.Account) != nil {
		return Header{}, p.wrongLayout("SH", fmt.Sprintf("%q names no account", clip(h.Account)))
	}
	if from.Format("150405") == "000000" && last.Format("20060102 150405") == from.Format("20060102")+" 235959" {
		const day = 24 * time.Hour
		date := time.Date(from.Year(), from.Month(), from.Day(), 0, 0, 0, 0, time.UTC)
		h.Sequence, h.StartsAnywhere = 1+int(date.Sub(time.Date(firstYear, 1, 1, 0, 0, 0, 0, time.UTC))/day), true
	}
	return h, nil
}

// all yields the body, and checks the footers as they come.
func (p *paypalReport) all(yield func(Line, error) bool) {
	for {
		raw, line, err := p.record()
		if errors.Is(err, io.EOF) {
			err = p.truncated(fmt.Sprintf("the end of the file after line %d", p.number))
		}
		done := false
		if err == nil {
			done, err = p.take(raw, line, yield)
		}
		if err != nil && !errors.Is(err, errStopped) {
			yield(Line{}, err)
		}
		if err != nil || done {
			return
		}
	}
}

// follows says after which records one may come.
func (p *paypalReport) follows(tag string) bool {
	after := map[string]string{
		"SB": "CH SB", "SF": "CH SB SF", "SC": "CH SB SF", "RF": "SC RF", "RC": "SC RF", "FF": "RC",
	}
	return strings.Contains(" "+after[tag]+" ", " "+p.at+" ")
}

// take handles one record after the column names. It is done after the file's footer.
func (p *paypalReport) take(raw string, line int, yield func(Line, error) bool) (done bool, err error) {
	fields, err := split(raw, p.delimiter)
	if err != nil {
		return false, &ParseError{Line: line, Class: WrongLayout, Reason: err.Error()}
	}
	tag := fields[0]
	if !p.follows(tag) {
		return false, &ControlError{Control: ControlOrder, Line: line, Declared: "the records CH, SB, SF, SC, RF, RC, FF in this order",
			Computed: clip(tag) + " after " + p.at, Class: WrongLayout}
	}
	p.at = tag
	switch tag {
	case "SB":
		r := &row{table: p.table, line: line, raw: raw, fields: fields[1:]}
		if len(r.fields) != p.width {
			return false, &ParseError{Line: line, Class: WrongLayout, Reason: fmt.Sprintf("%d fields, but there are %d columns", len(r.fields), p.width)}
		}
		p.rows++
		return false, p.line(r, p.body, yield)
	case "SF":
		return false, p.footer(fields, line, p.sections)
	case "RF":
		return false, p.footer(fields, line, p.reports)
	}
	if err := p.count(fields, line); err != nil {
		return false, err
	}
	switch tag {
	case "SC":
		return false, p.undeclared(p.sections, line)
	case "RC":
		return false, p.undeclared(p.reports, line)
	}
	end, err := p.atEnd()
	if err == nil && !end {
		err = &ControlError{Control: ControlAfterEnd, Line: line + 1, Declared: "the end of the file", Computed: "more data", Class: WrongLayout}
	}
	return true, err
}

// body reads a row of the section.
func (p *paypalReport) body(r *row) (Line, error) {
	line := Line{Kind: Unknown, SourceKind: r.text(paypalCode), Reference: r.reference(paypalInvoice), CaptureID: r.text(paypalID)}
	if kind, ok := p.kinds[line.SourceKind]; ok {
		line.Kind = kind
	}
	if line.Reference == "" {
		line.Reference = r.reference(paypalCustom)
	}
	if sign, ok := line.Kind.sign(); ok && line.Kind != Capture && sign != 0 && r.text(paypalParentType) == "TXN" && r.text(paypalParent) != "" {
		line.CaptureID = r.text(paypalParent)
	}
	c := r.currency(paypalCurrency)
	gross := r.hundredths(paypalGross, paypalSide, c)
	fee := money.Zero(c)
	if r.text(paypalFee) != "" && !r.unread {
		if fc := r.currency(paypalFeeIn); fc != c {
			r.unreadable(paypalFeeIn, fmt.Errorf("the fee is in another currency than the gross, %s", c))
		}
		fee = r.hundredths(paypalFee, paypalFeeSide, c).Neg()
	}
	if !r.unread {
		p.sums[c] = p.sums[c].with(gross, fee)
		net, _ := gross.Sub(fee) // of one currency: both were read in it
		if line.Kind == Fee {
			gross, fee = money.Zero(c), net.Neg() // a fee on its own is given as a gross
		}
		r.paid(&line, gross, fee, net)
	}
	line.ID = naturalKey(r.text(paypalID), line.SourceKind, string(c))
	line.OccurredAt = r.date(paypalDate, r.text(paypalDate), paypalTime, time.UTC)
	return line, nil
}

// with adds a row to the sums, which are in hundredths and have no signs.
func (s paypalSums) with(gross, fee money.Amount) paypalSums {
	positive := func(d decimal.Decimal) decimal.Decimal { return decimal.Max(d, decimal.Zero).Shift(paypalDecimals) }
	s.grossIn, s.grossOut = s.grossIn.Add(positive(gross.Decimal())), s.grossOut.Add(positive(gross.Decimal().Neg()))
	s.feeIn, s.feeOut = s.feeIn.Add(positive(fee.Decimal().Neg())), s.feeOut.Add(positive(fee.Decimal()))
	return s
}

// hundredths reads digits with the column that says which way they go.
func (r *row) hundredths(column, side string, c money.Currency) money.Amount {
	units, err := parseDigits(r.text(column))
	if err != nil {
		r.unreadable(column, err)
		return money.Zero(c)
	}
	switch r.text(side) {
	case paypalCredit:
	case paypalDebit:
		units = -units
	default:
		r.unreadable(side, errors.New("neither CR nor DR"))
	}
	a, err := money.FromMinor(units, paypalDecimals, c)
	if err != nil {
		r.unreadable(column, err)
		return money.Zero(c)
	}
	return a
}

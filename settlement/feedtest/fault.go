package feedtest

import (
	"bytes"
	"slices"
	"strings"
	"unicode/utf16"

	"paymentsd/settlement"
)

// Fault is a way in which a file comes to harm.
type Fault string

// The faults: on the way, at the acquirer, and in somebody's spreadsheet.
const (
	Truncate       Fault = "truncate"        // cut in the middle of a line
	DropTrailer    Fault = "drop_trailer"    // what proves that the file is whole is missing
	DropLine       Fault = "drop_line"       // one line is missing
	RepeatLine     Fault = "repeat_line"     // one line is there twice
	FlipSign       Fault = "flip_sign"       // a capture goes the other way
	ShiftZone      Fault = "shift_zone"      // a date is said to be of another zone, half a day earlier
	GarbleDate     Fault = "garble_date"     // day and month as in another country
	CutReference   Fault = "cut_reference"   // only the first 12 characters of our reference came back
	LowerReference Fault = "lower_reference" // our reference came back in lower case
	RenameColumn   Fault = "rename_column"   // a column that is used has another name overnight
	RepeatColumn   Fault = "repeat_column"   // a column that is used is there twice
	NewKind        Fault = "new_kind"        // a kind of line that nobody knows
	Reorder        Fault = "reorder_columns" // harmless: the columns in another order, and one more
	Scientific     Fault = "scientific"      // a spreadsheet's 4.999E+01
	Separators     Fault = "separators"      // a spreadsheet's 1,234.50
	StripZeros     Fault = "strip_zeros"     // harmless: a spreadsheet's 10 for 10.00
	Requote        Fault = "requote"         // harmless: every field in quotes
	Semicolons     Fault = "semicolons"      // a spreadsheet's CSV in another country
	ByteOrderMark  Fault = "byte_order_mark" // harmless
	CRLF           Fault = "crlf"            // harmless
	UTF16          Fault = "utf16"           // a spreadsheet's "Unicode text"
	Empty          Fault = "empty"           // zero bytes
)

// Faults are all of them.
func Faults() []Fault {
	return []Fault{Truncate, DropTrailer, DropLine, RepeatLine, FlipSign, ShiftZone, GarbleDate, CutReference, LowerReference, RenameColumn,
		RepeatColumn, NewKind, Reorder, Scientific, Separators, StripZeros, Requote, Semicolons, ByteOrderMark, CRLF, UTF16, Empty}
}

// Finding is what has to be reported of a damaged file.
type Finding struct {
	Refused bool             // nothing of the file may be used
	Class   settlement.Class // empty if the file reads as if it were sound
	Line    int              // that is named, 0 for the file as a whole
	Match   string           // the class of the exception if only a comparison with charges can find it
}

// Damaged is a file that came to harm, and what has to be said about it.
type Damaged struct {
	Bytes []byte
	Want  Finding
}

// layout is what a fault has to know about a format.
type layout struct {
	reference, gross, date, kind, used string
	amounts                            []string // all columns of money
	zone                               string   // the column with the zone, if it is not in the date
	sums                               bool     // the lines are added up in the file
	hash                               bool     // and so are the bytes
}

func layoutOf(format string) layout {
	switch format {
	case "canonical":
		return layout{reference: "reference", gross: "gross", date: "occurred_at", kind: "kind", used: "gross", amounts: []string{"gross", "fee", "net"}, sums: true, hash: true}
	case "stripe":
		return layout{reference: "payment_metadata[acq_ref]", gross: "gross", date: "created_utc", kind: "reporting_category", used: "created_utc",
			amounts: []string{"gross", "fee", "net", "customer_facing_amount"}}
	case "adyen":
		return layout{reference: "Merchant Reference", gross: "Gross Credit (GC)", date: "Creation Date", kind: "Type", used: "Interchange (NC)",
			amounts: []string{"Gross Debit (GC)", "Gross Credit (GC)", "Net Debit (NC)", "Net Credit (NC)", "Commission (NC)"}, zone: "TimeZone", sums: true}
	case "paypal":
		return layout{reference: "Invoice ID", gross: "Gross Transaction Amount", date: "Transaction Completion Date", kind: "Transaction Event Code",
			used: "Fee Amount", amounts: nil, sums: true}
	case "csv:checkout":
		return layout{reference: "Reference", gross: "Gross In Holding Currency", date: "Processed On", kind: "Type", used: "Net In Holding Currency",
			amounts: []string{"Gross In Holding Currency", "Deduction In Holding Currency", "Net In Holding Currency", "Gross In Processing Currency"}}
	case "csv:mollie":
		return layout{reference: "Description", gross: "Settlement amount", date: "Date", used: "Settlement amount", amounts: []string{"Settlement amount", "Amount"}}
	}
	return layout{reference: "OrderCode", gross: "Amount", date: "Date", kind: "Status", used: "Amount", amounts: []string{"Amount", "Commission"}}
}

// Inject harms the file in its n-th line, which should be a capture of our own; ok is false if the format
// cannot come to this harm, or cannot show it.
func (f File) Inject(fault Fault, n int) (d Damaged, ok bool) {
	b, l := f.book.clone(), layoutOf(f.Format)
	at := b.of[n]
	line := at + 1
	sealed := func(want Finding) (Damaged, bool) {
		if l.hash { // whatever it is, the bytes are not those that were written
			want = Finding{Refused: true, Class: settlement.HashMismatch, Line: len(b.records)}
		}
		return Damaged{b.render(), want}, true
	}
	switch fault {
	case Empty:
		return Damaged{nil, Finding{Refused: true, Class: settlement.EmptyOrTruncated}}, true
	case Truncate:
		return f.truncate(n), true
	case DropTrailer:
		return f.dropTrailer()
	case ByteOrderMark:
		b.mark = "\ufeff"
		return Damaged{b.render(), Finding{}}, true
	case CRLF:
		b.end = "\r\n"
		return Damaged{b.render(), Finding{}}, true
	case UTF16:
		return Damaged{wide(b.render()), Finding{Refused: true, Class: settlement.WrongLayout, Line: 1}}, true
	case Semicolons:
		b.delimiter = ";"
		if f.Format == "csv:worldpay" {
			b.delimiter = ","
		}
		return Damaged{b.render(), Finding{Refused: true, Class: settlement.WrongLayout, Line: 1}}, true
	case Requote:
		b.quote = true
		return sealed(Finding{})
	case Reorder:
		b.reorder()
		return sealed(Finding{})
	case RenameColumn:
		*b.cell(b.head, l.used) += " (new)"
		return Damaged{b.render(), Finding{Refused: true, Class: settlement.WrongLayout, Line: b.head + 1}}, true
	case RepeatColumn:
		for i := b.head; i < len(b.records); i++ {
			if i == b.head || slices.Contains(b.of, i) {
				b.records[i] = append(b.records[i], *b.cell(i, l.used))
			}
		}
		return Damaged{b.render(), Finding{Refused: true, Class: settlement.WrongLayout, Line: b.head + 1}}, true
	case DropLine, RepeatLine:
		return f.lines(fault, n)
	case FlipSign:
		return f.flip(n)
	case StripZeros:
		return f.stripZeros()
	case Scientific, Separators:
		text := map[Fault]string{Scientific: "4.999E+01", Separators: "1,234.50"}[fault]
		*b.cell(at, l.gross) = text
		return sealed(Finding{Refused: l.sums, Class: settlement.BadAmount, Line: line})
	case GarbleDate:
		*b.cell(at, l.date) = "31/12/2026"
		return sealed(Finding{Class: settlement.BadDate, Line: line})
	case NewKind:
		if l.kind == "" {
			return Damaged{}, false
		}
		*b.cell(at, l.kind) = "Surcharge"
		if f.Format == "canonical" { // it sums up by kind
			return Damaged{b.render(), Finding{Refused: true, Class: settlement.SumMismatch, Line: len(b.records)}}, true
		}
		return sealed(Finding{Class: settlement.UnknownKind, Line: line})
	case ShiftZone:
		return f.shift(n)
	case CutReference:
		const kept = 12
		*b.cell(at, l.reference) = (*b.cell(at, l.reference))[:kept]
		return sealed(Finding{Line: line, Match: "missing_with_us"})
	case LowerReference:
		*b.cell(at, l.reference) = strings.ToLower(*b.cell(at, l.reference))
		return sealed(Finding{Line: line, Match: "missing_with_us"})
	}
	return Damaged{}, false
}

func (b book) clone() book {
	records := make([][]string, len(b.records))
	for i, r := range b.records {
		records[i] = slices.Clone(r)
	}
	b.records = records
	b.of = slices.Clone(b.of)
	return b
}

// cell is the field of a record under the column.
func (b book) cell(record int, column string) *string {
	i := slices.Index(b.records[b.head], column)
	if i < 0 {
		panic("feedtest: no column " + column)
	}
	return &b.records[record][i]
}

// wide is UTF-16 as spreadsheets write it.
func wide(text []byte) []byte {
	out := bytes.NewBuffer([]byte{0xff, 0xfe})
	for _, unit := range utf16.Encode([]rune(string(text))) {
		out.Write([]byte{byte(unit), byte(unit >> 8)})
	}
	return out.Bytes()
}

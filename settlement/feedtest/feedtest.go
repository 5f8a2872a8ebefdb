// Package feedtest writes settlement files as acquirers do, in every format that settlement reads, and damages
// them as files are damaged. It shares no code with the readers that it tests but their types.
package feedtest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"paymentsd/money"
	"paymentsd/settlement"
)

// File is a settlement file as an acquirer would write it, with all that a reader has to find in it.
type File struct {
	Format string
	Header settlement.Header // as a reader has to give it; IgnoredColumns is not set
	Lines  []settlement.Line // likewise, in order

	book book
}

// Bytes is the file as it is sent.
func (f File) Bytes() []byte { return f.book.render() }

// ErrUnsayable says that a format has no way to write a line.
var ErrUnsayable = errors.New("the format cannot say this")

// format writes one layout.
type format struct {
	name  string
	write func(*File, settlement.Header, []settlement.Line) error
	says  func(settlement.Line) bool
}

func formats() []format {
	return []format{
		{"canonical", writeCanonical, func(l settlement.Line) bool { return l.Settled == nil }},
		{"stripe", writeStripe, stripeSays},
		{"adyen", writeAdyen, adyenSays},
		{"paypal", writePayPal, paypalSays},
		{"csv:checkout", writeCheckout, checkoutSays},
		{"csv:mollie", writeMollie, mollieSays},
		{"csv:worldpay", writeWorldpay, worldpaySays},
	}
}

// Formats are the names of the formats that can be written.
func Formats() (names []string) {
	for _, f := range formats() {
		names = append(names, f.name)
	}
	return names
}

// Says reports whether the format has a way to write the line: no acquirer's format says that a capture
// failed, for one.
func Says(name string, l settlement.Line) bool {
	i := slices.IndexFunc(formats(), func(f format) bool { return f.name == name })
	return i >= 0 && formats()[i].says(l)
}

// Write writes the lines in the format. What the format adds (a batch's payout) is among the lines of the file,
// and what it does not carry is not: Lines is what a reader has to give. The header's account, sequence and
// period are used as far as the format has a place for them.
func Write(name string, h settlement.Header, lines []settlement.Line) (File, error) {
	i := slices.IndexFunc(formats(), func(f format) bool { return f.name == name })
	if i < 0 {
		return File{}, fmt.Errorf("settlement format %q cannot be written; use one of %v", name, Formats())
	}
	f := File{Format: name}
	for _, l := range lines {
		if !formats()[i].says(l) {
			return File{}, fmt.Errorf("%w: %s, line %s, a %s of %s %s", ErrUnsayable, name, l.ID, l.Kind, l.Gross, l.Gross.Currency())
		}
	}
	if err := formats()[i].write(&f, h, lines); err != nil {
		return File{}, fmt.Errorf("write a settlement file as %s: %w", name, err)
	}
	return f, nil
}

// book is a file as records of fields.
type book struct {
	delimiter string
	records   [][]string
	head      int   // the record with the column names
	of        []int // the record of each line
	from      int   // the first field of a record that belongs to a column
	trailer   int   // how many records at the end prove that the file is whole

	mark, end string // before the first and after each record
	quote     bool   // every field, not only those that need it
	raw       []byte // instead of all, where the bytes matter
}

func (b book) render() []byte {
	if b.raw != nil {
		return b.raw
	}
	var out strings.Builder
	out.WriteString(b.mark)
	end := b.end
	if end == "" {
		end = "\n"
	}
	for _, record := range b.records {
		for i, field := range record {
			if i > 0 {
				out.WriteString(b.delimiter)
			}
			if b.quote || strings.ContainsAny(field, "\"\r\n"+b.delimiter) {
				field = `"` + strings.ReplaceAll(field, `"`, `""`) + `"`
			}
			out.WriteString(field)
		}
		out.WriteString(end)
	}
	return []byte(out.String())
}

// add appends a record, and gives its line number.
func (b *book) add(fields ...string) int {
	b.records = append(b.records, fields)
	return len(b.records)
}

// addLine appends a record that is a line.
func (f *File) addLine(l settlement.Line, fields ...string) {
	l.Number = f.book.add(fields...)
	f.book.of = append(f.book.of, l.Number-1)
	f.Lines = append(f.Lines, l)
}

// columnsOf makes a table of columns: a row is a map, and the empty field is what it does not name.
type columnsOf []string

func (c columnsOf) row(values map[string]string) []string {
	fields := make([]string, len(c))
	for name, value := range values {
		i := slices.Index(c, name)
		if i < 0 {
			panic("feedtest: no column " + name)
		}
		fields[i] = value
	}
	return fields
}

// settled are the amounts as they are paid out, and the rate at which, if that is another currency.
func settled(l settlement.Line) (gross, fee, net money.Amount) {
	if l.Settled == nil {
		return l.Gross, l.Fee, l.Net
	}
	gross, _ = l.Settled.Net.Add(l.Settled.Fee) // of one currency
	return gross, l.Settled.Fee, l.Settled.Net
}

// loneFee reports a fee that is about nothing else: formats that have no column for it give it as a gross.
func loneFee(l settlement.Line) bool { return l.Kind == settlement.Fee && l.Gross.Sign() == 0 }

func seconds(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }

func neg(a money.Amount) string { return a.Neg().String() }

// short takes the zeros at the end off, as some acquirers do.
func short(a money.Amount) string {
	s := a.String()
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}

// inZone shows a time as the clocks of a zone do. The zones are built into package settlement.
func inZone(t time.Time, zone string) (time.Time, error) {
	loc, err := time.LoadLocation(zone)
	if err != nil {
		return time.Time{}, err
	}
	return t.In(loc), nil
}

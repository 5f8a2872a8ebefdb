package feedtest

import (
	"bytes"
	"slices"
	"strings"

	"paymentsd/settlement"
)

// truncate cuts the file in the middle of its n-th line.
func (f File) truncate(n int) Damaged {
	whole := f.Bytes()
	begin := 0
	for range f.book.of[n] {
		begin += bytes.IndexByte(whole[begin:], '\n') + 1
	}
	length := bytes.IndexByte(whole[begin:], '\n')
	return Damaged{whole[:begin+length/2], Finding{Refused: true, Class: settlement.EmptyOrTruncated, Line: f.book.of[n] + 1}}
}

func (f File) dropTrailer() (Damaged, bool) {
	b := f.book.clone()
	if b.trailer == 0 {
		return Damaged{}, false
	}
	b.records = b.records[:len(b.records)-b.trailer]
	class := settlement.EmptyOrTruncated
	if f.Format == "adyen" {
		class = settlement.SumMismatch // the batch does not come to nothing without its payouts
	}
	return Damaged{b.render(), Finding{Refused: true, Class: class, Line: len(b.records)}}, true
}

// lines loses a line, or has it twice. What is left of a file without sums looks sound: a lost line cannot show,
// and proves nothing, because such a file does not say that it is all there is.
func (f File) lines(fault Fault, n int) (Damaged, bool) {
	b, l := f.book.clone(), layoutOf(f.Format)
	at, more := b.of[n], 1
	if fault == DropLine {
		b.records, more = slices.Delete(b.records, at, at+1), -1
	} else {
		b.records = slices.Insert(b.records, at, b.records[at])
	}
	switch {
	case f.Format == "canonical":
		return Damaged{b.render(), Finding{Refused: true, Class: settlement.CountMismatch, Line: len(b.records)}}, true
	case l.sums:
		return Damaged{b.render(), Finding{Refused: true, Class: settlement.SumMismatch, Line: f.sumLine(n) + more}}, true
	case fault == DropLine:
		return Damaged{}, false
	}
	return Damaged{b.render(), Finding{Class: settlement.DuplicateLine, Line: at + 2}}, true
}

// sumLine is the line at which it shows that the sums are not those of the lines.
func (f File) sumLine(n int) int {
	if f.Format == "paypal" {
		currency := string(f.Lines[n].Gross.Currency())
		return 1 + slices.IndexFunc(f.book.records, func(r []string) bool { return r[0] == "SF" && r[1] == currency })
	}
	return len(f.book.records)
}

// flip has a capture go the other way.
func (f File) flip(n int) (Damaged, bool) {
	b, l := f.book.clone(), layoutOf(f.Format)
	at := b.of[n]
	swap := func(x, y string) { *b.cell(at, x), *b.cell(at, y) = *b.cell(at, y), *b.cell(at, x) }
	switch f.Format {
	case "adyen":
		swap("Gross Debit (GC)", "Gross Credit (GC)")
		swap("Net Debit (NC)", "Net Credit (NC)")
	case "paypal":
		*b.cell(at, "Transaction Debit or Credit") = "DR"
	default:
		for _, column := range l.amounts {
			c := b.cell(at, column)
			switch {
			case strings.HasPrefix(*c, "-"):
				*c = (*c)[1:]
			case strings.Trim(*c, "0.") != "":
				*c = "-" + *c
			}
		}
	}
	if l.sums {
		return Damaged{b.render(), Finding{Refused: true, Class: settlement.SumMismatch, Line: f.sumLine(n)}}, true
	}
	return Damaged{b.render(), Finding{Class: settlement.BadAmount, Line: at + 1}}, true
}

// stripZeros writes amounts as a spreadsheet shows them.
func (f File) stripZeros() (Damaged, bool) {
	b, l := f.book.clone(), layoutOf(f.Format)
	if l.amounts == nil {
		return Damaged{}, false // no decimal marks
	}
	for _, at := range b.of {
		for _, column := range l.amounts {
			if c := b.cell(at, column); strings.Contains(*c, ".") {
				*c = strings.TrimRight(strings.TrimRight(*c, "0"), ".")
			}
		}
	}
	changed := !bytes.Equal(b.render(), f.Bytes())
	if l.hash && changed {
		return Damaged{b.render(), Finding{Refused: true, Class: settlement.HashMismatch, Line: len(b.records)}}, true
	}
	return Damaged{b.render(), Finding{}}, true
}

// shift says that the date is of a zone east of the one that it is of: the capture seems to be from before it was
// asked for.
func (f File) shift(n int) (Damaged, bool) {
	b, l := f.book.clone(), layoutOf(f.Format)
	at := b.of[n]
	want := Finding{Line: at + 1, Match: "before_first_attempt"}
	switch date := b.cell(at, l.date); {
	case l.zone != "":
		*b.cell(at, l.zone) = "NZDT"
	case strings.HasSuffix(*date, " +0000"):
		*date = strings.TrimSuffix(*date, " +0000") + " +1300"
	case strings.HasSuffix(*date, "Z") && l.hash:
		*date = strings.TrimSuffix(*date, "Z") + "+13:00"
		want = Finding{Refused: true, Class: settlement.HashMismatch, Line: len(b.records)}
	default:
		return Damaged{}, false // there is no zone in the file: it is the format's
	}
	return Damaged{b.render(), want}, true
}

// reorder turns the columns round and puts a new one among them.
func (b *book) reorder() {
	for i := b.head; i < len(b.records); i++ {
		if i != b.head && !slices.Contains(b.of, i) {
			continue
		}
		columns := b.records[i][b.from:]
		slices.Reverse(columns)
		value := ""
		if i == b.head {
			value = "New Column"
		}
		b.records[i] = append(b.records[i], value)
	}
}

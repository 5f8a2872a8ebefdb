package feedtest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"paymentsd/money"
	"paymentsd/settlement"
)

// reading is what a reader says about a file.
type reading struct {
	header settlement.Header
	lines  []settlement.Line
	bad    []*settlement.LineError
	file   error
}

func read(format string, text []byte) (r reading) {
	f, err := settlement.FormatNamed(format)
	if err != nil {
		return reading{file: err}
	}
	h, lines, err := f.Open(bytes.NewReader(text))
	if r.header, r.file = h, err; err != nil {
		return r
	}
	for l, err := range lines {
		switch bad, isLine := errors.AsType[*settlement.LineError](err); {
		case err == nil:
			r.lines = append(r.lines, l)
		case isLine:
			r.bad = append(r.bad, bad)
		default:
			r.file = err
		}
	}
	return r
}

var sameAmounts = cmp.Options{cmp.Comparer(money.Amount.Equal), cmpopts.EquateEmpty()}

func header(n int) settlement.Header {
	from := time.Date(2026, 1, 5+n, 0, 0, 0, 0, time.UTC) // in winter: the clocks of readers are not put back
	return settlement.Header{Acquirer: "north", Account: "main", From: from, To: from.AddDate(0, 0, 1), Sequence: 1 + n}
}

type fataler interface {
	Helper()
	Fatal(args ...any)
}

func amount(t fataler, units int64, c money.Currency) money.Amount {
	t.Helper()
	a, err := money.FromMinor(units, c.Exponent(), c)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// captureOf is the i-th capture of a day.
func captureOf(t fataler, i int) settlement.Line {
	t.Helper()
	l := settlement.Line{
		ID: fmt.Sprintf("line_%d", i), Kind: settlement.Capture, Reference: fmt.Sprintf("A0001K3F9QZ7WXT%05d", i), CaptureID: fmt.Sprintf("cap_%d", i),
		Gross: amount(t, int64(1000+i), "USD"), Fee: amount(t, 30, "USD"), OccurredAt: header(0).From.Add(time.Duration(i) * time.Minute), Payout: "po_1",
	}
	l.Net, _ = l.Gross.Sub(l.Fee)
	return l
}

func draw(t *rapid.T, i int) settlement.Line {
	l := captureOf(t, i)
	l.Kind = rapid.SampledFrom([]settlement.Kind{
		settlement.Capture, settlement.Capture, settlement.Refund, settlement.RefundReversal, settlement.Chargeback, settlement.ChargebackReversal,
		settlement.PartialCaptureReversal, settlement.CaptureFailed, settlement.Fee, settlement.Payout, settlement.Adjustment, settlement.Reserve,
		settlement.BalanceTransfer, settlement.Conversion,
	}).Draw(t, "kind")
	c := rapid.SampledFrom([]money.Currency{"USD", "EUR", "JPY", "KWD"}).Draw(t, "currency")
	l.Gross = amount(t, rapid.Int64Range(1, 9_999_999_999).Draw(t, "gross"), c)
	l.Fee = amount(t, rapid.Int64Range(0, 500).Draw(t, "fee"), c)
	l.OccurredAt = l.OccurredAt.Add(time.Duration(rapid.IntRange(0, 60_000_000).Draw(t, "µs")) * time.Microsecond)
	switch l.Kind {
	case settlement.Refund, settlement.Chargeback, settlement.PartialCaptureReversal, settlement.Payout:
		l.Gross = l.Gross.Neg()
	case settlement.CaptureFailed:
		l.Gross, l.Fee = money.Zero(c), money.Zero(c)
	case settlement.Fee:
		l.Gross, l.Fee = money.Zero(c), amount(t, rapid.Int64Range(1, 500).Draw(t, "lone fee"), c)
	}
	if !aboutCharge(l.Kind) {
		l.CaptureID, l.Reference = "", ""
	}
	if l.Kind == settlement.Payout || rapid.Bool().Draw(t, "no fee") && l.Kind != settlement.Fee {
		l.Fee = money.Zero(c)
	}
	l.Net, _ = l.Gross.Sub(l.Fee)
	if aboutCharge(l.Kind) && l.Gross.Sign() != 0 && c != "GBP" && rapid.Bool().Draw(t, "paid in pounds") {
		sign := int64(l.Gross.Sign())
		net := amount(t, sign*rapid.Int64Range(1, 9_999_999).Draw(t, "paid"), "GBP")
		l.Settled = &settlement.Settled{Net: net, Fee: amount(t, sign*rapid.Int64Range(0, 100).Draw(t, "kept"), "GBP")}
		l.Fee, l.Net = money.Zero(c), l.Gross
	}
	return l
}

// TestWhatIsWrittenIsRead: of every format, whatever the lines are, a reader gives exactly what went in.
func TestWhatIsWrittenIsRead(t *testing.T) {
	t.Parallel()
	for _, name := range Formats() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				var lines []settlement.Line
				for i := range rapid.IntRange(0, 12).Draw(t, "lines") {
					if l := draw(t, i); Says(name, l) {
						lines = append(lines, l)
					}
				}
				f, err := Write(name, header(rapid.IntRange(0, 5).Draw(t, "day")), lines)
				if err != nil {
					t.Fatal(err)
				}
				got := read(name, f.Bytes())
				got.header.IgnoredColumns = nil
				want := reading{header: f.Header, lines: f.Lines}
				if diff := cmp.Diff(want, got, sameAmounts, cmp.AllowUnexported(reading{})); diff != "" {
					t.Fatalf("(-want +got):\n%s\n%s", diff, f.Bytes())
				}
				if !keepsMoney(name, lines, f.Lines) {
					t.Fatalf("the writer changed what it was given:\n%v\n%v", lines, f.Lines)
				}
			})
		})
	}
}

// keepsMoney: whatever the writer makes of ids and times, kinds, amounts and references are what it was given.
func keepsMoney(name string, in, out []settlement.Line) bool {
	return slices.EqualFunc(in, out[:min(len(in), len(out))], func(a, b settlement.Line) bool {
		lone := name == "csv:mollie" && a.Kind == settlement.Fee // its text stands where the reference would
		return a.Kind == b.Kind && a.Gross.Equal(b.Gross) && a.Fee.Equal(b.Fee) && a.Net.Equal(b.Net) && (a.Settled == nil) == (b.Settled == nil) &&
			(a.Reference == b.Reference || lone) && a.OccurredAt.Truncate(time.Second).Equal(b.OccurredAt.Truncate(time.Second))
	})
}

func TestWriteNamesWhatAFormatCannotSay(t *testing.T) {
	t.Parallel()
	failed := captureOf(t, 1)
	failed.Kind, failed.Gross, failed.Fee, failed.Net = settlement.CaptureFailed, money.Zero("USD"), money.Zero("USD"), money.Zero("USD")
	for _, name := range Formats() {
		if Says(name, failed) != (name == "canonical") {
			t.Errorf("%s: a failed capture", name)
		}
		if _, err := Write(name, header(0), []settlement.Line{failed}); name != "canonical" && !errors.Is(err, ErrUnsayable) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Write("excel", header(0), nil); err == nil || Says("excel", failed) {
		t.Error("a format that is none is written")
	}
	if _, err := Write("adyen", settlement.Header{}, nil); err == nil {
		t.Error("a batch without a number is written")
	}
	if _, err := Write("paypal", settlement.Header{}, nil); err == nil {
		t.Error("a report without a period is written")
	}
}

// TestEveryFaultIsFoundWithClassAndLine is what a reader can find by itself; what only a comparison with charges
// shows is for the tests of the command.
func TestEveryFaultIsFoundWithClassAndLine(t *testing.T) {
	t.Parallel()
	const n = 9
	injected := map[Fault]bool{}
	for _, name := range Formats() {
		lines := make([]settlement.Line, 0, n)
		for i := range n {
			if l := captureOf(t, i); name == "csv:mollie" {
				l.Fee, l.Net = money.Zero("USD"), l.Gross
				lines = append(lines, l)
			} else {
				lines = append(lines, l)
			}
		}
		f, err := Write(name, header(0), lines)
		if err != nil {
			t.Fatal(err)
		}
		for _, fault := range Faults() {
			for _, at := range []int{0, 4, n - 1} {
				if d, ok := f.Inject(fault, at); ok {
					injected[fault] = true
					check(t, f, d, fmt.Sprintf("%s, %s in line %d", name, fault, at))
				}
			}
		}
	}
	for _, fault := range Faults() {
		if !injected[fault] {
			t.Errorf("%s can be injected nowhere", fault)
		}
	}
}

func check(t *testing.T, f File, d Damaged, name string) {
	t.Helper()
	got := read(f.Format, d.Bytes)
	switch class := settlement.ClassOf(got.file); {
	case d.Want.Refused:
		if class != d.Want.Class || lineOf(got.file) != d.Want.Line {
			t.Errorf("%s: refused with %q in line %d, want %q in line %d: %v\n%s", name, class, lineOf(got.file), d.Want.Class, d.Want.Line, got.file, d.Bytes)
		}
		return
	case got.file != nil:
		t.Errorf("%s: refused: %v", name, got.file)
		return
	case d.Want.Match != "":
		if len(got.lines) != len(f.Lines) || len(got.bad) != 0 || cmp.Equal(f.Lines, got.lines, sameAmounts) {
			t.Errorf("%s: %d lines, %v", name, len(got.lines), got.bad)
		}
		return
	case d.Want.Class != "":
		if len(got.bad) != 1 || got.bad[0].Class != d.Want.Class || got.bad[0].Line != d.Want.Line {
			t.Errorf("%s: %v, want %s in line %d", name, got.bad, d.Want.Class, d.Want.Line)
		}
		return
	}
	if diff := cmp.Diff(f.Lines, got.lines, sameAmounts); diff != "" || len(got.bad) > 0 {
		t.Errorf("%s: is not read as the sound file: %v\n%s", name, got.bad, diff)
	}
}

func lineOf(err error) int {
	if e, ok := errors.AsType[*settlement.ParseError](err); ok {
		return e.Line
	}
	if e, ok := errors.AsType[*settlement.ControlError](err); ok {
		return e.Line
	}
	return -1
}

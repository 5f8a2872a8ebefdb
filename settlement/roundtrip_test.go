package settlement

import (
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"paymentsd/money"
)

func allKinds() []Kind {
	return []Kind{Capture, PartialCaptureReversal, Refund, RefundReversal, Chargeback, ChargebackReversal, CaptureFailed,
		Fee, Adjustment, Conversion, Reserve, BalanceTransfer, Payout}
}

func TestEveryKindButUnknownCanBeWritten(t *testing.T) {
	t.Parallel()
	for _, k := range append(allKinds(), Unknown, "") {
		if want := k != Unknown && k != ""; k.known() != want {
			t.Errorf("%q known = %v", k, k.known())
		}
	}
}

func drawText(t *rapid.T, label string, least int) string {
	s := rapid.StringOfN(rapid.OneOf(
		rapid.RuneFrom([]rune(`, "'ab01é日`)), rapid.Rune().Filter(func(r rune) bool { return !unicode.IsControl(r) }),
	), least, 60, maxFieldBytes).Draw(t, label)
	return s
}

func drawTime(t *rapid.T, label string) time.Time {
	first := time.Date(firstYear, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()
	last := time.Date(lastYear, 12, 31, 23, 59, 59, 999999999, time.UTC).UnixNano()
	return time.Unix(0, rapid.Int64Range(first, last).Draw(t, label)).UTC()
}

func drawLine(t *rapid.T, id string) Line {
	c := money.Currency(rapid.SampledFrom([]string{"USD", "EUR", "JPY", "KWD", "CLF"}).Draw(t, "currency"))
	kind := rapid.SampledFrom(allKinds()).Draw(t, "kind")
	const most = 4e11 // so that gross - fee has 12 digits, too
	units := rapid.Int64Range(-most, most)
	gross := units.Draw(t, "gross")
	if sign, ok := kind.sign(); ok {
		gross = int64(sign) * max(gross, -gross, 1)
	}
	g, err := money.FromMinor(gross, c.Exponent(), c)
	if err != nil {
		t.Fatal(err)
	}
	f, err := money.FromMinor(units.Draw(t, "fee"), c.Exponent(), c)
	if err != nil {
		t.Fatal(err)
	}
	net, err := g.Sub(f)
	if err != nil {
		t.Fatal(err)
	}
	l := Line{ID: id, Kind: kind, Gross: g, Fee: f, Net: net, OccurredAt: drawTime(t, "occurred at"),
		Reference: strings.TrimSpace(drawText(t, "reference", 0)), CaptureID: drawText(t, "capture id", 0), Payout: drawText(t, "payout", 0)}
	if l.Reference == "" && l.CaptureID == "" {
		l.CaptureID = "cap_1"
	}
	return l
}

func drawHeader(t *rapid.T) Header {
	name := rapid.StringMatching(`[a-z"][-a-z, "é]{0,20}[a-z"]`)
	from := drawTime(t, "from")
	h := Header{Acquirer: name.Draw(t, "acquirer"), Account: name.Draw(t, "account"), From: from,
		To: from.Add(time.Duration(rapid.Int64Range(1, int64(365*24*time.Hour)).Draw(t, "period"))), Sequence: rapid.IntRange(1, 1e9).Draw(t, "sequence")}
	h.Replaces = rapid.IntRange(0, h.Sequence).Draw(t, "replaces")
	return h
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		header := drawHeader(t)
		var lines []Line
		for i := range rapid.IntRange(0, 12).Draw(t, "lines") {
			id := strings.TrimSpace(drawText(t, "id", 1)) + string(rune('a'+i))
			lines = append(lines, drawLine(t, id))
		}
		r := read(write(t, header, lines))
		if !r.clean() {
			t.Fatalf("refused: %v %v", r.file, r.bad)
		}
		for i := range r.lines {
			if r.lines[i].Number != i+3 || r.lines[i].SourceKind != string(r.lines[i].Kind) {
				t.Fatalf("line %d is %+v", i, r.lines[i])
			}
			r.lines[i].Number, r.lines[i].SourceKind = 0, ""
		}
		if diff := cmp.Diff(header, r.header); diff != "" {
			t.Fatalf("header (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(lines, r.lines); diff != "" {
			t.Fatalf("lines (-want +got):\n%s", diff)
		}
	})
}

func FuzzCanonical(f *testing.F) {
	for _, name := range []string{"day.csv", "quiet-day.csv", "bad-lines.csv", "reordered.csv"} {
		f.Add(golden(f, name))
	}
	for _, c := range badLines {
		f.Add(seal(testHead + goodOne + "line," + c.line + "\n" + goodLast + c.sums))
	}
	f.Add("\ufeff" + strings.ReplaceAll(golden(f, "day.csv"), "\n", "\r\n"))
	f.Fuzz(func(t *testing.T, file string) {
		fuzzRead(t, file)
		body, _, _ := strings.Cut(file, "\ntrailer,")
		fuzzRead(t, seal(body+"\n")) // else the hash keeps the fuzzer from all that comes after it
	})
}

func fuzzRead(t *testing.T, file string) {
	r := read(file)
	if n := len(r.lines) + len(r.bad); n > strings.Count(file, "\n") {
		t.Fatalf("%d lines out of %d", n, strings.Count(file, "\n"))
	}
	for _, l := range r.lines {
		if err := check(l); err != nil {
			t.Fatalf("yielded a line that must be refused: %v", err)
		}
	}
	if !r.clean() {
		return
	}
	again := mustReadClean(t, write(t, r.header, r.lines))
	if a, b := meaning(r), meaning(again); a != b {
		t.Fatalf("written again it reads\n%s\nwant\n%s", b, a)
	}
}

// meaning is what remains of a file whatever order its columns and sums had.
func meaning(r result) string {
	r.header.IgnoredColumns = nil
	for i := range r.lines {
		r.lines[i].Number = 0
	}
	return describe(r)
}

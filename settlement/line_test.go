package settlement

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// badLines are lines that must be refused alone, each between two good ones of USD 10.00. The
// sums are those an acquirer declares that counts the bad line as it wrote it.
var badLines = []struct {
	name  string
	line  string // after "line,"
	sums  string
	field string
	value string
	class Class
}{
	{"peers case 24: thousands separator", `N-2,capture,R2,c2,USD,"1,234.50",0.30,1234.20,2026-11-28T11:00:00Z,`,
		"sum,USD,capture,3,1254.50,0.90,1253.60\n", "gross", "1,234.50", BadAmount},
	{"peers case 24: letter O for a zero", "N-2,capture,R2,c2,USD,12.5O,0.30,12.20,2026-11-28T11:00:00Z,",
		"", "gross", "12.5O", BadAmount},
	{"peers case 24: empty amount", "N-2,capture,R2,c2,USD,,0.30,9.70,2026-11-28T11:00:00Z,",
		"", "gross", "", BadAmount},
	{"peers case 24: day first date", "N-2,capture,R2,c2,USD,10.00,0.30,9.70,29/11/2026,",
		threeTens, "occurred_at", "29/11/2026", BadDate},
	{"peers case 24: year 1", "N-2,capture,R2,c2,USD,10.00,0.30,9.70,0001-01-01T00:00:00Z,",
		threeTens, "occurred_at", "0001-01-01T00:00:00Z", BadDate},
	{"settlement case 38: decimal comma", `N-2,capture,R2,c2,EUR,"4.626,81",0.30,9.70,2026-11-28T11:00:00Z,`,
		twoTens, "gross", "4.626,81", BadAmount},
	{"settlement case 32: more decimals than the currency has", "N-2,fee,,,USD,0.00,0.057909,-0.057909,2026-11-28T11:00:00Z,",
		"", "fee", "0.057909", BadAmount},
	{"peers case 26: decimals of yen", "N-2,capture,R2,c2,JPY,80.50,0,80.50,2026-11-28T11:00:00Z,",
		twoTens, "gross", "80.50", BadAmount},
	{"exponent", "N-2,capture,R2,c2,USD,1e3,0.30,999.70,2026-11-28T11:00:00Z,", "", "gross", "1e3", BadAmount},
	{"blank before an amount", "N-2,capture,R2,c2,USD, 10.00,0.30,9.70,2026-11-28T11:00:00Z,", "", "gross", " 10.00", BadAmount},
	{"NaN", "N-2,capture,R2,c2,USD,10.00,NaN,9.70,2026-11-28T11:00:00Z,", "", "fee", "NaN", BadAmount},
	{"settlement case 28: currency in lower case", "N-2,capture,R2,c2,usd,10.00,0.30,9.70,2026-11-28T11:00:00Z,",
		"", "currency", "usd", BadAmount},
	{"currency unknown", "N-2,capture,R2,c2,QQQ,10.00,0.30,9.70,2026-11-28T11:00:00Z,", "", "currency", "QQQ", BadAmount},
	{"peers case 30: time with an offset", "N-2,capture,R2,c2,USD,10.00,0.30,9.70,2026-11-28T23:59:00-08:00,",
		threeTens, "occurred_at", "2026-11-28T23:59:00-08:00", BadDate},
	{"time without a zone", "N-2,capture,R2,c2,USD,10.00,0.30,9.70,2026-11-28T23:59:00,",
		threeTens, "occurred_at", "2026-11-28T23:59:00", BadDate},
	{"time finer than a nanosecond", "N-2,capture,R2,c2,USD,10.00,0.30,9.70,2026-11-28T11:00:00.0123456789Z,",
		threeTens, "occurred_at", "2026-11-28T11:00:00.0123456789Z", BadDate},
	{"30 February", "N-2,capture,R2,c2,USD,10.00,0.30,9.70,2026-02-30T00:00:00Z,",
		threeTens, "occurred_at", "2026-02-30T00:00:00Z", BadDate},
	{"unlisted kind", "N-2,surcharge,R2,c2,USD,10.00,0.30,9.70,2026-11-28T11:00:00Z,",
		twoTens + "sum,USD,surcharge,1,10.00,0.30,9.70\n", "kind", "surcharge", UnknownKind},
	{"kind in another case", "N-2,Capture,R2,c2,USD,10.00,0.30,9.70,2026-11-28T11:00:00Z,",
		"sum,USD,Capture,1,10.00,0.30,9.70\n" + twoTens, "kind", "Capture", UnknownKind},
	{"settlement case 15: gross 100 times too large", "N-2,capture,R2,c2,USD,1000.00,0.30,9.70,2026-11-28T11:00:00Z,",
		"sum,USD,capture,3,1020.00,0.90,29.10\n", "net", "9.70", IdentityBroken},
	{"peers case 23: negative capture is not a refund in disguise", "N-2,capture,R2,c2,USD,-10.00,0.30,-10.30,2026-11-28T11:00:00Z,",
		"sum,USD,capture,3,10.00,0.90,9.10\n", "gross", "-10.00", BadAmount},
	{"positive refund", "N-2,refund,R2,c2,USD,10.00,0.00,10.00,2026-11-28T11:00:00Z,",
		twoTens + "sum,USD,refund,1,10.00,0.00,10.00\n", "gross", "10.00", BadAmount},
	{"failed capture that moves money", "N-2,capture_failed,R2,,USD,10.00,0.00,10.00,2026-11-28T11:00:00Z,",
		twoTens + "sum,USD,capture_failed,1,10.00,0.00,10.00\n", "gross", "10.00", BadAmount},
	{"capture of no charge", "N-2,capture, ,,USD,10.00,0.30,9.70,2026-11-28T11:00:00Z,", threeTens, "reference", "", NoReference},
	{"no id", "  ,capture,R2,c2,USD,10.00,0.30,9.70,2026-11-28T11:00:00Z,", threeTens, "id", "  ", BadLine},
	{"id longer than a field may be", strings.Repeat("N", 256) + ",capture,R2,c2,USD,10.00,0.30,9.70,2026-11-28T11:00:00Z,",
		threeTens, "id", strings.Repeat("N", 80) + "...", BadLine},
	{"same id, other content", "N-1,capture,R2,c2,USD,10.00,0.30,9.70,2026-11-28T11:00:00Z,", threeTens, "id", "N-1", SameKeyOtherContent},
	{"same line twice", strings.TrimSuffix(strings.TrimPrefix(goodOne, "line,"), "\n"), threeTens, "id", "N-1", DuplicateLine},
	{"field missing", "N-2,capture,R2,c2,USD,10.00,0.30,9.70,2026-11-28T11:00:00Z", "", "",
		"line,N-2,capture,R2,c2,USD,10.00,0.30,9.70,2026-11-28T11:00:00Z", BadLine},
	{"quote not closed", `N-2,capture,"R2,c2`, "", "", `line,N-2,capture,"R2,c2`, BadLine},
	{"bare quote", `N-2,capture,R"2,c2`, "", "", `line,N-2,capture,R"2,c2`, BadLine},
	{"text after a quoted field", `N-2,capture,"R2"x,c2`, "", "", `line,N-2,capture,"R2"x,c2`, BadLine},
	{"control character", "N-2,cap\x00ture", "", "", "line,N-2,cap\x00ture", BadLine},
	{"not UTF-8", "N-2,cap\xffture", "", "", "line,N-2,cap\xffture", BadLine},
}

const (
	twoTens   = "sum,USD,capture,2,20.00,0.60,19.40\n"
	threeTens = "sum,USD,capture,3,30.00,0.90,29.10\n"
)

func TestBadLineIsRefusedAloneByNumberAndField(t *testing.T) {
	t.Parallel()
	for _, c := range badLines {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := read(seal(testHead + goodOne + "line," + c.line + "\n" + goodLast + c.sums))
			if r.file != nil {
				t.Fatalf("file refused: %v", r.file)
			}
			if len(r.lines) != 2 || r.lines[0].ID != "N-1" || r.lines[1].ID != "N-9" {
				t.Errorf("good lines = %+v, want N-1 and N-9", r.lines)
			}
			if len(r.bad) != 1 {
				t.Fatalf("got %d refused lines, want 1: %v", len(r.bad), r.bad)
			}
			want := LineError{Line: 4, Field: c.field, Value: c.value, Class: c.class, Reason: r.bad[0].Reason}
			if diff := cmp.Diff(want, *r.bad[0]); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if r.bad[0].Reason == "" || r.partly[0].Number != 4 {
				t.Errorf("error %v beside line %+v: want a reason, and line 4", r.bad[0], r.partly[0])
			}
			if ClassOf(r.bad[0]) != c.class {
				t.Errorf("ClassOf = %q", ClassOf(r.bad[0]))
			}
		})
	}
}

func TestBadLineStillShowsWhatCouldBeRead(t *testing.T) {
	t.Parallel()
	r := read(seal(testHead + "line,N-1,surcharge, A1B2 ,cap_1,USD,5.00,0.00,5.00,2026-11-28T10:15:00Z,po_7\n" +
		"sum,USD,surcharge,1,5.00,0.00,5.00\n"))
	if r.file != nil || len(r.partly) != 1 {
		t.Fatalf("got %+v", r)
	}
	got := r.partly[0]
	if got.Kind != Unknown || got.SourceKind != "surcharge" || got.Reference != "A1B2" || got.Gross.String() != "5.00" {
		t.Errorf("got %+v", got)
	}
}

func TestPeersCase24TrailingTotalLineIsRefusedAlone(t *testing.T) {
	t.Parallel()
	r := read(seal(testHead + goodOne + goodLast + "Total,,,,USD,20.00,0.60,19.40,,\n" + twoTens))
	if r.file != nil || len(r.lines) != 2 || len(r.bad) != 1 {
		t.Fatalf("got %+v", r)
	}
	if got := r.bad[0]; got.Line != 5 || got.Class != BadLine {
		t.Errorf("got %v", got)
	}
}

func TestPeersCase24AThousandBadLinesDoNotHang(t *testing.T) {
	t.Parallel()
	var body strings.Builder
	body.WriteString(testHead + goodOne)
	for i := range 1000 {
		fmt.Fprintf(&body, "line,B-%d,capture,,,USD,,,,,\n", i)
	}
	r := read(seal(body.String() + goodLast))
	if r.file != nil || len(r.lines) != 2 || len(r.bad) != 1000 {
		t.Errorf("got %d lines, %d refused, %v", len(r.lines), len(r.bad), r.file)
	}
}

func TestBadAmountSparesOnlyTheSumOfItsCurrency(t *testing.T) {
	t.Parallel()
	bad := "line,N-2,capture,R2,c2,USD,x,0.00,1.00,2026-11-28T11:00:00Z,\n"
	yen := "line,N-3,capture,R3,c3,JPY,80,0,80,2026-11-28T11:00:00Z,\n"
	wantFileError(t, seal(testHead+bad+yen+"sum,JPY,capture,1,81,0,81\n"), &ControlError{
		Control: ControlSum, Line: 6, Declared: "sum,JPY,capture,1,81,0,81", Computed: "sum,JPY,capture,1,80,0,80", Class: SumMismatch})
	if r := read(seal(testHead + bad + yen + "sum,JPY,capture,1,80,0,80\nsum,USD,capture,1,1.00,0.00,1.00\n")); r.file != nil {
		t.Errorf("file refused: %v", r.file)
	}
}

func TestLineWithGoodAmountsIsAddedUpWhateverElseIsBad(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{
		"line,N-2,capture,R2,c2,USD,10.00,0.30,9.70,yesterday,\n",
		"line,N-2,capture,,,USD,10.00,0.30,9.70,2026-11-28T11:00:00Z,\n",
		goodOne,
	} {
		wantFileError(t, seal(testHead+goodOne+bad+twoTens+"sum,EUR,capture,1,1.00,0.00,1.00\n"), &ControlError{
			Control: ControlSum, Line: 7, Declared: "sum,EUR,capture,1,1.00,0.00,1.00", Class: SumMismatch})
		wantFileError(t, seal(testHead+goodOne+bad+"sum,USD,capture,2,20.00,0.60,19.41\n"), &ControlError{
			Control: ControlSum, Line: 6, Declared: "sum,USD,capture,2,20.00,0.60,19.41", Computed: strings.TrimSpace(twoTens), Class: SumMismatch})
	}
}

func TestReadingStopsWhenTheCallerDoes(t *testing.T) {
	t.Parallel()
	_, lines, err := canonical{}.Open(strings.NewReader(seal(testHead + goodOne + "nonsense\n" + goodLast + twoTens)))
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for range lines {
		seen++
		break
	}
	for _, err := range lines { // goes on where the first loop stopped
		if seen++; err != nil {
			break
		}
	}
	if seen != 2 {
		t.Errorf("got %d lines, want 2", seen)
	}
}

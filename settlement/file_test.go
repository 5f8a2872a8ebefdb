package settlement

import (
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

func TestFileIsRefusedWhole(t *testing.T) {
	t.Parallel()
	whole := seal(testHead + goodOne + goodLast + twoTens)
	head := func(old, new string) string {
		return seal(strings.Replace(testHead, old, new, 1) + goodOne + goodLast + twoTens)
	}
	trailer := whole[strings.LastIndex(whole, "trailer,"):]
	cases := []struct {
		name    string
		file    string
		class   Class
		control Control // empty for a *ParseError
		field   string
		line    int
	}{
		{"peers case 24: zero bytes", "", EmptyOrTruncated, ControlZeroBytes, "", 0},
		{"byte order mark and nothing else", "\ufeff", EmptyOrTruncated, ControlZeroBytes, "", 0},
		{"settlement case 21: trailer says 5, file holds 1", seal(testHead + goodOne + "sum,USD,capture,1,10.00,0.30,9.70\n")[:len(testHead+goodOne)] +
			"trailer,5," + strings.Repeat("0", 64) + "\n", CountMismatch, ControlCount, "", 4},
		{"settlement case 22: trailer says 155, 6 are there", testHead + strings.Repeat(goodOne, 6) + "trailer,155,x\n", CountMismatch, ControlCount, "", 9},
		{"no trailer", strings.TrimSuffix(whole, trailer), EmptyOrTruncated, ControlTruncated, "", 5},
		{"trailer without its line end", strings.TrimSuffix(whole, "\n"), EmptyOrTruncated, ControlTruncated, "", 6},
		{"head only", testHead, EmptyOrTruncated, ControlTruncated, "", 2},
		{"header only", testHead[:strings.Index(testHead, "columns")], EmptyOrTruncated, ControlTruncated, "", 1},
		{"data after the trailer", whole + "x", WrongLayout, ControlAfterEnd, "", 7},
		{"two files in one", whole + whole, WrongLayout, ControlAfterEnd, "", 7},
		{"two heads", seal(testHead + goodOne + testHead + goodLast + twoTens), WrongLayout, ControlOrder, "", 4},
		{"line after the sums", seal(testHead + goodOne + twoTens + goodLast), WrongLayout, ControlOrder, "", 5},
		{"sum differs in one cent", seal(testHead + goodOne + goodLast + "sum,USD,capture,2,20.00,0.61,19.39\n"), SumMismatch, ControlSum, "", 6},
		{"sum written with other decimals", seal(testHead + goodOne + goodLast + "sum,USD,capture,2,20,0.60,19.40\n"), SumMismatch, ControlSum, "", 6},
		{"sum missing", seal(testHead + goodOne + goodLast), SumMismatch, ControlSum, "", 5},
		{"sum of lines that are not there", seal(testHead + goodOne + goodLast + twoTens + "sum,EUR,capture,1,1.00,0.00,1.00\n"), SumMismatch, ControlSum, "", 7},
		{"lines in another order than hashed", strings.Replace(whole, goodOne+goodLast, goodLast+goodOne, 1), HashMismatch, ControlHash, "", 6},
		{"hash in upper case", strings.TrimSuffix(whole, trailer) + "trailer,2," + strings.ToUpper(trailer[len("trailer,2,"):]), HashMismatch, ControlHash, "", 6},
		{"version of the future", head(",1,north", ",2,north"), WrongLayout, ControlVersion, "", 1},
		{"settlement case 35: column renamed", head("capture_id", "acquirer_id"), WrongLayout, "", "capture_id", 2},
		{"column missing", head(",payout", ""), WrongLayout, "", "payout", 2},
		{"column twice", head("payout", "net"), WrongLayout, "", "net", 2},
		{"columns record missing", head("columns", "column"), WrongLayout, "", "", 2},
		{"another format", "Company Account,Merchant Account,Psp Reference\n", WrongLayout, "", "", 1},
		{"UTF-16", "\xff\xfeh\x00e\x00", WrongLayout, "", "", 1},
		{"header with a field too many", head(",7,0", ",7,0,"), WrongLayout, "", "", 1},
		{"header not UTF-8", head("north", "n\xffrth"), WrongLayout, "", "", 1},
		{"header with a lost quote", head("north", `"north`), WrongLayout, "", "", 1},
		{"acquirer empty", head("north", ""), WrongLayout, "", "acquirer", 1},
		{"acquirer with a slash", head("north", "north/eu"), WrongLayout, "", "acquirer", 1},
		{"account with outer blanks", head("acc-eu", " acc-eu"), WrongLayout, "", "account", 1},
		{"period begins nowhere", head("2026-11-28T00:00:00Z", "28.11.2026"), WrongLayout, "", "from", 1},
		{"period begins in year 1", head("2026-11-28", "0001-01-01"), WrongLayout, "", "from", 1},
		{"period ends without zone", head("2026-11-29T00:00:00Z", "2026-11-29T00:00:00"), WrongLayout, "", "to", 1},
		{"period ends before it begins", head("2026-11-29", "2026-11-27"), WrongLayout, "", "to", 1},
		{"period without end", head("2026-11-29", "9999-12-31"), WrongLayout, "", "to", 1},
		{"sequence 0", head(",7,0", ",0,0"), WrongLayout, "", "sequence", 1},
		{"sequence with a plus", head(",7,0", ",+7,0"), WrongLayout, "", "sequence", 1},
		{"replaces a later file", head(",7,0", ",7,8"), WrongLayout, "", "replaces", 1},
		{"replaces nothing readable", head(",7,0", ",7,"), WrongLayout, "", "replaces", 1},
		{"line without end", testHead + "line," + strings.Repeat("x", 5000), WrongLayout, "", "", 3},
		{"line ends mixed", strings.Replace(whole, "Z,po_7\n", "Z,po_7\r\n", 1), WrongLayout, "", "", 3},
		{"sum with a field too few", seal(testHead + goodOne + "sum,USD,capture,1\n"), WrongLayout, "", "", 4},
		{"sum declared twice", seal(testHead + goodOne + goodLast + twoTens + twoTens), WrongLayout, "", "", 6},
		{"trailer without hash", testHead + "trailer,0\n", WrongLayout, "", "", 3},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			err := read(c.file).file
			got := struct {
				class   Class
				control Control
				field   string
				line    int
			}{class: ClassOf(err)}
			switch e := err.(type) {
			case *ControlError:
				got.control, got.line = e.Control, e.Line
			case *ParseError:
				got.field, got.line = e.Field, e.Line
			default:
				t.Fatalf("got %v, want the file refused", err)
			}
			if got.class != c.class || got.control != c.control || got.field != c.field || got.line != c.line {
				t.Errorf("got %+v from %v", got, err)
			}
		})
	}
}

func TestTooManySumsAreRefusedAndNotHeld(t *testing.T) {
	t.Parallel()
	var lines, sums strings.Builder
	for i := range maxSums + 1 {
		kind := "kind-" + strconv.Itoa(i)
		lines.WriteString("line,N-" + strconv.Itoa(i) + "," + kind + ",,,USD,0.00,0.00,0.00,2026-11-28T11:00:00Z,\n")
		sums.WriteString("sum,USD," + kind + ",1,0.00,0.00,0.00\n")
	}
	for name, body := range map[string]string{"lines": lines.String(), "sums": sums.String()} {
		if e, ok := errors.AsType[*ParseError](read(seal(testHead + body)).file); !ok || e.Class != WrongLayout {
			t.Errorf("%s: got %v, want the file refused", name, e)
		}
	}
}

func TestPeersCase31ReadErrorIsNotTheFilesFault(t *testing.T) {
	t.Parallel()
	whole := seal(testHead + goodOne + goodLast + twoTens)
	broken := errors.New("connection reset")
	for at := range len(whole) {
		_, lines, err := canonical{}.Open(io.MultiReader(strings.NewReader(whole[:at]), iotest.ErrReader(broken)))
		if err == nil {
			for _, e := range lines {
				err = e
			}
		}
		if !errors.Is(err, broken) || ClassOf(err) != "" {
			t.Fatalf("after %d bytes: got %v (class %q), want the reader's error without a class", at, err, ClassOf(err))
		}
	}
}

func TestQuietDayIsAValidFile(t *testing.T) {
	t.Parallel()
	r := mustReadClean(t, seal(testHead))
	if len(r.lines) != 0 {
		t.Errorf("got %d lines", len(r.lines))
	}
	if diff := cmp.Diff(testHeader(), r.header); diff != "" {
		t.Errorf("header (-want +got):\n%s", diff)
	}
}

func TestErrorsSayWhereAndWhat(t *testing.T) {
	t.Parallel()
	cases := map[string]error{
		"settlement file unusable: line 2, net: twice (wrong_layout)":                               &ParseError{2, "net", WrongLayout, "twice"},
		"settlement file unusable: twice (wrong_layout)":                                            &ParseError{0, "", WrongLayout, "twice"},
		`settlement line 4, gross: "12.5O": no number (bad_amount)`:                                 &LineError{4, "gross", "12.5O", BadAmount, "no number"},
		`settlement gross: "12.5O": no number (bad_amount)`:                                         &LineError{0, "gross", "12.5O", BadAmount, "no number"},
		`settlement file fails its count control: line 9: declared "5", found "1" (count_mismatch)`: &ControlError{ControlCount, 9, "5", "1", CountMismatch},
	}
	for want, err := range cases {
		if err.Error() != want {
			t.Errorf("got  %s\nwant %s", err, want)
		}
	}
	if got := ClassOf(io.EOF); got != "" {
		t.Errorf("ClassOf(io.EOF) = %q", got)
	}
}

func TestFormatIsFoundByItsNameOnly(t *testing.T) {
	t.Parallel()
	if f, err := FormatNamed("canonical"); err != nil || f.Name() != "canonical" {
		t.Errorf("got %v, %v", f, err)
	}
	if _, err := FormatNamed("Canonical"); err == nil || !strings.Contains(err.Error(), "[canonical") {
		t.Errorf("got %v, want the known names", err)
	}
}

package settlement

import (
	"fmt"
	"iter"
	"math/big"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// kindsAndNets is a short view of lines.
func kindsAndNets(lines []Line) []string {
	var got []string
	for _, l := range lines {
		got = append(got, fmt.Sprintf("%s %s %s %s", l.ID, l.Kind, l.Net.Currency(), l.Net))
	}
	return got
}

// TestCasesFromTheField are good files with what other reconcilers stumbled over.
func TestCasesFromTheField(t *testing.T) {
	t.Parallel()
	const at = ",2026-11-28T10:15:00Z,"
	cases := []struct {
		name, body string
		want       []string
	}{
		{"peers case 22: two lines with the same reference and amount stay two",
			"line,a,capture,R1,c1,USD,10.00,0.30,9.70" + at + "p\nline,b,capture,R1,c2,USD,10.00,0.30,9.70" + at + "p\n" + twoTens,
			[]string{"a capture USD 9.70", "b capture USD 9.70"}},
		{"peers case 23: negative row with the same reference is a refund",
			"line,a,capture,R1,c1,USD,10.00,0.30,9.70" + at + "p\nline,b,refund,R1,c1,USD,-10.00,0.00,-10.00" + at + "p\n" +
				"sum,USD,capture,1,10.00,0.30,9.70\nsum,USD,refund,1,-10.00,0.00,-10.00\n",
			[]string{"a capture USD 9.70", "b refund USD -10.00"}},
		{"peers case 27: gross, fee and net are three numbers",
			"line,a,capture,R1,c1,USD,100.00,2.90,97.10" + at + "p\nsum,USD,capture,1,100.00,2.90,97.10\n",
			[]string{"a capture USD 97.10"}},
		{"settlement case 2: balance transfers and a fee, no capture, no payout",
			"line,a,balance_transfer,,,EUR,-31.20,0.00,-31.20" + at + "\nline,b,fee,,,EUR,0.00,0.50,-0.50" + at + "\nline,c,balance_transfer,,,EUR,31.70,0.00,31.70" + at + "\n" +
				"sum,EUR,balance_transfer,2,0.50,0.00,0.50\nsum,EUR,fee,1,0.00,0.50,-0.50\n",
			[]string{"a balance_transfer EUR -31.20", "b fee EUR -0.50", "c balance_transfer EUR 31.70"}},
		{"settlement case 7: fee rows alike but for their id are all kept",
			"line,a,fee,,,EUR,0.00,0.10,-0.10" + at + "p\nline,b,fee,,,EUR,0.00,0.10,-0.10" + at + "p\nsum,EUR,fee,2,0.00,0.20,-0.20\n",
			[]string{"a fee EUR -0.10", "b fee EUR -0.10"}},
		{"settlement case 10: capture, refund and chargeback of one capture id",
			"line,a,capture,R1,c1,USD,10.00,0.30,9.70" + at + "p\nline,b,refund,R1,c1,USD,-10.00,0.00,-10.00" + at + "p\nline,c,chargeback,R1,c1,USD,-10.00,15.00,-25.00" + at + "p\n" +
				"sum,USD,capture,1,10.00,0.30,9.70\nsum,USD,chargeback,1,-10.00,15.00,-25.00\nsum,USD,refund,1,-10.00,0.00,-10.00\n",
			[]string{"a capture USD 9.70", "b refund USD -10.00", "c chargeback USD -25.00"}},
		{"settlement case 11: payouts in two currencies, each summed on its own",
			"line,a,payout,,,USD,-97.10,0.00,-97.10" + at + "p1\nline,b,payout,,,CAD,-12.00,0.00,-12.00" + at + "p2\n" +
				"sum,CAD,payout,1,-12.00,0.00,-12.00\nsum,USD,payout,1,-97.10,0.00,-97.10\n",
			[]string{"a payout USD -97.10", "b payout CAD -12.00"}},
		{"settlement case 16: refund for which the acquirer gives back a fee",
			"line,a,refund,R1,c1,USD,-55.00,-5.00,-50.00" + at + "p\nsum,USD,refund,1,-55.00,-5.00,-50.00\n",
			[]string{"a refund USD -50.00"}},
		{"settlement case 23: two chargebacks of one charge, one reversed",
			"line,a,chargeback,R1,c1,USD,-10.00,0.00,-10.00" + at + "p\nline,b,chargeback,R1,c1,USD,-10.00,0.00,-10.00" + at + "p\nline,c,chargeback_reversal,R1,c1,USD,10.00,0.00,10.00" + at + "p\n" +
				"sum,USD,chargeback,2,-20.00,0.00,-20.00\nsum,USD,chargeback_reversal,1,10.00,0.00,10.00\n",
			[]string{"a chargeback USD -10.00", "b chargeback USD -10.00", "c chargeback_reversal USD 10.00"}},
		{"settlement case 26: partial capture is the whole and the reversal of the rest",
			"line,a,capture,R1,c1,USD,100.00,0.00,100.00" + at + "p\nline,b,partial_capture_reversal,R1,c1,USD,-40.00,0.00,-40.00" + at + "p\n" +
				"sum,USD,capture,1,100.00,0.00,100.00\nsum,USD,partial_capture_reversal,1,-40.00,0.00,-40.00\n",
			[]string{"a capture USD 100.00", "b partial_capture_reversal USD -40.00"}},
		{"settlement case 29: line without a payout",
			"line,a,capture,R1,c1,USD,10.00,0.30,9.70" + at + "\nsum,USD,capture,1,10.00,0.30,9.70\n",
			[]string{"a capture USD 9.70"}},
		{"peers case 26: yen, dollar and dinar",
			"line,a,capture,R1,c1,JPY,80,0,80" + at + "p\nline,b,capture,R2,c2,USD,0.1,0.02,0.08" + at + "p\nline,c,capture,R3,c3,KWD,5.124,0.001,5.123" + at + "p\n" +
				"sum,JPY,capture,1,80,0,80\nsum,KWD,capture,1,5.124,0.001,5.123\nsum,USD,capture,1,0.10,0.02,0.08\n",
			[]string{"a capture JPY 80", "b capture USD 0.08", "c capture KWD 5.123"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := mustReadClean(t, seal(testHead+c.body))
			if diff := cmp.Diff(c.want, kindsAndNets(r.lines)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestReferenceIsKeptAsReceived(t *testing.T) {
	t.Parallel()
	cases := map[string]struct{ in, want string }{
		"settlement case 39: leading zeros are kept":        {"000712219", "000712219"},
		"settlement case 34: a hash instead of a reference": {strings.Repeat("ab", 32), strings.Repeat("ab", 32)},
		"outer blanks are trimmed, inner ones kept":         {"  A B  ", "A B"},
		"case is kept": {"a1b2", "a1b2"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := mustReadClean(t, seal(testHead+"line,a,capture,"+c.in+",c1,USD,10.00,0.30,9.70,2026-11-28T10:15:00Z,p\nsum,USD,capture,1,10.00,0.30,9.70\n"))
			if len(r.lines) != 1 || r.lines[0].Reference != c.want {
				t.Errorf("got %+v, want reference %q", r.lines, c.want)
			}
		})
	}
}

func TestSettlementCase3ColumnsInAnyOrderReadTheSame(t *testing.T) {
	t.Parallel()
	day, reordered := mustReadClean(t, golden(t, "day.csv")), mustReadClean(t, golden(t, "reordered.csv"))
	if diff := cmp.Diff(day.lines[:2], reordered.lines); diff != "" {
		t.Errorf("(-day +reordered):\n%s", diff)
	}
	// Settlement case 36: an empty trailing column, and its empty fields, are no reason to refuse.
	if diff := cmp.Diff([]string{"card_brand", ""}, reordered.header.IgnoredColumns); diff != "" {
		t.Errorf("ignored columns (-want +got):\n%s", diff)
	}
}

func TestPeersCase20TwoFilesReadAtOnceAreIndependent(t *testing.T) {
	t.Parallel()
	names := []string{"day.csv", "bad-lines.csv"}
	var alone, together [2]string
	var next [2]func() (Line, error, bool)
	for i, name := range names {
		r := read(golden(t, name))
		for _, l := range r.lines {
			alone[i] += l.ID + " "
		}
		_, lines, err := canonical{}.Open(strings.NewReader(golden(t, name)))
		if err != nil {
			t.Fatal(err)
		}
		pull, stop := iter.Pull2(lines)
		defer stop()
		next[i] = pull
	}
	for range 20 { // in turns, one line each
		for i := range next {
			if l, err, more := next[i](); more && err == nil {
				together[i] += l.ID + " "
			}
		}
	}
	if alone != together {
		t.Errorf("together %q, alone %q", together, alone)
	}
}

// Settlement case 47, too: added up in binary floating point this is not 1500.
func TestPeersCase26SumsOfTenThousandLinesAreExact(t *testing.T) {
	t.Parallel()
	var body strings.Builder
	body.WriteString(testHead)
	for i := range 10_000 {
		fmt.Fprintf(&body, "line,N-%d,capture,R%d,c,USD,%s,0.00,%[3]s,2026-11-28T10:15:00Z,p\n", i, i, []string{"0.10", "0.20"}[i%2])
	}
	mustReadClean(t, seal(body.String()+"sum,USD,capture,10000,1500.00,0.00,1500.00\n"))
	wantFileError(t, seal(body.String()+"sum,USD,capture,10000,1500.01,0.00,1500.01\n"), &ControlError{
		Control: ControlSum, Line: 10_004, Declared: "sum,USD,capture,10000,1500.01,0.00,1500.01",
		Computed: "sum,USD,capture,10000,1500.00,0.00,1500.00", Class: SumMismatch})
}

func TestSumsMayHaveMoreDigitsThanAnAmount(t *testing.T) {
	t.Parallel()
	var body strings.Builder
	body.WriteString(testHead)
	for i := range 1000 {
		fmt.Fprintf(&body, "line,N-%d,capture,R%d,c,USD,999999999999.99,0.00,999999999999.99,2026-11-28T10:15:00Z,p\n", i, i)
	}
	cents := new(big.Int).Mul(big.NewInt(99999999999999), big.NewInt(1000)).String()
	total := cents[:len(cents)-2] + "." + cents[len(cents)-2:]
	mustReadClean(t, seal(body.String()+"sum,USD,capture,1000,"+total+",0.00,"+total+"\n"))
}

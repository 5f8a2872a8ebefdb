package settlement

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// golden samples by name, and small changes to them.
func sampleOf(t testing.TB, file string) string {
	t.Helper()
	for _, s := range allSamples(t) {
		if strings.HasSuffix(s.file, file) {
			return s.text
		}
	}
	t.Fatalf("no sample %s", file)
	return ""
}

// with replaces, and fails if there is nothing to replace: a test that changes nothing tests nothing.
func with(t testing.TB, text string, pairs ...string) string {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(text, pairs[i]) {
			t.Fatalf("there is no %q in the sample", pairs[i])
		}
		text = strings.Replace(text, pairs[i], pairs[i+1], 1)
	}
	return text
}

// brief is a short view of a line.
func brief(l Line) string {
	return fmt.Sprintf("%s %s %s %s-%s=%s", l.Kind, l.Reference, l.Gross.Currency(), l.Gross, l.Fee, l.Net)
}

func briefs(lines []Line, kinds ...Kind) (out []string) {
	for _, l := range lines {
		if len(kinds) == 0 || slices.Contains(kinds, l.Kind) {
			out = append(out, brief(l))
		}
	}
	return out
}

const (
	firstRef  = "A0001K3F9QZ7WXT2M8RB"
	secondRef = "A0001PV4Y0HNC6JD51SG"
	thirdRef  = "A0001ZD8C2V6JY4NHG1F"
)

// TestNumberedInputs are the inputs from the field that a reader decides, on files of their shape. Each says what
// has to be among the lines, or what the file or a line of it has to be refused with.
func TestNumberedInputs(t *testing.T) {
	t.Parallel()
	batch, stl, payout := sampleOf(t, "batch.csv"), sampleOf(t, "STL-20260106.01.009.csv"), sampleOf(t, "stripe/payout.csv")
	cases := []struct {
		name, format, text string
		lines              []string // all of the kinds, in order
		kinds              []Kind
		class              Class // of the file
		bad                Class // of a line
		says               string
	}{
		{name: "settlement input 2: a batch of two balance transfers and a fee is whole, and numbered", format: "adyen", text: sampleOf(t, "adyen/no-payout.csv"),
			lines: []string{"balance_transfer  EUR 454331.99-0.00=454331.99", "fee  EUR 0.00-0.09=-0.09", "balance_transfer  EUR -454331.90-0.00=-454331.90"}},
		{name: "settlement input 3: a missing used column refuses the file by name", format: "adyen", text: with(t, batch, "Interchange (NC)", "Interchange"),
			class: WrongLayout, says: "line 1, Interchange (NC): the column is missing"},
		{name: "settlement input 6: two costs without reference that differ only by amount are both kept", format: "adyen",
			text:  with(t, batch, "EUR,1,,,,,,,,380,,\nShopGroup,ShopEU,,,,2026-01-07 00:24:23,CET,Fee", "EUR,2,,,,,,,,380,,\nShopGroup,ShopEU,,,,2026-01-07 00:24:23,CET,Fee", "81.82", "80.82"),
			kinds: []Kind{Fee}, lines: []string{"fee  EUR 0.00-1.00=-1.00", "fee  EUR 0.00-2.00=-2.00", "fee  EUR 0.00-0.09=-0.09"}},
		{name: "settlement input 7: two identical fee rows are both kept", format: "adyen", text: batch,
			kinds: []Kind{Fee}, lines: []string{"fee  EUR 0.00-1.00=-1.00", "fee  EUR 0.00-1.00=-1.00", "fee  EUR 0.00-0.09=-0.09"}},
		{name: "settlement input 10: settled, refunded and charged back under one payment are three lines", format: "adyen", text: batch,
			kinds: []Kind{Refund, Chargeback}, lines: []string{"refund " + firstRef + " EUR -10.00--0.10=-9.90", "chargeback " + firstRef + " EUR -16.45-10.00=-26.45"}},
		{name: "settlement input 11: payouts in two currencies, each of which comes to nothing", format: "adyen", text: batch,
			kinds: []Kind{Payout}, lines: []string{"payout  EUR -81.82-0.00=-81.82", "payout  CAD -11.52-0.00=-11.52"}},
		{name: "settlement input 11: one currency that does not is enough", format: "adyen", text: with(t, batch, "CAD,11.52,,", "CAD,11.53,,"),
			class: SumMismatch, says: `found "CAD -0.01"`},
		{name: "settlement input 15: a refund that is a hundred times too large in its gross breaks the identity", format: "adyen",
			text: with(t, batch, "Refunded,MOD0000000000011,EUR,10,", "Refunded,MOD0000000000011,EUR,1000,"), bad: IdentityBroken, says: "line 5, Net Credit (NC)"},
		{name: "settlement input 15: also in yen that are paid in euros", format: "adyen", text: with(t, batch, "JPY,,3158,", "JPY,,315800,"),
			bad: IdentityBroken, says: "line 4, Exchange Rate"},
		{name: "settlement input 16: part of the fee comes back with a refund", format: "adyen", text: batch,
			kinds: []Kind{Refund}, lines: []string{"refund " + firstRef + " EUR -10.00--0.10=-9.90"}},
		{name: "settlement input 19: yen have two implied decimals", format: "paypal", text: stl,
			kinds: []Kind{Capture}, lines: []string{"capture " + firstRef + " AUD 52.00-2.25=49.75", "capture " + secondRef + " AUD 5.35-0.75=4.60",
				"capture " + thirdRef + " JPY 150-43=107", "capture A00027QMXE3A9KTW0Z5R BRL 17.00-3.44=13.56"}},
		{name: "settlement input 19: half a yen is none", format: "paypal", text: with(t, stl, `"CR",15000,"JPY"`, `"CR",15050,"JPY"`), class: BadAmount, says: "line 7, Gross Transaction Amount"},
		{name: "settlement input 21: the footer says more rows than there are", format: "paypal", text: with(t, stl, "\"SC\",13", "\"SC\",14"),
			class: CountMismatch, says: `line 21: declared "SC 14", found "13"`},
		{name: "settlement input 21: the file's own footer does", format: "paypal", text: with(t, stl, "\"FF\",13", "\"FF\",130"), class: CountMismatch, says: `line 26: declared "FF 130"`},
		{name: "settlement input 22: a section's sums are not those of its rows", format: "paypal", text: with(t, stl, `"SF","JPY",15000`, `"SF","JPY",15001`), class: SumMismatch, says: "line 19"},
		{name: "settlement input 23: two chargebacks on one invoice are two", format: "paypal", text: stl,
			kinds: []Kind{Chargeback}, lines: []string{"chargeback " + firstRef + " AUD -4.80-0.00=-4.80", "chargeback " + firstRef + " AUD -0.40-0.00=-0.40"}},
		{name: "settlement input 26: a partial capture is the whole and the reversal of the rest", format: "stripe", text: payout,
			kinds: []Kind{PartialCaptureReversal}, lines: []string{"partial_capture_reversal " + secondRef + " USD -40.00-0.00=-40.00"}},
		{name: "settlement input 27: fees without a charge, several a day", format: "stripe", text: payout,
			kinds: []Kind{Fee}, lines: []string{"fee  USD 0.00-0.50=-0.50", "fee  USD 0.00-0.50=-0.50"}},
		{name: "settlement input 28: usd and USD are one currency", format: "stripe", text: payout,
			kinds: []Kind{Chargeback, ChargebackReversal}, lines: []string{"chargeback " + firstRef + " USD -15.00-15.00=-30.00", "chargeback_reversal " + firstRef + " USD 15.00-0.00=15.00"}},
		{name: "settlement input 34: a hash instead of the reference is kept as it is", format: "stripe", text: with(t, payout, "txn_005,"+firstRef, "txn_005,"+strings.Repeat("ab", 32)),
			kinds: []Kind{Refund}, lines: []string{"refund " + strings.Repeat("ab", 32) + " USD -10.00-0.00=-10.00"}},
		{name: "settlement input 35: another layout overnight refuses the file", format: "stripe", text: with(t, payout, "created_utc", "created"), class: WrongLayout, says: "line 1, created_utc: the column is missing"},
		{name: "settlement input 38: separators of thousands are not understood unasked", format: "stripe", text: with(t, payout, "100.00,2.40,97.60", `"1,560.00",2.40,97.60`), bad: BadAmount, says: "line 3, gross"},
		{name: "settlement input 38: nor are headers in another language", format: "csv:mollie", text: with(t, sampleOf(t, "settlement.csv"), "Settlement amount", "Verrekeningsbedrag"), class: WrongLayout, says: "Settlement amount"},
		{name: "settlement input 42: three holds with one transaction id and time are three", format: "paypal", text: stl,
			kinds: []Kind{Reserve}, lines: []string{"reserve  AUD -1.00-0.00=-1.00", "reserve  AUD -1.00-0.00=-1.00", "reserve  AUD -1.00-0.00=-1.00"}},
		{name: "a currency that was not all converted needs its sums", format: "paypal", text: with(t, stl, `"DR",1356,"BRL"`, `"DR",1355,"BRL"`), class: SumMismatch, says: "no sums of BRL"},
		{name: "a type that nobody knows", format: "adyen", text: with(t, batch, ",Fee,", ",Surprise,"), bad: UnknownKind, says: `line 9, Type: "Surprise"`},
		{name: "a zone that means several", format: "adyen", text: with(t, batch, "CEST", "IST"), bad: BadDate, says: `line 4, TimeZone: "IST"`},
		{name: "an amount on both sides", format: "adyen", text: with(t, batch, "EUR,10,,1,", "EUR,10,10,1,"), class: BadAmount, says: "line 5, Gross Debit (GC)"},
		{name: "a row of another batch", format: "adyen", text: with(t, batch, "CAD,11.52,,,,,,,,380", "CAD,11.52,,,,,,,,381"), class: WrongLayout, says: "line 13, Batch Number"},
		{name: "a payment in another currency without a rate", format: "adyen", text: with(t, batch, "3158,0.006,", "3158,,"), bad: BadAmount, says: "line 4, Exchange Rate"},
		{name: "the second part of a report in parts", format: "paypal", text: with(t, stl, "\"FH\",01", "\"FH\",02"), class: WrongLayout, says: "line 2, FH"},
		{name: "a second account in a report", format: "paypal", text: with(t, stl, "\"RC\",13", "\"SH\",\"2026/01/06 00:00:00 -0800\",\"2026/01/06 23:59:59 -0800\",\"OTHER\",\"\""), class: WrongLayout, says: "SH after RF"},
		// Regression: a reader that fell over.
		{name: "a CH record without names", format: "paypal", text: "SH,2026/01/06 00:00:00 -0800,2026/01/06 23:59:59 -0800,A\nCH\n", class: WrongLayout, says: "there are no column names"},
		{name: "something after the end", format: "paypal", text: stl + "\"FF\",13\n", class: WrongLayout, says: "data_after_trailer"},
		{name: "a fee in another currency than its gross", format: "paypal", text: with(t, stl, `225,"AUD"`, `225,"USD"`), class: BadAmount, says: "line 5, Fee Currency"},
		{name: "a fee on one line and the other way", format: "stripe", text: with(t, payout, "24.05,charge", "24.06,charge"), bad: IdentityBroken, says: "line 2, net"},
		{name: "what the customer saw goes another way", format: "stripe", text: with(t, payout, "charge,100.00,EUR", "charge,-100.00,EUR"), bad: BadAmount, says: "customer_facing_amount"},
		{name: "a quote that does not close", format: "stripe", text: with(t, payout, `""quotes"""`, `""quotes""`), class: EmptyOrTruncated, says: "line"},
		{name: "semicolons", format: "stripe", text: strings.ReplaceAll(payout, ",", ";"), class: WrongLayout, says: `separated by ";"`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := readAs(t, c.format, c.text)
			if class := ClassOf(r.file); class != c.class {
				t.Fatalf("the file is %q, want %q: %v", class, c.class, r.file)
			}
			said := fmt.Sprint(r.file)
			switch {
			case c.class != "":
			case c.bad == "" && len(r.bad) > 0 || c.bad != "" && (len(r.bad) != 1 || r.bad[0].Class != c.bad):
				t.Fatalf("bad lines %v, want one that is %q", r.bad, c.bad)
			case c.bad != "":
				said = r.bad[0].Error()
			case !slices.Equal(briefs(r.lines, c.kinds...), c.lines):
				t.Errorf("got\n%s\nwant\n%s", strings.Join(briefs(r.lines, c.kinds...), "\n"), strings.Join(c.lines, "\n"))
			}
			if !strings.Contains(said, c.says) {
				t.Errorf("it says %q, and not %q", said, c.says)
			}
		})
	}
}

// TestInputsAboutSingleFields are those that turn on what becomes of one field.
func TestInputsAboutSingleFields(t *testing.T) {
	t.Parallel()
	batch, stl := readAs(t, "adyen", sampleOf(t, "batch.csv")), readAs(t, "paypal", sampleOf(t, "STL-20260106.01.009.csv"))
	checks := map[string]bool{
		"settlement input 13: <auto> is not a reference": batch.lines[0].Reference == firstRef,
		"settlement input 14: the payment id may be the capture id": batch.lines[1].CaptureID == "PSP0000000000002" &&
			batch.lines[1].ID == "380/settled/PSP0000000000002/PSP0000000000002",
		"settlement input 18: the date is of the report's day, in UTC of the next": stl.lines[1].OccurredAt.Format("2006-01-02T15:04:05Z07:00") == "2026-01-07T07:31:39Z" &&
			!stl.lines[1].OccurredAt.Before(stl.header.From) && stl.lines[1].OccurredAt.Before(stl.header.To),
		"settlement input 29: a line without a payout": readAs(t, "stripe", sampleOf(t, "stripe/payout.csv")).lines[7].Payout == "",
		"the batch is numbered by itself":              batch.header.Sequence == 380 && batch.header.StartsAnywhere && batch.header.Account == "ShopEU",
		"a chargeback is about the sale":               stl.lines[4].CaptureID == "5678",
		"the custom field stands in for the invoice":   stl.lines[1].Reference == secondRef,
	}
	for name, ok := range checks {
		if !ok {
			t.Error(name)
		}
	}
}

// TestSettlementInput3ColumnsInAnyOrder: Adyen's columns move from year to year.
func TestSettlementInput3ColumnsInAnyOrder(t *testing.T) {
	t.Parallel()
	text := sampleOf(t, "adyen/no-payout.csv")
	var moved strings.Builder
	for record := range strings.Lines(text) {
		fields, err := split(strings.TrimSuffix(record, "\n"), ',')
		if err != nil {
			t.Fatal(err)
		}
		slices.Reverse(fields)
		moved.WriteString(join(append([]string{"Column of 2025"}, fields...)) + "\n")
	}
	want, got := readAs(t, "adyen", text), readAs(t, "adyen", moved.String())
	if !slices.Equal(briefs(want.lines), briefs(got.lines)) || !slices.Contains(got.header.IgnoredColumns, "Column of 2025") {
		t.Errorf("%v, %v, ignored %q", got.file, briefs(got.lines), got.header.IgnoredColumns)
	}
}

package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"paymentsd/ledger"
	"paymentsd/money"
	"paymentsd/payment"
	"paymentsd/settlement"
)

func (o *office) want(c payment.Charge, want payment.Status) {
	o.t.Helper()
	if got := o.status(c); got != want {
		o.t.Errorf("charge %s is %s, want %s", c.AcqRef, got, want)
	}
}

// classes compares the classes of a report's exceptions, in order.
func classes(t *testing.T, r reported, want ...string) {
	t.Helper()
	var got []string
	for _, e := range r.Exceptions {
		got = append(got, e.Class)
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("exceptions %v, want %v: %+v", got, want, r.Exceptions)
	}
}

func (o *office) sound() {
	o.t.Helper()
	if r := o.run("", "verify"); r.code != exitClean {
		o.t.Errorf("verify: exit %d\n%s%s", r.code, r.stdout, r.stderr)
	}
}

// batch is a header of Adyen's n-th batch.
func batch(n int) settlement.Header { return settlement.Header{Account: "ShopEU", Sequence: n} }

func TestSettlementInputs4And5ABatchUnderTwoNames(t *testing.T) {
	t.Parallel()
	o := newOffice(t, "north")
	c := unknownAt(t, o.db, o.merchant, "north", "k1")
	file := written(t, "adyen", batch(380), settles(c, 0))
	first, code := o.nightly("north", "adyen", file.Bytes(), file.Bytes())
	if code != exitClean || first.Files[1].Status != "duplicate" {
		t.Errorf("settlement input 4: exit %d, %+v", code, first.Files)
	}
	o.want(c, payment.Captured)
	// Under the dated name the columns stand in another order.
	d, _ := file.Inject("reorder_columns", 0)
	again, code := o.nightly("north", "adyen", d.Bytes)
	if f := again.Files[0]; code != exitClean || f.Status != "duplicate" || f.Counted != 0 || f.Repeated != 2 {
		t.Errorf("settlement input 5: exit %d, %+v", code, f)
	}
	o.sound()
}

func TestSettlementInput45LinesOfTwoReportsCountOnce(t *testing.T) {
	t.Parallel()
	o := newOffice(t, "north")
	a, b, c := unknownAt(t, o.db, o.merchant, "north", "a"), unknownAt(t, o.db, o.merchant, "north", "b"), unknownAt(t, o.db, o.merchant, "north", "c")
	one, two := written(t, "stripe", settlement.Header{}, settles(a, 0), settles(b, 1)), written(t, "stripe", settlement.Header{}, settles(b, 1), settles(c, 2))
	report, code := o.nightly("north", "stripe", one.Bytes(), two.Bytes())
	if f := report.Files[1]; code != exitClean || f.Counted != 1 || f.Repeated != 1 {
		t.Errorf("exit %d, %+v", code, f)
	}
	for _, charge := range []payment.Charge{a, b, c} {
		o.want(charge, payment.Captured)
	}
	// The same balance transaction with another amount is not counted, and told.
	other := settles(b, 1)
	other.Fee, _ = money.FromMinor(7, 2, "USD")
	other.Net, _ = other.Gross.Sub(other.Fee)
	report, _ = o.nightly("north", "stripe", written(t, "stripe", settlement.Header{}, other).Bytes())
	classes(t, report, "same_key_other_content")
	o.sound()
}

func TestSettlementInput2BatchesAreConsecutiveFromTheFirst(t *testing.T) {
	t.Parallel()
	o := newOffice(t, "north")
	nothing := settlement.Line{ID: "Balancetransfer", Kind: settlement.BalanceTransfer, OccurredAt: time.Now()}
	nothing.Gross, _ = money.FromMinor(100, 2, "USD")
	nothing.Fee, nothing.Net = money.Zero("USD"), nothing.Gross
	onwards := nothing
	onwards.ID, onwards.Gross, onwards.Net = "Balancetransfer to 239", nothing.Gross.Neg(), nothing.Net.Neg()
	quiet := func(n int) []byte { return written(t, "adyen", batch(n), nothing, onwards).Bytes() }
	if report, code := o.nightly("north", "adyen", quiet(238)); code != exitClean {
		t.Errorf("the first batch is 238: exit %d, %+v", code, report.Exceptions)
	}
	report, _ := o.nightly("north", "adyen", quiet(240))
	classes(t, report, "missing_file")
	if len(report.Exceptions) == 1 && !strings.Contains(report.Exceptions[0].Theirs, "240") {
		t.Errorf("%+v", report.Exceptions)
	}
	if report, code := o.nightly("north", "adyen", quiet(239)); code != exitClean {
		t.Errorf("it came: exit %d, %+v", code, report.Exceptions)
	}
}

func TestABatchThatIsIssuedAgainTakesLinesBack(t *testing.T) {
	t.Parallel()
	o := newOffice(t, "north")
	a, b := unknownAt(t, o.db, o.merchant, "north", "a"), unknownAt(t, o.db, o.merchant, "north", "b")
	o.nightly("north", "adyen", written(t, "adyen", batch(7), settles(a, 0), settles(b, 1)).Bytes())
	o.want(b, payment.Captured)
	report, code := o.nightly("north", "adyen", written(t, "adyen", batch(7), settles(a, 0)).Bytes())
	if code != exitExceptions {
		t.Errorf("exit %d", code)
	}
	classes(t, report, "contradicted_later", "reissued_file")
	o.want(b, payment.Captured) // it stays, and a person looks
	o.sound()
}

func TestACapturePaidInAnotherCurrency(t *testing.T) {
	t.Parallel()
	for format, h := range map[string]settlement.Header{"adyen": batch(1), "stripe": {}} {
		o := newOffice(t, "north")
		c := unknownAt(t, o.db, o.merchant, "north", "k1")
		l := settles(c, 0)
		l.Fee, l.Net = money.Zero("USD"), l.Gross
		net, _ := money.FromMinor(4510, 2, "EUR")
		fee, _ := money.FromMinor(90, 2, "EUR")
		l.Settled = &settlement.Settled{Net: net, Fee: fee}
		if report, code := o.nightly("north", format, written(t, format, h, l).Bytes()); code != exitClean {
			t.Errorf("%s: exit %d, %+v", format, code, report.Exceptions)
		}
		o.want(c, payment.Captured)
		balances, err := ledger.Balances(t.Context(), o.db.Pool, o.merchant)
		if err != nil {
			t.Fatal(err)
		}
		var told bytes.Buffer
		for _, b := range balances {
			told.WriteString(b.String() + "\n")
		}
		for _, want := range []string{"acquirer_fees:north 0.90 EUR", "bank:north 45.10 EUR", "exchange:north -46.00 EUR", "exchange:north 49.99 USD"} {
			if !strings.Contains(strings.Join(strings.Fields(told.String()), " "), want) {
				t.Errorf("%s: %s is not among\n%s", format, want, told.String())
			}
		}
		o.sound()
	}
}

// TestSettlementInput1AmountAndDayDoNotIdentifyACapture: eleven captures of the same sum on one day, none of which
// has our reference.
func TestSettlementInput1AmountAndDayDoNotIdentifyACapture(t *testing.T) {
	t.Parallel()
	o := newOffice(t, "north")
	c := unknownAt(t, o.db, o.merchant, "north", "k1")
	var lines []settlement.Line
	for i := range 11 {
		l := settles(c, i)
		l.ID, l.CaptureID, l.Reference = l.ID+string(rune('a'+i)), "cap_"+string(rune('a'+i)), "90061"+string(rune('0'+i))
		lines = append(lines, l)
	}
	report, _ := o.nightly("north", "adyen", written(t, "adyen", batch(380), lines...).Bytes())
	classes(t, report, strings.Fields(strings.Repeat("missing_with_us ", 11))...)
	o.want(c, payment.Unknown)
}

// TestSettlementInput34AHashForAReference: what comes back damaged is told with the line, and resolves nothing.
func TestSettlementInput34AHashForAReference(t *testing.T) {
	t.Parallel()
	o := newOffice(t, "north")
	c := unknownAt(t, o.db, o.merchant, "north", "k1")
	l := settles(c, 0)
	l.Reference = strings.Repeat("0f", 32)
	report, _ := o.nightly("north", "paypal", written(t, "paypal", reportOf("north", 1), l).Bytes())
	classes(t, report, "missing_with_us")
	o.want(c, payment.Unknown)
}

package settlement

import (
	"io"
	"runtime"
	"strconv"
	"testing"
)

// TestMemoryIsConstant streams 200,000 lines through a Writer and a reader. It is not parallel:
// it measures the heap of the whole process.
func TestMemoryIsConstant(t *testing.T) {
	const lines, early = 200_000, 20_000 // by early, the memory of recent lines is full
	in, out := io.Pipe()
	line := testLine(t)
	go func() {
		w := NewWriter(out, testHeader())
		var err error
		for i := 0; i < lines && err == nil; i++ {
			line.ID = "N-" + strconv.Itoa(i)
			err = w.Write(line)
		}
		if err == nil {
			err = w.Close()
		}
		out.CloseWithError(err)
	}()
	defer in.Close()
	_, all, err := canonical{}.Open(in)
	if err != nil {
		t.Fatal(err)
	}
	seen, before := 0, uint64(0)
	for _, err := range all {
		if err != nil {
			t.Fatal(err)
		}
		if seen++; seen == early {
			before = heap()
		}
		if seen == lines {
			if grown := int64(heap()) - int64(before); grown > 2<<20 {
				t.Errorf("the heap grew by %d bytes from line %d to line %d", grown, early, lines)
			}
		}
	}
	if seen != lines {
		t.Errorf("read %d lines of %d", seen, lines)
	}
}

// TestMemoryOfEveryFormatIsConstant streams half as many rows through each reader, every third a fee.
func TestMemoryOfEveryFormatIsConstant(t *testing.T) {
	const rows, early = 120_000, 105_000 // by early, what is remembered of lines and of fees is full
	capture := func(i int) string { return "CAP" + strconv.Itoa(i) }
	for name, f := range map[string]struct {
		head string
		row  func(i int) string
		end  string
	}{
		"stripe": {
			"balance_transaction_id,payment_metadata[acq_ref],charge_id,created_utc,currency,gross,fee,net,reporting_category,automatic_payout_id\n",
			func(i int) string {
				if i%3 == 0 {
					return "txn_" + strconv.Itoa(i) + ",,,2026-01-30 10:00:00,usd,-0.50,0,-0.50,fee,po_1\n"
				}
				return "txn_" + strconv.Itoa(i) + ",R," + capture(i) + ",2026-01-30 10:00:00,usd,10.00,0.50,9.50,charge,po_1\n"
			}, "",
		},
		"adyen": {
			"Merchant Account,Psp Reference,Merchant Reference,Creation Date,TimeZone,Type,Modification Reference,Gross Currency,Gross Debit (GC),Gross Credit (GC)," +
				"Exchange Rate,Net Currency,Net Debit (NC),Net Credit (NC),Commission (NC),Markup (NC),Scheme Fees (NC),Interchange (NC),Batch Number\n",
			func(i int) string {
				if i%3 == 0 {
					return "Shop,,,2026-01-30 10:00:00,CET,MiscCosts,Cost " + strconv.Itoa(i) + ",,,,,EUR,1,,,,,,7\n"
				}
				return "Shop," + capture(i) + ",R,2026-01-30 10:00:00,CET,Settled,M,EUR,,10,1,EUR,,9.5,0.5,,,,7\n"
			},
			"Shop,,,2026-01-30 10:00:00,CET,MerchantPayout,P,,,,,EUR,720000,,,,,,7\n",
		},
		"csv:worldpay": {
			"OrderCode\tDate\tStatus\tCurrencyCode\tAmount\tCommission\tBatchId\n",
			func(i int) string { return capture(i) + "\t2026-01-30 10:00:00\tCAPTURED\tGBP\t10.00\t0.50\t7\n" }, "",
		},
	} {
		in, out := io.Pipe()
		go func() {
			_, err := io.WriteString(out, f.head)
			for i := 0; i < rows && err == nil; i++ {
				_, err = io.WriteString(out, f.row(i))
			}
			if err == nil {
				_, err = io.WriteString(out, f.end)
			}
			out.CloseWithError(err)
		}()
		format, err := FormatNamed(name)
		if err != nil {
			t.Fatal(err)
		}
		_, all, err := format.Open(in)
		if err != nil {
			t.Fatal(err)
		}
		seen, before := 0, uint64(0)
		for _, err := range all {
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if seen++; seen == early {
				before = heap()
			}
			if seen == rows {
				if grown := int64(heap()) - int64(before); grown > 2<<20 {
					t.Errorf("%s: the heap grew by %d bytes from line %d to line %d", name, grown, early, rows)
				}
			}
		}
		if seen < rows {
			t.Errorf("%s: read %d lines of %d", name, seen, rows)
		}
		_ = in.Close()
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestRecentLinesForgetTheOldest states the limit that the document gives.
func TestRecentLinesForgetTheOldest(t *testing.T) {
	t.Parallel()
	r := newRecentLines()
	for i := range recentLinesMax {
		if _, _, repeated := r.repeats(strconv.Itoa(i), "x", i); repeated {
			t.Fatalf("%d is new", i)
		}
	}
	if first, same, repeated := r.repeats("0", "x", -1); !repeated || !same || first != 0 {
		t.Errorf("the oldest of %d: got line %d, same %v, repeated %v", recentLinesMax, first, same, repeated)
	}
	r.repeats("one more", "x", -1)
	if _, _, repeated := r.repeats("0", "x", -1); repeated {
		t.Error("0 should be forgotten")
	}
	if len(r.byID) != recentLinesMax || len(r.ring) != recentLinesMax {
		t.Errorf("holds %d and %d, want %d", len(r.byID), len(r.ring), recentLinesMax)
	}
}

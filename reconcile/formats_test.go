package reconcile

import (
	"strings"
	"testing"

	"paymentsd/payment"
)

// TestWhatNoTableTakesIsAnExceptionNotAnError: bytes that Postgres refuses, and amounts that no column holds, are
// the file's fault and not ours.
func TestWhatNoTableTakesIsAnExceptionNotAnError(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	c := s.charge(spec{status: payment.Unknown})
	const head = "balance_transaction_id,payment_metadata[acq_ref],charge_id,created_utc,currency,gross,fee,net,reporting_category,automatic_payout_id," +
		"customer_facing_amount,customer_facing_currency,\xff\x00odd\n"
	const rest = ",2026-11-02 11:00:00,usd,"
	big, long := "999999999999.99", strings.Repeat("9", 300)
	file := head + strings.Join([]string{
		"t1," + c.AcqRef + ",ch_1" + rest + "49.99,1.00,48.99,charge,po_1,,,",
		"t2,\x00,ch_2" + rest + "5.00,0,5.00,charge,po_1,,,",
		"t3,\xff\xfe,ch_3" + rest + "5.00,0,5.00,charge,po_1,,,",
		"t4,R,ch_4" + rest + "5.00,0,5.00,\x00\xff,po_1,,,",
		"\xff,R,ch_5" + rest + "5.00,0,5.00,charge,po_1,,,",
		"t6,R,ch_6" + rest + big + ",-" + big + "," + big + ",charge,po_1,,,",
		"t7,R,ch_7" + rest + "5.00,0,5.00,charge," + long + ",,,",
		long + ",R,ch_8" + rest + "5.00,0,5.00,charge,po_1,,,",
		"t9,R,ch_9" + rest + "-" + big + ",0,-" + big + ",fee,po_1,,,",
		"t10,R,ch_10" + rest + "5.00,1.00,4.00,charge,po_1," + big + ",JPY,",
		"t11,R,ch_11,0000-00-00 00:00:00,usd,5.00,0,5.00,charge,po_1,,,",
		"t12,R,ch_12" + rest + "5.00,0,5.00,charge,po_1",
	}, "\n") + "\n"
	got, err := s.ImportFile(t.Context(), "north", "stripe", "odd.csv", strings.NewReader(file))
	if err != nil || got.File.Status != Accepted {
		t.Fatalf("%+v, %v", got, err)
	}
	if f := got.File; f.Lines != 12 || f.Bad != 10 || f.Counted != 2 || f.FirstLineAt.IsZero() {
		t.Errorf("%d lines, %d bad, %d counted: %+v", f.Lines, f.Bad, f.Counted, f)
	}
	report := s.reconcile()
	s.wantStatus(c, payment.Captured)
	bad := 0
	for _, e := range report.Exceptions {
		if e.LineNo > 0 {
			bad++
		}
	}
	if bad != 10 {
		t.Errorf("%d exceptions about lines: %+v", bad, report.Exceptions)
	}
}

package reconcile

import (
	"testing"

	"paymentsd/internal/pgtest"
	"paymentsd/ledger"
	"paymentsd/payment"
)

func TestStatementsFitTheSchema(t *testing.T) {
	t.Parallel()
	pgtest.PrepareAll(t, ".")
}

func TestSettlementEndsAnUnknown(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	known := s.charge(spec{status: payment.Captured})
	unknown := s.charge(spec{status: payment.Unknown, amount: "100.00"})
	report := s.reconcile(daily(t, 1, line("1", known, fee(t, "1.55")), line("2", unknown, fee(t, "2.90"))))

	s.wantStatus(unknown, payment.Captured)
	s.wantClasses()
	if report.Status() != RunClean || report.ExitCode() != 0 {
		t.Errorf("the run is %s, want clean", report.Status())
	}
	if report.Lines.Matched != 2 || report.Lines.NotExamined != 0 {
		t.Errorf("lines: %+v", report.Lines)
	}
	s.wantBalance(ledger.AcquirerReceivable("north"), "0.00")
	s.wantBalance(ledger.Bank("north"), "145.54")
	s.wantBalance(ledger.Fees("north"), "4.45")
	s.wantBalance(ledger.MerchantPayable, "-149.99")
	evidence, err := s.resolver.Resolutions(t.Context(), s.merchant.ID, unknown.ID)
	if err != nil || len(evidence) != 1 {
		t.Fatalf("evidence: %+v, %v", evidence, err)
	}
	if e := evidence[0]; !e.Applied || e.FileID != report.Files[0].File.ID || e.LineNo != 4 || e.CaptureID != "cap_of_2" {
		t.Errorf("the evidence cites %+v", e)
	}
	t.Log(text(t, report))
}

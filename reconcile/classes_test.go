package reconcile

import (
	"strings"
	"testing"
	"time"

	"paymentsd/ledger"
	"paymentsd/payment"
	"paymentsd/settlement"
)

// classCase is one way in which an acquirer's lines and our charge can differ.
type classCase struct {
	name   string
	charge spec
	lines  func(t *testing.T, c payment.Charge) []settlement.Line
	asOf   time.Time // Friday
	want   []Class
	after  payment.Status // of the charge
	risk   string         // of the first exception
	says   string         // in ours, theirs or detail of the first exception
}

func classCases() []classCase {
	captured, unknown := spec{status: payment.Captured}, spec{status: payment.Unknown}
	one := func(change ...func(*settlement.Line)) func(*testing.T, payment.Charge) []settlement.Line {
		return func(_ *testing.T, c payment.Charge) []settlement.Line {
			return []settlement.Line{line("1", c, change...)}
		}
	}
	none := func(*testing.T, payment.Charge) []settlement.Line { return nil }
	return []classCase{
		{name: "the line of a captured charge is no exception", charge: captured, lines: one(), after: payment.Captured},
		{name: "settlement case 43: a timeout that the acquirer captured becomes captured by its reference", charge: unknown,
			lines: one(), after: payment.Captured},
		{name: "an unknown inside its window is no exception", charge: unknown, lines: none, after: payment.Unknown},
		{name: "an unknown past its cut-off goes to ops, still unknown", charge: unknown, lines: none, asOf: late,
			want: []Class{UnknownPastCutoff}, after: payment.Unknown, risk: "49.99", says: "no acquirer says"},
		{name: "a captured charge without a line inside its window is no exception", charge: captured, lines: none, after: payment.Captured},
		{name: "a captured charge without a line past its cut-off is missing at the acquirer", charge: captured, lines: none, asOf: late,
			want: []Class{MissingAtAcquirer}, after: payment.Captured, risk: "49.99"},
		{name: "a reference of a merchant without such a charge is missing with us", charge: captured,
			lines: func(_ *testing.T, c payment.Charge) []settlement.Line {
				return []settlement.Line{line("1", c), line("2", c, reference(payment.AcqRef(c.Merchant, "never-used", 0)))}
			},
			want: []Class{MissingWithUs}, after: payment.Captured, risk: "49.99", says: "no charge has this reference"},
		{name: "a reference that is none of ours is missing with us", charge: captured,
			lines: func(_ *testing.T, c payment.Charge) []settlement.Line {
				return []settlement.Line{line("1", c), line("2", c, reference("ORDER-900619"))}
			},
			want: []Class{MissingWithUs}, after: payment.Captured, says: `"ORDER-900619"`},
		{name: "a line with a capture id only has no reference", charge: captured,
			lines: func(_ *testing.T, c payment.Charge) []settlement.Line {
				return []settlement.Line{line("1", c), line("2", c, reference(""))}
			},
			want: []Class{NoReference}, after: payment.Captured},
		{name: "one cent less does not resolve: an amount mismatch, under", charge: unknown,
			lines: func(t *testing.T, c payment.Charge) []settlement.Line {
				return []settlement.Line{line("1", c, gross(t, "49.98", "USD"))}
			},
			want: []Class{AmountMismatch}, after: payment.Unknown, risk: "0.01", says: "under by 0.01 USD"},
		{name: "peers case 27: a surplus is an exception, too: an amount mismatch, over", charge: captured,
			lines: func(t *testing.T, c payment.Charge) []settlement.Line {
				return []settlement.Line{line("1", c, gross(t, "50.00", "USD"))}
			},
			want: []Class{AmountMismatch}, after: payment.Captured, risk: "0.01", says: "over by 0.01 USD"},
		{name: "another currency does not resolve", charge: unknown,
			lines: func(t *testing.T, c payment.Charge) []settlement.Line {
				return []settlement.Line{line("1", c, gross(t, "49.99", "EUR"))}
			},
			want: []Class{CurrencyMismatch}, after: payment.Unknown, risk: "49.99", says: "49.99 EUR"},
		{name: "settlement case 26: a partial capture, 100.00 less 40.00, is the 60.00 that was asked for",
			charge: spec{status: payment.Unknown, amount: "60.00"}, after: payment.Captured,
			lines: func(t *testing.T, c payment.Charge) []settlement.Line {
				return []settlement.Line{line("1", c, gross(t, "100.00", "USD"), capture("x")),
					line("2", c, kind(settlement.PartialCaptureReversal), gross(t, "-40.00", "USD"), capture("x"))}
			}},
		{name: "peers case 22, settlement case 44: two captures under one reference are one match and one duplicate", charge: unknown,
			lines: func(_ *testing.T, c payment.Charge) []settlement.Line {
				return []settlement.Line{line("1", c, capture("a")), line("2", c, capture("b"))}
			},
			want: []Class{DuplicateCapture}, after: payment.Captured, risk: "49.99"},
		{name: "the same capture settled twice under two line ids is a duplicate", charge: captured,
			lines: func(_ *testing.T, c payment.Charge) []settlement.Line {
				return []settlement.Line{line("1", c), line("2", c)}
			},
			want: []Class{DuplicateCapture}, after: payment.Captured},
		{name: "a second capture that the acquirer took back itself is no exception", charge: unknown,
			lines: func(t *testing.T, c payment.Charge) []settlement.Line {
				return []settlement.Line{line("1", c, capture("a")), line("2", c, capture("b")),
					line("3", c, kind(settlement.PartialCaptureReversal), gross(t, "-49.99", "USD"), capture("b"))}
			}, after: payment.Captured},
		{name: "peers case 23: a declined charge that is settled is captured though declined, not a match", charge: spec{status: payment.Declined},
			lines: one(), want: []Class{CapturedThoughDeclined}, after: payment.Declined, risk: "49.99"},
		{name: "peers case 16: a failed charge that is settled is captured though failed and stays failed", charge: spec{status: payment.Failed},
			lines: one(), want: []Class{CapturedThoughFailed}, after: payment.Failed, risk: "49.99"},
		{name: "another capture id than the acquirer answered is a reference conflict", charge: spec{status: payment.Captured, capture: "cap_ours"},
			lines: one(capture("cap_theirs")), want: []Class{ReferenceConflict}, after: payment.Captured, says: `"cap_theirs"`},
		{name: "a line older than our first attempt does not resolve", charge: unknown,
			lines: one(at(monday.Add(-time.Hour))), want: []Class{BeforeFirstAttempt}, after: payment.Unknown},
		{name: "a line within the clocks' difference does", charge: unknown, lines: one(at(monday.Add(-time.Minute))), after: payment.Captured},
		{name: "an acquirer that was never asked cannot settle the charge", charge: spec{status: payment.Unknown, tried: []string{"south"}},
			lines: one(), want: []Class{WrongAcquirer}, after: payment.Unknown},
		{name: "settled at north though its refusal let south capture, too: captured at both", charge: spec{status: payment.Captured, tried: []string{"north", "south"}},
			lines: one(capture("n1")), want: []Class{CapturedAtBoth}, after: payment.Captured, risk: "49.99"},
		{name: "an unknown at south that north settles is captured at north, whose refusal was none",
			charge: spec{status: payment.Unknown, tried: []string{"north", "south"}}, lines: one(capture("n1")),
			want: []Class{CapturedThoughFailed}, after: payment.Captured, says: "attempt 1 at north is not_sent"},
		{name: "peers case 23: a negative line with the reference is a refund and no capture", charge: captured,
			lines: func(t *testing.T, c payment.Charge) []settlement.Line {
				return []settlement.Line{line("1", c), line("2", c, kind(settlement.Refund), gross(t, "-49.99", "USD"))}
			}, after: payment.Captured},
		{name: "a refund does not resolve an unknown", charge: unknown,
			lines: func(t *testing.T, c payment.Charge) []settlement.Line {
				return []settlement.Line{line("1", c, kind(settlement.Refund), gross(t, "-49.99", "USD"))}
			}, want: []Class{RefundWithoutCapture}, after: payment.Unknown},
		{name: "more refunded than captured", charge: captured,
			lines: func(t *testing.T, c payment.Charge) []settlement.Line {
				return []settlement.Line{line("1", c), line("2", c, kind(settlement.Refund), gross(t, "-30.00", "USD")),
					line("3", c, kind(settlement.Chargeback), gross(t, "-30.00", "USD"))}
			}, want: []Class{RefundAboveCapture}, after: payment.Captured, risk: "10.01"},
		{name: "settlement case 23: two chargebacks, one reversed, are three lines and no mismatch", charge: captured,
			lines: func(t *testing.T, c payment.Charge) []settlement.Line {
				return []settlement.Line{line("1", c), line("2", c, kind(settlement.Chargeback), gross(t, "-20.00", "USD")),
					line("3", c, kind(settlement.Chargeback), gross(t, "-49.99", "USD")),
					line("4", c, kind(settlement.ChargebackReversal), gross(t, "20.00", "USD"))}
			}, after: payment.Captured},
		{name: "a capture that failed at the acquirer contradicts a captured charge", charge: captured,
			lines: func(t *testing.T, c payment.Charge) []settlement.Line {
				return []settlement.Line{line("1", c, kind(settlement.CaptureFailed), gross(t, "0.00", "USD"))}
			}, want: []Class{ContradictedLater}, after: payment.Captured, risk: "49.99"},
		{name: "a failed capture alone proves nothing before the cut-off", charge: unknown,
			lines: func(t *testing.T, c payment.Charge) []settlement.Line {
				return []settlement.Line{line("1", c, kind(settlement.CaptureFailed), gross(t, "0.00", "USD"))}
			}, after: payment.Unknown},
		{name: "a charge that is still being asked for waits", charge: spec{status: payment.Pending}, lines: one(), after: payment.Pending},
	}
}

func TestExceptionClasses(t *testing.T) {
	t.Parallel()
	for _, c := range classCases() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			charge := s.charge(c.charge)
			asOf := c.asOf
			if asOf.IsZero() {
				asOf = friday
			}
			report := s.run(request("north", asOf, daily(t, 1, c.lines(t, charge)...)))
			open := s.wantClasses(c.want...)
			s.wantStatus(charge, c.after)
			wantExit := 0
			if len(c.want) > 0 {
				wantExit = 1
			}
			if report.ExitCode() != wantExit {
				t.Errorf("exit %d, want %d", report.ExitCode(), wantExit)
			}
			if len(open) == 0 {
				return
			}
			e := open[0]
			if c.risk != "" && e.AtRisk.String() != c.risk {
				t.Errorf("%s at risk, want %s", e.AtRisk, c.risk)
			}
			if all := e.Ours + "|" + e.Theirs + "|" + e.Detail; !strings.Contains(all, c.says) {
				t.Errorf("%q is not in %q", c.says, all)
			}
			if e.Ours == "" || e.Theirs == "" || e.Action() == "" || e.Severity == "" || e.Since.IsZero() {
				t.Errorf("a person is told too little: %+v", e)
			}
		})
	}
}

// Each line leaves the receivable as far as it was expected; what is left there is what the exceptions
// are about.
func TestLinesArePostedOnce(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name                            string
		status                          payment.Status
		lines                           func(*testing.T, payment.Charge) []settlement.Line
		receivable, bank, fees, payable string
	}{
		{"settlement case 16, peers case 27: the gross is matched and the fee is booked", payment.Captured,
			func(t *testing.T, c payment.Charge) []settlement.Line {
				return []settlement.Line{line("1", c, fee(t, "2.90"))}
			},
			"0.00", "47.09", "2.90", "-49.99"},
		{"a refund takes from the merchant, with part of the fee given back", payment.Captured,
			func(t *testing.T, c payment.Charge) []settlement.Line {
				return []settlement.Line{line("1", c, fee(t, "2.90")), line("2", c, kind(settlement.Refund), gross(t, "-49.99", "USD"), fee(t, "-0.90"))}
			}, "0.00", "-2.00", "2.00", "0.00"},
		{"a chargeback and its reversal end where they began", payment.Captured,
			func(t *testing.T, c payment.Charge) []settlement.Line {
				return []settlement.Line{line("1", c), line("2", c, kind(settlement.Chargeback), gross(t, "-49.99", "USD"), fee(t, "15.00")),
					line("3", c, kind(settlement.ChargebackReversal), gross(t, "49.99", "USD"))}
			}, "0.00", "34.99", "15.00", "-49.99"},
		{"a fee on its own", payment.Captured,
			func(t *testing.T, c payment.Charge) []settlement.Line {
				return []settlement.Line{line("1", c), line("2", c, kind(settlement.Fee), gross(t, "0.00", "USD"), fee(t, "0.30"))}
			}, "0.00", "49.69", "0.30", "-49.99"},
		{"a second capture stands out as what is left on the receivable", payment.Captured,
			func(t *testing.T, c payment.Charge) []settlement.Line {
				return []settlement.Line{line("1", c), line("2", c, capture("other"))}
			}, "-49.99", "99.98", "none", "-49.99"},
		{"peers case 14: money that came for a failed charge shows in the ledger", payment.Failed,
			func(t *testing.T, c payment.Charge) []settlement.Line { return []settlement.Line{line("1", c)} },
			"-49.99", "49.99", "none", "none"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			charge := s.charge(spec{status: c.status})
			s.reconcile(daily(t, 1, c.lines(t, charge)...))
			for range 2 { // again is the same
				s.wantBalance(ledger.AcquirerReceivable("north"), c.receivable)
				s.wantBalance(ledger.Bank("north"), c.bank)
				s.wantBalance(ledger.Fees("north"), c.fees)
				s.wantBalance(ledger.MerchantPayable, c.payable)
				s.reconcile(daily(t, 1, c.lines(t, charge)...))
			}
		})
	}
}

// peers case 26, settlement case 47: exact decimals from the file to the books.
func TestDecimalsOfEveryCurrency(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	var lines []settlement.Line
	for _, a := range [][2]string{{"15000", "JPY"}, {"0.10", "USD"}, {"0.20", "USD"}, {"1.235", "KWD"}} {
		c := s.charge(spec{status: payment.Unknown, amount: a[0], currency: a[1]})
		lines = append(lines, line("l"+c.ID[20:], c))
	}
	s.reconcile(daily(t, 1, lines...))
	s.wantClasses()
	for currency, want := range map[string]string{"JPY": "15000", "USD": "0.30", "KWD": "1.235"} {
		if got := s.balance(ledger.Bank("north"), currency); got != want {
			t.Errorf("the bank has %s %s, want %s", got, currency, want)
		}
	}
}

func TestEveryClassIsExplained(t *testing.T) {
	t.Parallel()
	seen := map[Class]bool{}
	for _, info := range Classes() {
		if seen[info.Class] || info.Meaning == "" || info.Action == "" || info.Severity == "" {
			t.Errorf("class %s is listed twice or lacks a word: %+v", info.Class, info)
		}
		seen[info.Class] = true
	}
	for _, class := range []settlement.Class{settlement.EmptyOrTruncated, settlement.CountMismatch, settlement.SumMismatch, settlement.HashMismatch,
		settlement.WrongLayout, settlement.BadLine, settlement.UnknownKind, settlement.BadAmount, settlement.BadDate, settlement.IdentityBroken,
		settlement.NoReference, settlement.DuplicateLine, settlement.SameKeyOtherContent} {
		if !seen[Class(class)] {
			t.Errorf("class %s of the parser has no row", class)
		}
	}
	s := newShop(t)
	for _, info := range Classes() { // the schema knows each
		e := Exception{Acquirer: "north", Class: info.Class, Ours: "a", Theirs: "b", Since: monday, AtRisk: amount(t, "1.00", "USD")}.identify("test", string(info.Class))
		if err := s.record(t.Context(), []string{"test:" + string(info.Class)}, []Exception{e}, "x"); err != nil {
			t.Errorf("%s: %v", info.Class, err)
		}
	}
}

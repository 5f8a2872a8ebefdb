package reconcile

import (
	"bytes"
	"strconv"
	"strings"
	"testing"
	"time"

	"paymentsd/ledger"
	"paymentsd/payment"
	"paymentsd/settlement"
	"paymentsd/settlement/feedtest"
)

// week are north's whole files of the eleven days from Monday to the cut-off; lines go into the first.
func week(t *testing.T, acquirer string, days int, lines ...settlement.Line) []Feed {
	t.Helper()
	var feeds []Feed
	for n := 1; n <= days; n++ {
		content := bytesOf(t, header(acquirer, n))
		if n == 1 {
			content = bytesOf(t, header(acquirer, n), lines...)
		}
		feeds = append(feeds, feed(acquirer+"-"+header(acquirer, n).From.Format(time.DateOnly)+".csv", content))
	}
	return feeds
}

// toCutoff is how many daily files reach from Monday over the fifth business day after it.
const toCutoff = 8

func denied(t *testing.T, id string, c payment.Charge) settlement.Line {
	return line(id, c, kind(settlement.CaptureFailed), gross(t, "0.00", "USD"), capture(""))
}

// An unknown becomes failed only by the acquirer's own word that it did not capture, and files that
// leave no room for another capture.
func TestAbsence(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name  string
		tried []string
		feeds func(*testing.T, *shop, payment.Charge) []Feed
		asOf  time.Time
		after payment.Status
		why   string // in the exception, if it stays unknown
	}{
		{"denied, and whole files to the cut-off: failed", nil,
			func(t *testing.T, _ *shop, c payment.Charge) []Feed {
				return week(t, "north", toCutoff, denied(t, "1", c))
			}, late, payment.Failed, ""},
		{"denied, but nobody's cut-off is over", nil,
			func(t *testing.T, _ *shop, c payment.Charge) []Feed {
				return week(t, "north", toCutoff, denied(t, "1", c))
			}, friday, payment.Unknown, ""},
		{"whole files, but no word of the acquirer: peers case 11", nil,
			func(t *testing.T, _ *shop, _ payment.Charge) []Feed { return week(t, "north", toCutoff) }, late, payment.Unknown, "no acquirer says that it did not capture"},
		{"denied, but the files end before the cut-off", nil,
			func(t *testing.T, _ *shop, c payment.Charge) []Feed {
				return week(t, "north", toCutoff-1, denied(t, "1", c))
			}, late, payment.Unknown, "only until 2026-11-09"},
		{"denied, but a file in between is missing", nil,
			func(t *testing.T, _ *shop, c payment.Charge) []Feed {
				f := week(t, "north", toCutoff, denied(t, "1", c))
				return append(f[:3:3], f[4:]...)
			}, late, payment.Unknown, "only until 2026-11-05"},
		{"denied, but a file in between failed its controls", nil,
			func(t *testing.T, _ *shop, c payment.Charge) []Feed {
				f := week(t, "north", toCutoff, denied(t, "1", c))
				f[3] = feed("cut.csv", bytesOf(t, header("north", 4))[:150])
				return f
			}, late, payment.Unknown, "only until 2026-11-05"},
		{"denied, but there is an account whose files do not say which time they cover", nil,
			func(t *testing.T, s *shop, c payment.Charge) []Feed {
				quiet, err := feedtest.Write("stripe", settlement.Header{}, nil)
				if err != nil {
					t.Fatal(err)
				}
				got, err := s.ImportFile(t.Context(), "north", "stripe", "quiet.csv", bytes.NewReader(quiet.Bytes()))
				if err != nil || got.File.Status != Accepted || got.File.Sequence != 0 || !got.File.From.IsZero() {
					t.Fatalf("%+v, %v", got, err)
				}
				return week(t, "north", toCutoff, denied(t, "1", c))
			}, late, payment.Unknown, "no file of north, account -, says that it covers the time from 2026-11-02"},
		{"denied, but another acquirer was tried whose files are not here", []string{"south", "north"},
			func(t *testing.T, _ *shop, c payment.Charge) []Feed {
				return week(t, "north", toCutoff, denied(t, "1", c))
			}, late, payment.Unknown, "no examined file of south"},
		{"denied, and the other acquirer's files are here, but nobody has examined their lines", []string{"south", "north"},
			func(t *testing.T, s *shop, c payment.Charge) []Feed {
				for _, f := range week(t, "south", toCutoff, line("1", c)) {
					in, _ := f.Open(t.Context())
					if _, err := s.ImportFile(t.Context(), "south", "canonical", f.Name, in); err != nil {
						t.Fatal(err)
					}
				}
				return week(t, "north", toCutoff, denied(t, "1", c))
			}, late, payment.Unknown, "no examined file of south"},
		{"denied, and the files of both acquirers are whole: failed", []string{"south", "north"},
			func(t *testing.T, s *shop, c payment.Charge) []Feed {
				s.run(request("south", friday, week(t, "south", toCutoff)...))
				return week(t, "north", toCutoff, denied(t, "1", c))
			}, late, payment.Failed, ""},
		{"denied, but nobody's line of the same sum may be it: settlement case 1", nil,
			func(t *testing.T, _ *shop, c payment.Charge) []Feed {
				return week(t, "north", toCutoff, denied(t, "1", c), line("2", c, reference("A0001-DAMAGED"), capture("x")))
			}, late, payment.Unknown, "1 line(s) without a charge may be its capture"},
		{"denied, but a line of the merchant's with a damaged reference may be it: settlement case 46", nil,
			func(t *testing.T, _ *shop, c payment.Charge) []Feed {
				damaged := c.AcqRef[:19] + map[bool]string{true: "8", false: "7"}[c.AcqRef[19] == '7']
				return week(t, "north", toCutoff, denied(t, "1", c), line("2", c, reference(damaged), capture("x")))
			}, late, payment.Unknown, "1 line(s) without a charge may be its capture"},
		{"denied, but a line that cannot be read may be it", nil,
			func(t *testing.T, _ *shop, c payment.Charge) []Feed {
				f := week(t, "north", toCutoff, denied(t, "1", c))
				f[2] = feed("bad.csv", sealed(t, bytesOf(t, header("north", 3)), "line,?,capture\n"))
				return f
			}, late, payment.Unknown, "1 line(s) without a charge may be its capture"},
		{"denied, but there is a capture that does not add up", nil,
			func(t *testing.T, _ *shop, c payment.Charge) []Feed {
				return week(t, "north", toCutoff, denied(t, "1", c), line("2", c, gross(t, "10.00", "USD")))
			}, late, payment.Unknown, "lines about it that do not fit"},
		{"denied, and captured all the same: captured", nil,
			func(t *testing.T, _ *shop, c payment.Charge) []Feed {
				return week(t, "north", toCutoff, denied(t, "1", c), line("2", c))
			}, late, payment.Captured, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			charge := s.charge(spec{status: payment.Unknown, tried: c.tried})
			report := s.run(request("north", c.asOf, c.feeds(t, s, charge)...))
			s.wantStatus(charge, c.after)
			var past []Exception
			for _, e := range report.Exceptions {
				if e.Class == UnknownPastCutoff {
					past = append(past, e)
				}
			}
			if c.why == "" {
				if len(past) > 0 {
					t.Errorf("an exception of its own: %+v", past)
				}
				return
			}
			if len(past) != 1 || !strings.Contains(past[0].Detail, c.why) {
				t.Errorf("want one exception with %q, got %+v", c.why, past)
			}
		})
	}
}

// The acquirer's own word may be its answer to an inquiry after the trust delay: cases 5 and 20, "not found" is
// no proof by itself.
func TestAbsenceByInquiry(t *testing.T) {
	t.Parallel()
	type said struct {
		acquirer string
		finding  payment.Finding
	}
	whole := func(t *testing.T, _ *shop) []Feed { return week(t, "north", toCutoff) }
	for _, c := range []struct {
		name  string
		tried []string
		said  []said
		feeds func(*testing.T, *shop) []Feed
		asOf  time.Time
		after payment.Status
		why   string
	}{
		{"not found, and whole files to the cut-off: failed", nil, []said{{"north", payment.FindingNotFound}}, whole, late, payment.Failed, ""},
		{"declined, and whole files: failed", nil, []said{{"north", payment.FindingDeclined}}, whole, late, payment.Failed, ""},
		{"not found, but the cut-off is not over", nil, []said{{"north", payment.FindingNotFound}}, whole, friday, payment.Unknown, ""},
		{"not found, but the files end before the cut-off", nil, []said{{"north", payment.FindingNotFound}},
			func(t *testing.T, _ *shop) []Feed { return week(t, "north", toCutoff-1) }, late, payment.Unknown, "only until 2026-11-09"},
		{"whole files, but every inquiry was unclear", nil, []said{{"north", payment.FindingUnclear}}, whole, late, payment.Unknown, "no acquirer says that it did not capture"},
		{"whole files, but the last word is that it still runs", nil, []said{{"north", payment.FindingNotFound}, {"north", payment.FindingPending}},
			whole, late, payment.Unknown, "no acquirer says that it did not capture"},
		{"not found after pending, and an unclear answer since", nil,
			[]said{{"north", payment.FindingPending}, {"north", payment.FindingNotFound}, {"north", payment.FindingUnclear}}, whole, late, payment.Failed, ""},
		{"not found, but an inquiry has seen a capture that does not fit", nil,
			[]said{{"north", payment.FindingCaptured}, {"north", payment.FindingNotFound}}, whole, late, payment.Unknown, "an inquiry found a capture that does not fit"},
		{"not found, but at an acquirer that had refused before", []string{"south", "north"}, []said{{"south", payment.FindingNotFound}},
			func(t *testing.T, s *shop) []Feed {
				s.run(request("south", friday, week(t, "south", toCutoff)...))
				return week(t, "north", toCutoff)
			}, late, payment.Unknown, "no acquirer says that it did not capture"},
		{"not found, but the files of the acquirer tried before are not here", []string{"south", "north"}, []said{{"north", payment.FindingNotFound}},
			whole, late, payment.Unknown, "no examined file of south"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			charge := s.charge(spec{status: payment.Unknown, tried: c.tried})
			for i, e := range c.said {
				s.exec(`insert into resolutions (merchant_id, charge_id, resolution_id, evidence, outcome, applied, acquirer, actor, reason, finding, created_at)
				        values ($1, $2, $3, 'inquiry', 'none', false, $4, 'inquiry', 'asked', $5, $6)`,
					s.merchant.ID, charge.ID, "inquiry:"+strconv.Itoa(i), e.acquirer, string(e.finding), monday.Add(time.Duration(i+1)*time.Hour))
			}
			report := s.run(request("north", c.asOf, c.feeds(t, s)...))
			s.wantStatus(charge, c.after)
			if c.after == payment.Failed {
				now, err := s.resolver.Get(t.Context(), s.merchant.ID, charge.ID)
				if err != nil || now.Evidence != payment.Inquiry || !strings.Contains(now.Detail, "knows of no capture, and the files") {
					t.Errorf("%+v, %v", now, err)
				}
			}
			var whys []string
			for _, e := range report.Exceptions {
				if e.Class == UnknownPastCutoff {
					whys = append(whys, e.Detail)
				}
			}
			if (c.why == "") != (len(whys) == 0) || c.why != "" && !strings.Contains(whys[0], c.why) {
				t.Errorf("exceptions %q, want %q", whys, c.why)
			}
		})
	}
}

func TestWhatFollowsAnAbsence(t *testing.T) {
	t.Parallel()
	t.Run("the evidence is on record, the key is done, and nothing is posted", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		c := s.charge(spec{status: payment.Unknown})
		report := s.run(request("north", late, week(t, "north", toCutoff, denied(t, "1", c))...))
		if len(report.Resolved) != 1 || report.Resolved[0].Word != "failed" {
			t.Errorf("resolved: %+v", report.Resolved)
		}
		evidence, err := s.resolver.Resolutions(t.Context(), s.merchant.ID, c.ID)
		if err != nil || len(evidence) != 2 {
			t.Fatalf("evidence: %+v, %v", evidence, err)
		}
		for _, e := range evidence {
			if e.FileID == "" || e.LineNo == 0 || e.Applied != (e.Outcome == payment.OutcomeFailed) {
				t.Errorf("evidence: %+v", e)
			}
		}
		s.wantBalance(ledger.MerchantPayable, "none")
	})
	t.Run("peers case 14: a late capture of a charge resolved as failed is a conflict, shown in the ledger, and the state stands", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		c := s.charge(spec{status: payment.Unknown})
		s.run(request("north", late, week(t, "north", toCutoff, denied(t, "1", c))...))
		s.run(request("north", late, daily(t, toCutoff+1, line("2", c, at(late)))))
		s.wantStatus(c, payment.Failed)
		open := s.wantClasses(ContradictedLater)
		s.wantBalance(ledger.Bank("north"), "49.99")
		if len(open) == 1 && (open[0].Severity != Critical || !strings.Contains(open[0].Detail, "settlement")) {
			t.Errorf("the exception: %+v", open[0])
		}
		evidence, err := s.resolver.Resolutions(t.Context(), s.merchant.ID, c.ID)
		if err != nil || len(evidence) != 3 {
			t.Fatalf("evidence: %+v, %v", evidence, err)
		}
		for _, e := range evidence {
			if e.Applied != (e.Outcome == payment.OutcomeFailed) {
				t.Errorf("evidence: %+v", e)
			}
		}
	})
	t.Run("peers case 14: money for a charge that ops marked as failed is a conflict, too", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		c := s.charge(spec{status: payment.Unknown})
		if _, err := s.resolver.Resolve(t.Context(), s.merchant.ID, c.ID, payment.Resolution{
			ID: "op-1", Evidence: payment.Operator, Outcome: payment.OutcomeFailed, Actor: "J. Doe", Reason: "the acquirer says no",
		}); err != nil {
			t.Fatal(err)
		}
		s.reconcile(daily(t, 1, line("1", c)))
		s.wantStatus(c, payment.Failed)
		s.wantClasses(ContradictedLater)
	})
}

// An exception ends when later evidence settles it, and stays ended.
func TestLaterEvidenceClosesExceptions(t *testing.T) {
	t.Parallel()
	t.Run("peers case 29: a partial settlement stays open with its remainder until the rest comes", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		c := s.charge(spec{status: payment.Unknown, amount: "100.00"})
		s.reconcile(daily(t, 1, line("1", c, gross(t, "60.00", "USD"))))
		if open := s.wantClasses(AmountMismatch); len(open) == 1 && open[0].AtRisk.String() != "40.00" {
			t.Errorf("the remainder is %s", open[0].AtRisk)
		}
		s.wantStatus(c, payment.Unknown)
		s.reconcile(daily(t, 2, line("2", c, gross(t, "40.00", "USD"))))
		s.wantClasses()
		s.wantStatus(c, payment.Captured)
	})
	t.Run("peers case 30: a line that comes after the cut-off settles what was missing", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		captured, unknown := s.charge(spec{status: payment.Captured}), s.charge(spec{status: payment.Unknown})
		s.run(request("north", late, daily(t, 1)))
		s.wantClasses(MissingAtAcquirer, UnknownPastCutoff)
		s.run(request("north", late, daily(t, 2, line("1", captured), line("2", unknown))))
		s.wantClasses()
		s.wantStatus(unknown, payment.Captured)
	})
	t.Run("the first capture's line after a conflict makes the other a duplicate", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		c := s.charge(spec{status: payment.Captured, capture: "ours"})
		s.reconcile(daily(t, 1, line("1", c, capture("theirs"))))
		s.wantClasses(ReferenceConflict)
		s.reconcile(daily(t, 2, line("2", c)))
		s.wantClasses(DuplicateCapture)
	})
	t.Run("an unknown past its cut-off that ops resolve as captured is missing at the acquirer", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		c := s.charge(spec{status: payment.Unknown})
		s.run(request("north", late, daily(t, 1)))
		s.wantClasses(UnknownPastCutoff)
		if _, err := s.resolver.Resolve(t.Context(), s.merchant.ID, c.ID, payment.Resolution{
			ID: "op-1", Evidence: payment.Operator, Outcome: payment.OutcomeCaptured, Acquirer: "north", CaptureID: "told by phone", Actor: "J. Doe", Reason: "they called",
		}); err != nil {
			t.Fatal(err)
		}
		s.run(request("north", late, daily(t, 1)))
		s.wantClasses(MissingAtAcquirer)
	})
	t.Run("a charge that was still being asked for is matched by a later run", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		c := s.charge(spec{status: payment.Pending})
		first := daily(t, 1, line("1", c))
		if report := s.reconcile(first); report.Lines.Waiting != 1 || report.ExitCode() != 0 {
			t.Errorf("report: %s", text(t, report))
		}
		s.exec(`update idempotency_keys set state = 'unknown', lease_until = null where merchant_id = $1`, s.merchant.ID)
		s.exec(`update charges set status = 'unknown' where merchant_id = $1`, s.merchant.ID)
		if report := s.reconcile(first); report.Lines.Matched != 1 {
			t.Errorf("report: %s", text(t, report))
		}
		s.wantStatus(c, payment.Captured)
	})
	t.Run("captured at both, found by the second acquirer's run", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		c := s.charge(spec{status: payment.Unknown, tried: []string{"north", "south"}})
		s.run(request("south", friday, feed("south.csv", bytesOf(t, header("south", 1), line("1", c, capture("s"))))))
		s.wantStatus(c, payment.Captured)
		s.wantClasses()
		s.reconcile(daily(t, 1, line("1", c, capture("n"))))
		if open := s.wantClasses(CapturedAtBoth); len(open) == 1 && (open[0].Acquirer != "north" || open[0].Severity != Critical) {
			t.Errorf("the exception: %+v", open[0])
		}
	})
}

func TestPeopleCloseExceptions(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	c := s.charge(spec{status: payment.Captured})
	file := daily(t, 1, line("1", c), line("2", c, capture("b")))
	s.reconcile(file)
	open := s.wantClasses(DuplicateCapture)
	id := open[0].ID
	if _, err := s.AddNote(t.Context(), id, "key 1, J. Doe", "asked the acquirer"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.CloseException(t.Context(), id, "key 1, J. Doe", "refunded at the acquirer"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.CloseException(t.Context(), id, "key 2, R. Roe", "me, too"); err == nil || !strings.Contains(err.Error(), "J. Doe") {
		t.Errorf("the second to close is told: %v", err)
	}
	if notes, err := s.Notes(t.Context(), id); err != nil || len(notes) != 1 || notes[0].Text != "asked the acquirer" {
		t.Errorf("notes: %+v, %v", notes, err)
	}
	s.reconcile(file)
	s.wantClasses() // it says what it said when it was closed
	for name, err := range map[string]error{
		"no exception": second(s.CloseException(t.Context(), "ex_none", "J. Doe", "why")),
		"no reason":    second(s.CloseException(t.Context(), id, "J. Doe", " ")),
		"no note":      second(s.AddNote(t.Context(), "ex_none", "J. Doe", "why")),
		"not a person": second(s.CloseException(t.Context(), id, "reconcile", "why")),
	} {
		if err == nil {
			t.Errorf("%s: nothing was said", name)
		}
	}
	// A third capture is another matter.
	s.reconcile(daily(t, 2, line("3", c, capture("c"))))
	s.wantClasses(DuplicateCapture)
}

func second[T any](_ T, err error) error { return err }

package sim_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"paymentsd/acquirer"
	"paymentsd/acquirer/sim"
)

// expected is what our adapter makes of a behaviour, and what is in the book afterwards.
type expected struct {
	class    acquirer.Class
	captured int
	found    acquirer.Found
}

func expectations() map[string]expected {
	const (
		captured, declined, refused, unclear = acquirer.Captured, acquirer.Declined, acquirer.Refused, acquirer.Unclear
		known, never, none, unsure           = acquirer.FoundCaptured, acquirer.FoundDeclined, acquirer.FoundNothing, acquirer.FoundUnclear
	)
	return map[string]expected{
		"ok":                 {captured, 1, known},
		"declined":           {declined, 0, never},
		"insufficient_funds": {declined, 0, never},
		"expired_card":       {declined, 0, never},
		"timeout_captured":   {unclear, 1, known},
		"timeout_lost":       {unclear, 0, none},
		"error_captured":     {unclear, 1, known},
		"error_lost":         {unclear, 0, none},
		"reset_captured":     {unclear, 1, known},
		"reset_lost":         {unclear, 0, none},
		"truncated_captured": {unclear, 1, known},
		"garbled_captured":   {unclear, 1, known},
		"html_lost":          {unclear, 0, none},
		"maintenance_lost":   {unclear, 0, none},
		"unknown_captured":   {unclear, 1, known},
		"redirect_lost":      {unclear, 0, none},
		"wrong_amount":       {unclear, 1, known},
		"wrong_currency":     {unclear, 1, known},
		"wrong_reference":    {unclear, 1, known},
		"pending":            {unclear, 0, acquirer.FoundPending},
		"pending_declined":   {unclear, 0, acquirer.FoundPending},
		"rate_limited":       {refused, 0, none},
		"unprocessed":        {refused, 0, none},
		"slow":               {captured, 1, known},
		"declined_captured":  {declined, 1, known},
		"captured_twice":     {captured, 2, unsure},
		"unsettled":          {captured, 1, known},
		"settled_short":      {captured, 1, known},
		"capture_failed":     {captured, 1, known},
	}
}

// Every row of the table, as magic token and as injected fault, does to the money and to the
// answer what it says.
func TestEveryBehaviour(t *testing.T) {
	t.Parallel()
	want := expectations()
	for _, b := range sim.Behaviours() {
		exp, ok := want[b.Name]
		delete(want, b.Name)
		if !ok {
			t.Errorf("%s has no expectation", b.Name)
			continue
		}
		for way, use := range map[string]func(*testing.T, *sim.Sim) (token string){
			"token": func(*testing.T, *sim.Sim) string { return "tok_" + b.Name },
			"fault": func(t *testing.T, s *sim.Sim) string {
				if err := s.SetFaults(sim.Fault{Kind: b.Name}); err != nil {
					t.Fatal(err)
				}
				return "tok_visa"
			},
		} {
			t.Run(b.Name+" as "+way, func(t *testing.T) {
				t.Parallel()
				s, srv := start(t, sim.Config{SlowLatency: 20 * time.Millisecond, PendingFor: time.Hour})
				a := adapterTo(t, srv.URL(), patience)
				token := use(t, s)
				if got := held(t, s, a, b.Name, token); got.Class != exp.class {
					t.Errorf("answered %+v, want %s", got, exp.class)
				}
				if got := s.CapturesOf("REF1"); got != exp.captured {
					t.Errorf("%d captures in the book, want %d", got, exp.captured)
				}
				if got := a.Lookup(t.Context(), "REF1"); got.Found != exp.found {
					t.Errorf("an inquiry finds %s, want %s (%s)", got.Found, exp.found, got.Detail)
				}
			})
		}
	}
	for name := range want {
		t.Errorf("%s is expected, and not in the table", name)
	}
}

// held captures, and hangs up on those that would hold the connection.
func held(t *testing.T, s *sim.Sim, a acquirer.Acquirer, name, token string) acquirer.Answer {
	t.Helper()
	if !strings.HasPrefix(name, "timeout") {
		return capture(t, a, "REF1", token)
	}
	return captureUntil(t, a, "REF1", token, "captured or lost", func() bool { return s.Stats().Captures+s.Stats().Lost == 1 })
}

// A token shows its fault to every request that carries it; money moves once all the same.
func TestTokenTroublesEveryTry(t *testing.T) {
	t.Parallel()
	s, srv := start(t, sim.Config{})
	for range 3 {
		if got := order(t, srv.URL(), "K1", "tok_error_captured"); got.status != 500 {
			t.Errorf("status %d, want 500", got.status)
		}
	}
	if n := s.CapturesOf("K1"); n != 1 {
		t.Errorf("%d captures, want 1", n)
	}
	if n := s.Stats().DuplicatesSuppressed; n != 2 {
		t.Errorf("%d duplicates suppressed, want 2", n)
	}
}

func TestOnceTokenTroublesTheFirstTryUnderAKey(t *testing.T) {
	t.Parallel()
	for token, afterwards := range map[string]int{"tok_error_captured_once": 201, "tok_error_lost_once": 201, "tok_unprocessed_once": 201} {
		s, srv := start(t, sim.Config{})
		if got := order(t, srv.URL(), "K1", token); got.status == 201 {
			t.Errorf("%s: the first try is answered %d", token, got.status)
		}
		if got := order(t, srv.URL(), "K1", token); got.status != afterwards {
			t.Errorf("%s: the second try is answered %d, want %d", token, got.status, afterwards)
		}
		if got := order(t, srv.URL(), "K2", token); got.status == 201 {
			t.Errorf("%s: the first try under another key is answered %d", token, got.status)
		}
		if n := s.CapturesOf("K1"); n != 1 {
			t.Errorf("%s: %d captures, want 1", token, n)
		}
	}
}

func TestDocumentListsTheTable(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../docs/simulator.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]string{}
	for line := range strings.Lines(string(doc)) {
		if cells := strings.Split(line, "|"); len(cells) == 4 && strings.HasPrefix(strings.TrimSpace(cells[1]), "`tok_") {
			documented[strings.Trim(cells[1], " `")] = strings.TrimSpace(cells[2])
		}
	}
	for _, b := range sim.Behaviours() {
		token := "tok_" + b.Name
		if documented[token] != b.Doc {
			t.Errorf("docs/simulator.md says of %s: %q; the table: %q", token, documented[token], b.Doc)
		}
		delete(documented, token)
	}
	for token := range documented {
		t.Errorf("docs/simulator.md has %s, the table has not", token)
	}
}

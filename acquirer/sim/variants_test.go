package sim_test

import (
	"context"
	"testing"
	"time"

	"paymentsd/acquirer"
	"paymentsd/acquirer/sim"
)

// peers case 7 lives on this difference: whether a same-key retry after a failure charges again
// depends on the acquirer alone.
func TestSameKeyRetryAfterAFailure(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		variant  sim.Variant
		fault    string
		retry    acquirer.Class
		captures int
	}{
		{"outcomes are stored: the retry learns of the capture", sim.Variant{}, "error_captured", acquirer.Captured, 1},
		{"outcomes are stored: a lost one runs", sim.Variant{}, "error_lost", acquirer.Captured, 1},
		{"peers case 7: failures are forgotten, the retry charges again", sim.Variant{ForgetsFailures: true}, "error_captured", acquirer.Captured, 2},
		{"failures are forgotten, also those by the connection", sim.Variant{ForgetsFailures: true}, "reset_captured", acquirer.Captured, 2},
		{"failures are forgotten, successes are not", sim.Variant{ForgetsFailures: true}, "ok", acquirer.Captured, 1},
		{"peers case 7: 500s are replayed, the retry tells nothing", sim.Variant{ReplaysServerErrors: true}, "error_captured", acquirer.Unclear, 1},
		{"500s are replayed, also of what was lost", sim.Variant{ReplaysServerErrors: true}, "error_lost", acquirer.Unclear, 0},
		{"500s are replayed, other failures are not", sim.Variant{ReplaysServerErrors: true}, "reset_captured", acquirer.Captured, 1},
		{"no keys: every request charges", sim.Variant{NoKeys: true}, "ok", acquirer.Captured, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, srv := start(t, sim.Config{Variant: c.variant})
			a := adapterTo(t, srv.URL(), patience)
			setFaults(t, s, sim.Fault{Kind: c.fault, Count: 1})
			capture(t, a, "REF1", "tok_ok")
			if got := capture(t, a, "REF1", "tok_ok"); got.Class != c.retry {
				t.Errorf("the retry: %+v, want %s", got, c.retry)
			}
			if n := s.CapturesOf("REF1"); n != c.captures {
				t.Errorf("%d captures, want %d", n, c.captures)
			}
		})
	}
}

func TestDeclineIsReplayedUnlessForgotten(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		variant sim.Variant
		retry   acquirer.Class
	}{
		"stored":    {sim.Variant{}, acquirer.Declined},
		"forgotten": {sim.Variant{ForgetsFailures: true}, acquirer.Captured},
	} {
		s, srv := start(t, sim.Config{Variant: c.variant})
		a := adapterTo(t, srv.URL(), patience)
		setFaults(t, s, sim.Fault{Kind: "declined", Count: 1})
		capture(t, a, "REF1", "tok_ok")
		if got := capture(t, a, "REF1", "tok_ok"); got.Class != c.retry {
			t.Errorf("%s: the retry is answered %+v, want %s", name, got, c.retry)
		}
		if got := a.Lookup(context.Background(), "REF1"); (got.Found == acquirer.FoundCaptured) != (c.retry == acquirer.Captured) {
			t.Errorf("%s: an inquiry finds %+v", name, got)
		}
	}
}

func TestKeysAreForgottenAfterTheirTime(t *testing.T) {
	t.Parallel()
	now := newClock()
	s, srv := start(t, sim.Config{Now: now.Now, Variant: sim.Variant{KeyTTL: 24 * time.Hour}})
	a := adapterTo(t, srv.URL(), patience)
	capture(t, a, "REF1", "tok_ok")
	now.Advance(24*time.Hour - time.Microsecond)
	capture(t, a, "REF1", "tok_ok")
	if n := s.CapturesOf("REF1"); n != 1 {
		t.Errorf("inside its time: %d captures", n)
	}
	now.Advance(time.Microsecond)
	capture(t, a, "REF1", "tok_ok")
	if n := s.CapturesOf("REF1"); n != 2 {
		t.Errorf("after its time: %d captures; a forgotten key charges again", n)
	}
}

func TestNoLookup(t *testing.T) {
	t.Parallel()
	_, srv := start(t, sim.Config{Variant: sim.Variant{NoLookup: true}})
	a := adapterTo(t, srv.URL(), patience)
	capture(t, a, "REF1", "tok_ok")
	if got := a.Lookup(context.Background(), "REF1"); got.Found != acquirer.FoundUnclear || got.HTTPStatus != 404 {
		t.Errorf("%+v", got)
	}
}

func TestImpossibleConfigurations(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]sim.Config{
		"a negative latency":                   {Latency: -1},
		"a negative capacity":                  {CapacityPerSecond: -1},
		"a fee over 100 %":                     {FeeBasisPoints: 10_001},
		"a name with a slash":                  {Name: "a/b"},
		"an account with blank":                {Account: "a b"},
		"a book in a folder that is not there": {BookFile: "testdata/no/such/book"},
	} {
		if _, err := sim.New(cfg); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

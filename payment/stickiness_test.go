package payment

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"paymentsd/acquirer"
	"paymentsd/resilience"
)

// What several answers of one acquirer to one charge prove together. There is no database in these
// tests: they ask under a fake clock, since a key in progress is asked for again after a second.

var everyClass = []acquirer.Class{
	acquirer.Captured, acquirer.Declined, acquirer.Rejected, acquirer.NotSent, acquirer.Refused, acquirer.InProgress, acquirer.Unclear,
}

// abbreviations keep the tables below readable.
var abbreviations = map[string]acquirer.Class{
	"cap": acquirer.Captured, "dec": acquirer.Declined, "rej": acquirer.Rejected, "not": acquirer.NotSent,
	"ref": acquirer.Refused, "prg": acquirer.InProgress, "unc": acquirer.Unclear,
}

var (
	dedupes     = acquirer.Capabilities{DeduplicatesByKey: true}
	dedupesAsks = acquirer.Capabilities{DeduplicatesByKey: true, LooksUpByReference: true}
	forgets     = acquirer.Capabilities{DeduplicatesByKey: true, ForgetsFailures: true}
	forgetsAsks = acquirer.Capabilities{DeduplicatesByKey: true, ForgetsFailures: true, LooksUpByReference: true}
	noKeys      = acquirer.Capabilities{}
)

// asking asks an acquirer that gives these answers, in a bubble, and says what is known at the end.
func asking(t *testing.T, s *script) (end ending) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		service := &Service{
			Resolver: NewResolver(ResolverConfig{Now: time.Now, Log: slog.New(slog.NewTextHandler(io.Discard, nil))}),
			observer: silent{},
		}
		route := routeOf(t, named{"north", s, plainly()})
		charge := Charge{ID: "ch_1", AcqRef: "AAAAAABCDEFGHJKMNPQR", Amount: usd("10.00"), PaymentMethod: "tok_ok"}
		end = service.ask(t.Context(), route, charge, 1, resilience.Critical)
	})
	return end
}

// TestSecondAnswerOfAnAcquirer has the first answer in the row and the second, if the first allows one,
// in the column.
func TestSecondAnswerOfAnAcquirer(t *testing.T) {
	t.Parallel()
	columns := "cap dec rej not ref prg unc"
	for name, table := range map[string]struct {
		promises acquirer.Capabilities
		rows     map[string]string
	}{
		"an acquirer that deduplicates": {dedupes, map[string]string{
			"cap": "cap cap cap cap cap cap cap",
			"dec": "dec dec dec dec dec dec dec",
			"rej": "rej rej rej rej rej rej rej",
			"not": "cap dec rej not ref prg unc",
			"ref": "cap dec rej not ref prg unc",
			"prg": "cap dec prg prg prg prg unc",
			"unc": "cap dec unc unc unc prg unc",
		}},
		"an acquirer that forgets failures is not asked again once it is unclear": {forgets, map[string]string{
			"cap": "cap cap cap cap cap cap cap",
			"dec": "dec dec dec dec dec dec dec",
			"rej": "rej rej rej rej rej rej rej",
			"not": "cap dec rej not ref prg unc",
			"ref": "cap dec rej not ref prg unc",
			"prg": "prg prg prg prg prg prg prg",
			"unc": "unc unc unc unc unc unc unc",
		}},
		"an acquirer without keys is not asked again once it is unclear": {noKeys, map[string]string{
			"cap": "cap cap cap cap cap cap cap",
			"dec": "dec dec dec dec dec dec dec",
			"rej": "rej rej rej rej rej rej rej",
			"not": "cap dec rej not ref prg unc",
			"ref": "cap dec rej not ref prg unc",
			"prg": "prg prg prg prg prg prg prg",
			"unc": "unc unc unc unc unc unc unc",
		}},
	} {
		for first, row := range table.rows {
			for i, second := range strings.Fields(columns) {
				want := abbreviations[strings.Fields(row)[i]]
				t.Run(name+": "+first+" then "+second, func(t *testing.T) {
					// The third answer repeats the second, so that what stands is the pair's meaning.
					s := answering(of(abbreviations[first]), of(abbreviations[second]), of(abbreviations[second]))
					s.promises = table.promises
					if end := asking(t, s); end.class != want {
						t.Errorf("%s, want %s", end.class, want)
					}
				})
			}
		}
	}
}

// expected is the rule in words: ask again only where that is safe; after one answer that may mean money,
// only a capture, or a decline where keys deduplicate, is believed.
func expected(answers []acquirer.Class, can acquirer.Capabilities) (final acquirer.Class, calls int) {
	mayHave := false
	for calls < len(answers) {
		a := answers[calls]
		calls++
		switch a {
		case acquirer.Captured, acquirer.Declined:
			return a, calls
		case acquirer.Rejected:
			if !mayHave {
				final = a
			}
			return final, calls
		case acquirer.NotSent, acquirer.Refused:
			if !mayHave {
				final = a
			}
		default:
			mayHave, final = true, a
			if !can.DeduplicatesByKey || can.ForgetsFailures {
				return final, calls
			}
		}
	}
	return final, calls
}

func TestThreeAnswersOfAnAcquirer(t *testing.T) {
	t.Parallel()
	for name, can := range map[string]acquirer.Capabilities{
		"deduplicates": dedupes, "deduplicates and is asked": dedupesAsks, "forgets": forgets, "forgets and is asked": forgetsAsks, "no keys": noKeys,
	} {
		t.Run(name, func(t *testing.T) {
			for _, a := range everyClass {
				for _, b := range everyClass {
					for _, c := range everyClass {
						s := answering(of(a), of(b), of(c))
						s.promises = can
						want, calls := expected([]acquirer.Class{a, b, c}, can)
						if end := asking(t, s); end.class != want || end.calls != calls || s.calls() != calls {
							t.Errorf("%s, %s, %s: %s after %d calls, want %s after %d", a, b, c, end.class, end.calls, want, calls)
						}
						if len(s.refs()) != 1 {
							t.Errorf("%s, %s, %s: references %v", a, b, c, s.refs())
						}
					}
				}
			}
		})
	}
}

// TestWhatAnAttemptComesTo has every class, what it makes of the charge, and whether another acquirer may
// be asked.
func TestWhatAnAttemptComesTo(t *testing.T) {
	t.Parallel()
	for class, want := range map[acquirer.Class]struct {
		status    Status
		failsOver bool
	}{
		acquirer.Captured: {Captured, false}, acquirer.Declined: {Declined, false}, acquirer.Rejected: {Failed, false},
		acquirer.NotSent: {Failed, true}, acquirer.Refused: {Failed, true},
		acquirer.InProgress: {Unknown, false}, acquirer.Unclear: {Unknown, false}, "a class of tomorrow": {Unknown, false}, "": {Unknown, false},
	} {
		got := concluded(Charge{Status: Pending}, ending{class: class, answer: acquirer.Answer{CaptureID: "c", DeclineCode: "d"}})
		if got.Status != want.status || class.ProvesNotExecuted() != want.failsOver {
			t.Errorf("%q: %s, fails over %v; want %+v", class, got.Status, class.ProvesNotExecuted(), want)
		}
		if !Pending.CanBecome(got.Status) {
			t.Errorf("%q: pending cannot become %s", class, got.Status)
		}
	}
}

// Regression: the same key in progress was sent again to an acquirer that forgets failures, where it may
// charge again.
func TestForgetfulAcquirerIsAskedBeforeAKeyInProgressIsSentAgain(t *testing.T) {
	t.Parallel()
	for _, class := range []acquirer.Class{acquirer.InProgress, acquirer.Unclear} {
		t.Run(string(class)+", the capture is known there", func(t *testing.T) {
			t.Parallel()
			s := answering(of(class))
			s.promises, s.found = forgetsAsks, acquirer.Inquiry{Found: acquirer.FoundCaptured, Amount: usd("10.00"), CaptureID: "c1"}
			if end := asking(t, s); end.class != acquirer.Captured || end.answer.CaptureID != "c1" || s.calls() != 1 || s.lookups != 1 {
				t.Errorf("%+v after %d calls and %d inquiries", end, s.calls(), s.lookups)
			}
		})
	}
	for name, found := range map[string]acquirer.Inquiry{
		"nothing is known there":   {Found: acquirer.FoundNothing},
		"another amount":           {Found: acquirer.FoundCaptured, Amount: usd("10.01"), CaptureID: "c1"},
		"no id of the capture":     {Found: acquirer.FoundCaptured, Amount: usd("10.00")},
		"declined there":           {Found: acquirer.FoundDeclined, DeclineCode: "x"},
		"still pending there":      {Found: acquirer.FoundPending},
		"a maintenance page":       {Found: acquirer.FoundUnclear},
		"the inquiry says nothing": {},
	} {
		t.Run("peers case 7: "+name+": no blind retry, unclear", func(t *testing.T) {
			t.Parallel()
			s := answering(of(acquirer.Unclear))
			s.promises, s.found = forgetsAsks, found
			if end := asking(t, s); end.class != acquirer.Unclear || s.calls() != 1 {
				t.Errorf("%s after %d calls", end.class, s.calls())
			}
		})
	}
	t.Run("peers case 7: an acquirer that replays its 500 is unclear to the end", func(t *testing.T) {
		t.Parallel()
		s := answering(times(3, of(acquirer.Unclear))...)
		s.promises = acquirer.Capabilities{DeduplicatesByKey: true, ReplaysServerErrors: true}
		if end := asking(t, s); end.class != acquirer.Unclear {
			t.Errorf("%s", end.class)
		}
	})
}

// Regression: what an adapter got wrong could not be written down, so that a capture was lost to the sweep.
func TestBadAnswersOfAnAdapterAreUnclearAndCanBeWritten(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 2000)
	for name, answer := range map[string]acquirer.Answer{
		"a class that is not in the table":   {Class: "maybe"},
		"no class at all":                    {},
		"a capture without an id":            {Class: acquirer.Captured},
		"a status that HTTP does not have":   {Class: acquirer.Unclear, HTTPStatus: 99},
		"bytes that Postgres does not store": {Class: acquirer.Unclear, Detail: "a\x00b\xff", Code: "\x00"},
		"a detail without an end":            {Class: acquirer.Unclear, Detail: long},
	} {
		got := sound(answer)
		if got.Class != acquirer.Unclear || got.HTTPStatus != 0 || !utf8.ValidString(got.Detail+got.Code) || strings.Contains(got.Detail+got.Code, "\x00") || len(got.Detail) > 500 {
			t.Errorf("%s: %+v", name, got)
		}
	}
	whole := acquirer.Answer{Class: acquirer.Captured, CaptureID: "c-1", HTTPStatus: 201, Code: "ok", Detail: "fine"}
	if got := sound(whole); got != whole {
		t.Errorf("a sound answer was changed: %+v", got)
	}
}

func TestAdapterThatPanicsIsUnclear(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 3; n++ {
		t.Run(fmt.Sprintf("in call %d", n), func(t *testing.T) {
			t.Parallel()
			s := answering(times(3, of(acquirer.Refused))...)
			s.during = panicIn(n)
			if end := asking(t, s); end.class != acquirer.Unclear || end.calls != n {
				t.Errorf("%s after %d calls", end.class, end.calls)
			}
		})
	}
}

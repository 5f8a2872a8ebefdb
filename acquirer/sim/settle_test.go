package sim_test

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"paymentsd/acquirer/sim"
	"paymentsd/settlement"
)

// file is a settlement file, read with the reader that reconciliation uses.
type file struct {
	header settlement.Header
	lines  []settlement.Line
	bytes  string
}

func readFile(t *testing.T, a answer) file {
	t.Helper()
	if a.status != 200 {
		t.Fatalf("no settlement file: %d %s", a.status, a.body)
	}
	format, err := settlement.FormatNamed("canonical")
	if err != nil {
		t.Fatal(err)
	}
	header, lines, err := format.Open(bytes.NewReader(a.body))
	if err != nil {
		t.Fatal(err)
	}
	f := file{header: header, bytes: string(a.body)}
	for line, err := range lines {
		if err != nil {
			t.Fatalf("%v in\n%s", err, a.body)
		}
		f.lines = append(f.lines, line)
	}
	return f
}

func day(t *testing.T, url, day string) file {
	t.Helper()
	return readFile(t, do(t, http.MethodGet, url+"/settlement/"+day, ""))
}

func period(t *testing.T, url string, from, to time.Time) file {
	t.Helper()
	return readFile(t, do(t, http.MethodGet, url+"/settlement?from="+from.Format(time.RFC3339)+"&to="+to.Format(time.RFC3339), ""))
}

// told is a line in short: kind, reference, gross, fee, net.
func (f file) told() []string {
	var out []string
	for _, l := range f.lines {
		out = append(out, fmt.Sprintf("%s %s %s %s %s", l.Kind, l.Reference, l.Gross, l.Fee, l.Net))
	}
	return out
}

func TestSettlementFileSaysWhatHappened(t *testing.T) {
	t.Parallel()
	now := newClock()
	s, srv := start(t, sim.Config{Name: "north", Account: "acme", Now: now.Now, FeeBasisPoints: 140, FeeFixedMinor: 25,
		ReportsLost: true, PendingFor: time.Minute})
	for _, token := range []string{"ok", "declined", "timeout_lost_once", "error_lost", "error_captured", "declined_captured",
		"captured_twice", "unsettled", "settled_short", "capture_failed", "pending", "pending_declined", "rate_limited_once"} {
		if token == "timeout_lost_once" {
			captureUntil(t, adapterTo(t, srv.URL(), patience), token, "tok_"+token, "lost", func() bool { return s.Stats().Lost == 1 })
		} else {
			order(t, srv.URL(), token, "tok_"+token)
		}
		now.Advance(time.Second)
	}
	order(t, srv.URL(), "rate_limited_once", "tok_rate_limited_once") // and captured on the second try
	now.Advance(time.Hour)
	got := day(t, srv.URL(), "2026-11-29")
	want := []string{
		"capture ok 49.99 0.95 49.04",
		"capture_failed timeout_lost_once 0.00 0.00 0.00",
		"capture_failed error_lost 0.00 0.00 0.00",
		"capture error_captured 49.99 0.95 49.04",
		"capture declined_captured 49.99 0.95 49.04",
		"capture captured_twice 49.99 0.95 49.04",
		"capture captured_twice 49.99 0.95 49.04",
		"capture settled_short 49.98 0.95 49.03",
		"capture_failed capture_failed 0.00 0.00 0.00",
		"capture rate_limited_once 49.99 0.95 49.04",
		"capture pending 49.99 0.95 49.04",
	}
	if diff := cmp.Diff(want, got.told()); diff != "" {
		t.Error(diff)
	}
	if h := got.header; h.Acquirer != "north" || h.Account != "acme" || h.Sequence != 1 || h.Replaces != 0 {
		t.Errorf("header %+v", h)
	}
	if a, b := got.lines[5], got.lines[6]; a.CaptureID == b.CaptureID || a.ID == b.ID {
		t.Errorf("two captures share an id: %+v, %+v", a, b)
	}
}

func TestFeesAreExactInEveryCurrency(t *testing.T) {
	t.Parallel()
	now := newClock()
	_, srv := start(t, sim.Config{Now: now.Now, FeeBasisPoints: 140, FeeFixedMinor: 20})
	for n, body := range []string{
		`"amount_minor":10000,"currency":"USD"`, // 1.40 + 0.20
		`"amount_minor":80,"currency":"JPY"`,    // 1.12 -> 1, + 20
		`"amount_minor":5124,"currency":"KWD"`,  // 0.071736 -> 0.072, + 0.020
		`"amount_minor":2500,"currency":"EUR"`,  // 0.35 + 0.20
		`"amount_minor":250,"currency":"GBP"`,   // 0.035 -> 0.04, + 0.20
		`"amount_minor":10,"currency":"USD"`,    // 0.20 > 0.10: all of it
	} {
		do(t, http.MethodPost, srv.URL()+"/v1/captures",
			fmt.Sprintf(`{"reference":"R%d",%s,"payment_method":"tok_ok"}`, n, body), "Idempotency-Key", fmt.Sprint("K", n))
		now.Advance(time.Second)
	}
	want := []string{
		"capture R0 100.00 1.60 98.40", "capture R1 80 21 59", "capture R2 5.124 0.092 5.032",
		"capture R3 25.00 0.55 24.45", "capture R4 2.50 0.24 2.26", "capture R5 0.10 0.10 0.00",
	}
	if diff := cmp.Diff(want, day(t, srv.URL(), "2026-11-29").told()); diff != "" {
		t.Error(diff)
	}
}

func TestSamePeriodIsTheSameFileUntilSomethingChanges(t *testing.T) {
	t.Parallel()
	now := newClock()
	s, srv := start(t, sim.Config{Now: now.Now})
	order(t, srv.URL(), "K1", "tok_ok")
	now.Advance(time.Hour)
	from, to := now.Now().Add(-2*time.Hour), now.Now()
	first := period(t, srv.URL(), from, to)
	now.Advance(time.Hour)
	order(t, srv.URL(), "K2", "tok_ok") // after the period
	now.Advance(time.Second)
	if again := period(t, srv.URL(), from, to); again.bytes != first.bytes {
		t.Errorf("asked again:\n%s\nfirst:\n%s", again.bytes, first.bytes)
	}

	today := day(t, srv.URL(), "2026-11-29")
	if today.header.Sequence != 2 || today.header.Replaces != 0 || len(today.lines) != 2 || !today.header.To.Before(today.header.From.Add(24*time.Hour)) {
		t.Errorf("the day so far: %+v, %d lines", today.header, len(today.lines))
	}
	now.Advance(time.Minute)
	if again := day(t, srv.URL(), "2026-11-29"); again.bytes != today.bytes {
		t.Error("a quiet minute changed the day's file")
	}
	order(t, srv.URL(), "K3", "tok_ok")
	now.Advance(time.Minute)
	more := day(t, srv.URL(), "2026-11-29")
	if more.header.Sequence != 3 || more.header.Replaces != 2 || len(more.lines) != 3 {
		t.Errorf("after another capture: %+v, %d lines; want a re-issue of 2", more.header, len(more.lines))
	}
	now.Advance(24 * time.Hour)
	whole := day(t, srv.URL(), "2026-11-29")
	if whole.header.Sequence != 4 || whole.header.Replaces != 3 || !whole.header.To.Equal(whole.header.From.Add(24*time.Hour)) {
		t.Errorf("after its end: %+v; want a re-issue that covers all of the day", whole.header)
	}
	if again := day(t, srv.URL(), "2026-11-29"); again.bytes != whole.bytes {
		t.Error("the whole day's file changed")
	}
	quiet := day(t, srv.URL(), "2026-11-28")
	if quiet.header.Sequence != 5 || len(quiet.lines) != 0 {
		t.Errorf("a day without captures: %+v, %d lines", quiet.header, len(quiet.lines))
	}

	for n, want := range map[int]file{1: first, 2: today, 3: more, 4: whole, 5: quiet} {
		if got := readFile(t, do(t, http.MethodGet, fmt.Sprintf("%s/settlement?sequence=%d", srv.URL(), n), "")); got.bytes != want.bytes {
			t.Errorf("file %d is not what was issued:\n%s", n, got.bytes)
		}
	}
	index := string(do(t, http.MethodGet, srv.URL()+"/settlement", "").body)
	if strings.Count(index, `"sequence":`) != 5 || !strings.Contains(index, `"address":"/settlement?sequence=4"`) {
		t.Errorf("index: %s", index)
	}
	if n := len(s.Captures()); n != 3 {
		t.Errorf("%d records", n)
	}
}

// Whoever fetches all that the index lists has everything: no day is left out because nobody asked for it.
func TestIndexIssuesEveryDay(t *testing.T) {
	t.Parallel()
	now := newClock()
	_, srv := start(t, sim.Config{Now: now.Now})
	if index := string(do(t, http.MethodGet, srv.URL()+"/settlement", "").body); !strings.Contains(index, `"files":[]`) {
		t.Errorf("before the first capture: %s", index)
	}
	order(t, srv.URL(), "K1", "tok_ok")
	now.Advance(48 * time.Hour)
	order(t, srv.URL(), "K2", "tok_ok")
	now.Advance(time.Second)
	index := string(do(t, http.MethodGet, srv.URL()+"/settlement", "").body)
	if strings.Count(index, `"sequence":`) != 3 {
		t.Fatalf("three days: %s", index)
	}
	if again := string(do(t, http.MethodGet, srv.URL()+"/settlement", "").body); again != index {
		t.Errorf("asked again the index changed:\n%s\n%s", index, again)
	}
	lines := 0
	for n := range 3 {
		lines += len(readFile(t, do(t, http.MethodGet, fmt.Sprintf("%s/settlement?sequence=%d", srv.URL(), n+1), "")).lines)
	}
	if lines != 2 {
		t.Errorf("the files hold %d lines, want both captures", lines)
	}
}

// A file never claims to cover time that has not passed: absence from it would prove nothing.
func TestFileCoversOnlyThePast(t *testing.T) {
	t.Parallel()
	now := newClock()
	_, srv := start(t, sim.Config{Now: now.Now, PendingFor: time.Minute})
	order(t, srv.URL(), "K1", "tok_pending")
	now.Advance(time.Second)
	f := period(t, srv.URL(), now.Now().Add(-time.Hour), now.Now().Add(time.Hour))
	if !f.header.To.Equal(now.Now()) || len(f.lines) != 0 {
		t.Errorf("to %s with %d lines, want %s and none: it is still pending", f.header.To, len(f.lines), now.Now())
	}
	if got := do(t, http.MethodGet, srv.URL()+"/settlement/2026-11-30", ""); got.status != 422 {
		t.Errorf("tomorrow's file: %d", got.status)
	}
}

func TestPeriodsAreHalfOpen(t *testing.T) {
	t.Parallel()
	now := newClock()
	_, srv := start(t, sim.Config{Now: now.Now})
	noon := now.Now()
	order(t, srv.URL(), "K1", "tok_ok") // at noon exactly
	now.Advance(2 * time.Hour)
	if f := period(t, srv.URL(), noon.Add(-time.Hour), noon); len(f.lines) != 0 {
		t.Error("a capture at the end of a period is in it")
	}
	if f := period(t, srv.URL(), noon, noon.Add(time.Hour)); len(f.lines) != 1 {
		t.Error("a capture at the beginning of a period is not in it")
	}
}

// Whatever is captured, every capture is in exactly one of the files of adjoining periods, and
// gross - fee = net of every line.
func TestAdjoiningPeriodsHoldEveryCaptureOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		now := newClock()
		s, err := sim.New(sim.Config{Now: now.Now, FeeBasisPoints: rapid.IntRange(0, 10_000).Draw(rt, "bp"), FeeFixedMinor: rapid.IntRange(0, 500).Draw(rt, "fixed")})
		if err != nil {
			rt.Fatal(err)
		}
		h := handlerOf(s)
		begin := now.Now()
		count := rapid.IntRange(0, 30).Draw(rt, "captures")
		for n := range count {
			now.Advance(time.Duration(rapid.IntRange(0, 300).Draw(rt, "pause")) * time.Second)
			minor := rapid.IntRange(1, 1_000_000).Draw(rt, "minor")
			if got := h.post(fmt.Sprintf(`{"reference":"R%d","amount_minor":%d,"currency":"JPY","payment_method":"x"}`, n, minor), fmt.Sprint("K", n)); got.status != 201 {
				rt.Fatalf("%d %s", got.status, got.body)
			}
		}
		now.Advance(time.Hour)
		seen := map[string]int{}
		for from := begin; from.Before(now.Now()); from = from.Add(10 * time.Minute) {
			f := readFile(t, h.get("/settlement?from="+from.Format(time.RFC3339)+"&to="+from.Add(10*time.Minute).Format(time.RFC3339)))
			for _, l := range f.lines {
				seen[l.Reference]++
			}
		}
		if len(seen) != count {
			rt.Fatalf("%d of %d captures settled", len(seen), count)
		}
		for ref, n := range seen {
			if n != 1 {
				rt.Fatalf("%s settled %d times", ref, n)
			}
		}
	})
}

package sim_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"paymentsd/acquirer"
	"paymentsd/acquirer/sim"
)

func TestBookSurvivesARestart(t *testing.T) {
	t.Parallel()
	now := newClock()
	file := filepath.Join(t.TempDir(), "north.book")
	cfg := sim.Config{Name: "north", BookFile: file, Now: now.Now, FeeBasisPoints: 140, FeeFixedMinor: 25, PendingFor: time.Hour,
		Variant: sim.Variant{ReplaysServerErrors: true}, ReportsLost: true}
	s, err := sim.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	srv, err := sim.Serve(s, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	for _, token := range []string{"ok", "declined", "pending", "error_captured", "error_lost", "unprocessed"} {
		order(t, srv.URL(), "K"+token, "tok_"+token)
	}
	now.Advance(time.Second)
	issued := do(t, http.MethodGet, srv.URL()+"/settlement/2026-11-29", "")
	before := s.Captures()
	if err := srv.Close(); err != nil {
		t.Fatal(err)
	}

	s, srv = start(t, cfg)
	if diff := cmp.Diff(before, s.Captures(), cmp.Comparer(func(a, b time.Time) bool { return a.Equal(b) })); diff != "" {
		t.Errorf("the book changed over a restart:\n%s", diff)
	}
	for token, status := range map[string]int{"ok": 201, "declined": 402, "pending": 202, "error_captured": 500, "error_lost": 500} {
		if got := order(t, srv.URL(), "K"+token, "tok_"+token); got.status != status {
			t.Errorf("%s after the restart: %d, want %d", token, got.status, status)
		}
	}
	if got := s.Stats(); got.Captures != 0 || got.DuplicatesSuppressed != 5 {
		t.Errorf("a known key charged again: %+v", got)
	}
	again := do(t, http.MethodGet, srv.URL()+"/settlement?sequence=1", "")
	if string(again.body) != string(issued.body) || len(issued.body) == 0 {
		t.Errorf("file 1 after the restart:\n%s\nbefore:\n%s", again.body, issued.body)
	}
}

// write makes a book of n captures and returns its bytes.
func write(t *testing.T, file string, n int) []byte {
	t.Helper()
	s, err := sim.New(sim.Config{BookFile: file})
	if err != nil {
		t.Fatal(err)
	}
	srv, err := sim.Serve(s, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		order(t, srv.URL(), fmt.Sprint("K", i), "tok_ok")
	}
	if err := srv.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// A crash can tear the last record at any byte: what was answered is there, the torn one is not.
func TestTornLastRecordIsCutOff(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "book")
	whole := write(t, file, 3)
	lines := strings.SplitAfter(string(whole), "\n")
	good := len(lines[0]) + len(lines[1])
	for cut := good; cut < len(whole); cut += 7 {
		if err := os.WriteFile(file, whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := sim.New(sim.Config{BookFile: file})
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		if n := len(s.Captures()); n != 2 || s.Stats().TornBytes != cut-good {
			t.Errorf("cut at %d: %d records, %d torn bytes; want 2, %d", cut, n, s.Stats().TornBytes, cut-good)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if data, err := os.ReadFile(file); err != nil || len(data) != good {
			t.Errorf("cut at %d: %d bytes left, want %d (%v)", cut, len(data), good, err)
		}
	}
}

func TestDamagedBookIsRefusedByLine(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "book")
	whole := string(write(t, file, 3))
	for name, text := range map[string]string{
		"a byte in the middle": strings.Replace(whole, `"key":"K1"`, `"key":K1"`, 1),
		"another field":        strings.Replace(whole, `"key":"K1"`, `"kay":"K1"`, 1),
		"an empty object":      "{}\n" + whole,
		"a line too long":      strings.Repeat("x", 100<<10) + "\n" + whole,
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := sim.New(sim.Config{BookFile: file}); err == nil || !strings.Contains(err.Error(), "line ") {
			t.Errorf("%s: error %v, want one that names the line", name, err)
		}
		if data, err := os.ReadFile(file); err != nil || string(data) != text {
			t.Errorf("%s: the damaged file was changed", name)
		}
	}
}

func TestOneSimulatorABook(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "book")
	first, err := sim.New(sim.Config{BookFile: file})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sim.New(sim.Config{BookFile: file}); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("a second simulator on the book: error %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second, err := sim.New(sim.Config{BookFile: file})
	if err != nil {
		t.Fatalf("after the first has gone: %v", err)
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
}

// What cannot be written down is not captured, and not said to be.
func TestBookThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	s, srv := start(t, sim.Config{BookFile: filepath.Join(t.TempDir(), "book")})
	a := adapterTo(t, srv.URL(), patience)
	capture(t, a, "REF1", "tok_ok")
	if err := s.Close(); err != nil { // the server still runs
		t.Fatal(err)
	}
	for range 2 {
		if got := capture(t, a, "REF2", "tok_ok"); got.Class != acquirer.Unclear || !got.Failure {
			t.Errorf("%+v, want unclear", got)
		}
	}
	if n := s.CapturesOf("REF2"); n != 0 {
		t.Errorf("%d captures in memory that are not in the file", n)
	}
}

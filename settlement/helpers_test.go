package settlement

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"paymentsd/money"
)

const (
	testHead = "header,paymentsd-settlement,1,north,acc-eu,2026-11-28T00:00:00Z,2026-11-29T00:00:00Z,7,0\n" +
		"columns,id,kind,reference,capture_id,currency,gross,fee,net,occurred_at,payout\n"
	goodOne  = "line,N-1,capture,A1B2C3D4E5F6G7H8J9K0,cap_1,USD,10.00,0.30,9.70,2026-11-28T10:15:00Z,po_7\n"
	goodLast = "line,N-9,capture,A1B2C3D4E5F6G7H8J9K9,cap_9,USD,10.00,0.30,9.70,2026-11-28T23:59:59Z,po_7\n"
)

// seal adds the trailer that an honest acquirer would write for the body, by the document and
// not by the Writer.
func seal(body string) string {
	lines := strings.Count("\n"+body, "\nline,")
	digest := sha256.Sum256([]byte(body))
	return fmt.Sprintf("%strailer,%d,%s\n", body, lines, hex.EncodeToString(digest[:]))
}

// result is all that a reader says about a file.
type result struct {
	header Header
	lines  []Line       // without an error
	bad    []*LineError // with one
	partly []Line       // what stood beside the errors
	file   error        // why the file is no good, nil for a good one
}

func (r result) clean() bool { return r.file == nil && len(r.bad) == 0 }

func read(file string) result { return readWith(canonical{}, file) }

// readAs reads a file in the format of the name.
func readAs(t testing.TB, format, file string) result {
	t.Helper()
	f, err := FormatNamed(format)
	if err != nil {
		t.Fatal(err)
	}
	return readWith(f, file)
}

func readWith(f Format, file string) result {
	var r result
	h, lines, err := f.Open(strings.NewReader(file))
	if r.header = h; err != nil {
		r.file = err
		return r
	}
	for line, err := range lines {
		switch err := err.(type) {
		case nil:
			r.lines = append(r.lines, line)
		case *LineError:
			r.bad = append(r.bad, err)
			r.partly = append(r.partly, line)
		default:
			r.file = err
		}
	}
	return r
}

func mustReadClean(t *testing.T, file string) result {
	t.Helper()
	r := read(file)
	if r.file != nil {
		t.Fatalf("file refused: %v", r.file)
	}
	for _, bad := range r.bad {
		t.Errorf("line refused: %v", bad)
	}
	return r
}

func wantFileError(t *testing.T, file string, want error) {
	t.Helper()
	if diff := cmp.Diff(want, read(file).file); diff != "" {
		t.Errorf("file error (-want +got):\n%s", diff)
	}
}

func golden(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "canonical", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func amount(t testing.TB, s string, c money.Currency) money.Amount {
	t.Helper()
	a, err := money.Parse(s, c)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func testHeader() Header {
	return Header{
		Acquirer: "north", Account: "acc-eu", Sequence: 7,
		From: time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC),
		To:   time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC),
	}
}

func testLine(t testing.TB) Line {
	return Line{
		ID: "N-1", Kind: Capture, Reference: "A1B2C3D4E5F6G7H8J9K0", CaptureID: "cap_1",
		Gross: amount(t, "10.00", "USD"), Fee: amount(t, "0.30", "USD"), Net: amount(t, "9.70", "USD"),
		OccurredAt: time.Date(2026, 11, 28, 10, 15, 0, 0, time.UTC), Payout: "po_7",
	}
}

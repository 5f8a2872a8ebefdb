package settlement

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"paymentsd/money"
)

func TestWriterRefusesWhatAReaderWouldRefuse(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name   string
		spoil  func(*Line)
		field  string
		class  Class
		reason string
	}{
		{"no id", func(l *Line) { l.ID = "" }, "id", BadLine, "must have an id"},
		{"line break in a reference", func(l *Line) { l.Reference = "A\nB" }, "reference", BadLine, "control character"},
		{"capture id not UTF-8", func(l *Line) { l.CaptureID = "\xff" }, "capture_id", BadLine, "UTF-8"},
		{"payout too long", func(l *Line) { l.Payout = strings.Repeat("p", 256) }, "payout", BadLine, "255"},
		{"unknown kind", func(l *Line) { l.Kind = Unknown }, "kind", UnknownKind, "not a kind"},
		{"no amount", func(l *Line) { l.Gross = money.Amount{} }, "currency", BadAmount, "ISO 4217"},
		{"two currencies", func(l *Line) { l.Fee = amount(t, "0.30", "EUR") }, "currency", BadAmount, "one currency"},
		{"nothing captured", func(l *Line) { l.Gross = money.Zero("USD") }, "gross", BadAmount, "positive"},
		{"positive refund", func(l *Line) { l.Kind = Refund }, "gross", BadAmount, "negative"},
		{"failed capture of money", func(l *Line) { l.Kind = CaptureFailed }, "gross", BadAmount, "moves no money"},
		{"net of 13 digits", func(l *Line) {
			l.Gross, l.Fee = amount(t, "999999999999.99", "USD"), amount(t, "-0.01", "USD")
			l.Net, _ = l.Gross.Sub(l.Fee)
		}, "net", BadAmount, "12 digits"},
		{"net off by a cent", func(l *Line) { l.Net = amount(t, "9.71", "USD") }, "net", IdentityBroken, "10.00 - fee 0.30 = 9.70"},
		{"no time", func(l *Line) { l.OccurredAt = time.Time{} }, "occurred_at", BadDate, "year"},
		{"no reference", func(l *Line) { l.Reference, l.CaptureID = "", "" }, "reference", NoReference, "no charge"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var file bytes.Buffer
			w := NewWriter(&file, testHeader())
			line := testLine(t)
			c.spoil(&line)
			err := w.Write(line)
			bad, ok := errors.AsType[*LineError](err)
			if !ok || bad.Field != c.field || bad.Class != c.class || !strings.Contains(bad.Reason, c.reason) {
				t.Errorf("got %v", err)
			}
			if again := w.Write(testLine(t)); again != err {
				t.Errorf("a good line after it: got %v, want the first error", again)
			}
			if end := w.Close(); end != err {
				t.Errorf("Close: got %v, want the first error", end)
			}
			if ClassOf(read(file.String()).file) != EmptyOrTruncated {
				t.Errorf("a file that lacks a line looks whole:\n%s", file.String())
			}
		})
	}
}

func TestWriterRefusesABadHeaderAtTheFirstUse(t *testing.T) {
	t.Parallel()
	var file bytes.Buffer
	w := NewWriter(&file, Header{})
	if err := w.Close(); err == nil || !strings.Contains(err.Error(), "acquirer") {
		t.Errorf("got %v", err)
	}
	if file.Len() != 0 {
		t.Errorf("wrote %q", file.String())
	}
}

func TestClosedWriterTakesNothingMore(t *testing.T) {
	t.Parallel()
	var file bytes.Buffer
	w := NewWriter(&file, testHeader())
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	whole := file.String()
	if err := w.Write(testLine(t)); !errors.Is(err, ErrWriterClosed) {
		t.Errorf("Write: got %v", err)
	}
	if err := w.Close(); !errors.Is(err, ErrWriterClosed) {
		t.Errorf("Close: got %v", err)
	}
	if file.String() != whole {
		t.Error("something was written after Close")
	}
	mustReadClean(t, whole)
}

func TestWriterSaysThatTheDiskIsFull(t *testing.T) {
	t.Parallel()
	full := errors.New("disk full")
	w := NewWriter(failingWriter{full}, testHeader())
	for i := range 100 { // more than the buffer holds
		line := testLine(t)
		line.ID = "N-" + strconv.Itoa(i)
		if err := w.Write(line); err != nil {
			break
		}
	}
	if err := w.Close(); !errors.Is(err, full) {
		t.Errorf("got %v", err)
	}
	if err := NewWriter(failingWriter{full}, testHeader()).Close(); !errors.Is(err, full) {
		t.Errorf("flush: got %v", err)
	}
}

type failingWriter struct{ err error }

func (f failingWriter) Write([]byte) (int, error) { return 0, f.err }

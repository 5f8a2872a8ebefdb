package settlement

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"strconv"
	"time"

	"paymentsd/money"
)

// ErrWriterClosed is the answer to a use of a Writer after Close.
var ErrWriterClosed = errors.New("the settlement file is closed: its trailer is written")

// Writer writes one file in the canonical format (docs/settlement-canonical.md), streaming.
//
// It refuses what a reader would refuse. The first error sticks: Close then writes no trailer, so
// that a file which lacks a line that was given to it can never be taken for a whole one.
type Writer struct {
	out    *bufio.Writer
	hash   hash.Hash
	sums   sums
	header Header
	lines  int
	begun  bool
	err    error
}

// NewWriter prepares a file on w. Nothing is written, and no fault of the header reported, before
// the first Write or Close.
func NewWriter(w io.Writer, h Header) *Writer {
	return &Writer{out: bufio.NewWriter(w), hash: sha256.New(), sums: sums{}, header: h}
}

// Write appends a line. Number is ignored, and SourceKind: the format's kinds are the Kind
// constants. Amounts are of one currency with Gross - Fee = Net; a capture is positive, a refund
// negative, a capture_failed zero. A line that does not fit is a *LineError.
func (w *Writer) Write(l Line) error {
	if w.begin(); w.err != nil {
		return w.err
	}
	l.SourceKind = string(l.Kind)
	err := check(l)
	if err == nil {
		err = checkSize(l)
	}
	if err != nil {
		w.err = err
		return w.err
	}
	if !w.sums.add(l, string(l.Kind)) {
		w.err = fmt.Errorf("a settlement file holds at most %d pairs of currency and kind", maxSums)
		return w.err
	}
	w.lines++
	w.record(recordLine, l.ID, string(l.Kind), l.Reference, l.CaptureID, string(l.Gross.Currency()),
		l.Gross.String(), l.Fee.String(), l.Net.String(), formatTime(l.OccurredAt), l.Payout)
	return w.err
}

// Close writes the sums and the trailer and flushes; it does not close the underlying writer. A
// file without lines is a valid file: a quiet day.
func (w *Writer) Close() error {
	if w.begin(); w.err != nil {
		return w.err
	}
	for _, k := range w.sums.keys() {
		w.record(w.sums.record(k)...)
	}
	w.record(recordTrailer, strconv.Itoa(w.lines), hex.EncodeToString(w.hash.Sum(nil)))
	if w.err == nil {
		w.err = w.out.Flush()
	}
	if w.err != nil {
		return w.err
	}
	w.err = ErrWriterClosed
	return nil
}

// begin writes the head once.
func (w *Writer) begin() {
	if w.begun || w.err != nil {
		return
	}
	w.begun = true
	h := w.header
	if field, reason := checkHeader(h); field != "" {
		w.err = fmt.Errorf("settlement header: %s: %s", field, reason)
		return
	}
	w.record(recordHeader, canonicalMagic, canonicalVersion, h.Acquirer, h.Account,
		formatTime(h.From), formatTime(h.To), strconv.Itoa(h.Sequence), strconv.Itoa(h.Replaces))
	w.record(append([]string{recordColumns}, canonicalColumns()...)...)
}

func (w *Writer) record(fields ...string) {
	if w.err != nil {
		return
	}
	text := join(fields) + "\n"
	io.WriteString(w.hash, text) // a hash never fails
	if _, err := w.out.WriteString(text); err != nil {
		w.err = fmt.Errorf("write settlement file: %w", err)
	}
}

// checkSize refuses amounts that no reader parses: sums, which are not bounded as money.Parse is.
func checkSize(l Line) *LineError {
	for i, a := range []money.Amount{l.Gross, l.Fee, l.Net} {
		if _, err := money.Parse(a.String(), a.Currency()); err != nil {
			return &LineError{Field: []string{"gross", "fee", "net"}[i], Value: a.String(), Class: BadAmount, Reason: err.Error()}
		}
	}
	return nil
}

func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

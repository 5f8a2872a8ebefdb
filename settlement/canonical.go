package settlement

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// canonical is this project's own format: docs/settlement-canonical.md.
type canonical struct{}

// Name is "canonical".
func (canonical) Name() string { return "canonical" }

// The words of the canonical format.
const (
	canonicalMagic   = "paymentsd-settlement"
	canonicalVersion = "1"

	recordHeader  = "header"
	recordColumns = "columns"
	recordLine    = "line"
	recordSum     = "sum"
	recordTrailer = "trailer"
)

// The limits of the canonical format.
const (
	maxRecordBytes = 4096 // one record with its line end
	maxFieldBytes  = 255  // one text field of a line or of the header
	maxSums        = 1024 // pairs of currency and kind in one file
)

// canonicalColumns is the order in which a Writer writes; a reader goes by the names.
func canonicalColumns() []string {
	return []string{"id", "kind", "reference", "capture_id", "currency", "gross", "fee", "net", "occurred_at", "payout"}
}

// A line outside these years is a broken date (year 1 is how an unreadable date looks after
// somebody's parser), not an early or late capture.
const firstYear, lastYear = 2000, 2099

// check holds what every canonical line must meet, written or read; the error has no line number.
func check(l Line) *LineError {
	checks := []func(Line) *LineError{checkText, checkKind, checkAmounts, checkDate, checkReference}
	for _, c := range checks {
		if err := c(l); err != nil {
			return err
		}
	}
	return nil
}

func checkText(l Line) *LineError {
	if l.ID == "" || strings.TrimSpace(l.ID) != l.ID {
		return &LineError{Field: "id", Value: clip(l.ID), Class: BadLine, Reason: "a line must have an id, without outer blanks"}
	}
	fields := []struct{ name, value string }{
		{"id", l.ID}, {"reference", l.Reference}, {"capture_id", l.CaptureID}, {"payout", l.Payout},
	}
	for _, f := range fields {
		if err := plainText(f.value); err != nil {
			return &LineError{Field: f.name, Value: clip(f.value), Class: BadLine, Reason: err.Error()}
		}
	}
	return nil
}

func checkKind(l Line) *LineError {
	if l.Kind.known() {
		return nil
	}
	return &LineError{Field: "kind", Value: clip(l.SourceKind), Class: UnknownKind,
		Reason: "not a kind of this format"}
}

func checkAmounts(l Line) *LineError {
	c := l.Gross.Currency()
	if !c.Known() {
		return &LineError{Field: "currency", Value: clip(string(c)), Class: BadAmount, Reason: "not a currency of ISO 4217"}
	}
	if l.Fee.Currency() != c || l.Net.Currency() != c {
		return &LineError{Field: "currency", Value: fmt.Sprintf("%s/%s/%s", c, l.Fee.Currency(), l.Net.Currency()),
			Class: BadAmount, Reason: "gross, fee and net of a line must be in one currency"}
	}
	if want, ok := l.Kind.sign(); ok && l.Gross.Sign() != want {
		return &LineError{Field: "gross", Value: l.Gross.String(), Class: BadAmount,
			Reason: fmt.Sprintf("the gross of a %s must be %s", l.Kind, signName(want))}
	}
	if net, err := l.Gross.Sub(l.Fee); err != nil || !net.Equal(l.Net) {
		return &LineError{Field: "net", Value: l.Net.String(), Class: IdentityBroken,
			Reason: fmt.Sprintf("gross %s - fee %s = %s", l.Gross, l.Fee, net)}
	}
	return nil
}

func checkDate(l Line) *LineError {
	if y := l.OccurredAt.UTC().Year(); y >= firstYear && y <= lastYear {
		return nil
	}
	return &LineError{Field: "occurred_at", Value: l.OccurredAt.UTC().Format(time.RFC3339Nano), Class: BadDate,
		Reason: fmt.Sprintf("the year must be from %d to %d", firstYear, lastYear)}
}

func checkReference(l Line) *LineError {
	if _, aboutCharge := l.Kind.sign(); !aboutCharge || l.Reference != "" || l.CaptureID != "" {
		return nil
	}
	return &LineError{Field: "reference", Class: NoReference,
		Reason: fmt.Sprintf("a %s with neither a reference nor a capture_id belongs to no charge", l.Kind)}
}

// plainText refuses what would not survive a line of text, or a log of it.
func plainText(s string) error {
	if len(s) > maxFieldBytes {
		return fmt.Errorf("is longer than %d bytes", maxFieldBytes)
	}
	return cleanText(s)
}

func cleanText(s string) error {
	switch {
	case !utf8.ValidString(s):
		return errors.New("is not UTF-8")
	case strings.ContainsFunc(s, unicode.IsControl):
		return errors.New("has a control character")
	}
	return nil
}

func signName(sign int) string {
	switch {
	case sign < 0:
		return "negative"
	case sign > 0:
		return "positive"
	}
	return "zero: it moves no money"
}

// checkHeader returns the field at fault and why, or an empty field.
func checkHeader(h Header) (field, reason string) {
	texts := []struct{ name, value string }{{"acquirer", h.Acquirer}, {"account", h.Account}}
	for _, t := range texts {
		if t.value == "" || strings.TrimSpace(t.value) != t.value {
			return t.name, "must not be empty or have outer blanks"
		}
		if err := plainText(t.value); err != nil {
			return t.name, err.Error()
		}
	}
	if strings.Contains(h.Acquirer, "/") {
		return "acquirer", "must not contain a slash: it would make the business id ambiguous"
	}
	from, to := h.From.UTC(), h.To.UTC()
	switch {
	case from.Year() < firstYear || from.Year() > lastYear:
		return "from", fmt.Sprintf("the year must be from %d to %d", firstYear, lastYear)
	case !to.After(from) || to.Year() > lastYear+1:
		return "to", "the period must end after it begins"
	case h.Sequence < 1:
		return "sequence", "must be 1 or more"
	case h.Replaces < 0 || h.Replaces > h.Sequence:
		return "replaces", "must be 0 or a sequence up to this file's own"
	}
	return "", ""
}

package settlement

import (
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// Class names the exception that an error in a file becomes.
type Class string

// The classes that make a file unusable: it is set aside whole and proves nothing.
const (
	EmptyOrTruncated Class = "empty_or_truncated" // zero bytes, cut short, or no trailer
	CountMismatch    Class = "count_mismatch"     // lines declared and lines found differ
	SumMismatch      Class = "sum_mismatch"       // sums declared and sums of the lines differ
	HashMismatch     Class = "hash_mismatch"      // the bytes are not the ones the acquirer wrote
	WrongLayout      Class = "wrong_layout"       // another format, version, column set or order
)

// The classes of one bad line; the rest of its file stands.
const (
	BadLine             Class = "bad_line" // cannot be split into its fields, or has no usable id
	UnknownKind         Class = "unknown_kind"
	BadAmount           Class = "bad_amount" // amount, currency, decimals, or the wrong sign for the kind
	BadDate             Class = "bad_date"
	IdentityBroken      Class = "identity_broken" // gross - fee is not net
	NoReference         Class = "no_reference"    // about a charge, but says nothing about which
	DuplicateLine       Class = "duplicate_line"  // an earlier line again, byte for byte
	SameKeyOtherContent Class = "same_key_other_content"
)

// ParseError says that the file cannot be read as its format.
type ParseError struct {
	Line   int    // 1-based line number
	Field  string // the field or column at fault, empty when it is the line as a whole
	Class  Class
	Reason string
}

func (e *ParseError) Error() string {
	return fmt.Sprintf("settlement file unusable: %s%s (%s)", place(e.Line, e.Field), e.Reason, e.Class)
}

// LineError says that one line cannot be used. Parsing goes on after it, and someone has to look
// at the line: it may be money.
type LineError struct {
	Line   int    // 1-based line number
	Field  string // the field at fault, empty when it is the line as a whole
	Value  string // what the file says, clipped
	Class  Class
	Reason string
}

func (e *LineError) Error() string {
	return fmt.Sprintf("settlement %s%s: %s (%s)", place(e.Line, e.Field), strconv.Quote(e.Value), e.Reason, e.Class)
}

// Control names a check that a whole file must pass.
type Control string

// The controls of a file.
const (
	ControlVersion   Control = "version"
	ControlZeroBytes Control = "zero_bytes"         // nothing at all, not even a header
	ControlTruncated Control = "truncated"          // the file stops before its trailer is complete
	ControlOrder     Control = "order"              // records come in an order that the format does not have
	ControlAfterEnd  Control = "data_after_trailer" // the trailer was not the end
	ControlCount     Control = "count"
	ControlSum       Control = "sum"
	ControlHash      Control = "hash"
)

// ControlError says that a file is not whole, or not what its acquirer wrote.
type ControlError struct {
	Control  Control
	Line     int    // 1-based line number at which it showed
	Declared string // what the file says or should have had
	Computed string // what was found
	Class    Class
}

func (e *ControlError) Error() string {
	return fmt.Sprintf("settlement file fails its %s control: %sdeclared %q, found %q (%s)",
		e.Control, place(e.Line, ""), e.Declared, e.Computed, e.Class)
}

// ClassOf is the exception class of an error from this package, empty for any other error (one
// from the reader of the bytes: the file was not read to its end, which says nothing about it).
func ClassOf(err error) Class {
	if e, ok := errors.AsType[*LineError](err); ok {
		return e.Class
	}
	if e, ok := errors.AsType[*ParseError](err); ok {
		return e.Class
	}
	if e, ok := errors.AsType[*ControlError](err); ok {
		return e.Class
	}
	return ""
}

func place(line int, field string) string {
	switch {
	case line == 0 && field == "":
		return ""
	case line == 0:
		return field + ": "
	case field == "":
		return fmt.Sprintf("line %d: ", line)
	}
	return fmt.Sprintf("line %d, %s: ", line, field)
}

// clip keeps a hostile value out of logs and tables in its full length.
func clip(s string) string {
	const limit = 80
	if len(s) <= limit {
		return s
	}
	end := limit
	for end > limit-utf8.UTFMax && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "..."
}

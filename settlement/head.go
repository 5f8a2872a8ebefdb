package settlement

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// headRecord reads one of the two records before the lines.
func (s *scanner) headRecord() (record string, fields []string, err error) {
	record, err = s.next()
	if errors.Is(err, io.EOF) {
		if s.number == 0 {
			return "", nil, &ControlError{Control: ControlZeroBytes, Declared: "a header", Computed: "an empty file", Class: EmptyOrTruncated}
		}
		return "", nil, s.truncated(fmt.Sprintf("the end of the file after line %d", s.number))
	}
	if err != nil {
		return "", nil, err
	}
	if err := cleanText(record); err != nil {
		return "", nil, s.wrongLayout("", "the line "+err.Error())
	}
	if fields, err = split(record, ','); err != nil {
		return "", nil, s.wrongLayout("", err.Error())
	}
	return record, fields, nil
}

func (s *scanner) wrongLayout(field, reason string) *ParseError {
	return &ParseError{Line: s.number, Field: field, Class: WrongLayout, Reason: reason}
}

// parseHeader reads "header,paymentsd-settlement,1,acquirer,account,from,to,sequence,replaces".
func (s *scanner) parseHeader(fields []string) (Header, error) {
	const version, acquirer, account, from, to, sequence, replaces, width = 2, 3, 4, 5, 6, 7, 8, 9
	if len(fields) <= version || fields[0] != recordHeader || fields[1] != canonicalMagic {
		return Header{}, s.wrongLayout("", fmt.Sprintf("the file does not begin with %q; is it in another format?",
			join([]string{recordHeader, canonicalMagic})))
	}
	if fields[version] != canonicalVersion {
		return Header{}, &ControlError{Control: ControlVersion, Line: s.number, Declared: clip(fields[version]),
			Computed: canonicalVersion + " is the version known here", Class: WrongLayout}
	}
	if len(fields) != width {
		return Header{}, s.wrongLayout("", fmt.Sprintf("the header has %d fields, not %d", len(fields), width))
	}
	h := Header{Acquirer: fields[acquirer], Account: fields[account]}
	var err error
	if h.From, err = parseTime(fields[from]); err != nil {
		return Header{}, s.wrongLayout("from", err.Error())
	}
	if h.To, err = parseTime(fields[to]); err != nil {
		return Header{}, s.wrongLayout("to", err.Error())
	}
	if h.Sequence, err = parseCount(fields[sequence]); err != nil {
		return Header{}, s.wrongLayout("sequence", err.Error())
	}
	if h.Replaces, err = parseCount(fields[replaces]); err != nil {
		return Header{}, s.wrongLayout("replaces", err.Error())
	}
	if field, reason := checkHeader(h); field != "" {
		return Header{}, s.wrongLayout(field, reason)
	}
	return h, nil
}

// parseColumns finds the columns by name, in any order: at[name] is the field of a line record.
func (s *scanner) parseColumns(fields []string) (at map[string]int, ignored []string, err error) {
	if fields[0] != recordColumns {
		return nil, nil, s.wrongLayout("", fmt.Sprintf("the second line must be the %q record", recordColumns))
	}
	used := canonicalColumns()
	at = make(map[string]int, len(used))
	for i, name := range fields[1:] {
		if !slices.Contains(used, name) {
			ignored = append(ignored, name)
			continue
		}
		if _, again := at[name]; again {
			return nil, nil, s.wrongLayout(name, "the column is there twice; which one is meant cannot be told")
		}
		at[name] = i + 1
	}
	for _, name := range used {
		if _, ok := at[name]; !ok {
			return nil, nil, s.wrongLayout(name, "the column is missing; it may have been renamed to one of: "+
				clip(strings.Join(ignored, ", ")))
		}
	}
	return at, ignored, nil
}

// parseTime reads RFC 3339 in UTC and nothing near it: a time without a zone, or in another one,
// would move a capture over a day's boundary.
func parseTime(s string) (time.Time, error) {
	var t time.Time
	if err := t.UnmarshalText([]byte(s)); err != nil || len(s) > len("2006-01-02T15:04:05.999999999Z") {
		return time.Time{}, fmt.Errorf("%q is not a time like 2026-01-31T23:59:59Z", clip(s))
	}
	if !strings.HasSuffix(s, "Z") {
		return time.Time{}, fmt.Errorf("%q is not in UTC; write it with Z", clip(s))
	}
	return t, nil
}

// parseCount reads digits only: no sign, no leading zero.
func parseCount(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 || strconv.Itoa(n) != s {
		return 0, fmt.Errorf("%q is not a count", clip(s))
	}
	return n, nil
}

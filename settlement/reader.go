package settlement

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"iter"
	"strings"

	"paymentsd/money"
)

// Open reads the header and the column names.
func (canonical) Open(in io.Reader) (Header, iter.Seq2[Line, error], error) {
	s, err := newScanner(in, maxRecordBytes)
	if err != nil {
		return Header{}, nil, err
	}
	r := &reader{
		scanner: s, hash: sha256.New(), recent: newRecentLines(),
		sums: sums{}, declared: map[sumKey]string{}, unsummed: map[money.Currency]bool{},
	}
	record, fields, err := s.headRecord()
	if err != nil {
		return Header{}, nil, err
	}
	h, err := s.parseHeader(fields)
	if err != nil {
		return Header{}, nil, err
	}
	r.digest(record)
	if record, fields, err = s.headRecord(); err != nil {
		return Header{}, nil, err
	}
	if r.at, h.IgnoredColumns, err = s.parseColumns(fields); err != nil {
		return Header{}, nil, err
	}
	r.width = len(fields)
	r.digest(record)
	return h, r.all, nil
}

// reader is a canonical file being read, past its head.
type reader struct {
	*scanner
	hash   hash.Hash
	at     map[string]int // the field of each column
	width  int            // fields of a line record
	recent *recentLines

	lines       int
	sums        sums                    // of the lines
	declared    map[sumKey]string       // sum records as the file has them
	unsummed    map[money.Currency]bool // currencies with a line that could not be added up
	allUnsummed bool                    // a line of we do not know which currency was not added up
}

// digest takes a record into the hash: its bytes with LF, however the file was carried.
func (r *reader) digest(record string) {
	io.WriteString(r.hash, record) // a hash never fails
	io.WriteString(r.hash, "\n")
}

// all yields the lines and then, at most once, why the file is no good.
func (r *reader) all(yield func(Line, error) bool) {
	for {
		record, err := r.next()
		if errors.Is(err, io.EOF) {
			err = r.truncated(fmt.Sprintf("the end of the file after line %d", r.number))
		}
		if err != nil {
			yield(Line{}, err)
			return
		}
		tag, _, _ := strings.Cut(record, ",")
		tag = strings.Trim(tag, `"`)
		if tag == recordTrailer {
			if err := r.trailer(record); err != nil {
				yield(Line{}, err)
			}
			return
		}
		r.digest(record)
		if !r.record(tag, record, yield) {
			return
		}
	}
}

// record handles one record between the head and the trailer; false ends the reading.
func (r *reader) record(tag, record string, yield func(Line, error) bool) bool {
	switch tag {
	case recordLine:
		if len(r.declared) > 0 {
			yield(Line{}, r.outOfOrder("lines before sums", tag))
			return false
		}
		line, bad, err := r.line(record)
		switch {
		case err != nil:
			yield(Line{}, err)
			return false
		case bad != nil:
			return yield(line, bad)
		}
		return yield(line, nil)
	case recordSum:
		if err := r.sum(record); err != nil {
			yield(Line{}, err)
			return false
		}
		return true
	case recordHeader, recordColumns:
		yield(Line{}, r.outOfOrder("one head", tag))
		return false
	}
	// Not a record of ours, but it may be somebody's money: a total, a note, a damaged line.
	r.allUnsummed = true
	return yield(Line{Number: r.number},
		&LineError{Line: r.number, Value: clip(record), Class: BadLine, Reason: "not a record of this format"})
}

// line reads a line record. A *LineError spoils the line, an error the file.
func (r *reader) line(record string) (Line, *LineError, error) {
	r.lines++
	fields, bad := r.lineFields(record)
	if bad != nil {
		r.allUnsummed = true
		return Line{Number: r.number}, bad, nil
	}
	line, bad := r.parseLine(fields)
	c := money.Currency(fields[r.at["currency"]])
	switch {
	case line.Gross.Currency() != "":
		if !r.sums.add(line, line.SourceKind) {
			return Line{}, nil, r.wrongLayout("", fmt.Sprintf("more than %d pairs of currency and kind", maxSums))
		}
	case c.Known():
		r.unsummed[c] = true
	default:
		r.allUnsummed = true
	}
	if bad == nil {
		bad = check(line)
	}
	if line.ID != "" && plainText(line.ID) == nil {
		if first, same, repeated := r.recent.repeats(line.ID, record, r.number); repeated && bad == nil {
			bad = repetition(line.ID, first, same)
		}
	}
	if bad != nil {
		bad.Line = r.number
	}
	return line, bad, nil
}

func (r *reader) lineFields(record string) ([]string, *LineError) {
	bad := &LineError{Line: r.number, Value: clip(record), Class: BadLine}
	if err := cleanText(record); err != nil {
		bad.Reason = "the line " + err.Error()
		return nil, bad
	}
	fields, err := split(record, ',')
	if err != nil {
		bad.Reason = err.Error()
		return nil, bad
	}
	if len(fields) != r.width {
		bad.Reason = fmt.Sprintf("%d fields, but there are %d columns", len(fields)-1, r.width-1)
		return nil, bad
	}
	return fields, nil
}

// parseLine reads the fields. The amounts are set all three or not at all.
func (r *reader) parseLine(fields []string) (Line, *LineError) {
	text := func(column string) string { return fields[r.at[column]] }
	line := Line{
		Number: r.number, ID: text("id"), Kind: Kind(text("kind")), SourceKind: text("kind"),
		Reference: strings.TrimSpace(text("reference")), CaptureID: text("capture_id"), Payout: text("payout"),
	}
	if !line.Kind.known() {
		line.Kind = Unknown
	}
	var bad *LineError
	spoil := func(column string, class Class, err error) {
		if bad == nil {
			bad = &LineError{Line: r.number, Field: column, Value: clip(text(column)), Class: class, Reason: err.Error()}
		}
	}
	var amounts [3]money.Amount
	c, err := money.ParseCurrency(text("currency"))
	if err != nil {
		spoil("currency", BadAmount, err)
	}
	for i, column := range []string{"gross", "fee", "net"} {
		if amounts[i], err = money.Parse(text(column), c); err != nil {
			spoil(column, BadAmount, err)
		}
	}
	if bad == nil {
		line.Gross, line.Fee, line.Net = amounts[0], amounts[1], amounts[2]
	}
	if line.OccurredAt, err = parseTime(text("occurred_at")); err != nil {
		spoil("occurred_at", BadDate, err)
	}
	return line, bad
}

func repetition(id string, first int, same bool) *LineError {
	if same {
		return &LineError{Field: "id", Value: clip(id), Class: DuplicateLine, Reason: fmt.Sprintf("line %d again", first)}
	}
	return &LineError{Field: "id", Value: clip(id), Class: SameKeyOtherContent,
		Reason: fmt.Sprintf("the id of line %d, which says something else", first)}
}

func (r *reader) outOfOrder(want, got string) *ControlError {
	return &ControlError{Control: ControlOrder, Line: r.number, Declared: want, Computed: "another " + got, Class: WrongLayout}
}

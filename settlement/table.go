package settlement

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
)

// maxRowBytes bounds one row of files that other people write, with the line breaks inside its quotes.
const maxRowBytes = 64 << 10

// table is a delimited file whose columns are known by name, being read.
type table struct {
	*scanner
	delimiter byte
	at        map[string]int // the field of each used column
	width     int            // fields of a row
	short     bool           // the last column has no name, and rows may lack it
	ignored   []string
	names     map[string]string // the file's columns behind the fields that check speaks of
	recent    *recentLines
	nth       *occurrences // of rows that are about no charge

	// controlled: the sums of the file are checked, so that a row which cannot be added up refuses the
	// file. Otherwise such a row is an exception of its own, and the others stand.
	controlled bool
}

func openTable(in io.Reader, delimiter byte) (*table, error) {
	s, err := newScanner(in, maxRowBytes)
	if err != nil {
		return nil, err
	}
	s.mixed = true // whoever saved it: nothing here depends on line ends
	return &table{scanner: s, delimiter: delimiter, recent: newRecentLines(), nth: &occurrences{count: map[string]int{}}}, nil
}

// record reads one record, which goes on over the line breaks inside its quotes. It is io.EOF after the
// last one. Lines with nothing on them are passed over.
func (t *table) record() (raw string, line int, err error) {
	for raw == "" {
		if raw, err = t.next(); err != nil {
			return "", 0, err
		}
	}
	line = t.number
	quotes := strings.Count(raw, `"`)
	if quotes%2 == 0 {
		return raw, line, nil
	}
	var whole strings.Builder
	whole.WriteString(raw)
	for quotes%2 != 0 {
		more, err := t.next()
		if errors.Is(err, io.EOF) {
			return "", 0, t.truncated(fmt.Sprintf("the end of the file within the quotes that begin in line %d", line))
		}
		if err != nil {
			return "", 0, err
		}
		if whole.Len()+len(more) >= maxRowBytes {
			return "", 0, &ParseError{Line: line, Class: WrongLayout, Reason: "a quoted field does not end"}
		}
		whole.WriteString("\n" + more)
		quotes += strings.Count(more, `"`)
	}
	return whole.String(), line, nil
}

// head reads the row of column names.
func (t *table) head(required, optional []string) error {
	raw, _, err := t.record()
	if errors.Is(err, io.EOF) {
		return t.nothing("a row of column names")
	}
	if err != nil {
		return err
	}
	fields, err := split(raw, t.delimiter)
	if err != nil {
		return t.wrongLayout("", err.Error())
	}
	return t.columns(fields, required, optional)
}

// nothing is a file that ends before its head.
func (t *table) nothing(want string) *ControlError {
	control, found := ControlZeroBytes, "an empty file"
	if t.number > 0 {
		control, found = ControlTruncated, fmt.Sprintf("the end of the file after line %d", t.number)
	}
	return &ControlError{Control: control, Line: t.number, Declared: want, Computed: found, Class: EmptyOrTruncated}
}

// columns finds the columns by name, in any order. One that is used may not be missing or there twice.
func (t *table) columns(fields, required, optional []string) error {
	t.at, t.width = make(map[string]int, len(required)+len(optional)), len(fields)
	if len(fields) == 0 {
		return t.wrongLayout("", "there are no column names")
	}
	t.short = fields[len(fields)-1] == ""
	for i, name := range fields {
		if !slices.Contains(required, name) && !slices.Contains(optional, name) {
			t.ignored = append(t.ignored, clip(name))
			continue
		}
		if _, again := t.at[name]; again {
			return t.wrongLayout(name, "the column is there twice; which one is meant cannot be told")
		}
		t.at[name] = i
	}
	for _, name := range required {
		if _, ok := t.at[name]; !ok {
			return t.wrongLayout(name, "the column is missing"+t.hint(fields))
		}
	}
	return nil
}

// hint tells a person what the file may be instead.
func (t *table) hint(fields []string) string {
	if len(fields) > 1 {
		return "; the file has: " + clip(strings.Join(fields, ", "))
	}
	for _, other := range []string{",", ";", "\t", "|"} {
		if n := strings.Count(fields[0], other); n > 0 && other != string(t.delimiter) {
			return fmt.Sprintf("; the file is separated by %q, not by %q", other, t.delimiter)
		}
	}
	return "; the file begins with: " + clip(fields[0])
}

// row reads the next row; it is io.EOF after the last one.
func (t *table) row() (*row, error) {
	raw, line, err := t.record()
	if err != nil {
		return nil, err
	}
	return t.rowOf(raw, line)
}

// rowOf takes a record apart. A row that cannot be is an error in a file with sums, else a bad line.
func (t *table) rowOf(raw string, line int) (*row, error) {
	r := &row{table: t, line: line, raw: raw}
	fields, err := split(raw, t.delimiter)
	switch {
	case err != nil:
	case len(fields) == t.width, t.short && len(fields) == t.width-1:
		r.fields = fields
		return r, nil
	default:
		err = fmt.Errorf("%d fields, but there are %d columns", len(fields), t.width)
	}
	if t.controlled {
		return nil, &ParseError{Line: line, Class: WrongLayout, Reason: err.Error()}
	}
	r.bad = &LineError{Line: line, Value: clip(raw), Class: BadLine, Reason: err.Error()}
	return r, nil
}

// lines reads to the end, beginning with a row that was read before, if any: parse makes a line of a row, end
// checks what the whole file has to meet. An error of either ends the reading.
func (t *table) lines(first *row, parse func(*row) (Line, error), end func() error) iter.Seq2[Line, error] {
	return func(yield func(Line, error) bool) {
		r, err := first, error(nil)
		for {
			if r == nil {
				r, err = t.row()
			}
			if errors.Is(err, io.EOF) {
				if err := end(); err != nil {
					yield(Line{}, err)
				}
				return
			}
			if err == nil {
				err = t.line(r, parse, yield)
			}
			if err != nil {
				if !errors.Is(err, errStopped) {
					yield(Line{}, err)
				}
				return
			}
			r = nil
		}
	}
}

// errStopped says that whoever ranges over the lines wants no more.
var errStopped = errors.New("no more lines are wanted")

// line yields what a row says.
func (t *table) line(r *row, parse func(*row) (Line, error), yield func(Line, error) bool) error {
	line := Line{Number: r.line}
	if r.fields != nil {
		var err error
		if line, err = parse(r); errors.Is(err, errIgnored) {
			return nil
		} else if err != nil {
			return err
		}
		line.Number = r.line
		if r.unread && t.controlled {
			return &ParseError{Line: r.line, Field: r.bad.Field, Class: r.bad.Class, Reason: fmt.Sprintf("%q: %s", r.bad.Value, r.bad.Reason)}
		}
		t.identify(r, &line)
	}
	more := false
	if r.bad != nil {
		r.bad.Line = r.line
		more = yield(line, r.bad)
	} else {
		more = yield(line, nil)
	}
	if !more {
		return errStopped
	}
	return nil
}

// identify checks a line, and tells rows of one id apart: about a charge, a second one is a fault; of the
// others, equal rows are as many as there are.
func (t *table) identify(r *row, line *Line) {
	if _, aboutCharge := line.Kind.sign(); !aboutCharge && line.ID != "" {
		if n := t.nth.of(line.ID); n > 1 {
			line.ID = fmt.Sprintf("%s#%d", line.ID, n)
		}
	}
	if r.bad == nil {
		if bad := check(*line); bad != nil {
			if name := t.names[bad.Field]; name != "" {
				bad.Field = name
			}
			r.bad = bad
		}
	}
	if line.ID != "" && plainText(line.ID) == nil {
		if first, same, repeated := t.recent.repeats(line.ID, r.raw, r.line); repeated && r.bad == nil {
			r.bad = repetition(line.ID, first, same)
		}
	}
}

package settlement

import (
	"errors"
	"strings"
)

// join writes one record: RFC 4180, quoting only the fields that need it.
func join(fields []string) string {
	var b strings.Builder
	for i, f := range fields {
		if i > 0 {
			b.WriteByte(',')
		}
		if !strings.ContainsAny(f, `,"`) {
			b.WriteString(f)
			continue
		}
		b.WriteByte('"')
		b.WriteString(strings.ReplaceAll(f, `"`, `""`))
		b.WriteByte('"')
	}
	return b.String()
}

var (
	errBareQuote   = errors.New(`a quote inside a field that is not quoted; write "a ""b"" c"`)
	errOpenQuote   = errors.New("a quoted field does not end on its line")
	errAfterQuoted = errors.New("text between the end of a quoted field and the next")
)

// split reads one record. It is stricter than encoding/csv where that guesses, and a record
// never spans lines, so that a lost quote cannot swallow the rest of a file.
func split(record string, delimiter byte) ([]string, error) {
	fields := make([]string, 0, strings.Count(record, string(delimiter))+1)
	for {
		if !strings.HasPrefix(record, `"`) {
			field, rest, more := strings.Cut(record, string(delimiter))
			if strings.Contains(field, `"`) {
				return nil, errBareQuote
			}
			fields = append(fields, field)
			if !more {
				return fields, nil
			}
			record = rest
			continue
		}
		field, rest, err := quoted(record[1:])
		if err != nil {
			return nil, err
		}
		fields = append(fields, field)
		if rest == "" {
			return fields, nil
		}
		if rest[0] != delimiter {
			return nil, errAfterQuoted
		}
		record = rest[1:]
	}
}

// quoted reads up to the closing quote; s begins after the opening one.
func quoted(s string) (field, rest string, err error) {
	var b strings.Builder
	for {
		part, after, found := strings.Cut(s, `"`)
		if !found {
			return "", "", errOpenQuote
		}
		b.WriteString(part)
		if !strings.HasPrefix(after, `"`) {
			return b.String(), after, nil
		}
		b.WriteByte('"')
		s = after[1:]
	}
}

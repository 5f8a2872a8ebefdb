package feedtest

import (
	"bytes"
	"strings"

	"paymentsd/settlement"
)

// writeCanonical leaves the writing to the package of the format: it is its own reference.
func writeCanonical(f *File, h settlement.Header, lines []settlement.Line) error {
	var b bytes.Buffer
	w := settlement.NewWriter(&b, h)
	for _, l := range lines {
		if err := w.Write(l); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	f.Header = h
	f.book = book{delimiter: ",", head: 1, from: 1, trailer: 1}
	next := 0
	for record := range strings.Lines(b.String()) {
		fields := cut(strings.TrimSuffix(record, "\n"))
		if fields[0] != "line" {
			f.book.add(fields...)
			continue
		}
		l := lines[next]
		l.SourceKind = string(l.Kind)
		f.addLine(l, fields...)
		next++
	}
	return nil
}

// cut takes a record apart that is known to be sound.
func cut(record string) (fields []string) {
	quoted, field := false, strings.Builder{}
	for i := 0; i < len(record); i++ {
		switch c := record[i]; {
		case c == '"' && quoted && i+1 < len(record) && record[i+1] == '"':
			field.WriteByte(c)
			i++
		case c == '"':
			quoted = !quoted
		case c == ',' && !quoted:
			fields = append(fields, field.String())
			field.Reset()
		default:
			field.WriteByte(c)
		}
	}
	return append(fields, field.String())
}

package settlement

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
)

// scanner reads records: lines of bounded length that all end alike, LF or CRLF.
type scanner struct {
	in     *bufio.Reader
	max    int  // bytes of a line with its end
	mixed  bool // line ends may differ: only a format that hashes its bytes can ask for more
	number int  // of the line last read, 1-based
	crlf   bool // how line 1 ended, and so all must
}

// newScanner strips a UTF-8 byte order mark; it is an editor's, not the acquirer's.
func newScanner(r io.Reader, max int) (*scanner, error) {
	in := bufio.NewReaderSize(r, max)
	head, err := in.Peek(3)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return nil, fmt.Errorf("read settlement file: %w", err)
	case bytes.Equal(head, []byte("\xef\xbb\xbf")):
		in.Discard(len(head)) // what Peek returned is there to discard
	case bytes.HasPrefix(head, []byte("\xff\xfe")), bytes.HasPrefix(head, []byte("\xfe\xff")):
		return nil, &ParseError{Line: 1, Class: WrongLayout, Reason: "the file is UTF-16; have it sent as UTF-8"}
	}
	return &scanner{in: in, max: max}, nil
}

// next returns a record without its line end, or io.EOF after the last one.
func (s *scanner) next() (string, error) {
	raw, err := s.in.ReadSlice('\n')
	if len(raw) > 0 {
		s.number++
	}
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return "", &ParseError{Line: s.number, Class: WrongLayout,
			Reason: fmt.Sprintf("the line is longer than %d bytes", s.max)}
	case errors.Is(err, io.EOF) && len(raw) > 0:
		return "", s.truncated(fmt.Sprintf("the end of the file within line %d", s.number))
	case errors.Is(err, io.EOF):
		return "", io.EOF
	case err != nil:
		return "", fmt.Errorf("read settlement file after line %d: %w", s.number, err)
	}
	record, crlf := strings.CutSuffix(string(raw[:len(raw)-1]), "\r")
	if s.number == 1 {
		s.crlf = crlf
	}
	if crlf != s.crlf && !s.mixed {
		return "", &ParseError{Line: s.number, Class: WrongLayout, Reason: "line ends are mixed; all must be LF or all CRLF"}
	}
	return record, nil
}

// atEnd reports whether nothing is left to read.
func (s *scanner) atEnd() (bool, error) {
	switch _, err := s.in.Peek(1); {
	case err == nil:
		return false, nil
	case errors.Is(err, io.EOF):
		return true, nil
	default:
		return false, fmt.Errorf("read settlement file after line %d: %w", s.number, err)
	}
}

func (s *scanner) truncated(found string) *ControlError {
	return &ControlError{Control: ControlTruncated, Line: s.number, Declared: "a trailer", Computed: found, Class: EmptyOrTruncated}
}

package acquirer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// retryAfterMax bounds what an acquirer can ask for; a longer wish is taken as this.
const retryAfterMax = 24 * time.Hour

const detailBytesMax = 500

// RetryAfter reads the Retry-After header: whole seconds, or any of the three HTTP date forms,
// measured against the acquirer's own Date header so that no clock of ours matters (RFC 9110,
// section 10.2.3). Of several values the longest stands. What cannot be read is 0, "nothing asked
// for", which never means "at once".
func RetryAfter(h http.Header) time.Duration {
	longest := time.Duration(0)
	for _, value := range h.Values("Retry-After") {
		longest = max(longest, retryAfter(strings.TrimSpace(value), h.Get("Date")))
	}
	return min(longest, retryAfterMax)
}

func retryAfter(value, date string) time.Duration {
	if value == "" {
		return 0
	}
	if strings.Trim(value, "0123456789") == "" {
		seconds, err := strconv.ParseInt(value, 10, 64)
		if err != nil || seconds > int64(retryAfterMax/time.Second) {
			return retryAfterMax
		}
		return time.Duration(seconds) * time.Second
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	sent, err := http.ParseTime(date)
	if err != nil {
		return 0
	}
	return at.Sub(sent)
}

// Object is one JSON object as received, by exact field name.
type Object map[string]json.RawMessage

// ReadObject reads exactly one JSON object. A repeated name at any depth, anything after the
// object, bytes that are not UTF-8 and every other root are errors: an answer that can be read in
// two ways proves nothing.
func ReadObject(data []byte) (Object, error) {
	if !utf8.Valid(data) {
		return nil, errors.New("not UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	first, err := dec.Token()
	if err != nil {
		return nil, fmt.Errorf("not JSON: %w", err)
	}
	if first != json.Delim('{') {
		return nil, errors.New("not a JSON object")
	}
	if err := uniqueNames(dec, json.Delim('{'), 1); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("data after the JSON object")
	}
	var o Object
	if err := json.Unmarshal(data, &o); err != nil {
		return nil, fmt.Errorf("not JSON: %w", err)
	}
	return o, nil
}

const depthMax = 32

// uniqueNames walks the rest of an object or array and fails on a repeated name.
func uniqueNames(dec *json.Decoder, open json.Delim, depth int) error {
	if depth > depthMax {
		return fmt.Errorf("JSON nested deeper than %d", depthMax)
	}
	seen := map[string]bool{}
	for dec.More() {
		if open == '{' {
			token, err := dec.Token()
			if err != nil {
				return fmt.Errorf("not JSON: %w", err)
			}
			name, _ := token.(string)
			if seen[name] {
				return fmt.Errorf("the name %q is there twice", Clip(name))
			}
			seen[name] = true
		}
		token, err := dec.Token()
		if err != nil {
			return fmt.Errorf("not JSON: %w", err)
		}
		if inner, ok := token.(json.Delim); ok {
			if err := uniqueNames(dec, inner, depth+1); err != nil {
				return err
			}
		}
	}
	if _, err := dec.Token(); err != nil {
		return fmt.Errorf("not JSON: %w", err)
	}
	return nil
}

// Text is a string field, "" when it is absent or anything else.
func (o Object) Text(name string) string {
	var s *string
	if json.Unmarshal(o[name], &s) != nil || s == nil {
		return ""
	}
	return *s
}

// Has reports whether the field is there, null included.
func (o Object) Has(name string) bool { _, ok := o[name]; return ok }

// Integer is a field that is a plain JSON integer: no fraction, no exponent, no string.
func (o Object) Integer(name string) (int64, bool) {
	n, err := strconv.ParseInt(string(o[name]), 10, 64)
	return n, err == nil
}

// Flag is a field that is true or false.
func (o Object) Flag(name string) (value, ok bool) {
	switch string(o[name]) {
	case "true":
		return true, true
	case "false":
		return false, true
	}
	return false, false
}

// Clip makes a text fit for Answer.Detail: printable, on one line, at most 500 bytes.
func Clip(s string) string {
	if len(s) > 4*detailBytesMax {
		s = s[:4*detailBytesMax]
	}
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == utf8.RuneError {
			return ' '
		}
		return r
	}, s)
	if len(s) <= detailBytesMax {
		return s
	}
	cut := detailBytesMax
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut]
}

// Objects is a field that is an array of JSON objects.
func (o Object) Objects(name string) (list []Object, ok bool) {
	if err := json.Unmarshal(o[name], &list); err != nil || list == nil {
		return nil, false
	}
	for _, one := range list {
		if one == nil {
			return nil, false
		}
	}
	return list, true
}

package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// depthMax bounds how deeply a body may be nested; ours are flat.
const depthMax = 16

// readJSON reads a body that must be one JSON object: media type, size, syntax, repeated members and
// card numbers are judged before any field is.
func (a *api) readJSON(w http.ResponseWriter, r *http.Request) ([]byte, *document, error) {
	if err := checkContentType(r.Header); err != nil {
		return nil, nil, err
	}
	body, err := readBody(w, r, a.Limits.BodyBytesMax)
	if err != nil {
		return nil, nil, err
	}
	doc, err := parseDocument(body)
	return body, doc, err
}

func checkContentType(h http.Header) error {
	mediaType, params, err := mime.ParseMediaType(h.Get("Content-Type"))
	charset, encoding := params["charset"], h.Get("Content-Encoding")
	if err != nil || len(h.Values("Content-Type")) != 1 || mediaType != typeJSON ||
		charset != "" && !strings.EqualFold(charset, "utf-8") || encoding != "" && encoding != "identity" {
		return refuse(codeContentType, "")
	}
	return nil
}

func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, refuse(codeBodyTooLarge, fmt.Sprintf("The body has more than %d bytes.", limit))
	}
	if err != nil {
		return nil, refuse(codeBodyIncomplete, "")
	}
	return body, nil
}

// document is the members of a JSON object, and what is wrong with those that were looked at.
type document struct {
	members map[string]json.RawMessage
	errors  []fieldError
}

// parseDocument refuses, in this order: what is not one JSON object in UTF-8; card numbers anywhere;
// members that stand twice, at any depth. What it quotes was searched for card numbers.
func parseDocument(body []byte) (*document, error) {
	if at := invalidUTF8(body); at >= 0 {
		return nil, malformed(at, "it is not UTF-8")
	}
	var whole json.RawMessage
	if err := json.Unmarshal(body, &whole); err != nil {
		at, what := len(body), "it ends too early"
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok && int(syntax.Offset) < len(body) {
			at, what = max(int(syntax.Offset)-1, 0), "this byte does not continue it"
		} else if ok && !strings.HasPrefix(syntax.Error(), "unexpected end") {
			at, what = max(int(syntax.Offset)-1, 0), "this byte does not continue it"
		}
		return nil, malformed(at, what)
	}
	if start := bytes.TrimLeft(body, " \t\r\n"); start[0] != '{' {
		return nil, malformed(len(body)-len(start), "it is not an object")
	}
	w := walker{decoder: json.NewDecoder(bytes.NewReader(body))}
	w.decoder.UseNumber()
	if err := w.value("", 0); err != nil {
		return nil, err
	}
	if len(w.cards) > 0 {
		return nil, refuse(codeCardNumber, "", w.cards...)
	}
	doc := &document{errors: w.repeated}
	if err := json.Unmarshal(body, &doc.members); err != nil {
		return nil, malformed(0, "it is not an object")
	}
	return doc, nil
}

func malformed(offset int, what string) error {
	return refuse(codeMalformedJSON, fmt.Sprintf("The body is not one JSON object: at byte %d, %s.", offset, what))
}

func invalidUTF8(b []byte) int {
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return -1
}

// walker goes through a valid JSON text once.
type walker struct {
	decoder  *json.Decoder
	repeated []fieldError
	cards    []fieldError
}

func (w *walker) value(path string, depth int) error {
	if depth > depthMax {
		return malformed(int(w.decoder.InputOffset()), fmt.Sprintf("it is nested more than %d deep", depthMax))
	}
	token, err := w.decoder.Token()
	if err != nil {
		return malformed(int(w.decoder.InputOffset()), "it cannot be read")
	}
	switch t := token.(type) {
	case json.Delim:
		if t == '{' {
			err = w.object(path, depth)
		} else {
			err = w.array(path, depth)
		}
		if err == nil {
			_, err = w.decoder.Token() // the closing bracket
		}
		return err
	case string:
		w.search(path, t)
	case json.Number:
		w.search(path, t.String())
	}
	return nil
}

func (w *walker) object(path string, depth int) error {
	seen := map[string]bool{}
	for w.decoder.More() {
		token, err := w.decoder.Token()
		if err != nil {
			return malformed(int(w.decoder.InputOffset()), "it cannot be read")
		}
		name, _ := token.(string)
		member := memberName(name)
		if path != "" {
			member = path + "." + member
		}
		w.search(member, name)
		if seen[name] {
			w.repeated = append(w.repeated, fieldError{Field: member, Code: "repeated", Detail: "stands twice"})
		}
		seen[name] = true
		if err := w.value(member, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func (w *walker) array(path string, depth int) error {
	for i := 0; w.decoder.More(); i++ {
		if err := w.value(path+"["+strconv.Itoa(i)+"]", depth+1); err != nil {
			return err
		}
	}
	return nil
}

func (w *walker) search(path, text string) {
	if holdsCardNumber(text) {
		w.cards = append(w.cards, fieldError{Field: path, Code: "card_number", Detail: "holds a card number"})
	}
}

// memberName is a member's name as it may be shown: short, and no card number.
func memberName(name string) string {
	if holdsCardNumber(name) {
		return "(a name)"
	}
	const shownMax = 64
	if len(name) > shownMax {
		return strings.ToValidUTF8(name[:shownMax], "") + "..."
	}
	return name
}

// take removes a member, so that rest finds what nobody asked for.
func (d *document) take(name string) (json.RawMessage, bool) {
	raw, ok := d.members[name]
	delete(d.members, name)
	return raw, ok
}

func (d *document) wrong(field, code, detail string) {
	d.errors = append(d.errors, fieldError{Field: field, Code: code, Detail: detail})
}

// text reads a string member of 1 to limit bytes without control characters; "" if it is wrong or absent.
func (d *document) text(name string, required bool, limit int) string {
	raw, ok := d.take(name)
	switch {
	case !ok && required:
		d.wrong(name, "required", "is missing")
		return ""
	case !ok:
		return ""
	}
	var text string
	switch {
	case raw[0] != '"' || json.Unmarshal(raw, &text) != nil:
		d.wrong(name, "type", "must be a JSON string")
		return ""
	case text == "":
		d.wrong(name, "empty", "must not be empty; leave out what you do not have")
	case len(text) > limit:
		d.wrong(name, "too_long", fmt.Sprintf("has %d bytes of UTF-8, at most %d are allowed", len(text), limit))
	case !printable(text):
		d.wrong(name, "characters", "holds a control character, or a blank at an end")
	default:
		return text
	}
	return ""
}

// printable refuses control characters, which stores and files of acquirers choke on, and blanks at
// the ends, which make two texts look the same.
func printable(s string) bool {
	for _, r := range s {
		if r < ' ' || r == 0x7f || 0x80 <= r && r < 0xa0 || r == utf8.RuneError || r == 0x2028 || r == 0x2029 {
			return false
		}
	}
	return strings.TrimSpace(s) == s
}

// flag reads a boolean member, false if absent.
func (d *document) flag(name string) bool {
	raw, ok := d.take(name)
	var value bool
	if ok && (raw[0] != 't' && raw[0] != 'f' || json.Unmarshal(raw, &value) != nil) {
		d.wrong(name, "type", "must be true or false")
	}
	return value
}

// finish refuses everything that was found wrong, at once, and members that nobody asked for.
func (d *document) finish() error {
	for _, name := range slices.Sorted(maps.Keys(d.members)) {
		d.wrong(memberName(name), "unknown", "is not a field of this request")
	}
	if len(d.errors) == 0 {
		return nil
	}
	names := make([]string, len(d.errors))
	for i, e := range d.errors {
		names[i] = e.name() + " " + e.Detail
	}
	return refuse(codeValidation, "The request is not valid: "+strings.Join(names, "; ")+".", d.errors...)
}

package sim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"paymentsd/money"
)

// Limits of what a client may send.
const (
	bodyBytesMax        = 16 << 10
	keyBytesMax         = 64
	referenceBytesMax   = 64
	methodBytesMax      = 255
	descriptionBytesMax = 255
)

// problem is an error answer; Processed is false on every refusal that touched nothing.
type problem struct {
	status    int
	Code      string `json:"code"`
	Field     string `json:"field,omitempty"`
	Message   string `json:"message"`
	Processed *bool  `json:"processed,omitempty"`
}

func (p problem) Error() string { return p.Message }

// refusal is a problem that says it processed nothing.
func refusal(status int, code, field, format string, args ...any) *problem {
	no := false
	return &problem{status: status, Code: code, Field: field, Message: fmt.Sprintf(format, args...), Processed: &no}
}

func invalid(field, format string, args ...any) *problem {
	return refusal(http.StatusUnprocessableEntity, "invalid_field", field, format, args...)
}

func writeProblem(w http.ResponseWriter, p problem) { writeJSON(w, p.status, p) }

func writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		status, body = http.StatusInternalServerError, []byte(`{"code":"internal_error","message":"the answer cannot be written"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)+1))
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // a client that has gone is its own affair
}

// readBody reads a JSON body of bounded size.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, *problem) {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != "application/json" {
		return nil, refusal(http.StatusUnsupportedMediaType, "unsupported_media_type", "Content-Type", "send application/json")
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bodyBytesMax))
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		return nil, refusal(http.StatusRequestEntityTooLarge, "body_too_large", "", "the body is over %d bytes", bodyBytesMax)
	}
	if err != nil {
		return nil, refusal(http.StatusBadRequest, "unreadable_body", "", "the body ended early")
	}
	return body, nil
}

type fields map[string]json.RawMessage

// readFields reads exactly one JSON object with known, unrepeated names. path names the object in
// errors, "" for the body itself.
func readFields(data []byte, path string, known ...string) (fields, *problem) {
	malformed := func(dec *json.Decoder, what string) *problem {
		return refusal(http.StatusBadRequest, "malformed_json", path, "%s at byte %d", what, dec.InputOffset())
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	if !utf8.Valid(data) {
		return nil, malformed(dec, "not UTF-8")
	}
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return nil, malformed(dec, "not a JSON object")
	}
	out := fields{}
	for dec.More() {
		token, err := dec.Token()
		name, isName := token.(string)
		if err != nil || !isName {
			return nil, malformed(dec, "malformed JSON")
		}
		field := join(path, name)
		if !slices.Contains(known, name) {
			return nil, invalid(field, "unknown field; known are %s", strings.Join(known, ", "))
		}
		if _, twice := out[name]; twice {
			return nil, invalid(field, "the field is there twice")
		}
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return nil, malformed(dec, "malformed JSON")
		}
		out[name] = raw
	}
	if _, err := dec.Token(); err != nil {
		return nil, malformed(dec, "malformed JSON")
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, malformed(dec, "data after the object")
	}
	return out, nil
}

func join(path, name string) string {
	if len(name) > 64 {
		name = name[:64] + "..."
	}
	if path == "" {
		return name
	}
	return path + "." + name
}

// text is a string field of 1 to most bytes, or of none if it is optional and absent.
func (f fields) text(path, name string, most int, required bool) (string, *problem) {
	raw, there := f[name]
	if !there && !required {
		return "", nil
	}
	var s *string
	if !there || json.Unmarshal(raw, &s) != nil || s == nil {
		return "", invalid(join(path, name), "a string is required")
	}
	if *s == "" || len(*s) > most {
		return "", invalid(join(path, name), "want 1 to %d bytes", most)
	}
	return *s, nil
}

// integer is a plain JSON integer between least and most.
func (f fields) integer(path, name string, least, most int64) (int64, *problem) {
	n, err := strconv.ParseInt(string(f[name]), 10, 64)
	if err != nil || n < least || n > most {
		return 0, invalid(join(path, name), "want an integer from %d to %d", least, most)
	}
	return n, nil
}

// order is one capture as asked for.
type order struct {
	key           string
	reference     string
	amountMinor   int64
	currency      money.Currency
	paymentMethod string
	description   string
}

const amountMinorMax = 1_000_000_000_000_000

// readOrder decodes a capture request strictly; exponents is this acquirer's own table.
func readOrder(key string, body []byte, exponents map[money.Currency]int) (order, *problem) {
	if key == "" || len(key) > keyBytesMax || !visible(key) {
		return order{}, refusal(http.StatusBadRequest, "invalid_key", "Idempotency-Key", "want 1 to %d visible ASCII characters", keyBytesMax)
	}
	f, p := readFields(body, "", "reference", "amount_minor", "currency", "payment_method", "description")
	if p != nil {
		return order{}, p
	}
	o := order{key: key}
	if o.reference, p = f.text("", "reference", referenceBytesMax, true); p != nil {
		return order{}, p
	}
	if !visible(o.reference) {
		return order{}, invalid("reference", "want visible ASCII characters only")
	}
	if o.amountMinor, p = f.integer("", "amount_minor", 1, amountMinorMax); p != nil {
		return order{}, p
	}
	code, p := f.text("", "currency", 3, true)
	if p != nil {
		return order{}, p
	}
	var err error
	if o.currency, err = money.ParseCurrency(code); err != nil {
		return order{}, invalid("currency", "%v", err)
	}
	if o.paymentMethod, p = f.text("", "payment_method", methodBytesMax, true); p != nil {
		return order{}, p
	}
	if o.description, p = f.text("", "description", descriptionBytesMax, false); p != nil {
		return order{}, p
	}
	if _, err := money.FromMinor(o.amountMinor, exponentOf(exponents, o.currency), o.currency); err != nil {
		return order{}, invalid("amount_minor", "not an amount of %s here: %v", o.currency, err)
	}
	return o, nil
}

func exponentOf(table map[money.Currency]int, c money.Currency) int {
	if e, ok := table[c]; ok {
		return e
	}
	return c.Exponent()
}

func visible(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) < 0
}

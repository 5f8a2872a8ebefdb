package idempotency

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/shopspring/decimal"
)

// Fingerprint tells two requests under one key apart: a version byte and an HMAC-SHA-256. It is keyed
// because a plain hash of a body with guessable amounts gives the body away.
type Fingerprint [1 + sha256.Size]byte

// fingerprintVersion changes when the canonical form does.
const fingerprintVersion = 1

// secretMin is the least length of the HMAC key, in bytes.
const secretMin = 32

// Fingerprinter makes fingerprints. It is safe for concurrent use.
type Fingerprinter struct{ secret []byte }

// NewFingerprinter uses secret, of at least 32 bytes. All replicas need the same one: with another,
// every open key looks as if it was used with another request.
func NewFingerprinter(secret []byte) (*Fingerprinter, error) {
	if len(secret) < secretMin {
		return nil, fmt.Errorf("the fingerprint secret has %d bytes: it needs at least %d", len(secret), secretMin)
	}
	return &Fingerprinter{secret: slices.Clone(secret)}, nil
}

// Subject is what a fingerprint covers.
type Subject struct {
	Method, Path, Query string
	Body                []byte // JSON
	// Canonical replaces string members of the body's top object by their canonical text, where
	// two texts mean the same (amount "10.0" and "10.00").
	Canonical map[string]string
}

// Of makes the fingerprint of a request. The order of object members and the spelling of numbers (1.0,
// 1) do not matter; null differs from absent; arrays are ordered. It fails if the body is not
// one JSON value.
func (f *Fingerprinter) Of(s Subject) (Fingerprint, error) {
	value, err := decodeOne(s.Body)
	if err != nil {
		return Fingerprint{}, fmt.Errorf("fingerprint the body: %w", err)
	}
	if object, ok := value.(map[string]any); ok {
		for name, text := range s.Canonical {
			if _, isText := object[name].(string); isText {
				object[name] = text
			}
		}
	}
	var canonical bytes.Buffer
	for _, part := range []string{s.Method, s.Path, s.Query} {
		writeText(&canonical, part)
	}
	writeCanonical(&canonical, value)
	mac := hmac.New(sha256.New, f.secret)
	mac.Write([]byte{fingerprintVersion})
	mac.Write(canonical.Bytes())
	print := Fingerprint{fingerprintVersion}
	mac.Sum(print[:1])
	return print, nil
}

func decodeOne(body []byte) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the JSON value")
	}
	return value, nil
}

// writeCanonical writes a value so that equal values, and only those, give equal bytes.
func writeCanonical(w *bytes.Buffer, value any) {
	switch v := value.(type) {
	case nil:
		w.WriteByte('z')
	case bool:
		w.WriteString("b" + strconv.FormatBool(v))
	case json.Number:
		w.WriteByte('n')
		writeText(w, canonicalNumber(v.String()))
	case string:
		w.WriteByte('s')
		writeText(w, v)
	case []any:
		w.WriteString("a" + strconv.Itoa(len(v)) + ":")
		for _, element := range v {
			writeCanonical(w, element)
		}
	case map[string]any:
		w.WriteString("o" + strconv.Itoa(len(v)) + ":")
		for _, name := range slices.Sorted(maps.Keys(v)) {
			writeText(w, name)
			writeCanonical(w, v[name])
		}
	}
}

// writeText puts the length first, so that no two lists of texts read the same.
func writeText(w *bytes.Buffer, text string) {
	w.WriteString(strconv.Itoa(len(text)))
	w.WriteByte(':')
	w.WriteString(text)
}

// canonicalNumber writes coefficient and exponent without trailing zeros. It never expands the
// exponent: 1e999999999 is legal JSON.
func canonicalNumber(text string) string {
	d, err := decimal.NewFromString(text)
	if err != nil {
		return text
	}
	coefficient := d.Coefficient().String()
	trimmed := strings.TrimRight(coefficient, "0")
	if trimmed == "" || trimmed == "-" {
		return "0"
	}
	return trimmed + "e" + strconv.FormatInt(int64(d.Exponent())+int64(len(coefficient)-len(trimmed)), 10)
}

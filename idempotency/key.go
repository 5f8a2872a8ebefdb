package idempotency

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// KeyMax is the longest key, in bytes of UTF-8.
const KeyMax = 255

// ParseKey reads the values of the Idempotency-Key header. The bare form (abc) and the quoted form
// of draft-ietf-httpapi-idempotency-key-header ("abc") are the same key. Two headers, blanks,
// control characters or more than KeyMax bytes are malformed.
func ParseKey(values []string) (string, error) {
	switch len(values) {
	case 0:
		return "", ErrKeyMissing
	case 1:
	default:
		return "", fmt.Errorf("%w: it was sent %d times", ErrKeyMalformed, len(values))
	}
	key := strings.Trim(values[0], " \t")
	if strings.HasPrefix(key, `"`) {
		var err error
		if key, err = unquote(key); err != nil {
			return "", err
		}
	}
	switch {
	case key == "":
		return "", fmt.Errorf("%w: it is empty", ErrKeyMalformed)
	case len(key) > KeyMax:
		return "", fmt.Errorf("%w: it has %d bytes, at most %d are allowed", ErrKeyMalformed, len(key), KeyMax)
	case !utf8.ValidString(key):
		return "", fmt.Errorf("%w: it is not UTF-8", ErrKeyMalformed)
	}
	for _, r := range key {
		if unicode.IsSpace(r) || unicode.IsControl(r) {
			return "", fmt.Errorf("%w: it holds a blank or a control character", ErrKeyMalformed)
		}
	}
	return key, nil
}

// unquote reads a string of RFC 9651: backslash escapes only a quote or a backslash, and nothing
// follows the closing quote.
func unquote(s string) (string, error) {
	var key strings.Builder
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == '\\' && i+1 < len(s) && (s[i+1] == '"' || s[i+1] == '\\'):
			i++
			key.WriteByte(s[i])
		case s[i] == '\\':
			return "", fmt.Errorf("%w: a backslash escapes neither quote nor backslash", ErrKeyMalformed)
		case s[i] == '"' && i == len(s)-1:
			return key.String(), nil
		case s[i] == '"':
			return "", fmt.Errorf("%w: something follows the closing quote", ErrKeyMalformed)
		default:
			key.WriteByte(s[i])
		}
	}
	return "", fmt.Errorf("%w: the closing quote is missing", ErrKeyMalformed)
}

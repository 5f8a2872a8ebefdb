package idempotency

import (
	"errors"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestParseKey(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		values []string
		want   string
		err    error
	}{
		"bare": {[]string{"abc"}, "abc", nil},
		"idempotency case 4: the quoted form is the same key": {[]string{`"abc"`}, "abc", nil},
		"blanks around it":                              {[]string{" \tabc\t "}, "abc", nil},
		"blanks around the quotes":                      {[]string{`  "abc" `}, "abc", nil},
		"an escaped quote":                              {[]string{`"a\"b"`}, `a"b`, nil},
		"an escaped backslash":                          {[]string{`"a\\b"`}, `a\b`, nil},
		"a quote inside a bare key":                     {[]string{`a"b`}, `a"b`, nil},
		"a comma is part of the key":                    {[]string{"a,b"}, "a,b", nil},
		"not ASCII":                                     {[]string{"ключ-✓"}, "ключ-✓", nil},
		"idempotency case 5: 255 bytes":                 {[]string{strings.Repeat("k", 255)}, strings.Repeat("k", 255), nil},
		"idempotency case 5: 255 bytes in quotes":       {[]string{`"` + strings.Repeat("k", 255) + `"`}, strings.Repeat("k", 255), nil},
		"idempotency case 5: 40 emoji are 160 bytes":    {[]string{strings.Repeat("🙂", 40)}, strings.Repeat("🙂", 40), nil},
		"idempotency case 1: absent":                    {nil, "", ErrKeyMissing},
		"idempotency case 2: empty":                     {[]string{""}, "", ErrKeyMalformed},
		"idempotency case 2: only blanks":               {[]string{" \t  "}, "", ErrKeyMalformed},
		"idempotency case 2: an empty string in quotes": {[]string{`""`}, "", ErrKeyMalformed},
		"idempotency case 2: blanks in quotes":          {[]string{`"  "`}, "", ErrKeyMalformed},
		"idempotency case 5: 256 bytes":                 {[]string{strings.Repeat("k", 256)}, "", ErrKeyMalformed},
		"idempotency case 5: 64 emoji are 256 bytes":    {[]string{strings.Repeat("🙂", 64)}, "", ErrKeyMalformed},
		"sent twice":                                    {[]string{"abc", "abc"}, "", ErrKeyMalformed},
		"two in one header":                             {[]string{"abc, def"}, "", ErrKeyMalformed},
		"a blank inside":                                {[]string{"a b"}, "", ErrKeyMalformed},
		"a no-break space inside":                       {[]string{"a\u00a0b"}, "", ErrKeyMalformed},
		"a line separator inside":                       {[]string{"a\u2028b"}, "", ErrKeyMalformed},
		"a null byte":                                   {[]string{"a\x00b"}, "", ErrKeyMalformed},
		"a delete character":                            {[]string{"a\x7fb"}, "", ErrKeyMalformed},
		"a C1 control character":                        {[]string{"a\u0085b"}, "", ErrKeyMalformed},
		"not UTF-8":                                     {[]string{"a\xffb"}, "", ErrKeyMalformed},
		"the closing quote is missing":                  {[]string{`"abc`}, "", ErrKeyMalformed},
		"only a quote":                                  {[]string{`"`}, "", ErrKeyMalformed},
		"parameters after the quotes":                   {[]string{`"abc";q=1`}, "", ErrKeyMalformed},
		"a backslash before something else":             {[]string{`"a\nb"`}, "", ErrKeyMalformed},
		"a backslash at the end":                        {[]string{`"abc\`}, "", ErrKeyMalformed},
	} {
		got, err := ParseKey(tc.values)
		if got != tc.want || !errors.Is(err, tc.err) || (tc.err == nil) != (err == nil) {
			t.Errorf("%s: %q, %v; want %q, %v", name, got, err, tc.want, tc.err)
		}
	}
}

func FuzzParseKey(f *testing.F) {
	for _, seed := range []string{"", "abc", `"abc"`, `"a\"b\\"`, " x ", "\xff", `"`, `"a"b`, "🙂"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		key, err := ParseKey([]string{value})
		if err != nil {
			if key != "" || !errors.Is(err, ErrKeyMalformed) {
				t.Fatalf("%q: %q, %v", value, key, err)
			}
			return
		}
		bad := func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }
		if key == "" || len(key) > KeyMax || !utf8.ValidString(key) || strings.ContainsFunc(key, bad) {
			t.Fatalf("%q is accepted as %q", value, key)
		}
		// However it was written, its quoted form is the same key.
		quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
		if again, err := ParseKey([]string{quoted}); err != nil || again != key {
			t.Fatalf("%q reads as %q, its quoted form %s as %q, %v", value, key, quoted, again, err)
		}
	})
}

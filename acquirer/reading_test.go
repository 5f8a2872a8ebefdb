package acquirer_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"paymentsd/acquirer"
)

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	const date = "Sun, 29 Nov 2026 12:00:00 GMT"
	for _, c := range []struct {
		name   string
		values []string
		date   string
		want   time.Duration
	}{
		{"absent", nil, date, 0},
		{"seconds", []string{"120"}, "", 2 * time.Minute},
		{"seconds with blanks around", []string{" 5 "}, "", 5 * time.Second},
		{"zero asks for nothing", []string{"0"}, "", 0},
		{"negative asks for nothing", []string{"-5"}, "", 0},
		{"a fraction asks for nothing", []string{"1.5"}, "", 0},
		{"NaN asks for nothing", []string{"NaN"}, "", 0},
		{"a plus sign asks for nothing", []string{"+5"}, "", 0},
		{"empty asks for nothing", []string{""}, "", 0},
		{"huge is a day", []string{"99999999"}, "", 24 * time.Hour},
		{"beyond int64 is a day", []string{strings.Repeat("9", 40)}, "", 24 * time.Hour},
		{"of two values the longer", []string{"3", "9"}, "", 9 * time.Second},
		{"of a good and a bad value the good one", []string{"soon", "9"}, "", 9 * time.Second},
		{"date, IMF-fixdate", []string{"Sun, 29 Nov 2026 12:00:30 GMT"}, date, 30 * time.Second},
		{"date, RFC 850", []string{"Sunday, 29-Nov-26 12:00:30 GMT"}, date, 30 * time.Second},
		{"date, asctime", []string{"Sun Nov 29 12:00:30 2026"}, date, 30 * time.Second},
		{"a date that is past asks for nothing", []string{"Sun, 29 Nov 2026 11:59:59 GMT"}, date, 0},
		{"a date far off is a day", []string{"Sun, 29 Nov 2099 12:00:00 GMT"}, date, 24 * time.Hour},
		{"a date without the acquirer's own asks for nothing", []string{"Sun, 29 Nov 2026 12:00:30 GMT"}, "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := http.Header{"Retry-After": c.values}
			if c.date != "" {
				h.Set("Date", c.date)
			}
			if got := acquirer.RetryAfter(h); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestReadObjectRefusesWhatCanBeReadInTwoWays(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"empty":                 "",
		"an array":              `[]`,
		"a string":              `"a"`,
		"null":                  `null`,
		"a name twice":          `{"a":1,"a":2}`,
		"a name twice, escaped": `{"a":1,"\u0061":2}`,
		"a name twice, nested":  `{"x":[{"a":1,"a":2}]}`,
		"data after it":         `{"a":1} {}`,
		"garbage after it":      `{"a":1}x`,
		"cut off":               `{"a":`,
		"cut off in a list":     `{"a":[1,`,
		"not UTF-8":             "{\"a\":\"\xff\"}",
		"nested too deep":       `{"a":` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + `}`,
		"a trailing comma":      `{"a":1,}`,
		"a comment":             `{"a":1/**/}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if o, err := acquirer.ReadObject([]byte(text)); err == nil {
				t.Errorf("read as %v", o)
			}
		})
	}
}

func TestObjectReadsByExactNameAndType(t *testing.T) {
	t.Parallel()
	o, err := acquirer.ReadObject([]byte(` {"s":"x","n":-12,"f":1.0,"e":1e3,"big":9223372036854775808,"b":false,"z":null,"N":7,"l":[{"a":1}],"m":[null],"q":"12"} `))
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{"s": "x", "S": "", "n": "", "z": "", "gone": ""}
	for name, want := range texts {
		if got := o.Text(name); got != want {
			t.Errorf("Text(%s) = %q, want %q", name, got, want)
		}
	}
	for _, name := range []string{"f", "e", "big", "q", "z", "s", "gone"} {
		if n, ok := o.Integer(name); ok {
			t.Errorf("Integer(%s) = %d, want none", name, n)
		}
	}
	if n, ok := o.Integer("n"); !ok || n != -12 {
		t.Errorf("Integer(n) = %d, %t", n, ok)
	}
	if b, ok := o.Flag("b"); b || !ok {
		t.Errorf("Flag(b) = %t, %t", b, ok)
	}
	if _, ok := o.Flag("z"); ok {
		t.Error("null is neither true nor false")
	}
	if list, ok := o.Objects("l"); !ok || len(list) != 1 {
		t.Errorf("Objects(l) = %v, %t", list, ok)
	}
	for _, name := range []string{"m", "s", "z", "gone"} {
		if list, ok := o.Objects(name); ok {
			t.Errorf("Objects(%s) = %v, want none", name, list)
		}
	}
	if !o.Has("z") || o.Has("gone") {
		t.Error("Has confuses null with absent")
	}
}

func TestClipFitsADetail(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"", "plain", "two\nlines\x00", strings.Repeat("é", 600), "\xff\xfe", strings.Repeat("x", 1<<20)} {
		got := acquirer.Clip(s)
		if len(got) > 500 || !utf8.ValidString(got) || strings.ContainsAny(got, "\n\x00") {
			t.Errorf("Clip of %d bytes gives %q", len(s), got)
		}
	}
}

func FuzzReadObject(f *testing.F) {
	for _, s := range []string{`{}`, `{"a":1,"b":[{"c":null}]}`, `{"a":1,"a":1}`, "{\"\xff\":1}", `{"a":"\ud800"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		o, err := acquirer.ReadObject(data)
		if err != nil {
			return
		}
		for name := range o {
			if n, ok := o.Integer(name); ok && fmt.Sprint(n) != string(o[name]) && string(o[name]) != "-0" {
				t.Errorf("%s read as %d", o[name], n)
			}
		}
	})
}

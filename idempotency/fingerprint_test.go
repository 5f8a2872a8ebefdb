package idempotency

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func newFingerprinter(t testing.TB, secret byte) *Fingerprinter {
	t.Helper()
	f, err := NewFingerprinter(bytes.Repeat([]byte{secret}, 32))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func of(t testing.TB, f *Fingerprinter, body string) Fingerprint {
	t.Helper()
	print, err := f.Of(Subject{Method: "POST", Path: "/v1/charges", Body: []byte(body)})
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return print
}

func TestSameRequest(t *testing.T) {
	t.Parallel()
	f := newFingerprinter(t, 1)
	for name, pair := range map[string][2]string{
		"idempotency case 9: the order of members":       {`{"a":1,"b":2}`, `{"b":2,"a":1}`},
		"idempotency case 9: the order of inner members": {`{"x":{"a":1,"b":[{"c":1,"d":2}]}}`, `{"x":{"b":[{"d":2,"c":1}],"a":1}}`},
		"idempotency case 9: 1.0 for 1":                  {`{"a":1.0}`, `{"a":1}`},
		"blanks":                                         {`{"a":[1,2]}`, " {\n\t\"a\" : [ 1 , 2 ] } "},
		"an exponent":                                    {`{"a":1200}`, `{"a":1.2e3}`},
		"a big exponent and a bigger one":                {`{"a":10e99}`, `{"a":1E+100}`},
		"a small fraction":                               {`{"a":0.00100}`, `{"a":1e-3}`},
		"zero":                                           {`{"a":0}`, `{"a":-0.000e7}`},
		"escapes":                                        {`{"a":"é/"}`, `{"a":"\u00e9\/"}`},
	} {
		if of(t, f, pair[0]) != of(t, f, pair[1]) {
			t.Errorf("%s: %s and %s are two requests", name, pair[0], pair[1])
		}
	}
}

func TestOtherRequest(t *testing.T) {
	t.Parallel()
	f := newFingerprinter(t, 1)
	bodies := []string{
		`{}`, `{"a":null}`, `{"a":""}`, `{"a":0}`, `{"a":false}`, `{"a":[]}`, `{"a":{}}`, `[]`, `null`, `"a"`, `0`,
		`{"a":[1,2]}`, `{"a":[2,1]}`, `{"a":[[1],2]}`, `{"a":[1,[2]]}`, `{"a":1,"b":2}`, `{"a":12}`, `{"a":1.2}`, `{"a":"12"}`, `{"a":-12}`,
		`{"ab":"c"}`, `{"a":"bc"}`, `{"a":"b","c":"d"}`, `{"a":"b1:c"}`, `{"a":1e99}`, `{"a":1e100}`, `{"a":"1e99"}`, `{"a":true}`, `{"a":"true"}`,
		`{"a":9007199254740993}`, `{"a":9007199254740992}`, `{"a":0.1}`, `{"a":0.10000000000000001}`,
	}
	seen := map[Fingerprint]string{}
	for _, body := range bodies {
		print := of(t, f, body)
		if other, is := seen[print]; is {
			t.Errorf("%s and %s are one request", body, other)
		}
		seen[print] = body
		if print[0] != fingerprintVersion {
			t.Errorf("version %d", print[0])
		}
	}
	base := Subject{Method: "POST", Path: "/v1/charges", Query: "a=b", Body: []byte(`{}`)}
	for name, change := range map[string]func(*Subject){
		"another method": func(s *Subject) { s.Method = "PUT" }, "another path": func(s *Subject) { s.Path = "/v1/charge" },
		"another query": func(s *Subject) { s.Query = "" }, "query moved to the path": func(s *Subject) { s.Path, s.Query = s.Path+s.Query, "" },
	} {
		other := base
		change(&other)
		a, errA := f.Of(base)
		b, errB := f.Of(other)
		if a == b || errA != nil || errB != nil {
			t.Errorf("%s is the same request; %v, %v", name, errA, errB)
		}
	}
	if of(t, f, `{}`) == of(t, newFingerprinter(t, 2), `{}`) {
		t.Error("the secret does not matter")
	}
}

func TestCanonicalMembers(t *testing.T) {
	t.Parallel()
	f := newFingerprinter(t, 1)
	print := func(body string, canonical map[string]string) Fingerprint {
		p, err := f.Of(Subject{Method: "POST", Path: "/", Body: []byte(body), Canonical: canonical})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	same := map[string]string{"amount": "10.00"}
	if print(`{"amount":"10.0"}`, same) != print(`{"amount":"10.00"}`, same) {
		t.Error("10.0 and 10.00 are two amounts")
	}
	if print(`{"amount":10.0}`, same) == print(`{"amount":"10.00"}`, same) {
		t.Error("a number was replaced as if it were a text")
	}
	if print(`{}`, same) == print(`{"amount":"10.00"}`, same) {
		t.Error("an absent member was put in")
	}
	if print(`{"inner":{"amount":"10.0"}}`, same) == print(`{"inner":{"amount":"10.00"}}`, same) {
		t.Error("an inner member was replaced")
	}
}

func TestNotOneJSONValue(t *testing.T) {
	t.Parallel()
	f := newFingerprinter(t, 1)
	for _, body := range []string{"", " ", "{", `{"a":1}{}`, `{"a":1} x`, `{"a":01}`, `{'a':1}`, "nan"} {
		if _, err := f.Of(Subject{Body: []byte(body)}); err == nil {
			t.Errorf("%q has a fingerprint", body)
		}
	}
	if _, err := NewFingerprinter(make([]byte, 31)); err == nil {
		t.Error("a short secret is accepted")
	}
}

// TestHugeNumbersAreCheap: legal JSON of 30 bytes must not cost a gigabyte.
func TestHugeNumbersAreCheap(t *testing.T) {
	t.Parallel()
	f := newFingerprinter(t, 1)
	started := time.Now()
	for _, number := range []string{
		"1e999999999", "-1e-999999999", "1e2147483647", "1e2147483648", "1e-2147483649", "1e99999999999999999999", "0e999999999",
		"1." + strings.Repeat("0", 60_000) + "e999", strings.Repeat("9", 60_000),
	} {
		of(t, f, `{"a":`+number+`}`)
	}
	if took := time.Since(started); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
	if of(t, f, `{"a":1e999999999}`) == of(t, f, `{"a":1e999999998}`) {
		t.Error("two numbers are one")
	}
}

// anyJSON draws a value; numbers are drawn as coefficient and exponent, to be spelt in several ways.
func anyJSON(depth int) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		kinds := 6
		if depth == 0 {
			kinds = 4
		}
		switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
		case 0:
			return nil
		case 1:
			return rapid.Bool().Draw(t, "bool")
		case 2:
			return rapid.StringOfN(rapid.RuneFrom([]rune(`ab1:"\ é`)), 0, 4, -1).Draw(t, "text")
		case 3:
			return number{rapid.IntRange(-200, 200).Draw(t, "coefficient"), rapid.IntRange(-3, 3).Draw(t, "exponent")}
		case 4:
			return rapid.SliceOfN(anyJSON(depth-1), 0, 3).Draw(t, "array")
		default:
			return rapid.MapOfN(rapid.SampledFrom([]string{"a", "b", "ab", ""}), anyJSON(depth-1), 0, 3).Draw(t, "object")
		}
	})
}

type number struct{ coefficient, exponent int }

// spell writes a value as JSON, with members in another order and numbers in another spelling if so wanted.
func spell(w *strings.Builder, value any, otherwise bool) {
	switch v := value.(type) {
	case number:
		if otherwise {
			fmt.Fprintf(w, "%d.00E%d", v.coefficient*10, v.exponent-1)
		} else {
			fmt.Fprintf(w, "%de%d", v.coefficient, v.exponent)
		}
	case []any:
		w.WriteByte('[')
		for i, element := range v {
			if i > 0 {
				w.WriteByte(',')
			}
			spell(w, element, otherwise)
		}
		w.WriteByte(']')
	case map[string]any:
		names := slices.Sorted(maps.Keys(v))
		if otherwise {
			slices.Reverse(names)
		}
		w.WriteByte('{')
		for i, name := range names {
			if i > 0 {
				w.WriteByte(',')
			}
			spell(w, name, otherwise)
			w.WriteByte(':')
			spell(w, v[name], otherwise)
		}
		w.WriteByte('}')
	default:
		b, err := json.Marshal(v)
		if err != nil {
			panic(err)
		}
		w.Write(b)
	}
}

func spelling(value any, otherwise bool) string {
	var w strings.Builder
	spell(&w, value, otherwise)
	return w.String()
}

func TestFingerprintProperty(t *testing.T) {
	t.Parallel()
	f := newFingerprinter(t, 1)
	rapid.Check(t, func(rt *rapid.T) {
		a, b := anyJSON(3).Draw(rt, "a"), anyJSON(3).Draw(rt, "b")
		if of(t, f, spelling(a, false)) != of(t, f, spelling(a, true)) {
			rt.Fatalf("%s and %s are two requests", spelling(a, false), spelling(a, true))
		}
		if (of(t, f, spelling(a, false)) == of(t, f, spelling(b, false))) != equalJSON(a, b) {
			rt.Fatalf("%s and %s", spelling(a, false), spelling(b, false))
		}
	})
}

// equalJSON compares by value: 10e0 is 1e1.
func equalJSON(a, b any) bool {
	switch x := a.(type) {
	case number:
		y, ok := b.(number)
		low := min(x.exponent, y.exponent)
		return ok && scaled(x, low) == scaled(y, low)
	case []any:
		y, ok := b.([]any)
		return ok && slices.EqualFunc(x, y, equalJSON)
	case map[string]any:
		y, ok := b.(map[string]any)
		return ok && maps.EqualFunc(x, y, equalJSON)
	}
	switch b.(type) {
	case number, []any, map[string]any:
		return false
	}
	return a == b
}

func scaled(n number, to int) int {
	value := n.coefficient
	for range n.exponent - to {
		value *= 10
	}
	return value
}

func FuzzFingerprint(f *testing.F) {
	for _, seed := range []string{`{}`, `{"a":1.0,"b":[null,"x",{"c":1e9}]}`, `[1e999999999]`, `"\ud800"`, `-0`} {
		f.Add([]byte(seed))
	}
	print := newFingerprinter(f, 1)
	f.Fuzz(func(t *testing.T, body []byte) {
		a, err := print.Of(Subject{Body: body})
		if (err == nil) != json.Valid(body) {
			t.Fatalf("%q: %v, valid JSON: %v", body, err, json.Valid(body))
		}
		if err != nil {
			return
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, body); err != nil {
			t.Fatal(err)
		}
		if b, err := print.Of(Subject{Body: compact.Bytes()}); err != nil || a != b {
			t.Fatalf("%q and %q are two requests, %v", body, compact.Bytes(), err)
		}
	})
}

package api

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"paymentsd/idempotency"
	"paymentsd/resilience"
)

// named lists what a refusal says is wrong, as "field code".
func named(err error) []string {
	refusal, ok := errors.AsType[*refusal](err)
	if !ok {
		return nil
	}
	var all []string
	for _, e := range refusal.errors {
		all = append(all, e.name()+" "+e.Code)
	}
	return all
}

func codeOfError(err error) string {
	if err == nil {
		return ""
	}
	return ruleFor(err).code
}

// charge is a good body with some members replaced: "" removes one, others are raw JSON.
func charge(changes ...string) string {
	members := [][2]string{{"amount", `"49.99"`}, {"currency", `"USD"`}, {"payment_method", `"tok_ok"`}}
	for i := 0; i < len(changes); i += 2 {
		at := slices.IndexFunc(members, func(m [2]string) bool { return m[0] == changes[i] })
		switch {
		case at < 0:
			members = append(members, [2]string{changes[i], changes[i+1]})
		default:
			members[at][1] = changes[i+1]
		}
	}
	var parts []string
	for _, m := range members {
		if m[1] != "" {
			parts = append(parts, `"`+m[0]+`": `+m[1])
		}
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

func decodeChargeText(body string) (chargeBody, error) {
	doc, err := parseDocument([]byte(body))
	if err != nil {
		return chargeBody{}, err
	}
	return decodeCharge(doc)
}

func TestDecodeChargeRefuses(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat(`{"a":`, depthMax+2) + "1" + strings.Repeat("}", depthMax+2)
	tests := map[string]struct {
		body, code string
		named      []string
	}{
		"an empty body":                       {"", codeMalformedJSON, nil},
		"blanks":                              {" \n", codeMalformedJSON, nil},
		"half an object":                      {`{"amount": "49.99"`, codeMalformedJSON, nil},
		"an array":                            {`[` + charge() + `]`, codeMalformedJSON, nil},
		"a string":                            {`"charge"`, codeMalformedJSON, nil},
		"null":                                {`null`, codeMalformedJSON, nil},
		"two objects":                         {charge() + charge(), codeMalformedJSON, nil},
		"trailing data":                       {charge() + " x", codeMalformedJSON, nil},
		"a trailing comma":                    {`{"amount": "49.99",}`, codeMalformedJSON, nil},
		"a comment":                           {`{/* */}`, codeMalformedJSON, nil},
		"single quotes":                       {`{'amount': '1'}`, codeMalformedJSON, nil},
		"a byte order mark":                   {"\ufeff" + charge(), codeMalformedJSON, nil},
		"bytes that are not UTF-8":            {charge("reference", "\"\xff\""), codeMalformedJSON, nil},
		"objects nested too deeply":           {deep, codeMalformedJSON, nil},
		"no fields":                           {`{}`, codeValidation, []string{"amount required", "currency required", "payment_method required"}},
		"a field in another case":             {charge("Amount", `"1"`), codeValidation, []string{"Amount unknown"}},
		"an unknown field":                    {charge("amuont", `"1"`), codeValidation, []string{"amuont unknown"}},
		"all wrong fields at once":            {charge("amount", `1`, "currency", `"usd"`, "payment_method", `""`, "x", `1`), codeValidation, []string{"amount type", "currency unknown_currency", "payment_method empty", "x unknown"}},
		"a field twice":                       {`{"amount": "1", "currency": "USD", "payment_method": "tok_ok", "amount": "2"}`, codeValidation, []string{"amount repeated"}},
		"a field twice, once escaped":         {`{"amount": "1", "currency": "USD", "payment_method": "tok_ok", "\u0061mount": "2"}`, codeValidation, []string{"amount repeated"}},
		"a nested field twice":                {charge("x", `{"y": 1, "y": 2}`), codeValidation, []string{"x.y repeated", "x unknown"}},
		"null for an optional field":          {charge("reference", `null`), codeValidation, []string{"reference type"}},
		"a number for a text":                 {charge("reference", `12`), codeValidation, []string{"reference type"}},
		"an empty reference":                  {charge("reference", `""`), codeValidation, []string{"reference empty"}},
		"a reference of 256 bytes":            {charge("reference", `"`+strings.Repeat("x", 256)+`"`), codeValidation, []string{"reference too_long"}},
		"a reference of 128 letters, 256 B":   {charge("reference", `"`+strings.Repeat("é", 128)+`"`), codeValidation, []string{"reference too_long"}},
		"a reference with NUL":                {charge("reference", `"a\u0000b"`), codeValidation, []string{"reference characters"}},
		"a reference with a line end":         {charge("reference", `"a\nb"`), codeValidation, []string{"reference characters"}},
		"a reference with half a surrogate":   {charge("reference", `"a\ud800b"`), codeValidation, []string{"reference characters"}},
		"a reference with a blank at its end": {charge("reference", `"order-1 "`), codeValidation, []string{"reference characters"}},
		"a flag as a text":                    {charge("allow_concurrent", `"true"`), codeValidation, []string{"allow_concurrent type"}},
		"a flag as null":                      {charge("allow_concurrent", `null`), codeValidation, []string{"allow_concurrent type"}},
		"a token with a blank":                {charge("payment_method", `"tok ok"`), codeValidation, []string{"payment_method characters"}},
		"a token with a letter beyond ASCII":  {charge("payment_method", `"tök"`), codeValidation, []string{"payment_method characters"}},
		"a token as an object":                {charge("payment_method", `{"id": "tok_ok"}`), codeValidation, []string{"payment_method type"}},
		"a card number as payment method":     {charge("payment_method", `"4242424242424242"`), codeCardNumber, []string{"payment_method card_number"}},
		"a card number, escaped":              {charge("payment_method", `"\u0034242424242424242"`), codeCardNumber, []string{"payment_method card_number"}},
		"a card number as a JSON number":      {charge("x", `4242424242424242`), codeCardNumber, []string{"x card_number"}},
		"a card number deep inside":           {charge("x", `[{"y": ["4242 4242 4242 4242"]}]`), codeCardNumber, []string{"x[0].y[0] card_number"}},
		"a card number as a field's name":     {charge("4242424242424242", `1`), codeCardNumber, []string{"(a name) card_number"}},
		"card numbers in two fields":          {charge("reference", `"4242424242424242"`, "description", `"5555-5555-5555-4444"`), codeCardNumber, []string{"reference card_number", "description card_number"}},
		"a card number before other mistakes": {charge("amount", `1`, "reference", `"4242424242424242"`), codeCardNumber, []string{"reference card_number"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := decodeChargeText(tt.body)
			if got := codeOfError(err); got != tt.code {
				t.Fatalf("the code is %q, want %q (%v)", got, tt.code, err)
			}
			if diff := cmp.Diff(tt.named, named(err)); diff != "" {
				t.Errorf("named (-want +got):\n%s", diff)
			}
			if p, _ := describe(err); holdsCardNumber(string(marshal(p))) {
				t.Errorf("the answer repeats the card number: %s", marshal(p))
			}
		})
	}
}

func TestMalformedJSONNamesTheOffset(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		"":                       "at byte 0, ",
		`{"amount": "1"`:         "at byte 14, it ends too early",
		`{"amount" "1"}`:         "at byte 10, ",
		`{"amount": "1"} x`:      "at byte 16, ",
		`  []`:                   "at byte 2, it is not an object",
		"{\"amount\": \"\xff\"}": "at byte 12, it is not UTF-8",
		`{"a":1,}`:               "at byte 7, ",
	} {
		_, err := parseDocument([]byte(body))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q in it", body, err, want)
		}
	}
}

func TestAmountsOnTheWire(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ amount, currency, want string }{ // want: the amount, or "field code"
		{`"49.99"`, "USD", "49.99"}, {`"10.0"`, "USD", "10.00"}, {`"10"`, "USD", "10.00"}, {`"0.01"`, "USD", "0.01"},
		{`"1500"`, "JPY", "1500"}, {`"5.124"`, "KWD", "5.124"}, {`"999999999999.99"`, "USD", "999999999999.99"},
		{`49.99`, "USD", "amount type"}, {`1000`, "USD", "amount type"}, {`1e3`, "USD", "amount type"}, {`null`, "USD", "amount type"},
		{`true`, "USD", "amount type"}, {`{}`, "USD", "amount type"}, {`["1"]`, "USD", "amount type"},
		{`"1e3"`, "USD", "amount syntax"}, {`"1,000.00"`, "USD", "amount syntax"}, {`"1 000"`, "USD", "amount syntax"},
		{`"+1"`, "USD", "amount syntax"}, {`"01"`, "USD", "amount syntax"}, {`".5"`, "USD", "amount syntax"}, {`"5."`, "USD", "amount syntax"},
		{`"0x10"`, "USD", "amount syntax"}, {`"NaN"`, "USD", "amount syntax"}, {`"Infinity"`, "USD", "amount syntax"}, {`"١"`, "USD", "amount syntax"},
		{`"--5"`, "USD", "amount syntax"}, {`" 5"`, "USD", "amount characters"}, {`""`, "USD", "amount empty"},
		{`"-25"`, "USD", "amount not_positive"}, {`"0"`, "USD", "amount not_positive"}, {`"0.00"`, "USD", "amount not_positive"}, {`"-0"`, "USD", "amount not_positive"},
		{`"49.999"`, "USD", "amount too_precise"}, {`"49.990"`, "USD", "amount too_precise"}, {`"80.5"`, "JPY", "amount too_precise"}, {`"5.1240"`, "KWD", "amount too_precise"},
		{`"9223372036854775808"`, "USD", "amount too_large"}, {`"1000000000000"`, "USD", "amount too_large"}, {`"` + strings.Repeat("9", 41) + `"`, "USD", "amount too_long"},
		{`"1"`, "usd", "currency unknown_currency"}, {`"1"`, "XYZ", "currency unknown_currency"}, {`"1"`, "USDT", "currency too_long"}, {`"1"`, "", "currency empty"},
		{`"x"`, "usd", "currency unknown_currency, amount syntax"},
	} {
		t.Run("idempotency case 35: amount "+tt.amount+" "+tt.currency, func(t *testing.T) {
			t.Parallel()
			c, err := decodeChargeText(charge("amount", tt.amount, "currency", `"`+tt.currency+`"`))
			got := strings.Join(named(err), ", ")
			if err == nil {
				got = c.amount.String()
			}
			if got != tt.want {
				t.Errorf("got %q, want %q (%v)", got, tt.want, err)
			}
		})
	}
}

func TestDecodeChargeAccepts(t *testing.T) {
	t.Parallel()
	c, err := decodeChargeText(charge("reference", `"Bestellung Nr. 7 – für Zoë"`, "description", `"`+strings.Repeat("x", 255)+`"`, "allow_concurrent", "true"))
	if err != nil {
		t.Fatal(err)
	}
	if c.amount.String() != "49.99" || c.reference != "Bestellung Nr. 7 – für Zoë" || len(c.description) != 255 || !c.allowConcurrent || c.paymentMethod != "tok_ok" {
		t.Errorf("decoded %+v", c)
	}
}

func TestDecodeResolution(t *testing.T) {
	t.Parallel()
	for body, want := range map[string][]string{
		`{"outcome": "captured", "acquirer": "north", "capture_id": "c1", "reason": "r"}`:         nil,
		`{"outcome": "not_captured", "reason": "r"}`:                                              nil,
		`{"outcome": "captured", "reason": "r"}`:                                                  {"acquirer required", "capture_id required"},
		`{"outcome": "captured", "acquirer": 1, "capture_id": "", "reason": "r"}`:                 {"acquirer type", "capture_id empty"},
		`{"outcome": "not_captured", "capture_id": "c1", "reason": "r"}`:                          {"capture_id not_allowed"},
		`{"outcome": "failed", "reason": "r"}`:                                                    {"outcome invalid"},
		`{"reason": "r"}`:                                                                         {"outcome required"},
		`{"outcome": "not_captured"}`:                                                             {"reason required"},
		`{"outcome": "not_captured", "reason": " "}`:                                              {"reason characters"},
		`{"outcome": "not_captured", "reason": "r", "currency": "USD"}`:                           {"amount required"},
		`{"outcome": "not_captured", "reason": "r", "amount": "1", "currency": "USD", "id": "x"}`: {"id unknown"},
	} {
		doc, err := parseDocument([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		_, err = decodeResolution(doc)
		if diff := cmp.Diff(want, named(err)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", body, diff)
		}
	}
}

func TestContentTypes(t *testing.T) {
	t.Parallel()
	for value, ok := range map[string]bool{
		"application/json": true, "application/json; charset=utf-8": true, "Application/JSON;charset=UTF-8": true,
		"": false, "text/json": false, "application/json; charset=latin1": false, "application/jsonx": false, "application/problem+json": false, ";": false,
	} {
		h := http.Header{}
		if value != "" {
			h.Set("Content-Type", value)
		}
		if got := checkContentType(h) == nil; got != ok {
			t.Errorf("%q is accepted: %v, want %v", value, got, ok)
		}
	}
	if checkContentType(http.Header{"Content-Type": {"application/json"}, "Content-Encoding": {"gzip"}}) == nil {
		t.Error("a compressed body is accepted")
	}
	if checkContentType(http.Header{"Content-Type": {"application/json", "text/plain"}}) == nil {
		t.Error("two content types are accepted")
	}
}

func TestPreferWait(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "0s", "wait=5": "5s", "Wait = 5": "5s", `wait="7"`: "7s", "respond-async, wait=3": "3s", "wait=3, wait=9": "3s",
		"return=minimal; foo=\"a, wait=9\", wait=2": "2s", "wait=0": "0s", "wait=60": "1m0s", "respond-async;;": "0s", ", wait=1 ,": "1s",
		"wait": "bad", "wait=": "bad", "wait=soon": "bad", "wait=-1": "bad", "wait=+1": "bad", "wait=1.5": "bad", "wait=9999999": "bad", "=1": "bad", "wa it=1": "bad", "wait=1 2": "bad",
	} {
		var values []string
		if text != "" {
			values = []string{text}
		}
		wait, ok := parseWait(values)
		got := wait.String()
		if !ok {
			got = "bad"
		}
		if got != want {
			t.Errorf("Prefer: %s: %s, want %s", text, got, want)
		}
	}
}

func TestRequestTimeout(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"1": time.Second, "2.5": 2500 * time.Millisecond, "0.000000001": 1, "999999": 999999 * time.Second, " 3 ": 3 * time.Second,
		"0": -1, "0.0": -1, "-1": -1, "+1": -1, "1e3": -1, "1.": -1, ".5": -1, "": -1, "1,5": -1, "1000000": -1, "0.0000000001": -1, "NaN": -1, "5s": -1,
	} {
		got, ok := parseTimeout([]string{text})
		if !ok {
			got = -1
		}
		if got != want {
			t.Errorf("Request-Timeout: %q: %v, want %v", text, got, want)
		}
	}
	if _, ok := parseTimeout([]string{"1", "2"}); ok {
		t.Error("two Request-Timeouts are accepted")
	}
	if got, ok := parseTimeout(nil); got != 0 || !ok {
		t.Errorf("no Request-Timeout: %v %v", got, ok)
	}
}

func TestPriority(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "critical", "critical": "critical", "Normal": "normal", "low": "low", "u=1, i": "critical", "u=5, low": "low", "i": "critical",
		"u=3": "critical", "u=4": "normal", "u=6,i": "normal", "u=7": "low", "u=7, critical": "low", "u=9": "critical", "u": "critical", "u=0, normal": "normal",
		"urgent": "bad", "low, normal": "bad", "low;x": "bad",
	} {
		p, ok := parsePriority([]string{text})
		got := p.String()
		if !ok {
			got = "bad"
		}
		if got != want {
			t.Errorf("Priority: %s: %s, want %s", text, got, want)
		}
	}
	if p, ok := parsePriority(nil); p != resilience.Critical || !ok {
		t.Errorf("no Priority: %v %v", p, ok)
	}
}

func TestChargeHeadersNeverHoldCardNumbers(t *testing.T) {
	t.Parallel()
	a := &api{Deps: Deps{Limits: Limits{}.orDefaults()}}
	for _, key := range []string{"4111111111111111", `"4111-1111-1111-1111"`, "4111 1111 1111 1111", "order-4111111111111111"} {
		_, err := a.readChargeHeaders(http.Header{headerKey: {key}})
		if got := codeOfError(err); got != codeCardNumber {
			t.Errorf("the key %s is answered with %q", key, got)
		}
	}
	_, err := a.readChargeHeaders(http.Header{headerKey: {"a", "b"}})
	if !errors.Is(err, idempotency.ErrKeyMalformed) {
		t.Errorf("two keys: %v", err)
	}
}

func TestQueries(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]string{
		"limit=1": "", "limit=100": "", "limit=0": "limit invalid", "limit=101": "limit invalid", "limit=01": "limit invalid", "limit=+5": "limit invalid",
		"limit=1e1": "limit invalid", "limit=": "limit empty", "limit=5&limit=6": "limit repeated", "at=2026-01-31T12:00:00Z": "", "at=2026-01-31T12:00:00.5%2B02:00": "",
		"at=2026-01-31": "at invalid", "at=yesterday": "at invalid", "word=a": "", "word=b": "word invalid", "text=%00": "text invalid",
		"text=" + strings.Repeat("x", 256): "text invalid", "other=1": "other unknown", "limit=0&at=x&other=1": "limit invalid, at invalid, other unknown",
		"text=%zz": "", "text=4111111111111111": "text card_number", "4111-1111-1111-1111=": "(a name) card_number",
	} {
		q, err := parseQuery(httptest.NewRequest(http.MethodGet, "/?"+query, nil))
		if err == nil {
			q.limit()
			q.time("at")
			q.oneOf("word", "a")
			q.text("text")
			err = q.finish()
		}
		if got := strings.Join(named(err), ", "); got != want {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
		if query == "text=%zz" && codeOfError(err) != codeParameterInvalid {
			t.Errorf("a query that cannot be read: %v", err)
		}
	}
}

// FuzzDecodeCharge: whatever is sent, a charge that is accepted keeps the promises of its fields, and what
// is refused is a refusal of ours that repeats no card number.
func FuzzDecodeCharge(f *testing.F) {
	f.Add([]byte(charge()))
	f.Add([]byte(charge("reference", `"order-1"`, "description", `"4242 4242 4242 4242"`, "x", `[{"y": null}]`)))
	f.Add([]byte(`{"amount": 1e3, "amount": "\ud800"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		c, err := decodeChargeText(string(body))
		if err != nil {
			if code := codeOfError(err); !slices.Contains([]string{codeMalformedJSON, codeValidation, codeCardNumber}, code) {
				t.Fatalf("refused as %s: %v", code, err)
			}
			if p, _ := describe(err); holdsCardNumber(p.Detail) {
				t.Fatalf("the answer repeats a card number: %s", p.Detail)
			}
			return
		}
		if !c.amount.IsPositive() || !c.amount.Currency().Known() {
			t.Fatalf("accepted the amount %s %s", c.amount, c.amount.Currency())
		}
		for _, text := range []string{c.paymentMethod, c.reference, c.description} {
			if len(text) > 255 || holdsCardNumber(text) || strings.ContainsRune(text, 0) || !printable(text) {
				t.Fatalf("accepted the text %q", text)
			}
		}
		if !paymentToken.MatchString(c.paymentMethod) {
			t.Fatalf("accepted the payment method %q", c.paymentMethod)
		}
	})
}

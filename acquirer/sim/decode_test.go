package sim_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"paymentsd/acquirer/sim"
	"paymentsd/money"
)

func TestBadRequestsAreRefusedByName(t *testing.T) {
	t.Parallel()
	const good = `{"reference":"R1","amount_minor":4999,"currency":"USD","payment_method":"tok_ok"}`
	edit := func(old, text string) string { return strings.Replace(good, old, text, 1) }
	for _, c := range []struct {
		name, key, body string
		status          int
		field           string
	}{
		{"no key", "", good, 400, "Idempotency-Key"},
		{"a key with blanks", "a b", good, 400, "Idempotency-Key"},
		{"a key too long", strings.Repeat("k", 65), good, 400, "Idempotency-Key"},
		{"no JSON", "K", "x", 400, ""},
		{"empty", "K", "{}", 422, "reference"},
		{"an array", "K", "[]", 400, ""},
		{"cut off", "K", good[:40], 400, ""},
		{"data after it", "K", good + "{}", 400, ""},
		{"not UTF-8", "K", edit("R1", "\xff"), 400, ""},
		{"an unknown field", "K", edit(`"reference"`, `"amuont":1,"reference"`), 422, "amuont"},
		{"a field in another case", "K", edit(`"reference"`, `"Reference"`), 422, "Reference"},
		{"a field twice", "K", edit(`"reference"`, `"currency":"EUR","reference"`), 422, "currency"},
		{"reference null", "K", edit(`"R1"`, `null`), 422, "reference"},
		{"reference with a blank", "K", edit(`R1`, `R 1`), 422, "reference"},
		{"amount as text", "K", edit(`4999`, `"4999"`), 422, "amount_minor"},
		{"amount with a fraction", "K", edit(`4999`, `49.99`), 422, "amount_minor"},
		{"amount with an exponent", "K", edit(`4999`, `1e3`), 422, "amount_minor"},
		{"amount zero", "K", edit(`4999`, `0`), 422, "amount_minor"},
		{"amount negative", "K", edit(`4999`, `-25`), 422, "amount_minor"},
		{"amount of 2^63", "K", edit(`4999`, `9223372036854775808`), 422, "amount_minor"},
		{"amount finer than the currency here", "K", edit(`4999,"currency":"USD"`, `4999,"currency":"CLP"`), 422, "amount_minor"},
		{"no currency", "K", edit(`,"currency":"USD"`, ``), 422, "currency"},
		{"currency in lower case", "K", edit(`USD`, `usd`), 422, "currency"},
		{"no payment method", "K", edit(`,"payment_method":"tok_ok"`, ``), 422, "payment_method"},
		{"payment method too long", "K", edit(`tok_ok`, strings.Repeat("x", 256)), 422, "payment_method"},
		{"description empty", "K", edit(`"reference"`, `"description":"","reference"`), 422, "description"},
		{"body too large", "K", edit(`tok_ok`, strings.Repeat("x", 20<<10)), 413, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, srv := start(t, sim.Config{Exponents: map[money.Currency]int{"CLP": 2}})
			got := do(t, http.MethodPost, srv.URL()+"/v1/captures", c.body, "Idempotency-Key", c.key)
			if got.status != c.status || got.field(t, "field") != c.field || got.field(t, "processed") != "false" || got.field(t, "message") == "" {
				t.Errorf("%d %s; want %d, field %q, processed false", got.status, got.body, c.status, c.field)
			}
			if n := len(s.Captures()); n != 0 {
				t.Errorf("%d records", n)
			}
		})
	}
}

func TestAddressesAndMethods(t *testing.T) {
	t.Parallel()
	_, srv := start(t, sim.Config{})
	for _, c := range []struct {
		method, path, body string
		status             int
		header             []string
	}{
		{"GET", "/healthz", "", 200, nil},
		{"GET", "/nothing", "", 404, nil},
		{"DELETE", "/v1/captures", "", 405, nil},
		{"POST", "/v1/captures", "{}", 415, []string{"Content-Type", "text/plain"}},
		{"GET", "/v1/captures", "", 400, nil},
		{"GET", "/v1/captures?reference=", "", 400, nil},
		{"GET", "/v1/captures?reference=a&reference=b", "", 400, nil},
		{"GET", "/v1/captures?reference=a&x=b", "", 400, nil},
		{"GET", "/v1/captures?reference=%zz", "", 400, nil},
		{"POST", "/admin/faults", "{}", 405, nil},
		{"GET", "/admin/captures?limit=0", "", 400, nil},
		{"GET", "/admin/captures?limit=x", "", 400, nil},
		{"GET", "/admin/captures?after=nobody", "", 400, nil},
		{"GET", "/settlement/yesterday", "", 404, nil},
		{"GET", "/settlement?from=a&to=b", "", 400, nil},
		{"GET", "/settlement?from=2026-01-01T00:00:00Z&to=2026-01-01T00:00:00Z", "", 400, nil},
		{"GET", "/settlement?from=2026-01-01T00:00:00Z", "", 400, nil},
		{"GET", "/settlement?sequence=1", "", 404, nil},
		{"GET", "/settlement?sequence=x", "", 404, nil},
		{"GET", "/settlement/2099-01-01", "", 422, nil},
	} {
		got := do(t, c.method, srv.URL()+c.path, c.body, c.header...)
		if got.status != c.status || got.header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %s: %d %s; want %d as JSON", c.method, c.path, got.status, got.header.Get("Content-Type"), c.status)
		}
	}
}

// No request makes the simulator panic, and none is captured that does not spell out all of it.
func FuzzCaptureRequest(f *testing.F) {
	for _, s := range []string{
		`{"reference":"R1","amount_minor":4999,"currency":"USD","payment_method":"tok_ok"}`,
		`{"reference":"R1","amount_minor":80,"currency":"JPY","payment_method":"tok_declined","description":"x"}`,
		`{"faults":[{"kind":"slow"}]}`, `{`, `{"reference":"R1","reference":"R2"}`, "\xff",
	} {
		f.Add("K1", []byte(s))
	}
	f.Fuzz(func(t *testing.T, key string, body []byte) {
		if bytes.Contains(body, []byte("tok_")) && bytes.Count(body, []byte("tok_")) != bytes.Count(body, []byte("tok_ok\"")) || bytes.Contains(body, []byte(`\\u`)) {
			return // those that hold or break connections need a real one
		}
		s, err := sim.New(sim.Config{})
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest(http.MethodPost, "/v1/captures", bytes.NewReader(body))
		r.Header["Idempotency-Key"] = []string{key}
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		records := s.Captures()
		if (w.Code == 201) != (len(records) == 1) {
			t.Fatalf("status %d, %d records", w.Code, len(records))
		}
		for _, rec := range records {
			if rec.Reference == "" || rec.AmountMinor <= 0 || !rec.Currency.Known() || rec.PaymentMethod == "" || rec.Key != key {
				t.Fatalf("captured %+v", rec)
			}
		}
	})
}

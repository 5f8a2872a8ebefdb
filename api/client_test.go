package api_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
)

// answer is what a client sees.
type answer struct {
	status int
	header http.Header
	body   string
}

// field reads one member of a JSON answer as text.
func (a answer) field(name string) string {
	var members map[string]any
	if json.Unmarshal([]byte(a.body), &members) != nil {
		return ""
	}
	switch v := members[name].(type) {
	case string:
		return v
	case nil:
		return ""
	default:
		b, _ := json.Marshal(v)
		return string(b)
	}
}

const goodCharge = `{"amount": "49.99", "currency": "USD", "payment_method": "tok_ok"}`

// ask sends a request with a key of the world, and headers in pairs. A header that is "" is left out.
func (w *world) ask(method, target, key, body string, headers ...string) answer {
	w.t.Helper()
	request, err := http.NewRequestWithContext(w.t.Context(), method, w.server.URL+target, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	if key != "" {
		request.Header.Set("Authorization", "Bearer "+w.keys[key])
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := w.server.Client().Do(request)
	if err != nil {
		w.t.Error(err)
		return answer{header: http.Header{}}
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		w.t.Error(err)
	}
	return answer{status: response.StatusCode, header: response.Header, body: string(text)}
}

// charge posts a charge for the shop.
func (w *world) charge(idempotencyKey, body string, headers ...string) answer {
	w.t.Helper()
	return w.ask(http.MethodPost, "/v1/charges", "charges key", body, append([]string{"Idempotency-Key", idempotencyKey}, headers...)...)
}

// get reads something for the shop.
func (w *world) get(target string) answer {
	w.t.Helper()
	return w.ask(http.MethodGet, target, "read key", "")
}

// expect fails unless the answer has a status and, if it is a problem, a code.
func (w *world) expect(a answer, status int, code string) {
	w.t.Helper()
	if a.status != status || a.field("code") != code {
		w.t.Errorf("answered %d %q, want %d %q: %s", a.status, a.field("code"), status, code, a.body)
	}
}

// untouched fails if anything was stored or sent.
func (w *world) untouched() {
	w.t.Helper()
	var rows int
	err := w.pool.QueryRow(w.t.Context(), `select (select count(*) from idempotency_keys) + (select count(*) from charges)`).Scan(&rows)
	if err != nil || rows != 0 {
		w.t.Errorf("%d rows were written (%v)", rows, err)
	}
	if n := w.captures(); n != 0 {
		w.t.Errorf("%d captures were made", n)
	}
}

// captures counts what all acquirers captured.
func (w *world) captures() int {
	n := 0
	for _, s := range w.sims {
		n += len(s.Captures())
	}
	return n
}

package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestIdempotency covers the numbered cases of the field's reports that concern HTTP. The others are
// tested where they live: at the store, the pipeline, recovery and reconciliation.
func TestIdempotency(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(*testing.T, *world){
		"idempotency case 1: no key":                                           noKey,
		"idempotency case 2: a blank key":                                      blankKey,
		"idempotency case 4: bare and quoted are the same key":                 bareAndQuoted,
		"idempotency case 5: the longest key":                                  longestKey,
		"idempotency case 6: two merchants, one key":                           twoMerchants,
		"idempotency case 8: same key, other body, in every state":             otherBody,
		"idempotency case 8: same key, other body, where the insert loses":     otherBodyAtOnce,
		"idempotency case 9: same body in another order":                       sameBodyReordered,
		"idempotency case 11: many identical requests at once":                 manyAtOnce,
		"idempotency case 12: in flight is no failure":                         inFlight,
		"idempotency case 13: what is refused is not stored":                   refusedThenCorrected,
		"idempotency case 19: an unknown is not charged again":                 unknownIsNotChargedAgain,
		"idempotency case 31: an open breaker stores nothing":                  breakerOpen,
		"idempotency case 35: amounts that are no amounts reach no acquirer":   noAmounts,
		"idempotency case 39: a replay is the same answer in a fresh envelope": replayIsTheSame,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newSharedWorld(t))
		})
	}
}

func noKey(t *testing.T, w *world) {
	a := w.ask(http.MethodPost, "/v1/charges", "charges key", goodCharge)
	w.expect(a, http.StatusBadRequest, "idempotency_key_missing")
	if page := w.ask(http.MethodGet, a.field("type"), "", ""); page.status != http.StatusOK || page.field("advice") == "" {
		t.Errorf("the page %s: %d %s", a.field("type"), page.status, page.body)
	}
	w.untouched()
}

func blankKey(_ *testing.T, w *world) {
	for _, key := range []string{"", " ", "\t", `""`, `" "`, "a b"} {
		w.expect(w.charge(key, goodCharge), http.StatusBadRequest, "idempotency_key_malformed")
	}
	w.untouched()
}

func bareAndQuoted(t *testing.T, w *world) {
	first := w.charge(`"abc"`, goodCharge)
	w.expect(first, http.StatusCreated, "")
	second := w.charge(`abc`, goodCharge)
	if second.body != first.body || second.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("the bare form is another key: %s", second.body)
	}
	if first.header.Get("Idempotency-Key") != "abc" || second.header.Get("Idempotency-Key") != "abc" {
		t.Errorf("echoed %q and %q", first.header.Get("Idempotency-Key"), second.header.Get("Idempotency-Key"))
	}
	if n := w.captures(); n != 1 {
		t.Errorf("%d captures", n)
	}
}

func longestKey(t *testing.T, w *world) {
	w.expect(w.charge(strings.Repeat("k", 255), goodCharge), http.StatusCreated, "")
	w.expect(w.charge(strings.Repeat("🦊", 40), goodCharge), http.StatusCreated, "") // 160 bytes
	for _, key := range []string{strings.Repeat("k", 256), strings.Repeat("🦊", 64)} {
		a := w.charge(key, goodCharge)
		w.expect(a, http.StatusBadRequest, "idempotency_key_malformed")
		if !strings.Contains(a.field("errors"), `"header":"Idempotency-Key"`) {
			t.Errorf("the header is not named: %s", a.body)
		}
	}
	for _, capture := range w.sims["north"].Captures() {
		if len(capture.Reference) != 20 || strings.Trim(capture.Reference, "0123456789ABCDEFGHJKMNPQRSTVWXYZ") != "" {
			t.Errorf("the acquirer got the key %q", capture.Reference)
		}
	}
}

func twoMerchants(t *testing.T, w *world) {
	ours := w.charge("1", goodCharge)
	w.expect(ours, http.StatusCreated, "")
	theirs := w.ask(http.MethodPost, "/v1/charges", "other charges key", strings.Replace(goodCharge, "49.99", "7.00", 1), "Idempotency-Key", "1")
	w.expect(theirs, http.StatusCreated, "")
	if theirs.field("amount") != "7.00" || theirs.field("id") == ours.field("id") || theirs.header.Get("Idempotent-Replayed") != "" {
		t.Errorf("the other merchant got %s", theirs.body)
	}
	id := ours.field("id")
	never := "ch_" + w.shop.ID.Code() + "00000000000000000000"
	for _, path := range []string{"", "/attempts", "/resolutions"} {
		hidden := w.ask(http.MethodGet, "/v1/charges/"+id+path, "other charges key", "")
		w.expect(hidden, http.StatusNotFound, "charge_not_found")
		absent := w.ask(http.MethodGet, "/v1/charges/"+never+path, "other charges key", "")
		same := func(a answer) string { return strings.Replace(a.body, a.field("request_id"), "", 1) }
		if same(hidden) != same(absent) || hidden.status != absent.status {
			t.Errorf("%s: a charge of another merchant can be told from none:\n%s\n%s", path, hidden.body, absent.body)
		}
	}
	w.expect(w.ask(http.MethodPost, "/v1/charges/"+id+"/resolution", "other ops key", `{"outcome": "not_captured", "reason": "r"}`), http.StatusNotFound, "charge_not_found")
	for _, query := range []string{"?idempotency_key=1", "?limit=100"} {
		if list := w.ask(http.MethodGet, "/v1/charges"+query, "other charges key", ""); strings.Contains(list.body, id) || !strings.Contains(list.body, theirs.field("id")) {
			t.Errorf("%s shows %s", query, list.body)
		}
	}
	w.expect(w.ask(http.MethodGet, "/v1/charges?starting_after="+id, "other charges key", ""), http.StatusBadRequest, "cursor_invalid")
	w.expect(w.ask(http.MethodGet, "/v1/charges?merchant_id="+w.shop.ID.Code(), "other charges key", ""), http.StatusBadRequest, "parameter_invalid")
	w.expect(w.ask(http.MethodGet, "/v1/ledger/balances?merchant_id="+w.shop.ID.Code(), "other ops key", ""), http.StatusBadRequest, "parameter_invalid")
	if books := w.ask(http.MethodGet, "/v1/ledger/transfers?charge_id="+id, "other ops key", ""); strings.Contains(books.body, id) {
		t.Errorf("the other merchant's ops see %s", books.body)
	}
}

func otherBody(_ *testing.T, w *world) {
	method := func(body, token string) string { return strings.Replace(body, "tok_ok", token, 1) }
	dearer := strings.Replace(goodCharge, "49.99", "4999.00", 1)

	w.expect(w.charge("done", goodCharge), http.StatusCreated, "")
	w.expect(w.charge("done", dearer), http.StatusUnprocessableEntity, "idempotency_key_reused")

	w.expect(w.charge("unknown", method(goodCharge, "tok_error_captured")), http.StatusAccepted, "")
	w.expect(w.charge("unknown", method(dearer, "tok_error_captured")), http.StatusUnprocessableEntity, "idempotency_key_reused")

	running := w.chargeInBackground("in flight", method(goodCharge, "tok_slow"))
	w.expect(w.charge("in-flight", method(dearer, "tok_slow")), http.StatusUnprocessableEntity, "idempotency_key_reused")
	w.expect(<-running, http.StatusCreated, "")
}

// chargeInBackground returns once the key (with dashes for blanks) is in flight.
func (w *world) chargeInBackground(key, body string) <-chan answer {
	w.t.Helper()
	key = strings.ReplaceAll(key, " ", "-")
	done := make(chan answer, 1)
	go func() { done <- w.charge(key, body) }()
	for range 1000 {
		var n int
		err := w.pool.QueryRow(w.t.Context(), `select count(*) from idempotency_keys where key = $1`, key).Scan(&n)
		if err != nil {
			w.t.Fatal(err)
		}
		if n == 1 {
			return done
		}
		time.Sleep(time.Millisecond)
	}
	w.t.Fatal("the key did not go in flight")
	return nil
}

func otherBodyAtOnce(t *testing.T, w *world) {
	const each = 5
	var mu sync.Mutex
	amounts := map[string]bool{}
	counts := map[string]int{}
	var all sync.WaitGroup
	for i := range 2 * each {
		amount := []string{"49.99", "4999.00"}[i%2]
		all.Go(func() {
			a := w.charge("raced", strings.Replace(goodCharge, "49.99", amount, 1), "Prefer", "wait=10")
			mu.Lock()
			defer mu.Unlock()
			counts[fmt.Sprintf("%d %s", a.status, a.field("code"))]++
			if a.status == http.StatusCreated {
				amounts[a.field("amount")] = true
			}
		})
	}
	all.Wait()
	if len(amounts) != 1 || counts["201 "] != each || counts["422 idempotency_key_reused"] != each {
		t.Errorf("answered %v, charged %v", counts, amounts)
	}
	if n := w.captures(); n != 1 {
		t.Errorf("%d captures", n)
	}
}

func sameBodyReordered(t *testing.T, w *world) {
	first := w.charge("k", `{"amount": "10.0", "currency": "USD", "payment_method": "tok_ok", "reference": "ü"}`)
	w.expect(first, http.StatusCreated, "")
	for _, body := range []string{
		`{"reference":"ü","payment_method":"tok_ok","currency":"USD","amount":"10.0"}`,
		`{"amount": "10.00", "currency": "USD", "payment_method": "tok_ok", "reference": "\u00fc"}`,
		"\n{\"amount\":\t\"10\", \"currency\": \"USD\", \"payment_method\": \"tok_ok\", \"reference\": \"ü\"}\n",
	} {
		again := w.charge("k", body)
		if again.status != http.StatusCreated || again.body != first.body {
			t.Errorf("%s is another request: %d %s", body, again.status, again.body)
		}
	}
	w.expect(w.charge("k", `{"amount": "10.0", "currency": "USD", "payment_method": "tok_ok"}`), http.StatusUnprocessableEntity, "idempotency_key_reused")
}

func manyAtOnce(t *testing.T, w *world) {
	var mu sync.Mutex
	bodies, statuses := map[string]bool{}, map[int]int{}
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			a := w.charge("k", goodCharge)
			mu.Lock()
			defer mu.Unlock()
			statuses[a.status]++
			if a.status == http.StatusCreated {
				bodies[a.body] = true
			}
		})
	}
	all.Wait()
	if statuses[http.StatusCreated] == 0 || statuses[http.StatusCreated]+statuses[http.StatusConflict] != 50 || len(bodies) != 1 {
		t.Errorf("answered %v with %d different charges", statuses, len(bodies))
	}
	if n := w.captures(); n != 1 {
		t.Errorf("%d captures", n)
	}
}

func inFlight(t *testing.T, w *world) {
	slow := strings.Replace(goodCharge, "tok_ok", "tok_slow", 1)
	running := w.chargeInBackground("k", slow)
	early := w.charge("k", slow)
	w.expect(early, http.StatusConflict, "idempotency_key_in_flight")
	if early.field("retryable") != "true" || early.header.Get("Retry-After") == "" {
		t.Errorf("it does not say to come back: %v %s", early.header, early.body)
	}
	if status := w.get(early.field("instance")); status.status != http.StatusOK || status.field("status") != "pending" {
		t.Errorf("its status address %s: %d %s", early.field("instance"), status.status, status.body)
	}
	first := <-running
	w.expect(first, http.StatusCreated, "")
	if later := w.charge("k", slow); later.body != first.body || later.field("id") != early.field("charge_id") {
		t.Errorf("the real result is %s, the later one %s", first.body, later.body)
	}
}

func refusedThenCorrected(t *testing.T, w *world) {
	const key = "k"
	w.expect(w.ask(http.MethodPost, "/v1/charges", "", goodCharge, "Idempotency-Key", key), http.StatusUnauthorized, "unauthorized")
	w.expect(w.ask(http.MethodPost, "/v1/charges", "read key", goodCharge, "Idempotency-Key", key), http.StatusForbidden, "forbidden")
	w.expect(w.charge(key, `{"amount": "49.99"`), http.StatusBadRequest, "malformed_json")
	w.expect(w.charge(key, `{"amount": "49.99"}`), http.StatusUnprocessableEntity, "validation_failed")
	w.expect(w.charge(key, goodCharge, "Content-Type", "text/plain"), http.StatusUnsupportedMediaType, "content_type_unsupported")
	w.expect(w.charge(key, `{"x": "`+strings.Repeat("x", 70_000)+`"}`), http.StatusRequestEntityTooLarge, "body_too_large")
	w.expect(w.charge(key, strings.Replace(goodCharge, "tok_ok", "4242424242424242", 1)), http.StatusUnprocessableEntity, "card_number_refused")
	w.expect(w.charge(key, goodCharge, "Request-Timeout", "soon"), http.StatusBadRequest, "header_invalid")
	w.expect(w.charge(key, goodCharge, "Request-Timeout", "0.05"), http.StatusServiceUnavailable, "charge_not_executed")
	w.untouched()
	a := w.charge(key, goodCharge)
	w.expect(a, http.StatusCreated, "")
	if a.field("generation") != "0" {
		t.Errorf("something of the refused requests was kept: %s", a.body)
	}
}

func unknownIsNotChargedAgain(t *testing.T, w *world) {
	body := `{"amount": "49.99", "currency": "USD", "payment_method": "tok_error_captured", "reference": "order-1"}`
	first := w.charge("k", body)
	w.expect(first, http.StatusAccepted, "")
	calls := len(w.sims["north"].Captures())
	again := w.charge("k", body)
	if again.status != http.StatusAccepted || again.body != first.body || again.header.Get("Location") != first.header.Get("Location") {
		t.Errorf("the retry got %d %s", again.status, again.body)
	}
	other := w.charge("k2", strings.Replace(body, "tok_error_captured", "tok_ok", 1))
	w.expect(other, http.StatusConflict, "reference_has_open_charge")
	if other.field("charge_id") != first.field("id") {
		t.Errorf("the open charge is not named: %s", other.body)
	}
	if n := len(w.sims["north"].Captures()); n != calls {
		t.Errorf("%d captures, %d before the retry", n, calls)
	}
	allowed := strings.Replace(body, `"tok_error_captured"`, `"tok_ok", "allow_concurrent": true`, 1)
	w.expect(w.charge("k3", allowed), http.StatusCreated, "")
}

func breakerOpen(t *testing.T, w *world) {
	for _, name := range []string{"north", "south"} {
		a := w.ask(http.MethodPost, "/v1/acquirers/"+name+"/breaker", "ops key", `{"mode": "open", "reason": "maintenance"}`)
		w.expect(a, http.StatusOK, "")
	}
	a := w.charge("k", goodCharge)
	w.expect(a, http.StatusServiceUnavailable, "charge_not_executed")
	if a.field("reason") != "circuit_open" || a.field("retryable") != "true" || a.header.Get("Retry-After") == "" {
		t.Errorf("it does not say which mechanism refused: %s", a.body)
	}
	w.untouched()
	w.expect(w.ask(http.MethodPost, "/v1/acquirers/north/breaker", "ops key", `{"mode": "close", "reason": "over"}`), http.StatusOK, "")
	w.expect(w.charge("k", goodCharge), http.StatusCreated, "")
	var acts int
	err := w.pool.QueryRow(t.Context(), `select count(*) from audit_log where action = 'breaker.force' and detail like '%: maintenance'`).Scan(&acts)
	if err != nil || acts != 2 {
		t.Errorf("%d acts in the audit log (%v)", acts, err)
	}
}

func noAmounts(_ *testing.T, w *world) {
	for i, amount := range []string{`19.99`, `1e3`, `"1e3"`, `-25`, `"-25"`, `0`, `"0"`, `9223372036854775808`, `"9223372036854775808"`, `"49.999"`} {
		a := w.charge(fmt.Sprint("k", i), strings.Replace(goodCharge, `"49.99"`, amount, 1))
		w.expect(a, http.StatusUnprocessableEntity, "validation_failed")
		if !strings.Contains(a.field("errors"), `"field":"amount"`) {
			w.t.Errorf("the field is not named: %s", a.body)
		}
	}
	w.untouched()
}

func replayIsTheSame(t *testing.T, w *world) {
	first := w.charge("k", goodCharge)
	again := w.charge("k", goodCharge)
	if first.status != http.StatusCreated || again.status != first.status || again.body != first.body {
		t.Errorf("%d %s became %d %s", first.status, first.body, again.status, again.body)
	}
	for _, name := range []string{"Location", "Content-Type", "Idempotency-Key", "Cache-Control"} {
		if first.header.Get(name) == "" || first.header.Get(name) != again.header.Get(name) {
			t.Errorf("%s: %q became %q", name, first.header.Get(name), again.header.Get(name))
		}
	}
	if first.header.Get("Idempotent-Replayed") != "" || again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("the marker is %q, then %q", first.header.Get("Idempotent-Replayed"), again.header.Get("Idempotent-Replayed"))
	}
	if id := again.header.Get("Request-Id"); id == "" || id == first.header.Get("Request-Id") {
		t.Errorf("Request-Id: %q", id)
	}
	if again.header.Get("Date") == "" || again.header.Get("Set-Cookie") != "" {
		t.Errorf("headers: %v", again.header)
	}
}

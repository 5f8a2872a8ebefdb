package api_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

// TestRoles says for every route who may use it. A route without a row fails.
func TestRoles(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	all := []string{"", "charges key", "read key", "shop ops key", "ops key"}
	everyKey, ops, platform := all[1:], all[3:], all[4:]
	signed := []string{"a signature, which no key replaces"}
	charge := "ch_" + w.shop.ID.Code() + "00000000000000000000"
	rows := map[string][]string{
		"POST /v1/charges":                        {"charges key"},
		"GET /v1/charges":                         everyKey,
		"GET /v1/charges/{id}":                    everyKey,
		"GET /v1/charges/{id}/attempts":           everyKey,
		"GET /v1/charges/{id}/resolutions":        everyKey,
		"POST /v1/charges/{id}/resolution":        ops,
		"GET /v1/ledger/balances":                 ops,
		"GET /v1/ledger/transfers":                ops,
		"GET /v1/acquirers":                       ops,
		"GET /v1/acquirers/{name}":                ops,
		"POST /v1/acquirers/{name}/breaker":       platform,
		"POST /v1/acquirers/{name}/events":        signed,
		"GET /v1/reconciliation/runs":             platform,
		"GET /v1/reconciliation/exceptions":       ops,
		"GET /v1/reconciliation/exceptions/{id}":  ops,
		"POST /v1/reconciliation/exceptions/{id}": ops,
		"GET /v1/settlement-files":                platform,
		"POST /v1/settlement-files":               platform,
		"GET /problems/{code}":                    all,
		"GET /healthz":                            all,
		"GET /readyz":                             all,
		"GET /metrics":                            all,
	}
	for _, route := range walk(t, w.handler) {
		allowed, ok := rows[route]
		if !ok {
			t.Errorf("%s has no row: who may use it?", route)
			continue
		}
		delete(rows, route)
		method, pattern, _ := strings.Cut(route, " ")
		target := strings.NewReplacer("/charges/{id}", "/charges/"+charge, "{id}", "ex_000000000000000000000000", "{name}", "north", "{code}", "forbidden").Replace(pattern)
		for _, key := range all {
			body := ""
			if method == http.MethodPost {
				body = "{}"
			}
			a := w.ask(method, target, key, body)
			want := 0 // anything but 401 and 403
			switch {
			case slices.Contains(allowed, key):
			case key == "" || slices.Equal(allowed, signed):
				want = http.StatusUnauthorized
			default:
				want = http.StatusForbidden
			}
			refused := a.status == http.StatusUnauthorized || a.status == http.StatusForbidden
			if want != 0 && a.status != want || want == 0 && refused || a.status >= http.StatusInternalServerError {
				t.Errorf("%s with %q: answered %d, want %d (0: not refused): %s", route, key, a.status, want, a.body)
			}
			if challenge := a.header.Get("WWW-Authenticate"); (challenge != "") != (a.status == http.StatusUnauthorized) {
				t.Errorf("%s with %q: %d with WWW-Authenticate %q", route, key, a.status, challenge)
			}
		}
	}
	for route := range rows {
		t.Errorf("%s has a row, and is no route", route)
	}
}

// TestAPlatformKeyActsForEveryMerchant: it reads any charge, lists all or one merchant's, and charges nothing.
func TestAPlatformKeyActsForEveryMerchant(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ours := w.charge("k", goodCharge)
	theirs := w.ask(http.MethodPost, "/v1/charges", "other charges key", goodCharge, "Idempotency-Key", "k")
	for _, a := range []answer{ours, theirs} {
		if read := w.ask(http.MethodGet, a.header.Get("Location"), "ops key", ""); read.body != a.body {
			t.Errorf("read %s, want %s", read.body, a.body)
		}
	}
	if list := w.ask(http.MethodGet, "/v1/charges?limit=1", "ops key", ""); list.field("has_more") != "true" || !strings.Contains(list.body, theirs.field("id")) {
		t.Errorf("the first page of all: %s", list.body)
	}
	if list := w.ask(http.MethodGet, "/v1/charges?limit=1&starting_after="+theirs.field("id"), "ops key", ""); list.field("has_more") != "false" || !strings.Contains(list.body, ours.field("id")) {
		t.Errorf("the second page of all: %s", list.body)
	}
	one := w.ask(http.MethodGet, "/v1/charges?merchant_id="+w.shop.ID.Code(), "ops key", "")
	if !strings.Contains(one.body, ours.field("id")) || strings.Contains(one.body, theirs.field("id")) {
		t.Errorf("one merchant's: %s", one.body)
	}
	w.expect(w.ask(http.MethodGet, "/v1/charges?merchant_id=U00000", "ops key", ""), http.StatusBadRequest, "parameter_invalid")
	w.expect(w.ask(http.MethodGet, "/v1/ledger/balances", "ops key", ""), http.StatusBadRequest, "parameter_invalid")
	w.expect(w.ask(http.MethodPost, "/v1/charges", "ops key", goodCharge, "Idempotency-Key", "k2"), http.StatusForbidden, "forbidden")
}

// Postgres cannot hold some bytes that a path can: an id with them is nobody's, and no trouble of ours.
func TestIDsThatPostgresCannotReadAreNotFound(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, id := range []string{"%00", "ex_%00", "%FF", "%ED%A0%80"} {
		w.expect(w.ask(http.MethodGet, "/v1/reconciliation/exceptions/"+id, "ops key", ""), http.StatusNotFound, "exception_not_found")
		w.expect(w.ask(http.MethodPost, "/v1/reconciliation/exceptions/"+id, "ops key", `{"action": "note", "reason": "r"}`),
			http.StatusNotFound, "exception_not_found")
		for _, path := range []string{"/v1/charges/" + id, "/v1/charges/" + id + "/attempts", "/v1/charges/" + id + "/resolutions"} {
			w.expect(w.ask(http.MethodGet, path, "ops key", ""), http.StatusNotFound, "charge_not_found")
		}
	}
}

// TestNoCardNumberGetsIntoTheLog sends one wherever a client can put one.
func TestNoCardNumberGetsIntoTheLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const card, spaced = "4242424242424242", "4242 4242 4242 4242"
	body := func(field, value string) string {
		return strings.Replace(goodCharge, "{", `{"`+field+`": "`+value+`", `, 1)
	}
	answers := []answer{
		w.charge(card, goodCharge),
		w.charge("k", body("reference", spaced)),
		w.charge("k", body("description", "card "+card)),
		w.charge("k", body("card_number", card)),
		w.charge("k", body(card, "x")),
		w.charge("k", strings.Replace(goodCharge, "tok_ok", card, 1)),
		w.charge("k", `{"amount": "`+card+`"`),
		w.charge("k", goodCharge, "Prefer", "wait="+card),
		w.charge("k", goodCharge, "Request-Timeout", card),
		w.charge("k", goodCharge, "Priority", card),
		w.charge("k", goodCharge, "Request-Id", card, "User-Agent", card, "Content-Type", "text/"+card),
		w.ask(http.MethodPost, "/v1/charges?card="+card, "charges key", goodCharge, "Idempotency-Key", "k"),
		w.ask(http.MethodPost, "/v1/charges?"+card+"=1", "charges key", goodCharge, "Idempotency-Key", "k"),
		w.get("/v1/charges/" + card),
		w.get("/v1/charges/ch_" + card),
		w.get("/v1/charges?reference=4242%204242-4242%204242"),
		w.get("/v1/charges?starting_after=" + card),
		w.get("/" + card),
		w.ask(card, "/v1/charges", "read key", ""),
		w.ask(http.MethodGet, "/v1/charges", "", "", "Authorization", "Bearer "+card),
		w.ask(http.MethodGet, "/problems/"+card, "", ""),
		w.ask(http.MethodPost, "/v1/acquirers/"+card+"/breaker", "ops key", `{"mode": "auto", "reason": "r"}`),
		w.ask(http.MethodPost, "/v1/acquirers/north/breaker", "ops key", `{"mode": "auto", "reason": "`+spaced+`"}`),
		w.ask(http.MethodPost, "/v1/charges/"+card+"/resolution", "ops key", `{"outcome": "not_captured", "reason": "r"}`),
		w.ask(http.MethodGet, "/v1/reconciliation/exceptions/"+card, "ops key", ""),
		w.ask(http.MethodPost, "/v1/settlement-files?acquirer=north&format=canonical&name="+card, "ops key", "x", "Content-Type", "text/csv"),
	}
	for i, a := range answers {
		if a.status < 400 || a.status >= 500 {
			t.Errorf("request %d was answered with %d: %s", i, a.status, a.body)
		}
		if strings.Contains(a.body, card) || strings.Contains(a.body, spaced) {
			t.Errorf("request %d has its card number echoed: %s", i, a.body)
		}
		for name, values := range a.header {
			if strings.Contains(strings.Join(values, " "), card) {
				t.Errorf("request %d has its card number echoed in %s", i, name)
			}
		}
	}
	for line := range strings.Lines(w.log.String()) {
		if strings.Contains(line, card) || strings.Contains(line, spaced) {
			t.Errorf("logged: %s", line)
		}
	}
	w.untouched()
}

// TestTheLogSaysWhoAndWhatButNoBodies: the access line has ids, the route and the outcome.
func TestTheLogSaysWhoAndWhatButNoBodies(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.charge("secret-key-of-a-customer", strings.Replace(goodCharge, "{", `{"description": "two tickets for Zoe", `, 1))
	w.expect(a, http.StatusCreated, "")
	log := w.log.String()
	for _, wanted := range []string{a.header.Get("Request-Id"), a.field("id"), `"route":"/v1/charges"`, `"status":201`, strings.Split(w.keys["charges key"], "_")[1]} {
		if !strings.Contains(log, wanted) {
			t.Errorf("the log lacks %s", wanted)
		}
	}
	for _, unwanted := range []string{"two tickets for Zoe", w.keys["charges key"], strings.Split(w.keys["charges key"], "_")[2]} {
		if strings.Contains(log, unwanted) {
			t.Errorf("the log holds %s", unwanted)
		}
	}
}

// TestMetrics shows what can be counted from outside.
func TestMetrics(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.charge("a", goodCharge)
	w.charge("a", goodCharge)
	w.charge("b", strings.Replace(goodCharge, "tok_ok", "tok_declined", 1))
	w.charge("c", strings.Replace(goodCharge, "tok_ok", "tok_error_captured", 1))
	w.charge("d", goodCharge, "Request-Timeout", "0.05")
	w.get("/v1/charges/ch_1")
	w.get("/nowhere")
	page := w.ask(http.MethodGet, "/metrics", "", "").body
	for _, sample := range []string{
		`paymentsd_charges_total{outcome="captured",replayed="false"} 1`,
		`paymentsd_charges_total{outcome="captured",replayed="true"} 1`,
		`paymentsd_charges_total{outcome="declined",replayed="false"} 1`,
		`paymentsd_charges_total{outcome="unknown",replayed="false"} 1`,
		`paymentsd_refusals_total{code="charge_not_executed",reason="deadline_too_short"} 1`,
		`paymentsd_refusals_total{code="charge_not_found",reason=""} 1`,
		`paymentsd_unknown_charges{acquirer="north",currency="USD"} 1`,
		`paymentsd_unknown_amount{acquirer="north",currency="USD"} 49.99`,
		`paymentsd_http_request_seconds_count{method="POST",route="/v1/charges",status="201"} 2`,
		`paymentsd_http_request_seconds_count{method="GET",route="/v1/charges/{id}",status="404"} 1`,
		`paymentsd_http_request_seconds_count{method="GET",route="none",status="404"} 1`,
	} {
		if !strings.Contains(page, sample+"\n") {
			t.Errorf("/metrics lacks %s", sample)
		}
	}
}

// TestHEADIsAnsweredLikeGET, without a body: load balancers ask so.
func TestHEADIsAnsweredLikeGET(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if a := w.ask(http.MethodHead, "/healthz", "", ""); a.status != http.StatusOK || a.body != "" {
		t.Errorf("HEAD /healthz: %d %q", a.status, a.body)
	}
	a := w.ask(http.MethodDelete, "/v1/charges", "charges key", "")
	w.expect(a, http.StatusMethodNotAllowed, "method_not_allowed")
	if allow := a.header.Values("Allow"); !slices.Equal(allow, []string{"GET", "HEAD", "POST"}) {
		t.Errorf("Allow: %v", allow)
	}
}

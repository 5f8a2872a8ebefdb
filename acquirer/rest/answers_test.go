package rest

import (
	"net/http"
	"strings"
	"testing"

	"paymentsd/acquirer"
)

func sentBody() captureBody {
	return captureBody{Reference: "REF1", AmountMinor: 4999, Currency: "USD", PaymentMethod: "tok_ok"}
}

func whole(status int, body string) acquirer.Exchange {
	return acquirer.Exchange{Status: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: []byte(body), Sent: true}
}

// Whatever the status, without a body that says more it proves what this table says, and by
// default nothing.
func TestStatusAloneProves(t *testing.T) {
	t.Parallel()
	rejected := map[int]bool{400: true, 401: true, 403: true, 404: true, 405: true, 413: true, 415: true, 422: true}
	for status := 100; status < 1000; status++ {
		want := acquirer.Unclear
		switch {
		case rejected[status]:
			want = acquirer.Rejected
		case status == 429:
			want = acquirer.Refused
		}
		got := captureAnswer(sentBody(), whole(status, `{}`))
		failure := status < 400 || status >= 500
		if got.Class != want || got.Failure != failure || got.HTTPStatus != status {
			t.Errorf("status %d: %+v; want %s, failure %t", status, got, want, failure)
		}
	}
}

func TestTableEndsInADefault(t *testing.T) {
	t.Parallel()
	rows := captureRules()
	last := rows[len(rows)-1]
	if last.status != nil || !last.when(reply{}) || last.class != acquirer.Unclear {
		t.Error("the last row must take everything and prove nothing")
	}
	for n, row := range rows {
		if row.says(reply{flaw: "unreadable"}) == "" {
			t.Errorf("row %d says nothing", n)
		}
	}
}

// No body whatsoever may be taken for a capture, a decline or a finding that it does not spell out.
func FuzzAnswers(f *testing.F) {
	for _, s := range []string{
		`{"id":"c1","reference":"REF1","amount_minor":4999,"currency":"USD","status":"captured"}`,
		`{"id":"c1","reference":"REF1","amount_minor":4999,"currency":"USD","status":"declined","decline_code":"x"}`,
		`{"reference":"REF1","captures":[{"id":"c1","reference":"REF1","amount_minor":4999,"currency":"USD","status":"captured"}]}`,
		`{"reference":"REF1","captures":[]}`, `{"processed":false}`, `{"code":"in_progress"}`, `[]`, ``,
	} {
		for _, status := range []int{200, 201, 402, 409, 503} {
			f.Add(status, []byte(s))
		}
	}
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		a := captureAnswer(sentBody(), whole(status, string(body)))
		in := lookupAnswer("REF1", defaults(), whole(status, string(body)))
		object, err := acquirer.ReadObject(body)
		if err != nil && (a.Class == acquirer.Captured || a.Class == acquirer.Declined || in.Found != acquirer.FoundUnclear) {
			t.Fatalf("an unreadable body proves %s, %s", a.Class, in.Found)
		}
		if a.Class == acquirer.Captured && (object.Text("reference") != "REF1" || string(object["amount_minor"]) != "4999" || object.Text("currency") != "USD") {
			t.Fatalf("captured by %s", body)
		}
		if in.Found == acquirer.FoundNothing && string(object["captures"]) == "" {
			t.Fatalf("not found by %s", body)
		}
		if in.Found == acquirer.FoundCaptured && !in.Amount.IsPositive() {
			t.Fatalf("captured %s by %s", in.Amount, body)
		}
		if len(a.Detail) > 500 || len(in.Detail) > 500 || strings.ContainsAny(a.Detail+in.Detail, "\n\r\x00") {
			t.Fatalf("details %q, %q", a.Detail, in.Detail)
		}
	})
}

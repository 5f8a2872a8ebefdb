package rest

import (
	"fmt"
	"mime"
	"strings"

	"paymentsd/acquirer"
	"paymentsd/money"
)

// reply is a whole response, read as far as it can be.
type reply struct {
	status int
	json   acquirer.Object // nil unless it is one JSON object under a JSON media type
	flaw   string          // why json is nil
	sent   captureBody
}

// rule is one row of the table: the first that fits classes the reply.
type rule struct {
	status  []int // nil: any
	when    func(reply) bool
	class   acquirer.Class
	failure bool
	says    func(reply) string
}

// captureRules is THE table of what an answer to a capture proves. Its last row, the default, is
// Unclear. docs/acquirer-protocol.md shows the same table to acquirers.
func captureRules() []rule {
	return []rule{
		// Answers that contradict themselves or speak of something else, whatever their status.
		{nil, otherReference, acquirer.Unclear, true, text("the answer names another reference")},
		{nil, capturedYetRefused, acquirer.Unclear, true, text("the status refuses, the body says it was processed")},

		{[]int{200, 201}, echoed, acquirer.Captured, false, text("captured")},
		{[]int{200, 201}, always, acquirer.Unclear, true, notEchoed},
		{[]int{202}, always, acquirer.Unclear, true, text("accepted, not finished")},
		{[]int{402}, declined, acquirer.Declined, false, text("declined")},
		{[]int{409}, code("in_progress"), acquirer.InProgress, false, text("still running under our key")},
		// Something else was asked under our reference before, and may have been captured.
		{[]int{422}, code("key_reused"), acquirer.Unclear, false, text("our key was used for another request before")},
		{[]int{400, 401, 403, 404, 405, 413, 415, 422}, always, acquirer.Rejected, false, text("the acquirer refuses our request or credentials")},
		{[]int{429}, always, acquirer.Refused, false, text("refused unprocessed: too many requests")},
		{[]int{503}, unprocessed, acquirer.Refused, true, text("refused unprocessed: unavailable")},

		{nil, clientError, acquirer.Unclear, false, text("a refusal that the protocol does not know")},
		{nil, always, acquirer.Unclear, true, text("an answer that proves nothing")},
	}
}

// captureAnswer classes what came back for the request that was sent.
func captureAnswer(sent captureBody, e acquirer.Exchange) acquirer.Answer {
	if e.Err != nil {
		a := e.Failed()
		a.RetryAfter = acquirer.RetryAfter(e.Header)
		return a
	}
	re := read(sent, e)
	for _, row := range captureRules() {
		if !row.covers(re.status) || !row.when(re) {
			continue
		}
		a := acquirer.Answer{
			Class:      row.class,
			HTTPStatus: re.status,
			Code:       word(re.json.Text("code")),
			Detail:     acquirer.Clip(fmt.Sprintf("HTTP %d: %s", re.status, row.says(re))),
			RetryAfter: acquirer.RetryAfter(e.Header),
			Failure:    row.failure,
		}
		switch row.class {
		case acquirer.Captured:
			a.CaptureID = re.json.Text("id")
		case acquirer.Declined:
			a.DeclineCode = word(re.json.Text("decline_code"))
		}
		return a
	}
	return acquirer.Answer{Class: acquirer.Unclear, HTTPStatus: re.status, Failure: true}
}

func read(sent captureBody, e acquirer.Exchange) reply {
	re := reply{status: e.Status, sent: sent}
	media, _, err := mime.ParseMediaType(e.Header.Get("Content-Type"))
	if err != nil || (media != "application/json" && media != "application/problem+json") {
		re.flaw = "not JSON by its media type"
		return re
	}
	object, err := acquirer.ReadObject(e.Body)
	if err != nil {
		re.flaw = "unreadable body: " + err.Error()
		return re
	}
	re.json = object
	return re
}

func (r rule) covers(status int) bool {
	if r.status == nil {
		return true
	}
	for _, s := range r.status {
		if s == status {
			return true
		}
	}
	return false
}

func always(reply) bool         { return true }
func clientError(re reply) bool { return re.status >= 400 && re.status < 500 }
func otherReference(re reply) bool {
	return re.json.Has("reference") && re.json.Text("reference") != re.sent.Reference
}

func capturedYetRefused(re reply) bool {
	processed, _ := re.json.Flag("processed")
	return re.status >= 300 && (processed || re.json.Text("status") == "captured")
}

func echoed(re reply) bool { return notEchoed(re) == "" }

// notEchoed says in what a success differs from what was asked, "" if in nothing.
func notEchoed(re reply) string {
	if re.json == nil {
		return re.flaw
	}
	if status := re.json.Text("status"); status != "captured" {
		return fmt.Sprintf("a success whose status is %q", word(status))
	}
	if re.json.Text("reference") != re.sent.Reference {
		return "our reference is not echoed"
	}
	if minor, ok := re.json.Integer("amount_minor"); !ok || minor != re.sent.AmountMinor {
		return fmt.Sprintf("amount_minor %s echoed, %d sent", re.json["amount_minor"], re.sent.AmountMinor)
	}
	if re.json.Text("currency") != re.sent.Currency {
		return fmt.Sprintf("currency %q echoed, %s sent", word(re.json.Text("currency")), re.sent.Currency)
	}
	if !validID(re.json.Text("id")) {
		return "no usable id"
	}
	return ""
}

func declined(re reply) bool {
	return re.json.Text("status") == "declined" && word(re.json.Text("decline_code")) != ""
}

func unprocessed(re reply) bool {
	processed, ok := re.json.Flag("processed")
	return ok && !processed
}

func code(want string) func(reply) bool {
	return func(re reply) bool { return re.json.Text("code") == want }
}

func text(s string) func(reply) string { return func(reply) string { return s } }

func validID(s string) bool { return s != "" && len(s) <= 255 && headerSafe(s) }

// word passes a short machine-readable code, and nothing that could be markup or a secret.
func word(s string) string {
	bad := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-' && r != '.'
	}
	if len(s) > 64 || strings.IndexFunc(s, bad) >= 0 {
		return ""
	}
	return s
}

// lookupAnswer classes what came back for an inquiry. Only a 200 that repeats our reference and
// lists its captures proves anything; an error, a maintenance page, a missing route do not.
func lookupAnswer(ref string, can acquirer.Capabilities, e acquirer.Exchange) acquirer.Inquiry {
	unclear := func(why string) acquirer.Inquiry {
		return acquirer.Inquiry{Found: acquirer.FoundUnclear, HTTPStatus: e.Status, Detail: acquirer.Clip(why)}
	}
	if e.Err != nil {
		return unclear("no whole answer: " + e.Err.Error())
	}
	re := read(captureBody{Reference: ref}, e)
	if e.Status != 200 || re.json == nil {
		return unclear(strings.TrimSuffix(fmt.Sprintf("HTTP %d: %s", e.Status, re.flaw), ": "))
	}
	captures, ok := re.json.Objects("captures")
	switch {
	case re.json.Text("reference") != ref:
		return unclear("the answer does not repeat our reference")
	case !ok:
		return unclear("the answer lists no captures")
	case len(captures) == 0:
		return acquirer.Inquiry{Found: acquirer.FoundNothing, HTTPStatus: e.Status, Detail: "the acquirer does not know the reference"}
	case len(captures) > 1:
		return unclear(fmt.Sprintf("%d captures under one reference: a person has to look", len(captures)))
	case captures[0].Text("reference") != ref:
		return unclear("the capture listed has another reference")
	}
	return found(captures[0], can, e.Status)
}

// found reads the one capture that an inquiry listed.
func found(c acquirer.Object, can acquirer.Capabilities, status int) acquirer.Inquiry {
	in := acquirer.Inquiry{Found: acquirer.FoundUnclear, HTTPStatus: status}
	switch c.Text("status") {
	case "captured":
		amount, err := amountOf(c, can)
		if err != nil || !validID(c.Text("id")) {
			in.Detail = acquirer.Clip(fmt.Sprintf("captured, but amount or id cannot be read: %v", err))
			return in
		}
		in.Found, in.Amount, in.CaptureID, in.Detail = acquirer.FoundCaptured, amount, c.Text("id"), "captured"
	case "declined":
		in.DeclineCode = word(c.Text("decline_code"))
		in.Found, in.Detail = acquirer.FoundDeclined, "declined"
	case "pending":
		in.Found, in.Detail = acquirer.FoundPending, "known, not finished"
	default:
		in.Detail = fmt.Sprintf("a status that the protocol does not know: %q", word(c.Text("status")))
	}
	return in
}

func amountOf(c acquirer.Object, can acquirer.Capabilities) (money.Amount, error) {
	currency, err := money.ParseCurrency(c.Text("currency"))
	if err != nil {
		return money.Amount{}, err
	}
	minor, ok := c.Integer("amount_minor")
	if !ok || minor <= 0 {
		return money.Amount{}, fmt.Errorf("amount_minor is not a positive integer")
	}
	return money.FromMinor(minor, can.Exponent(currency), currency)
}

package api

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"

	"paymentsd/events"
	"paymentsd/idempotency"
	"paymentsd/ledger"
	"paymentsd/merchant"
	"paymentsd/payment"
	"paymentsd/reconcile"
)

// The codes of problems that the api itself finds. The other codes stand in the table only.
const (
	codeMalformedJSON    = "malformed_json"
	codeBodyTooLarge     = "body_too_large"
	codeBodyIncomplete   = "body_incomplete"
	codeContentType      = "content_type_unsupported"
	codeHeaderInvalid    = "header_invalid"
	codeParameterInvalid = "parameter_invalid"
	codeCardNumber       = "card_number_refused"
	codeValidation       = "validation_failed"
	codeUnauthorized     = "unauthorized"
	codeEventUnverified  = "event_unverified"
	codeForbidden        = "forbidden"
	codeRouteNotFound    = "route_not_found"
	codeMethodNotAllowed = "method_not_allowed"
	codeProblemNotFound  = "problem_not_found"
	codeNotReady         = "not_ready"
	codeDeclined         = "card_declined"
	codeNotCaptured      = "charge_not_captured"
	codeRejected         = "acquirer_rejected"
	codeNotExecuted      = "charge_not_executed"
	codeOverloaded       = "overloaded"
	codeInternal         = "internal_error"
)

// rule says how one kind of error is answered.
type rule struct {
	code      string
	status    int
	retryable bool // the same request, same key, may be sent again as it is
	match     func(error) bool
	title     string
	advice    string // what to do: the detail of a problem that has none of its own, and its page
}

// rules is the one translation of errors into answers. The first row that matches counts, so the
// narrower ones come first; the last matches everything.
func rules() []rule {
	return []rule{
		{codeMalformedJSON, http.StatusBadRequest, false, refusedAs(codeMalformedJSON),
			"The body is not one JSON object", "Send one JSON object in UTF-8 and nothing after it."},
		{codeBodyIncomplete, http.StatusBadRequest, true, refusedAs(codeBodyIncomplete),
			"The body ended early", "Send the request again with its whole body."},
		{codeHeaderInvalid, http.StatusBadRequest, false, refusedAs(codeHeaderInvalid),
			"A header cannot be read", "Correct the header that errors[] names, or leave it out."},
		{codeParameterInvalid, http.StatusBadRequest, false, refusedAs(codeParameterInvalid),
			"A query parameter cannot be used", "Correct the parameter that errors[] names, or leave it out."},
		{"cursor_invalid", http.StatusBadRequest, false, anyOf(is(payment.ErrInvalidCursor), is(ledger.ErrInvalidCursor), is(reconcile.ErrInvalidCursor)),
			"The cursor is not one of ours", "Send the id of the last element of the page before as starting_after, or leave it out."},
		{"idempotency_key_missing", http.StatusBadRequest, false, is(idempotency.ErrKeyMissing),
			"The Idempotency-Key header is missing", "Make one key per intended payment, keep it, and send it with every try."},
		{"idempotency_key_malformed", http.StatusBadRequest, false, is(idempotency.ErrKeyMalformed),
			"The Idempotency-Key header is malformed", "Send one key of 1 to 255 bytes without blanks and control characters, bare or in quotes."},
		{codeUnauthorized, http.StatusUnauthorized, false, anyOf(refusedAs(codeUnauthorized), is(merchant.ErrUnknownKey)),
			"No valid API key", "Send Authorization: Bearer and a key that is in use."},
		{codeEventUnverified, http.StatusUnauthorized, false, is(events.ErrUnverified),
			"The event is not signed", "Sign id, time and body with a secret that is in use, and send it within the tolerance. Nothing of it was kept."},
		{codeDeclined, http.StatusPaymentRequired, false, ended(codeDeclined),
			"The card was declined", "Ask for another payment method. The key is free again: it may be used with any body."},
		{codeNotCaptured, http.StatusPaymentRequired, false, ended(codeNotCaptured),
			"The charge was not captured", "The outcome was unknown and is settled: no money moved. To charge again, use a new key."},
		{codeForbidden, http.StatusForbidden, false, refusedAs(codeForbidden),
			"The key may not do this", "Use a key with the role that the detail names."},
		{codeRouteNotFound, http.StatusNotFound, false, refusedAs(codeRouteNotFound),
			"No such route", "See openapi.yaml for the routes."},
		{codeProblemNotFound, http.StatusNotFound, false, refusedAs(codeProblemNotFound),
			"No such problem code", "See openapi.yaml for the codes."},
		{"charge_not_found", http.StatusNotFound, false, is(payment.ErrNotFound),
			"No such charge", "No charge of yours has this id."},
		{"acquirer_not_found", http.StatusNotFound, false, is(payment.ErrUnknownAcquirer),
			"No such acquirer", "GET /v1/acquirers lists the names."},
		{"exception_not_found", http.StatusNotFound, false, is(reconcile.ErrNoException),
			"No such exception", "GET /v1/reconciliation/exceptions lists those that you may see."},
		{codeMethodNotAllowed, http.StatusMethodNotAllowed, false, refusedAs(codeMethodNotAllowed),
			"The method is not allowed here", "Use a method of the Allow header."},
		{"idempotency_key_in_flight", http.StatusConflict, true, is(payment.ErrInFlight),
			"A request with this key is still running", "This is not a failure. Send the same request again after Retry-After, or look at the charge."},
		{"idempotency_key_expired", http.StatusConflict, false, is(idempotency.ErrExpired),
			"The key is past its retention", "The key was used: look at the charge that charge_id names. Another payment needs a new key."},
		{"reference_has_open_charge", http.StatusConflict, false, is(payment.ErrReferenceOpen),
			"Another charge of this reference is open", "Wait until the charge that charge_id names has an outcome. If the customer really pays twice, send allow_concurrent: true."},
		{"charge_already_resolved", http.StatusConflict, false, is(payment.ErrNotUnknown),
			"The charge is not unknown", "This request changed nothing. If you know better, compare both at the acquirer: a terminal state is never left."},
		{"evidence_conflict", http.StatusConflict, false, is(payment.ErrEvidenceConflict),
			"The evidence does not fit the charge", "Compare acquirer, amount and currency with the charge and its attempts."},
		{"event_id_reused", http.StatusConflict, false, is(events.ErrIDReused),
			"The event's id was used for another body", "Give every event an id of its own. What we have under this id stands."},
		{"exception_already_closed", http.StatusConflict, false, is(reconcile.ErrClosed),
			"The exception is closed already", "GET it to see who closed it and why. A note may still be added."},
		{"reconciliation_busy", http.StatusConflict, true, is(reconcile.ErrBusy),
			"A reconciliation of this acquirer is running", "Send the file again after Retry-After: the same bytes are taken once."},
		{codeBodyTooLarge, http.StatusRequestEntityTooLarge, false, anyOf(refusedAs(codeBodyTooLarge), is(reconcile.ErrTooLarge)),
			"The body is too large", "Send a smaller body: see the limit in the detail."},
		{codeContentType, http.StatusUnsupportedMediaType, false, refusedAs(codeContentType),
			"The content type is not supported", "Send Content-Type: application/json, in UTF-8 and without a content encoding."},
		{codeCardNumber, http.StatusUnprocessableEntity, false, refusedAs(codeCardNumber),
			"Card numbers are refused", "Send a token as payment_method, and a card number nowhere. Nothing of the request was stored or logged."},
		{codeValidation, http.StatusUnprocessableEntity, false, anyOf(refusedAs(codeValidation), is(payment.ErrBreakerMode), is(reconcile.ErrInvalidRequest), is(reconcile.ErrAcquirer)),
			"The request is not valid", "Correct every field that errors[] names. The key is still free."},
		{"settlement_file_quarantined", http.StatusUnprocessableEntity, false, func(err error) bool {
			_, ok := errors.AsType[*quarantinedError](err)
			return ok
		}, "The settlement file failed a control", "Nothing of the file is used. Ask the acquirer for it again, whole."},
		{"idempotency_key_reused", http.StatusUnprocessableEntity, false, is(idempotency.ErrMismatch),
			"The key was used with another request", "Send the same bytes with the same key, or a new key for another payment."},
		{"amount_not_supported", http.StatusUnprocessableEntity, false, is(payment.ErrAmount),
			"The amount cannot be charged", "No acquirer of yours can express this amount in this currency exactly. Nothing was sent."},
		{codeRejected, http.StatusUnprocessableEntity, false, ended(codeRejected),
			"The acquirer rejected the request", "Nothing was executed. Correct the request, most often the payment_method; the key is free again."},
		overloadedRule(),
		{codeNotExecuted, http.StatusServiceUnavailable, true, anyOf(is(payment.ErrNotExecuted), ended(codeNotExecuted)),
			"Nothing was executed", "No money moved and the key is free. Send the same request again after Retry-After."},
		{"store_unavailable", http.StatusServiceUnavailable, true, anyOf(is(payment.ErrUnavailable), isStoreTrouble),
			"The store is not available", "Nothing was sent to an acquirer. Send the same request with the same key after Retry-After. What ops order may have been done: look first."},
		{codeNotReady, http.StatusServiceUnavailable, true, refusedAs(codeNotReady),
			"Not ready", "This process is starting or stopping: use another one."},
		{codeInternal, http.StatusInternalServerError, true, func(error) bool { return true },
			"Internal error", "Send the same request with the same key again: it is charged once at most. If it stays, tell us the request_id."},
	}
}

func is(sentinel error) func(error) bool {
	return func(err error) bool { return errors.Is(err, sentinel) }
}

func anyOf(matches ...func(error) bool) func(error) bool {
	return func(err error) bool {
		for _, match := range matches {
			if match(err) {
				return true
			}
		}
		return false
	}
}

// isStoreTrouble recognises what a read of the store returns when it cannot be reached or does not
// answer in time: trouble of the network, and the SQLSTATEs that say so (classes 08 and 53, 55P03, 57014
// and 57P0x of PostgreSQL, appendix A).
func isStoreTrouble(err error) bool {
	if state, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err); ok {
		s := state.SQLState()
		return strings.HasPrefix(s, "08") || strings.HasPrefix(s, "53") || strings.HasPrefix(s, "57P0") || s == "57014" || s == "55P03"
	}
	_, network := errors.AsType[net.Error](err)
	return network || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

func refusedAs(code string) func(error) bool {
	return func(err error) bool {
		refusal, ok := errors.AsType[*refusal](err)
		return ok && refusal.code == code
	}
}

func ended(code string) func(error) bool {
	return func(err error) bool {
		ending, ok := errors.AsType[*ending](err)
		return ok && ending.code() == code
	}
}

func ruleFor(err error) rule {
	all := rules()
	for _, r := range all {
		if r.match(err) {
			return r
		}
	}
	return all[len(all)-1]
}

// ruleOf finds a row by its code.
func ruleOf(code string) (rule, bool) {
	for _, r := range rules() {
		if r.code == code {
			return r, true
		}
	}
	return rule{}, false
}

// refusal is a request that is refused here, before anything was done for it.
type refusal struct {
	code   string
	detail string
	errors []fieldError
}

func (e *refusal) Error() string {
	text := e.code + ": " + e.detail
	for _, f := range e.errors {
		text += "; " + f.name() + " " + f.Detail
	}
	return text
}

func refuse(code, detail string, errors ...fieldError) error {
	return &refusal{code: code, detail: detail, errors: errors}
}

// fieldError names what is wrong with one field, header or query parameter.
type fieldError struct {
	Field     string `json:"field,omitempty"`
	Header    string `json:"header,omitempty"`
	Parameter string `json:"parameter,omitempty"`
	Code      string `json:"code"`
	Detail    string `json:"detail"`
}

func (f fieldError) name() string { return f.Field + f.Header + f.Parameter }

// ending is a charge that came to a certain end without a capture.
type ending struct{ result payment.Result }

func (e *ending) Error() string {
	c := e.result.Charge
	return "charge " + c.ID + " is " + string(c.Status) + ": " + c.Reason + " " + c.DeclineCode + " " + c.Detail
}

// reasonRejected is the reason of a failed charge whose request, not the acquirer, was wrong.
const reasonRejected = "rejected"

func (e *ending) code() string {
	switch c := e.result.Charge; {
	case c.Status == payment.Declined:
		return codeDeclined
	case c.Evidence != "":
		return codeNotCaptured
	case c.Reason == reasonRejected:
		return codeRejected
	default:
		return codeNotExecuted
	}
}

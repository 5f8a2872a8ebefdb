package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"paymentsd/idempotency"
	"paymentsd/payment"
)

const (
	typeJSON    = "application/json"
	typeProblem = "application/problem+json"
)

// problem is a problem document of RFC 9457. Type is the address of its page, relative to ours.
type problem struct {
	Type        string       `json:"type"`
	Title       string       `json:"title"`
	Status      int          `json:"status"`
	Detail      string       `json:"detail"`
	Instance    string       `json:"instance,omitempty"`
	Code        string       `json:"code"`
	Reason      string       `json:"reason,omitempty"`
	DeclineCode string       `json:"decline_code,omitempty"`
	Retryable   bool         `json:"retryable"`
	RequestID   string       `json:"request_id,omitempty"`
	ChargeID    string       `json:"charge_id,omitempty"`
	Errors      []fieldError `json:"errors,omitempty"`
}

func (r rule) problem() problem {
	return problem{
		Type: "/problems/" + r.code, Title: r.title, Status: r.status, Detail: r.advice, Code: r.code, Retryable: r.retryable,
	}
}

func (p *problem) about(chargeID string) {
	if chargeID != "" {
		p.ChargeID, p.Instance = chargeID, chargePath(chargeID)
	}
}

// describe makes the problem of an error and says how long to wait before another try, 0 if that
// says nothing.
func describe(err error) (problem, time.Duration) {
	if e, ok := errors.AsType[*overloadError](err); ok {
		return e.problem(), e.rejection.RetryAfter
	}
	p := ruleFor(err).problem()
	var wait time.Duration
	if e, ok := errors.AsType[*refusal](err); ok {
		p.Errors = e.errors
		if e.detail != "" {
			p.Detail = e.detail
		}
	}
	if e, ok := errors.AsType[*payment.InFlightError](err); ok {
		p.about(e.ChargeID)
		wait = e.RetryAfter
	}
	if e, ok := errors.AsType[*payment.MismatchError](err); ok {
		p.about(e.ChargeID)
	}
	if e, ok := errors.AsType[*payment.ExpiredKeyError](err); ok {
		p.about(e.ChargeID)
	}
	if e, ok := errors.AsType[*payment.ReferenceOpenError](err); ok {
		p.about(e.ChargeID)
	}
	if e, ok := errors.AsType[*payment.ResolvedError](err); ok {
		p.about(e.Charge.ID)
		p.Detail = whoWasFaster(e) + " " + p.Detail
	}
	if e, ok := errors.AsType[*payment.NotExecutedError](err); ok && e.Rejection != nil {
		p.Reason, wait = string(e.Rejection.Reason), e.Rejection.RetryAfter
		p.Detail = because(e.Rejection.Detail, p)
	}
	if e, ok := errors.AsType[*ending](err); ok {
		c := e.result.Charge
		p.about(c.ID)
		p.Reason, p.DeclineCode, wait = c.Reason, c.DeclineCode, e.result.RetryAfter
		if p.Code == codeNotExecuted {
			p.Detail = because(c.Detail, p)
		}
	}
	if e, ok := errors.AsType[*quarantinedError](err); ok {
		p.Reason, p.Detail = e.file.Class, fmt.Sprintf("File %s is kept in quarantine: %s. %s", e.file.ID, e.file.Reason, p.Detail)
	}
	if errors.Is(err, payment.ErrEvidenceConflict) {
		p.Detail = withoutCardNumbers(sentence(err)) + " " + p.Detail
	}
	if errors.Is(err, idempotency.ErrKeyMissing) {
		p.Errors = []fieldError{{Header: headerKey, Code: "required", Detail: "is missing"}}
	}
	if errors.Is(err, idempotency.ErrKeyMalformed) {
		p.Errors = []fieldError{{Header: headerKey, Code: "invalid", Detail: err.Error()}}
	}
	if errors.Is(err, payment.ErrAmount) {
		p.Errors = []fieldError{{Field: "amount", Code: "not_supported", Detail: p.Detail}}
	}
	return p, wait
}

// The reason for which a longer Request-Timeout helps, and what to say of it.
const (
	reasonDeadline = "deadline_too_short"
	adviseDeadline = " Send a longer Request-Timeout with it."
)

// because puts what refused, and by which numbers, before what to do.
func because(why string, p problem) string {
	detail := p.Detail
	if p.Reason == reasonDeadline {
		detail += adviseDeadline
	}
	if why = withoutCardNumbers(strings.TrimSuffix(strings.TrimSpace(why), ".")); why == "" {
		return detail
	}
	return sentence(errors.New(why)) + " " + detail
}

// sentence makes an error's text fit to stand before others.
func sentence(err error) string {
	text := err.Error()
	return strings.ToUpper(text[:1]) + text[1:] + "."
}

func whoWasFaster(e *payment.ResolvedError) string {
	if e.By == nil {
		return fmt.Sprintf("The charge is %s and never was unknown.", e.Charge.Status)
	}
	return fmt.Sprintf("The charge was resolved as %s by %s (%s) at %s.", e.By.Outcome, e.By.Actor, e.By.Evidence, timestamp(e.By.CreatedAt))
}

// fail is the one place where an error becomes an answer and a line of the log.
func (a *api) fail(w http.ResponseWriter, r *http.Request, err error) {
	x := exchangeOf(r)
	p, wait := describe(err)
	p.RequestID = x.id
	x.code, x.reason, x.chargeID = p.Code, p.Reason, p.ChargeID
	if e, ok := errors.AsType[*overloadError](err); ok {
		a.shed.refused(a.Log, r, a.Now(), e)
		a.metrics.shed(x.priority, e.rejection.Reason)
	} else {
		a.logFailure(r, p, err)
	}
	a.metrics.rejected(p)

	h := w.Header()
	switch p.Status {
	case http.StatusUnauthorized:
		scheme := "Bearer"
		if p.Code == codeEventUnverified {
			scheme = "StandardWebhooks" // no registered scheme names a signed body
		}
		h.Set("WWW-Authenticate", scheme+` realm="paymentsd"`)
	case http.StatusServiceUnavailable:
		wait = max(wait, time.Second)
	case http.StatusConflict:
		if p.Retryable {
			wait = max(wait, time.Second)
		}
	}
	setRetryAfter(h, wait)
	writeJSON(w, typeProblem, p.Status, p)
}

func (a *api) logFailure(r *http.Request, p problem, err error) {
	level := slog.LevelInfo
	switch {
	case r.Context().Err() != nil: // the client has gone: nobody will read the answer
	case p.Code == codeInternal:
		level = slog.LevelError
	case p.Status >= http.StatusInternalServerError:
		level = slog.LevelWarn
	}
	x := exchangeOf(r)
	a.Log.LogAttrs(r.Context(), level, "request refused",
		slog.String("request_id", x.id), slog.String("code", p.Code), slog.String("reason", p.Reason),
		slog.String("charge_id", p.ChargeID), slog.String("error", withoutCardNumbers(err.Error())))
}

// setRetryAfter rounds up: a client that comes back too early only waits again.
func setRetryAfter(h http.Header, wait time.Duration) {
	if wait > 0 {
		h.Set("Retry-After", strconv.FormatInt(int64((wait+time.Second-1)/time.Second), 10))
	}
}

func writeJSON(w http.ResponseWriter, contentType string, status int, value any) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_, _ = w.Write(marshal(value)) // the client has gone: there is nobody to tell
}

// marshal writes one of our own types as a line of JSON. It cannot fail: none holds a value that JSON lacks.
func marshal(value any) []byte {
	b, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("api: %T cannot be written as JSON: %v", value, err))
	}
	return append(b, '\n')
}

// list is one page, newest first unless the operation says otherwise.
type list[T any] struct {
	Object  string `json:"object"`
	Data    []T    `json:"data"`
	HasMore bool   `json:"has_more"`
}

func writeList[S, T any](w http.ResponseWriter, items []S, hasMore bool, view func(S) T) error {
	data := make([]T, len(items)) // never null
	for i, item := range items {
		data[i] = view(item)
	}
	writeJSON(w, typeJSON, http.StatusOK, list[T]{Object: "list", Data: data, HasMore: hasMore})
	return nil
}

// timestamp is RFC 3339 with microseconds, in UTC: what Postgres keeps, and it sorts as text.
func timestamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z") }

// optionalTime is empty for the zero time, and for 1970, which some stores have in its place.
func optionalTime(t time.Time) string {
	if t.IsZero() || t.Unix() == 0 {
		return ""
	}
	return timestamp(t)
}

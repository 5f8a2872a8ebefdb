package api

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"paymentsd/merchant"
	"paymentsd/payment"
	"paymentsd/resilience"
)

// The least important give way first. The route says how important a request is; its Priority header
// may say less, never more: if it could, every client would ask for the most. Health, readiness,
// metrics and the pages of problems are never refused.

// overloadError is a request that was refused at the door, or dropped because its caller's time was up:
// nothing was done for it.
type overloadError struct{ rejection *payment.Rejection }

func (e *overloadError) Error() string { return "not begun: " + e.rejection.Error() }
func (e *overloadError) Unwrap() error { return e.rejection }

// overloadedRule stands apart from the table, which is too dear to be searched for what has to be cheap.
func overloadedRule() rule {
	return rule{codeOverloaded, http.StatusServiceUnavailable, true, func(err error) bool {
		_, ok := errors.AsType[*overloadError](err)
		return ok
	}, "Too much to do", "Nothing was done for this request, and its key is as it was. Send it again after Retry-After."}
}

func (e *overloadError) problem() problem {
	p := overloadedRule().problem()
	p.Reason = string(e.rejection.Reason)
	p.Detail = because(e.rejection.Detail, p)
	return p
}

// weight is how important the requests of a route are.
type weight struct {
	priority payment.Priority
	ops      payment.Priority // the same for a key with the role ops
	heard    bool             // its handler refuses wishes that cannot be read, beside its other headers
}

// weights are those of the routes that may be refused. What has no row never is.
func weights() map[string]weight {
	const critical, normal, low = payment.Critical, payment.Normal, payment.Low
	return map[string]weight{
		"POST /v1/charges": {priority: critical, ops: critical, heard: true},
		// A list on a console gives way before the shop that looks for its own charge.
		"GET /v1/charges": {priority: normal, ops: low},
		// Whoever fights the overload has to see the acquirers, and to steer them.
		"GET /v1/acquirers":                      {priority: critical, ops: critical},
		"GET /v1/acquirers/{name}":               {priority: critical, ops: critical},
		"POST /v1/acquirers/{name}/breaker":      {priority: critical, ops: critical},
		"GET /v1/ledger/balances":                {priority: low, ops: low},
		"GET /v1/ledger/transfers":               {priority: low, ops: low},
		"GET /v1/reconciliation/runs":            {priority: low, ops: low},
		"GET /v1/reconciliation/exceptions":      {priority: low, ops: low},
		"GET /v1/reconciliation/exceptions/{id}": {priority: low, ops: low},
		"GET /v1/settlement-files":               {priority: low, ops: low},
		"POST /v1/settlement-files":              {priority: low, ops: low},
		// One charge that somebody looks for, and what a person decides of one.
		"GET /v1/charges/{id}":                    {priority: normal, ops: normal},
		"GET /v1/charges/{id}/attempts":           {priority: normal, ops: normal},
		"GET /v1/charges/{id}/resolutions":        {priority: normal, ops: normal},
		"POST /v1/charges/{id}/resolution":        {priority: normal, ops: normal},
		"POST /v1/reconciliation/exceptions/{id}": {priority: normal, ops: normal},
		// What an acquirer says ends unknowns; refused, it says it again.
		"POST /v1/acquirers/{name}/events": {priority: normal, ops: normal},
	}
}

// ShedKinds is how many kinds of request a Shedder tells apart: one a route.
func ShedKinds() int { return len((&api{}).routes()) }

// openDoor admits everything.
func openDoor() *resilience.Shedder {
	settings := resilience.DefaultShedder()
	settings.Off = true
	s, err := resilience.NewShedder(settings, ShedKinds())
	if err != nil {
		panic(err) // the defaults are usable
	}
	return s
}

// admitted lets a request in, or refuses it before its key is looked up and its body read.
func (a *api) admitted(kind int, weight weight, h handler) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		x := exchangeOf(r)
		wish, wrong := readWishes(r.Header)
		x.weight, x.priority = weight, min(weight.priority, wish.priority)
		x.startBy = x.began.Add(min(wish.patience, a.Limits.RequestTimeMax))
		ctx := resilience.WithStartBy(r.Context(), x.startBy)
		if refused := a.Shedder.Enter(ctx, &x.visit, kind, x.priority); refused != nil {
			leaveBody(w, r)
			return &overloadError{rejection: refused}
		}
		defer func() { x.visit.Leave(carriedThrough(w)) }()
		if len(wrong) > 0 && !weight.heard {
			return refuse(codeHeaderInvalid, "", wrong...)
		}
		r = r.WithContext(resilience.WithVisit(ctx, &x.visit))
		r.Body = &outsideBody{visit: &x.visit, in: r.Body}
		return tooLate(r, h(w, r))
	}
}

// drainMax is the longest body for which a refused client keeps its connection: it mostly came with the head.
const drainMax = 4 << 10

// leaveBody answers before a body has come. The server would otherwise read it first, up to 256 KiB of it,
// to throw it away and keep the connection. (EnableFullDuplex does not help: with it, the server's next
// read meets the one for this body, and panics.)
func leaveBody(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength < 0 || r.ContentLength > drainMax {
		w.Header().Set("Connection", "close")
	}
}

// tooLate says of work that ran out of its caller's time that this was why, not the store. Of a write
// that the store did not answer it says nothing: that may have been done all the same.
func tooLate(r *http.Request, err error) error {
	if _, ok := errors.AsType[*payment.UnavailableError](err); ok {
		if rejection, ok := errors.AsType[*payment.Rejection](err); ok {
			return &overloadError{rejection: rejection}
		}
	}
	if r.Method == http.MethodPost || resilience.Remaining(r.Context()) > 0 || !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &overloadError{rejection: &payment.Rejection{
		Reason: resilience.DeadlineTooShort, Detail: "the caller's time was up before the store answered",
	}}
}

// reweigh asks again now that the key is known.
func (a *api) reweigh(r *http.Request) error {
	x := exchangeOf(r)
	if x.principal.Role != merchant.RoleOps || x.weight.ops >= x.priority {
		return nil
	}
	x.priority = x.weight.ops
	if refused := x.visit.Reweigh(x.priority); refused != nil {
		return &overloadError{rejection: refused}
	}
	return nil
}

// carriedThrough reports an answer that took the whole way. What is refused half-way is quick.
func carriedThrough(w http.ResponseWriter) bool {
	seen, ok := w.(*responseRecorder)
	return ok && (seen.status >= 200 && seen.status < 300 || seen.status == http.StatusPaymentRequired)
}

// outsideBody reads what the client sends. While it is slow, we are not busy.
type outsideBody struct {
	visit *resilience.Visit
	in    io.ReadCloser
}

func (b *outsideBody) Read(p []byte) (int, error) {
	b.visit.StepOut()
	defer b.visit.StepIn()
	return b.in.Read(p)
}

func (b *outsideBody) Close() error { return b.in.Close() }

// shedLog says at most once in shedLogEvery that requests are being refused, and how many were.
type shedLog struct {
	next  atomic.Int64 // Unix nanoseconds
	count atomic.Int64
}

const shedLogEvery = time.Second

func (l *shedLog) refused(log *slog.Logger, r *http.Request, now time.Time, e *overloadError) {
	n := l.count.Add(1)
	next := l.next.Load()
	if at := now.UnixNano(); at < next || !l.next.CompareAndSwap(next, at+int64(shedLogEvery)) {
		return
	}
	l.count.Add(-n)
	log.LogAttrs(r.Context(), slog.LevelWarn, "requests are being refused at the door",
		slog.Int64("since_the_last_line", n), slog.String("last_reason", string(e.rejection.Reason)), slog.String("detail", e.rejection.Detail))
}

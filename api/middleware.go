package api

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/go-chi/chi/v5"

	"paymentsd/merchant"
	"paymentsd/payment"
	"paymentsd/resilience"
)

const headerRequestID = "Request-Id"

// exchange is what is known of one request and its answer, for the log and the metrics.
type exchange struct {
	id        string
	began     time.Time
	startBy   time.Time // when its caller's patience ends: nothing is begun after it
	visit     resilience.Visit
	weight    weight           // of its route
	priority  payment.Priority // as it was weighed
	principal merchant.Principal
	code      string // of the problem, if it was answered with one
	reason    string
	chargeID  string
}

type exchangeKey struct{}

// exchangeOf is what identify put into the request's context.
func exchangeOf(r *http.Request) *exchange {
	return r.Context().Value(exchangeKey{}).(*exchange)
}

// identify names the exchange. An id that the client sent is not trusted: it could be anybody's.
func (a *api) identify(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := &exchange{id: "req_" + rand.Text(), began: a.Now()}
		w.Header().Set(headerRequestID, x.id)
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x)))
	})
}

// logAccess writes one line per exchange and counts it. Of the address it takes the route's pattern,
// never the path or the query: those are the client's text.
func (a *api) logAccess(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen := &responseRecorder{ResponseWriter: w}
		next.ServeHTTP(seen, r)
		x, pattern := exchangeOf(r), routePattern(r)
		took := a.Now().Sub(x.began)
		a.metrics.served(r.Method, pattern, seen.status, took)
		attrs := []slog.Attr{
			slog.String("request_id", x.id), slog.String("method", methodLabel(r.Method)), slog.String("route", pattern),
			slog.Int("status", seen.status), slog.Duration("took", took), slog.Int64("bytes", seen.bytes),
		}
		for _, id := range []slog.Attr{
			slog.String("key_id", x.principal.KeyID), slog.String("charge_id", x.chargeID),
			slog.String("code", x.code), slog.String("reason", x.reason),
		} {
			if id.Value.String() != "" {
				attrs = append(attrs, id)
			}
		}
		a.Log.LogAttrs(r.Context(), slog.LevelInfo, "request", attrs...)
	})
}

// recoverPanic answers 500 for a panic. The charge, if there was one, is safe: the pipeline is detached
// from the request, and what it left open, the sweep finds.
func (a *api) recoverPanic(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			cause := recover()
			if cause == nil {
				return
			}
			if err, ok := cause.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(cause)
			}
			err := &panicError{cause: cause, stack: debug.Stack()}
			if seen, ok := w.(*responseRecorder); ok && seen.status != 0 {
				a.logFailure(r, ruleFor(err).problem(), err)
				panic(http.ErrAbortHandler) // half an answer must not look like a whole one
			}
			a.fail(w, r, err)
		}()
		next.ServeHTTP(w, r)
	})
}

type panicError struct {
	cause any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v\n%s", e.cause, e.stack) }

// responseRecorder remembers status and size.
type responseRecorder struct {
	http.ResponseWriter
	status int
	bytes  int64
}

func (s *responseRecorder) WriteHeader(status int) {
	if s.status == 0 {
		s.status = status
	}
	s.ResponseWriter.WriteHeader(status)
}

func (s *responseRecorder) Write(b []byte) (int, error) {
	if s.status == 0 {
		s.status = http.StatusOK
	}
	n, err := s.ResponseWriter.Write(b)
	s.bytes += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController through.
func (s *responseRecorder) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// routePattern has few values, unlike the path.
func routePattern(r *http.Request) string {
	if pattern := chi.RouteContext(r.Context()).RoutePattern(); pattern != "" {
		return pattern
	}
	return "none"
}

// methodLabel has few values, unlike the method, which the client may invent.
func methodLabel(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return method
	}
	return "other"
}

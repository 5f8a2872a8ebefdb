package sim

import (
	"net"
	"net/http"
	"strconv"
	"time"

	"paymentsd/money"
)

const internalError = `{"code":"internal_error","message":"something broke here"}`

// answer tells the client what b lets it know of the outcome.
func (s *Sim) answer(w http.ResponseWriter, r *http.Request, o order, b Behaviour, out outcome) {
	if out.refused != nil {
		refuse(w, out.refused)
		return
	}
	view := captureView{Reference: o.reference, AmountMinor: o.amountMinor, Currency: o.currency, Status: StatusCaptured}
	if out.known {
		view = viewOf(out.record, s.cfg.Now())
	}
	if out.replayed {
		w.Header().Set("Idempotent-Replayed", "true")
	}
	if out.replayed && out.record.StoredError {
		b.reply = serverError
	}
	switch b.reply {
	case falseDecline:
		view.Status, view.DeclineCode, view.ID = StatusDeclined, b.code, ""
	case wrongAmount:
		view.AmountMinor++
	case wrongCurrency:
		view.Currency = otherCurrency(view)
	case wrongReference:
		view.Reference = "X" + view.Reference[1:] + "X"
	default:
		if s.misbehave(w, r, b.reply) {
			return
		}
	}
	writeCapture(w, view)
}

func otherCurrency(v captureView) money.Currency {
	if v.Currency == "EUR" {
		return "USD"
	}
	return "EUR"
}

func writeCapture(w http.ResponseWriter, v captureView) {
	switch v.Status {
	case StatusCaptured:
		writeJSON(w, http.StatusCreated, v)
	case StatusPending:
		w.Header().Set("Retry-After", "1")
		writeJSON(w, http.StatusAccepted, v)
	default:
		writeJSON(w, http.StatusPaymentRequired, v)
	}
}

// misbehave gives an answer that says nothing useful, and reports whether it did.
func (s *Sim) misbehave(w http.ResponseWriter, r *http.Request, how replying) bool {
	switch how {
	case hold:
		s.hold(r)
		panic(http.ErrAbortHandler)
	case hangUp:
		panic(http.ErrAbortHandler)
	case resetMidBody:
		halfABody(w, true)
	case truncate:
		halfABody(w, false)
	case serverError:
		writeRaw(w, http.StatusInternalServerError, "application/json", internalError)
	case unavailable:
		refuse(w, refusal(http.StatusServiceUnavailable, "unavailable", "", "not processed; try again later"))
	case rateLimit:
		refuse(w, refusal(http.StatusTooManyRequests, "rate_limited", "", "not processed; too many requests"))
	case garble:
		writeRaw(w, http.StatusCreated, "application/json", `{"id":"cap_","reference":`+"\x00\x01"+`,"amou`)
	case htmlPage:
		writeRaw(w, http.StatusOK, "text/html; charset=utf-8", "<!doctype html><title>Welcome</title><p>It works.")
	case maintenance:
		writeRaw(w, http.StatusOK, "application/json", `{"message":"server in maintenance","retry":true}`)
	case unknownResult:
		writeRaw(w, http.StatusOK, "application/json", `{"result":"UNKNOWN"}`)
	case redirect:
		http.Redirect(w, r, r.URL.RequestURI(), http.StatusTemporaryRedirect)
	default:
		return false
	}
	return true
}

func writeRaw(w http.ResponseWriter, status int, contentType, body string) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body)) // a client that has gone is its own affair
}

// hold keeps the connection until the client goes, a bound passes or the simulator stops.
func (s *Sim) hold(r *http.Request) {
	timer := time.NewTimer(s.cfg.HoldMax)
	defer timer.Stop()
	select {
	case <-r.Context().Done():
	case <-timer.C:
	case <-s.closed:
	}
}

// halfABody promises more than it sends; reset ends it with an RST instead of a FIN.
func halfABody(w http.ResponseWriter, reset bool) {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer conn.Close()
	_, _ = buffered.WriteString("HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: 200\r\n\r\n" +
		`{"id":"cap_half","reference":"`)
	_ = buffered.Flush() // whether the half arrives is part of the fault
	if tcp, ok := conn.(*net.TCPConn); ok && reset {
		_ = tcp.SetLinger(0)
	}
}

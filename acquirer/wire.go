package acquirer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"time"
)

// Limits of one exchange. An answer about one capture is a few hundred bytes.
const (
	DefaultTimeout    = 8 * time.Second
	answerBytesMax    = 64 << 10
	headerBytesMax    = 64 << 10
	dialTimeoutMax    = 2 * time.Second
	tlsTimeoutMax     = 3 * time.Second
	idleTimeout       = 30 * time.Second // below the minute after which most servers hang up
	idlePerHostMax    = 64
	keepAliveInterval = 15 * time.Second
)

var (
	errAttemptTimeout = errors.New("the attempt's own timeout passed")
	errAnswerTooLarge = fmt.Errorf("the answer is larger than %d bytes", answerBytesMax)
)

// Wire sends single HTTP requests for adapters and knows of each whether a byte of it may have
// left. It follows no redirect, keeps no cookies, speaks HTTP/1.1 only (one request at a time on
// a connection is what makes the proof possible) and never sends anything twice. It is safe for
// concurrent use.
type Wire struct {
	transport *http.Transport
	timeout   time.Duration
}

// NewWire makes a Wire whose exchanges take at most timeout; 0 means DefaultTimeout.
func NewWire(timeout time.Duration) *Wire {
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	dialer := &net.Dialer{Timeout: min(timeout, dialTimeoutMax), KeepAlive: keepAliveInterval}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &Wire{timeout: timeout, transport: &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &guardedConn{Conn: conn}, nil
		},
		Protocols:              protocols,
		TLSHandshakeTimeout:    min(timeout, tlsTimeoutMax),
		IdleConnTimeout:        idleTimeout,
		MaxIdleConnsPerHost:    idlePerHostMax,
		MaxResponseHeaderBytes: headerBytesMax,
		DisableCompression:     true,
	}}
}

// Timeout is the most that one exchange may take.
func (w *Wire) Timeout() time.Duration { return w.timeout }

// Exchange is what became of one request. Err is nil exactly when a whole response was read.
type Exchange struct {
	Status int // 0 when no response head arrived
	Header http.Header
	Body   []byte
	Err    error
	// Sent reports whether a byte of the request may have left. False is a proof.
	Sent bool
	// CallerGone reports that the caller's context ended the exchange: cancelled, or with a
	// deadline before our own timeout. It says nothing about the acquirer.
	CallerGone bool
	// StaleConnection reports that an idle connection turned out dead before anything was
	// written to it: the acquirer did nothing wrong.
	StaleConnection bool
}

// Failed classes an exchange whose Err is not nil: NotSent only with proof, Unclear otherwise.
func (e Exchange) Failed() Answer {
	a := Answer{
		Class:      NotSent,
		HTTPStatus: e.Status,
		Failure:    !e.CallerGone && !e.StaleConnection,
		Detail:     Clip("nothing was sent: " + e.Err.Error()),
	}
	if e.Sent {
		a.Class = Unclear
		a.Detail = Clip("sent, no whole answer: " + e.Err.Error())
	}
	return a
}

// Do sends req once and reads the answer, within ctx and the Wire's timeout.
func (w *Wire) Do(ctx context.Context, req *http.Request) Exchange {
	if err := ctx.Err(); err != nil {
		return Exchange{Err: err, CallerGone: true}
	}
	attempt, cancel := context.WithTimeoutCause(ctx, w.timeout, errAttemptTimeout)
	defer cancel()
	again := req.GetBody
	e := w.once(attempt, req)
	if !e.StaleConnection {
		return e
	}
	// Nothing was sent on a connection that was dead before. Its siblings are as old: dial anew.
	w.transport.CloseIdleConnections()
	if again != nil {
		body, err := again()
		if err != nil {
			return e
		}
		req.Body = body
	}
	return w.once(attempt, req)
}

func (w *Wire) once(attempt context.Context, req *http.Request) Exchange {
	var uses connUses
	req = req.WithContext(httptrace.WithClientTrace(attempt, &httptrace.ClientTrace{GotConn: uses.got}))
	// net/http resends a request by itself when it carries an Idempotency-Key and its body can be
	// had again (golang.org/issue/19943). Every resend has to be ours to count, so it cannot.
	req.GetBody = nil

	e := Exchange{}
	resp, err := w.transport.RoundTrip(req)
	if err == nil {
		defer resp.Body.Close()
		e.Status, e.Header, e.Sent = resp.StatusCode, resp.Header, true
		e.Body, err = readAnswer(resp.Body)
	} else {
		e.Sent = uses.seal()
		e.StaleConnection = !e.Sent && uses.reused()
	}
	if err == nil {
		return e
	}
	e.Err = err
	if attempt.Err() != nil {
		e.Err = context.Cause(attempt)
		e.CallerGone = !errors.Is(e.Err, errAttemptTimeout)
		e.StaleConnection = false
	}
	return e
}

// Close drops idle connections.
func (w *Wire) Close() { w.transport.CloseIdleConnections() }

func readAnswer(r io.Reader) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r, answerBytesMax+1))
	if err == nil && len(body) > answerBytesMax {
		return nil, errAnswerTooLarge
	}
	return body, err
}

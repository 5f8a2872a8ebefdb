package acquirertest

import (
	"bytes"
	"context"
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"paymentsd/acquirer"
)

// fault is one way in which a network or an acquirer goes wrong.
type fault struct {
	name string
	run  func(*testing.T, suite)
}

func faults() []fault {
	return []fault{
		{"dial refused: nothing was sent", dialRefused},
		{"the name does not resolve: nothing was sent", nameUnknown},
		{"TLS to a server without TLS: nothing was sent", tlsNotSpoken},
		{"TLS certificate of an unknown authority: nothing was sent", tlsUntrusted},
		{"TLS handshake hangs past our timeout: nothing was sent", tlsHangs},
		{"TLS handshake hangs past the caller's deadline: no failure of the acquirer", tlsHangsCaller},
		{"caller gone before: nothing was sent, nobody connected", callerGoneBefore},
		{"caller cancels after sending: unclear, no failure of the acquirer", callerCancels},
		{"caller's shorter deadline after sending: unclear, no failure of the acquirer", callerDeadline},

		{"our timeout after sending: unclear", afterRequest(acquirer.Unclear, func(c *conn, _ exchange) { c.hang() })},
		{"our timeout in mid-body: unclear", afterRequest(acquirer.Unclear, func(c *conn, x exchange) { c.send(half(x)); c.hang() })},
		{"hung up after the request: unclear", afterRequest(acquirer.Unclear, func(*conn, exchange) {})},
		{"reset after the request: unclear", afterRequest(acquirer.Unclear, func(c *conn, _ exchange) { c.reset() })},
		{"reset in mid-head: unclear", afterRequest(acquirer.Unclear, func(c *conn, x exchange) { c.send(x.response[:20]); c.reset() })},
		{"reset in mid-body: unclear", afterRequest(acquirer.Unclear, func(c *conn, x exchange) { c.send(half(x)); c.reset() })},
		{"ended in mid-body: unclear", afterRequest(acquirer.Unclear, func(c *conn, x exchange) { c.send(half(x)) })},
		{"answers something that is not HTTP: unclear", afterRequest(acquirer.Unclear, func(c *conn, _ exchange) { c.send([]byte("220 mail.example ESMTP\r\n")) })},
		{"answers a body without end: unclear", afterRequest(acquirer.Unclear, endlessBody)},
		{"answers a head without end: unclear", afterRequest(acquirer.Unclear, endlessHead)},
		{"reset while the request is being sent: unclear", resetEarly},
		{"slow, in pieces, but in time: captured", slowPieces},

		{"reused connection dies with the request: unclear, never sent again", reusedDies},
		{"idle connection closed before: sent once, on a new one", idleClosed},
		{"idle connection reset before: sent once, on a new one", idleReset},
		{"idempotency case 30: the key on the wire is the reference, the bytes the same on every try", sameBytes},
		{"idempotency case 30: under load no capture carries another's key", keysUnderLoad},
		{"inquiries through every fault prove nothing", lookupFaults},
	}
}

// half is the response up to the middle of its body.
func half(x exchange) []byte {
	head := bytes.Index(x.response, []byte("\r\n\r\n")) + 4
	return x.response[:head+(len(x.response)-head)/2]
}

// afterRequest answers a whole request with trouble, and wants a failure of the class.
func afterRequest(class acquirer.Class, then func(*conn, exchange)) func(*testing.T, suite) {
	return func(t *testing.T, s suite) {
		x := s.load(t, "captured")
		server := listen(t, func(c *conn) {
			if _, err := c.next(); err == nil {
				then(c, x)
			}
		})
		wantAnswer(t, capture(context.Background(), t, s.adapter(t, server.url(), 20*impatience)), class, true)
		if n := len(server.requests()); n != 1 {
			t.Errorf("%d requests arrived, want exactly one", n)
		}
	}
}

func endlessBody(c *conn, _ exchange) {
	c.send([]byte("HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"))
	for chunk := []byte("1000\r\n" + strings.Repeat(" ", 0x1000) + "\r\n"); ; {
		if _, err := c.Write(chunk); err != nil {
			return
		}
	}
}

func endlessHead(c *conn, _ exchange) {
	c.send([]byte("HTTP/1.1 201 Created\r\n"))
	for line := []byte("X: " + strings.Repeat("x", 0x1000) + "\r\n"); ; {
		if _, err := c.Write(line); err != nil {
			return
		}
	}
}

func dialRefused(t *testing.T, s suite) {
	server := listen(t, func(*conn) {})
	url := server.url()
	_ = server.listener.Close()
	wantAnswer(t, capture(context.Background(), t, s.adapter(t, url, patience)), acquirer.NotSent, true)
}

func nameUnknown(t *testing.T, s suite) {
	// RFC 6761 keeps .invalid free of any name.
	wantAnswer(t, capture(context.Background(), t, s.adapter(t, "http://acquirer.invalid", patience)), acquirer.NotSent, true)
}

func tlsNotSpoken(t *testing.T, s suite) {
	server := listen(t, func(c *conn) { c.send([]byte("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")) })
	url := strings.Replace(server.url(), "http", "https", 1)
	wantAnswer(t, capture(context.Background(), t, s.adapter(t, url, patience)), acquirer.NotSent, true)
}

func tlsUntrusted(t *testing.T, s suite) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("a request arrived over a connection that cannot be trusted")
	}))
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS13}
	server.Config.ErrorLog = nil
	server.StartTLS()
	t.Cleanup(server.Close)
	wantAnswer(t, capture(context.Background(), t, s.adapter(t, server.URL, patience)), acquirer.NotSent, true)
}

func tlsHangs(t *testing.T, s suite) {
	server := listen(t, (*conn).hang)
	url := strings.Replace(server.url(), "http", "https", 1)
	wantAnswer(t, capture(context.Background(), t, s.adapter(t, url, impatience)), acquirer.NotSent, true)
}

func tlsHangsCaller(t *testing.T, s suite) {
	server := listen(t, (*conn).hang)
	ctx, cancel := context.WithTimeout(context.Background(), impatience)
	defer cancel()
	url := strings.Replace(server.url(), "http", "https", 1)
	wantAnswer(t, capture(ctx, t, s.adapter(t, url, patience)), acquirer.NotSent, false)
}

func callerGoneBefore(t *testing.T, s suite) {
	server := listen(t, (*conn).hang)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	wantAnswer(t, capture(ctx, t, s.adapter(t, server.url(), patience)), acquirer.NotSent, false)
	if n := server.connections(); n != 0 {
		t.Errorf("%d connections for a caller who had gone", n)
	}
}

func callerCancels(t *testing.T, s suite) {
	ctx, cancel := context.WithCancel(context.Background())
	server := listen(t, func(c *conn) {
		if _, err := c.next(); err == nil {
			cancel()
			c.hang()
		}
	})
	wantAnswer(t, capture(ctx, t, s.adapter(t, server.url(), patience)), acquirer.Unclear, false)
}

func callerDeadline(t *testing.T, s suite) {
	sent := make(chan struct{})
	server := listen(t, func(c *conn) {
		if _, err := c.next(); err == nil {
			close(sent)
			c.hang()
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), 10*impatience)
	defer cancel()
	wantAnswer(t, capture(ctx, t, s.adapter(t, server.url(), patience)), acquirer.Unclear, false)
	<-sent
}

func resetEarly(t *testing.T, s suite) {
	server := listen(t, func(c *conn) {
		if _, err := c.reader.ReadByte(); err == nil {
			c.reset()
		}
	})
	wantAnswer(t, capture(context.Background(), t, s.adapter(t, server.url(), patience)), acquirer.Unclear, true)
}

func slowPieces(t *testing.T, s suite) {
	x := s.load(t, "captured")
	server := listen(t, func(c *conn) {
		if _, err := c.next(); err != nil {
			return
		}
		pause := time.NewTicker(time.Millisecond)
		defer pause.Stop()
		for piece := range slices.Chunk(x.response, 16) {
			<-pause.C
			c.send(piece)
		}
	})
	wantAnswer(t, capture(context.Background(), t, s.adapter(t, server.url(), patience)), acquirer.Captured, false)
}

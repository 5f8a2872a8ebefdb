package acquirer

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// A byte count at the moment of giving up is no proof: net/http may be about to write. Sealing is.
func TestSealedConnectionWritesNothing(t *testing.T) {
	t.Parallel()
	near, far := net.Pipe()
	t.Cleanup(func() { _ = near.Close(); _ = far.Close() })
	c := &guardedConn{Conn: near}
	if begun := c.seal(); begun != 0 {
		t.Fatalf("%d writes begun on a new connection", begun)
	}
	if n, err := c.Write([]byte("late")); n != 0 || err == nil {
		t.Errorf("a sealed connection wrote %d bytes, error %v", n, err)
	}
}

func TestWriteThatFailsHasBegun(t *testing.T) {
	t.Parallel()
	near, far := net.Pipe()
	_ = far.Close()
	c := &guardedConn{Conn: near}
	if _, err := c.Write([]byte("x")); err == nil {
		t.Fatal("the write to a closed pipe succeeded")
	}
	if c.seal() != 1 {
		t.Error("a failed write does not count as begun")
	}
}

func TestConnectionThatIsNoneOfOursProvesNothing(t *testing.T) {
	t.Parallel()
	near, far := net.Pipe()
	t.Cleanup(func() { _ = near.Close(); _ = far.Close() })
	u := connUses{uses: []connUse{{conn: guarded(near)}}}
	if !u.seal() {
		t.Error("not sent, on a connection that was never watched")
	}
}

// Over TLS the handshake writes before the request does, and must not count as the request.
func TestProofHoldsUnderTLS(t *testing.T) {
	t.Parallel()
	var requests int
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests++
		_, _ = io.WriteString(w, "hello")
	}))
	t.Cleanup(server.Close)
	w := NewWire(5 * time.Second)
	w.transport.TLSClientConfig = &tls.Config{RootCAs: server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}

	first := w.Do(context.Background(), post(t, server.URL))
	if first.Err != nil || string(first.Body) != "hello" {
		t.Fatalf("got %q, error %v", first.Body, first.Err)
	}
	// The connection is idle now. It ends, and the next request is neither lost on it nor doubled.
	server.CloseClientConnections()
	second := w.Do(context.Background(), post(t, server.URL))
	if second.Err != nil || requests != 2 {
		t.Errorf("%d requests, error %v (sent: %t)", requests, second.Err, second.Sent)
	}
}

func TestFailedExchangeIsClassedByProof(t *testing.T) {
	t.Parallel()
	err := io.ErrUnexpectedEOF
	for name, c := range map[string]struct {
		e       Exchange
		class   Class
		failure bool
	}{
		"nothing sent":                   {Exchange{Err: err}, NotSent, true},
		"nothing sent, caller gone":      {Exchange{Err: err, CallerGone: true}, NotSent, false},
		"nothing sent, stale connection": {Exchange{Err: err, StaleConnection: true}, NotSent, false},
		"sent":                           {Exchange{Err: err, Sent: true}, Unclear, true},
		"sent, caller gone":              {Exchange{Err: err, Sent: true, CallerGone: true}, Unclear, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if a := c.e.Failed(); a.Class != c.class || a.Failure != c.failure {
				t.Errorf("got %s, failure %t", a.Class, a.Failure)
			}
		})
	}
}

func post(t *testing.T, url string) *http.Request {
	t.Helper()
	r, err := http.NewRequest(http.MethodPost, url, strings.NewReader(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Idempotency-Key", "K")
	return r
}

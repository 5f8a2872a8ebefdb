package pgtest

import (
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
)

// Wire is a network between a replica and Postgres that can be cut or made to swallow everything.
type Wire struct {
	listener net.Listener
	target   string

	mu    sync.Mutex
	state WireState
	conns map[net.Conn]bool
	ended sync.WaitGroup
}

// WireState is how a Wire is.
type WireState int

// The states.
const (
	Whole   WireState = iota
	Cut               // connections are refused
	Blocked           // bytes are accepted and go nowhere
)

// NewWire gives a wire and the address by which it leads to the database.
func NewWire(tb testing.TB, databaseURL string) (*Wire, string) {
	tb.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		tb.Fatal(err)
	}
	w := &Wire{target: u.Host, conns: map[net.Conn]bool{}}
	if w.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		tb.Fatal(err)
	}
	u.Host = w.listener.Addr().String()
	w.ended.Go(w.accept)
	tb.Cleanup(func() {
		_ = w.listener.Close()
		w.Set(Cut)
		w.ended.Wait()
	})
	return w, u.String()
}

func (w *Wire) accept() {
	for {
		near, err := w.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", w.target)
		if err != nil || !w.keep(near, far) {
			_ = near.Close()
			continue
		}
		w.ended.Go(func() { w.copy(near, far) })
		w.ended.Go(func() { w.copy(far, near) })
	}
}

func (w *Wire) keep(conns ...net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range conns {
		if w.state == Cut {
			_ = c.Close()
		} else {
			w.conns[c] = true
		}
	}
	return w.state != Cut
}

// copy passes bytes on, or drops them while the wire is blocked: they never come back.
func (w *Wire) copy(from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	_, _ = io.Copy(writerFunc(func(p []byte) (int, error) {
		w.mu.Lock()
		state := w.state
		w.mu.Unlock()
		if state == Blocked {
			return len(p), nil
		}
		return to.Write(p)
	}), from)
	w.mu.Lock()
	delete(w.conns, from)
	w.mu.Unlock()
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// Set changes the wire. A cut ends what is connected; so does a return from being blocked, as no
// protocol survives lost bytes.
func (w *Wire) Set(state WireState) {
	w.mu.Lock()
	defer w.mu.Unlock()
	was := w.state
	w.state = state
	if state == Cut || was == Blocked {
		for c := range w.conns {
			_ = c.Close()
		}
	}
}

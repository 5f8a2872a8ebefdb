package acquirertest

import (
	"bufio"
	"net"
	"sync"
	"testing"
)

// loopback is a server that is nothing but its connections.
type loopback struct {
	listener net.Listener
	done     chan struct{} // closed when the test ends

	mu    sync.Mutex
	seen  []received
	conns []*conn
}

// listen serves every connection with handle and closes it afterwards.
func listen(t *testing.T, handle func(*conn)) *loopback {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &loopback{listener: listener, done: make(chan struct{})}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			one := &conn{Conn: c, reader: bufio.NewReader(c), server: l}
			l.mu.Lock()
			l.conns = append(l.conns, one)
			l.mu.Unlock()
			running.Go(func() {
				defer one.Close()
				handle(one)
			})
		}
	})
	t.Cleanup(func() {
		close(l.done)
		_ = listener.Close()
		l.mu.Lock()
		for _, c := range l.conns {
			_ = c.Close()
		}
		l.mu.Unlock()
		running.Wait()
	})
	return l
}

func (l *loopback) url() string { return "http://" + l.listener.Addr().String() }

// requests are those that arrived whole, so far.
func (l *loopback) requests() []received {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]received(nil), l.seen...)
}

func (l *loopback) connections() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.conns)
}

// conn is the acquirer's end of one connection.
type conn struct {
	net.Conn
	reader *bufio.Reader
	server *loopback
}

// next waits for the next whole request.
func (c *conn) next() (received, error) {
	r, err := receive(c.reader)
	if err == nil {
		c.server.mu.Lock()
		c.server.seen = append(c.server.seen, r)
		c.server.mu.Unlock()
	}
	return r, err
}

// send writes; a client that has gone is part of some tests.
func (c *conn) send(b []byte) { _, _ = c.Write(b) }

// reset ends the connection with an RST instead of a FIN.
func (c *conn) reset() {
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

// hang waits for the client to go, or the test to end.
func (c *conn) hang() {
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		for {
			if _, err := c.reader.ReadByte(); err != nil {
				return
			}
		}
	}()
	select {
	case <-gone:
	case <-c.server.done:
	}
}

package acquirer

import (
	"errors"
	"net"
	"net/http/httptrace"
	"sync"
)

var errSealed = errors.New("connection sealed: its request was given up unsent")

// guardedConn counts the writes that were begun, and can be sealed so that none begins later.
// Sealing is what turns "nothing was written so far" into "nothing was sent": net/http writes
// from another goroutine, which may be about to start.
type guardedConn struct {
	net.Conn
	mu     sync.Mutex
	begun  int
	sealed bool
}

// Write counts before it writes: a write that fails half way has begun.
func (c *guardedConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	if c.sealed {
		c.mu.Unlock()
		return 0, errSealed
	}
	c.begun++
	c.mu.Unlock()
	return c.Conn.Write(p)
}

func (c *guardedConn) writes() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.begun
}

// seal forbids further writes and returns how many were begun.
func (c *guardedConn) seal() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sealed = true
	return c.begun
}

// connUses notes the connections that one request was given.
type connUses struct {
	mu   sync.Mutex
	uses []connUse
}

type connUse struct {
	conn   *guardedConn // nil if it is none of ours: then nothing can be proved
	before int          // writes before this request: earlier requests, a TLS handshake
	reused bool
}

func (u *connUses) got(info httptrace.GotConnInfo) {
	use := connUse{conn: guarded(info.Conn), reused: info.Reused}
	if use.conn != nil {
		use.before = use.conn.writes()
		// Most idle connections that broke can be told before they cost us an unknown.
		if info.Reused && hungUp(use.conn.Conn) {
			use.conn.seal()
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.uses = append(u.uses, use)
}

// seal closes the matter and reports whether a byte of the request may have left. A request that
// was never given a connection failed at DNS, dial or TLS handshake: nothing of it was sent.
func (u *connUses) seal() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	sent := false
	for _, use := range u.uses {
		if use.conn == nil || use.conn.seal() > use.before {
			sent = true
		}
	}
	return sent
}

func (u *connUses) reused() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.uses) > 0 && u.uses[len(u.uses)-1].reused
}

// guarded finds our connection under the TLS layers.
func guarded(conn net.Conn) *guardedConn {
	for {
		if g, ok := conn.(*guardedConn); ok {
			return g
		}
		layer, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			return nil
		}
		conn = layer.NetConn()
	}
}

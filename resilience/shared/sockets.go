package shared

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// closeTimeMax is how long connections may take to end as they should. One whose other side is silent
// would take a driver's quarter of a minute.
const closeTimeMax = 500 * time.Millisecond

// sockets are the open connections, so that Close can end them all.
type sockets struct {
	mu     sync.Mutex
	open   map[*socket]bool
	closed bool
}

type socket struct {
	net.Conn
	all *sockets
}

var errClosed = errors.New("this replica's part in the shared breaker was closed")

// dialler opens connections that are kept count of.
func (all *sockets) dialler(dial pgconn.DialFunc) pgconn.DialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		s := &socket{Conn: conn, all: all}
		all.mu.Lock()
		defer all.mu.Unlock()
		if all.closed {
			return nil, errors.Join(errClosed, conn.Close())
		}
		if all.open == nil {
			all.open = map[*socket]bool{}
		}
		all.open[s] = true
		return s, nil
	}
}

// Close implements net.Conn.
func (s *socket) Close() error {
	s.all.mu.Lock()
	delete(s.all.open, s)
	s.all.mu.Unlock()
	return s.Conn.Close()
}

// end closes what is open, and whatever should be opened after.
func (all *sockets) end() {
	all.mu.Lock()
	defer all.mu.Unlock()
	all.closed = true
	for s := range all.open {
		_ = s.Conn.Close()
	}
}

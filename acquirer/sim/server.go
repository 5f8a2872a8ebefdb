package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

type connKey struct{}

const (
	readTimeout  = 10 * time.Second
	idleTimeout  = 75 * time.Second
	headerMax    = 16 << 10
	reopenPause  = 20 * time.Millisecond
	reopenTries  = 1500 // half a minute
	shutdownTime = 5 * time.Second
)

// Server is a simulator on a port of its own, which it can close and open again.
type Server struct {
	sim  *Sim
	http *http.Server
	addr *net.TCPAddr

	mu       sync.Mutex
	listener net.Listener // nil while down
	release  func()       // gives the reserved port back, while down
	revive   *time.Timer
	conns    map[net.Conn]http.ConnState
	closed   bool
}

// Serve listens on addr (port 0 for any) and answers as s until Close.
func Serve(s *Sim, addr string) (*Server, error) {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("simulator %s: %w", s.cfg.Name, err)
	}
	srv := &Server{sim: s, addr: listener.Addr().(*net.TCPAddr), listener: listener, conns: map[net.Conn]http.ConnState{}}
	srv.http = &http.Server{
		Handler:        s.Handler(),
		ReadTimeout:    readTimeout,
		IdleTimeout:    idleTimeout,
		MaxHeaderBytes: headerMax,
		ErrorLog:       slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		ConnState:      srv.track,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, c)
		},
	}
	s.mu.Lock()
	s.port = srv
	s.mu.Unlock()
	go srv.accept(listener)
	return srv, nil
}

// URL is the base address, with the port that was really taken.
func (srv *Server) URL() string { return "http://" + srv.addr.String() }

func (srv *Server) accept(listener net.Listener) {
	err := srv.http.Serve(listener)
	if err != nil && !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
		srv.sim.log.Error("the simulator stopped listening", "error", err)
	}
}

// track knows the open connections; one that slips in while the port closes is dropped.
func (srv *Server) track(c net.Conn, state http.ConnState) {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	if state == http.StateClosed || state == http.StateHijacked {
		delete(srv.conns, c)
		return
	}
	srv.conns[c] = state
	if state == http.StateNew && (srv.listener == nil || srv.closed) {
		_ = c.Close()
	}
}

// takeDown closes the port and every connection but keep, for a while; during an outage it only
// changes when that ends.
func (srv *Server) takeDown(d time.Duration, keep net.Conn) error {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	if srv.closed {
		return http.ErrServerClosed
	}
	if srv.listener != nil {
		_ = srv.listener.Close()
		srv.listener = nil
		release, err := reservePort(srv.addr)
		if err != nil {
			srv.sim.log.Warn("the port cannot be reserved while down", "error", err)
			release = func() {}
		}
		srv.release = release
	}
	for c := range srv.conns {
		if c != keep {
			_ = c.Close()
		}
	}
	if srv.revive != nil {
		srv.revive.Stop()
	}
	srv.revive = time.AfterFunc(d, srv.restore)
	return nil
}

// restore opens the port again after an outage; otherwise it does nothing.
func (srv *Server) restore() {
	for range reopenTries {
		if srv.reopen() {
			return
		}
		srv.sim.wait(reopenPause)
	}
	srv.sim.log.Error("the port could not be opened again", "address", srv.addr.String())
}

func (srv *Server) reopen() (done bool) {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	if srv.closed || srv.listener != nil {
		return true
	}
	srv.revive.Stop()
	srv.release()
	srv.release = func() {}
	listener, err := net.Listen("tcp", srv.addr.String())
	if err != nil {
		return false
	}
	srv.listener = listener
	go srv.accept(listener)
	return true
}

// Close stops listening, lets what is running end within a bound, and closes the simulator.
func (srv *Server) Close() error {
	srv.mu.Lock()
	srv.closed = true
	if srv.revive != nil {
		srv.revive.Stop()
	}
	if srv.listener == nil {
		srv.release()
		srv.release = func() {}
	}
	for c, state := range srv.conns {
		if state == http.StateNew { // dialled and never used: Shutdown would wait for it
			_ = c.Close()
		}
	}
	srv.mu.Unlock()
	srv.sim.stop()
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTime)
	defer cancel()
	err := srv.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, srv.http.Close())
	}
	return errors.Join(err, srv.sim.Close())
}

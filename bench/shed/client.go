package main

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// wire sends requests that were written beforehand over kept connections: net/http's own client would take
// more processor time than the service it measures.
type wire struct {
	addr string
	mu   sync.Mutex
	idle []*link
}

type link struct {
	net.Conn
	in *bufio.Reader
}

// send gives the answer's status, or an error if there is none before the deadline.
func (w *wire) send(request []byte, deadline time.Time) (int, error) {
	l, err := w.take(deadline)
	if err != nil {
		return 0, err
	}
	status, reusable, err := l.exchange(request, deadline)
	if err != nil || !reusable {
		_ = l.Close()
		return status, err
	}
	w.mu.Lock()
	w.idle = append(w.idle, l)
	w.mu.Unlock()
	return status, nil
}

func (w *wire) take(deadline time.Time) (*link, error) {
	w.mu.Lock()
	if n := len(w.idle); n > 0 {
		l := w.idle[n-1]
		w.idle = w.idle[:n-1]
		w.mu.Unlock()
		return l, nil
	}
	w.mu.Unlock()
	conn, err := net.DialTimeout("tcp", w.addr, time.Until(deadline))
	if err != nil {
		return nil, err
	}
	return &link{Conn: conn, in: bufio.NewReaderSize(conn, 4<<10)}, nil
}

func (l *link) exchange(request []byte, deadline time.Time) (status int, reusable bool, err error) {
	if err := l.SetDeadline(deadline); err != nil {
		return 0, false, err
	}
	if _, err := l.Write(request); err != nil {
		return 0, false, err
	}
	response, err := http.ReadResponse(l.in, nil)
	if err != nil {
		return 0, false, err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return 0, false, err
	}
	return response.StatusCode, !response.Close, nil
}

func (w *wire) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.idle {
		_ = l.Close()
	}
	w.idle = nil
}

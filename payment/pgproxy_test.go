package payment

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"paymentsd/internal/postgres"
)

// proxy stands between a Service and Postgres and loses what it is told to lose. It reads enough of the
// protocol (PostgreSQL, chapter "Frontend/Backend Protocol") to know which statement is executed.
type proxy struct {
	listener net.Listener
	target   string

	mu    sync.Mutex
	conns map[net.Conn]bool
	down  bool
	rules []*loss
}

// loss is what happens to statements that contain a text.
type loss struct {
	statement string
	times     int
	// executed: the statement reaches the server and is done there, its answer is lost. Otherwise the
	// connection breaks before.
	executed bool
}

// behindProxy gives a pool whose connections run through a proxy.
func behindProxy(t *testing.T, b *books) (*proxy, *pgxpool.Pool) {
	t.Helper()
	server, err := url.Parse(b.db.OwnerURL())
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: listener, target: server.Host, conns: map[net.Conn]bool{}}
	go p.accept()
	t.Cleanup(p.close)
	server.Host = listener.Addr().String()
	pool, err := postgres.Open(t.Context(), postgres.Config{URL: server.String(), Role: postgres.ServiceRole, MaxConns: 4, Name: "behind the proxy"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return p, pool
}

// lose adds a rule.
func (p *proxy) lose(l loss) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append(p.rules, &l)
}

// left is how many losses are still to come.
func (p *proxy) left() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.rules {
		n += r.times
	}
	return n
}

// setDown breaks every connection and refuses new ones, or lets them through again.
func (p *proxy) setDown(down bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = down
	if down {
		for c := range p.conns {
			_ = c.Close()
		}
	}
}

func (p *proxy) close() {
	p.setDown(true)
	_ = p.listener.Close()
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.DialTimeout("tcp", p.target, 5*time.Second)
		p.mu.Lock()
		if err != nil || p.down {
			_ = client.Close()
			if err == nil {
				_ = server.Close()
			}
		} else {
			p.conns[client], p.conns[server] = true, true
			go p.serve(client, server)
		}
		p.mu.Unlock()
	}
}

func (p *proxy) serve(client, server net.Conn) {
	var mute sync.Mutex // held by whoever decides what becomes of the server's answers
	lost := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer client.Close()
		_, _ = io.Copy(gate{client, &mute, lost}, server)
	}()
	_ = p.pump(client, server, &mute, lost)
	_ = server.Close()
	<-done
	p.mu.Lock()
	delete(p.conns, client)
	delete(p.conns, server)
	p.mu.Unlock()
}

// gate passes the server's answers on until they are to be lost; then it ends the connection at the
// first message that says the server is ready again: what was asked for is done.
type gate struct {
	to   io.Writer
	mu   *sync.Mutex
	lost <-chan struct{}
}

var errLost = errors.New("the answer is lost")

func (g gate) Write(b []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.lost:
		return 0, errLost // the server sends an answer once the statement is done and committed
	default:
		return g.to.Write(b)
	}
}

// pump passes the client's messages on and knows the statement behind each execution.
func (p *proxy) pump(client io.Reader, server io.Writer, mute *sync.Mutex, lost chan<- struct{}) error {
	length := make([]byte, 4)
	if _, err := io.ReadFull(client, length); err != nil { // the startup message has no type
		return err
	}
	startup := make([]byte, binary.BigEndian.Uint32(length)-4)
	if _, err := io.ReadFull(client, startup); err != nil {
		return err
	}
	if _, err := server.Write(append(length, startup...)); err != nil {
		return err
	}
	prepared, bound := map[string]string{}, ""
	for {
		kind, body, err := readMessage(client)
		if err != nil {
			return err
		}
		statement := ""
		switch kind {
		case 'P':
			name, rest, _ := strings.Cut(string(body), "\x00")
			prepared[name], _, _ = strings.Cut(rest, "\x00")
		case 'B':
			_, rest, _ := strings.Cut(string(body), "\x00")
			name, _, _ := strings.Cut(rest, "\x00")
			bound = prepared[name]
		case 'E':
			statement = bound
		case 'Q':
			statement = string(body)
		}
		if rule := p.hit(statement); rule != nil {
			if !rule.executed {
				return errLost
			}
			mute.Lock()
			close(lost)
			mute.Unlock()
		}
		if err := writeMessage(server, kind, body); err != nil {
			return err
		}
	}
}

func (p *proxy) hit(statement string) *loss {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.rules {
		if statement != "" && r.times > 0 && strings.Contains(statement, r.statement) {
			r.times--
			return r
		}
	}
	return nil
}

func readMessage(from io.Reader) (kind byte, body []byte, err error) {
	head := make([]byte, 5)
	if _, err := io.ReadFull(from, head); err != nil {
		return 0, nil, err
	}
	body = make([]byte, binary.BigEndian.Uint32(head[1:])-4)
	_, err = io.ReadFull(from, body)
	return head[0], body, err
}

func writeMessage(to io.Writer, kind byte, body []byte) error {
	message := append([]byte{kind, 0, 0, 0, 0}, body...)
	binary.BigEndian.PutUint32(message[1:], uint32(len(body))+4)
	_, err := to.Write(message)
	return err
}

package shared

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	channel = "paymentsd_breakers" // as in breaker_enter_v1
	// helloEvery is how long silence is believed; then the listener is told something by way of the
	// pool, and has helloTime to hear it. A dead connection, and a pooler that swallows notifications,
	// look like silence.
	helloEvery = 10 * time.Second
	helloTime  = 2 * time.Second
	// listenPause is the wait before listening is tried again.
	listenPause = 250 * time.Millisecond
)

const sayHello = `select pg_notify(@channel, '')`

var errDeaf = errors.New("a notification of our own was not heard: is a transaction pooler in between?")

// listenLoop listens until the end; while it cannot, the flushes are the poll that stands in.
func (s *Shared) listenLoop(first chan<- error) {
	pause := listenPause
	for {
		began := s.now()
		err := s.listen(func() { first, _ = answer(first, nil) })
		s.listening.Store(false)
		if s.ctx.Err() != nil {
			return
		}
		var pending bool
		if first, pending = answer(first, err); pending {
			return // Open decides whether to try again
		}
		s.log.Warn("not listening for breakers: learning of them by polling", "error", err)
		if s.now()-began > helloEvery {
			pause = listenPause
		}
		if !s.pause(spread(pause)) {
			return
		}
		pause = min(pause*2, 16*listenPause)
	}
}

// answer gives an answer to who waits for the first, if anyone does.
func answer(first chan<- error, err error) (chan<- error, bool) {
	if first == nil {
		return nil, false
	}
	first <- err
	return nil, true
}

// listen first listens and then has everything read, so that nothing falls between the two.
func (s *Shared) listen(ready func()) error {
	ctx, cancel := context.WithTimeout(s.ctx, 2*connectTimeMax)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, s.listenConfig.Copy())
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), connectTimeMax)
		defer cancel()
		_ = conn.Close(ctx)
	}()
	hello := "paymentsd_hello_" + s.replica[strings.LastIndexByte(s.replica, '/')+1:]
	for _, name := range []string{channel, hello} {
		if _, err := conn.Exec(ctx, "listen "+pgx.Identifier{name}.Sanitize()); err != nil {
			return err
		}
	}
	s.listening.Store(true)
	ready()
	s.flushNow()
	return s.hear(conn, hello)
}

func (s *Shared) hear(conn *pgx.Conn, hello string) error {
	greeted := false
	for {
		patience := helloEvery
		if greeted {
			patience = helloTime
		}
		ctx, cancel := context.WithTimeout(s.ctx, patience)
		n, err := conn.WaitForNotification(ctx)
		quiet := ctx.Err() != nil
		cancel()
		switch {
		case s.ctx.Err() != nil:
			return s.ctx.Err()
		case err == nil:
			greeted = false
			if n.Channel == channel {
				s.heard(n.Payload)
			}
		case quiet && !conn.IsClosed() && greeted:
			return errDeaf
		case quiet && !conn.IsClosed():
			greeted = s.hello(hello)
		default:
			return fmt.Errorf("the connection that listens was lost: %w", err)
		}
	}
}

// hello says something that the listener must hear. If even that fails, the store is away, and the
// flushes say so.
func (s *Shared) hello(name string) bool {
	ctx, cancel := context.WithTimeout(s.ctx, storeTimeMax)
	defer cancel()
	_, err := s.store.db.Exec(ctx, sayHello, pgx.NamedArgs{"channel": name})
	return err == nil
}

// heard takes a notification.
func (s *Shared) heard(payload string) {
	r, err := parseRow(payload)
	if err != nil {
		s.log.Warn("a notification cannot be read", "error", err)
		s.flushNow()
		return
	}
	if a := s.account(r.Acquirer); a != nil {
		a.breaker.apply(r)
	}
}

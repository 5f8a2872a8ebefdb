package acquirertest

import (
	"context"
	"fmt"
	"net/http/httputil"
	"strings"
	"sync"
	"testing"

	"paymentsd/acquirer"
)

func reusedDies(t *testing.T, s suite) {
	x := s.load(t, "captured")
	server := listen(t, func(c *conn) {
		if _, err := c.next(); err == nil {
			c.send(x.response)
			_, _ = c.next() // taken, and then silence
		}
	})
	a := s.adapter(t, server.url(), patience)
	wantAnswer(t, capture(context.Background(), t, a), acquirer.Captured, false)
	wantAnswer(t, capture(context.Background(), t, a), acquirer.Unclear, true)
	if c, n := server.connections(), len(server.requests()); c != 1 || n != 2 {
		t.Errorf("%d requests over %d connections; want 2 over 1: a request with a key was sent again", n, c)
	}
}

func idleClosed(t *testing.T, s suite) { idleEnds(t, s, func(c *conn) { _ = c.Close() }) }
func idleReset(t *testing.T, s suite)  { idleEnds(t, s, (*conn).reset) }

// idleEnds ends the connection between two captures: the second must not be lost on it.
func idleEnds(t *testing.T, s suite, end func(*conn)) {
	x := s.load(t, "captured")
	goOn, ended := make(chan struct{}), make(chan struct{})
	var first sync.Once
	server := listen(t, func(c *conn) {
		if _, err := c.next(); err != nil {
			return
		}
		c.send(x.response)
		first.Do(func() {
			<-goOn
			end(c)
			close(ended)
		})
	})
	a := s.adapter(t, server.url(), patience)
	wantAnswer(t, capture(context.Background(), t, a), acquirer.Captured, false)
	close(goOn)
	<-ended
	wantAnswer(t, capture(context.Background(), t, a), acquirer.Captured, false)
	if c, n := server.connections(), len(server.requests()); c != 2 || n != 2 {
		t.Errorf("%d requests over %d connections; want 2 over 2", n, c)
	}
}

func sameBytes(t *testing.T, s suite) {
	x := s.load(t, "unclear_error")
	server := listen(t, func(c *conn) {
		for {
			if _, err := c.next(); err != nil {
				return
			}
			c.send(x.response)
		}
	})
	a := s.adapter(t, server.url(), patience)
	for range 3 {
		capture(context.Background(), t, a)
	}
	requests := server.requests()
	if len(requests) != 3 {
		t.Fatalf("%d requests arrived, want 3", len(requests))
	}
	first := text(t, requests[0])
	if !strings.Contains(first, Ref) {
		t.Errorf("the reference is not in the request:\n%s", first)
	}
	for n, r := range requests[1:] {
		if got := text(t, r); got != first {
			t.Errorf("try %d differs from the first:\n%s\nfirst:\n%s", n+2, got, first)
		}
	}
}

func keysUnderLoad(t *testing.T, s suite) {
	const captures, workers = 64, 16
	x := s.load(t, "captured")
	server := listen(t, func(c *conn) {
		for {
			if _, err := c.next(); err != nil {
				return
			}
			c.send(x.response)
		}
	})
	a := s.adapter(t, server.url(), patience)
	refs := make(chan string)
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for ref := range refs {
				req := request(t, "49.99", "USD")
				req.Ref = ref
				// The recorded answer names another capture: it proves nothing about this one.
				if got := a.Capture(context.Background(), req); got.Class != acquirer.Unclear {
					t.Errorf("%s: class %s on the answer to another capture", ref, got.Class)
				}
			}
		})
	}
	for n := range captures {
		refs <- fmt.Sprintf("K7QF2ZREC0RDED9%05d", n)
	}
	close(refs)
	running.Wait()
	if n := len(server.requests()); n != captures {
		t.Errorf("%d requests arrived for %d captures", n, captures)
	}
	seen := map[string]bool{}
	for _, r := range server.requests() {
		whole := text(t, r)
		ref := r.Header.Get("Idempotency-Key")
		seen[ref] = true
		if mentions, own := strings.Count(whole, "K7QF2ZREC0RDED9"), strings.Count(whole, ref); mentions != own {
			t.Errorf("the request of %s names another capture:\n%s", ref, whole)
		}
	}
	if len(seen) != captures {
		t.Errorf("%d keys on the wire for %d captures", len(seen), captures)
	}
}

// text is a request as it was on the wire.
func text(t *testing.T, r received) string {
	t.Helper()
	head, err := httputil.DumpRequest(r.Request, false)
	if err != nil {
		t.Fatal(err)
	}
	return string(head) + string(r.body)
}

func lookupFaults(t *testing.T, s suite) {
	if !s.adapter(t, "http://127.0.0.1:1", patience).Capabilities().LooksUpByReference {
		wantFound(t, s.adapter(t, "http://127.0.0.1:1", patience).Lookup(context.Background(), Ref), acquirer.FoundUnclear)
		return
	}
	x := s.load(t, "lookup_captured")
	for name, then := range map[string]func(*conn){
		"hung up":           func(*conn) {},
		"reset":             (*conn).reset,
		"reset in mid-body": func(c *conn) { c.send(half(x)); c.reset() },
		"ended in mid-body": func(c *conn) { c.send(half(x)) },
		"timeout":           (*conn).hang,
		"endless body":      func(c *conn) { endlessBody(c, x) },
	} {
		server := listen(t, func(c *conn) {
			if _, err := c.next(); err == nil {
				then(c)
			}
		})
		got := s.adapter(t, server.url(), 20*impatience).Lookup(context.Background(), Ref)
		if got.Found != acquirer.FoundUnclear {
			t.Errorf("%s: found %s", name, got.Found)
		}
	}
	closed := listen(t, func(*conn) {})
	_ = closed.listener.Close()
	wantFound(t, s.adapter(t, closed.url(), patience).Lookup(context.Background(), Ref), acquirer.FoundUnclear)
}

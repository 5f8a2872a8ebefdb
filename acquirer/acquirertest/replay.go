package acquirertest

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"paymentsd/acquirer"
)

// exchange is one recorded exchange.
type exchange struct {
	request  *http.Request
	body     []byte // of the request
	response []byte // exactly as it goes over the wire
}

// load reads NAME.txtar. Heads are written with plain line ends; a response without a
// Content-Length gets the right one, so that a wrong one can be recorded.
func (s suite) load(t *testing.T, name string) exchange {
	t.Helper()
	data, err := fs.ReadFile(s.opts.Exchanges, name+".txtar")
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string][]byte{}
	for _, f := range txtar.Parse(data).Files {
		sections[f.Name] = f.Data
	}
	head, body := cutMessage(sections["request"])
	req, err := http.ReadRequest(bufio.NewReader(strings.NewReader(head)))
	if err != nil {
		t.Fatalf("%s: request: %v", name, err)
	}
	x := exchange{request: req, body: body}
	head, body = cutMessage(sections["response"])
	if !strings.HasPrefix(head, "HTTP/1.1 ") {
		t.Fatalf("%s: response: no status line", name)
	}
	if !strings.Contains(strings.ToLower(head), "\r\ncontent-length:") {
		head = strings.TrimSuffix(head, "\r\n") + fmt.Sprintf("Content-Length: %d\r\n\r\n", len(body))
	}
	x.response = append([]byte(head), body...)
	return x
}

// cutMessage splits head from body and gives the head its CRLFs and blank line.
func cutMessage(message []byte) (head string, body []byte) {
	before, after, _ := bytes.Cut(bytes.TrimSuffix(message, []byte("\n")), []byte("\n\n"))
	return strings.ReplaceAll(strings.TrimSuffix(string(before), "\n"), "\n", "\r\n") + "\r\n\r\n", after
}

// replay plays one recorded exchange and judges both sides of it.
func (s suite) replay(t *testing.T, sc Scenario) {
	x := s.load(t, sc.Name)
	server := listen(t, func(c *conn) {
		if _, err := c.next(); err == nil {
			c.send(x.response)
		}
	})
	a := s.adapter(t, server.url(), patience)
	if sc.Found != "" {
		got := a.Lookup(context.Background(), Ref)
		wantFound(t, got, sc.Found)
		if want := request(t, "49.99", "USD").Amount; sc.Found == acquirer.FoundCaptured && !got.Amount.Equal(want) {
			t.Errorf("found %s %s, want %s %s", got.Amount, got.Amount.Currency(), want, want.Currency())
		}
	} else {
		req := request(t, "49.99", "USD")
		if sc.Amount != "" {
			req = request(t, sc.Amount, sc.Currency)
		}
		got := a.Capture(context.Background(), req)
		wantAnswer(t, got, sc.Class, sc.Failure)
		if got.RetryAfter != sc.RetryAfter {
			t.Errorf("retry after %s, want %s", got.RetryAfter, sc.RetryAfter)
		}
		if got.HTTPStatus == 0 {
			t.Error("there was a response, but the answer has no status")
		}
	}
	requests := server.requests()
	if len(requests) != 1 {
		t.Fatalf("%d requests arrived, want exactly one", len(requests))
	}
	wantRequest(t, requests[0], x)
}

// wantRequest compares what arrived with what was recorded: the recorded headers must be there as
// they are, others may be.
func wantRequest(t *testing.T, got received, x exchange) {
	t.Helper()
	if got.Method != x.request.Method || got.URL.RequestURI() != x.request.URL.RequestURI() {
		t.Errorf("sent %s %s, recorded %s %s", got.Method, got.URL.RequestURI(), x.request.Method, x.request.URL.RequestURI())
	}
	for name, want := range x.request.Header {
		if have := got.Header[name]; strings.Join(have, "|") != strings.Join(want, "|") {
			t.Errorf("sent %s: %q, recorded %q", name, have, want)
		}
	}
	if !bytes.Equal(got.body, x.body) {
		t.Errorf("sent body\n%s\nrecorded\n%s", got.body, x.body)
	}
}

// received is one request as it arrived.
type received struct {
	*http.Request
	body []byte
}

func receive(r *bufio.Reader) (received, error) {
	req, err := http.ReadRequest(r)
	if err != nil {
		return received{}, err
	}
	body, err := io.ReadAll(req.Body)
	return received{req, body}, err
}

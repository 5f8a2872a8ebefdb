package sim_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"paymentsd/acquirer"
	"paymentsd/acquirer/rest"
	"paymentsd/acquirer/sim"
	"paymentsd/money"
)

// patience bounds waits that are expected to end by themselves.
const patience = 10 * time.Second

// start runs a simulator on a port of its own.
func start(t *testing.T, cfg sim.Config) (*sim.Sim, *sim.Server) {
	t.Helper()
	s, err := sim.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	srv, err := sim.Serve(s, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s, srv
}

// adapterTo is our own adapter, as the service uses it.
func adapterTo(t *testing.T, url string, timeout time.Duration) acquirer.Acquirer {
	t.Helper()
	a, err := rest.New(acquirer.Config{Name: "north", URL: url, Timeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func usd(t *testing.T, s string) money.Amount {
	t.Helper()
	a, err := money.Parse(s, "USD")
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func capture(t *testing.T, a acquirer.Acquirer, ref, token string) acquirer.Answer {
	t.Helper()
	return a.Capture(context.Background(), acquirer.CaptureRequest{Ref: ref, Amount: usd(t, "49.99"), PaymentMethod: token})
}

// captureUntil asks for a capture and hangs up as soon as a condition holds at the acquirer.
func captureUntil(t *testing.T, a acquirer.Acquirer, ref, token, what string, condition func() bool) acquirer.Answer {
	t.Helper()
	ctx, hangUp := context.WithCancel(t.Context())
	defer hangUp()
	req := acquirer.CaptureRequest{Ref: ref, Amount: usd(t, "49.99"), PaymentMethod: token}
	answers := make(chan acquirer.Answer, 1)
	go func() { answers <- a.Capture(ctx, req) }()
	eventually(t, what, condition)
	hangUp()
	return <-answers
}

// answer is a response as raw as a test needs it.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func (a answer) field(t *testing.T, name string) string {
	t.Helper()
	var fields map[string]any
	if err := json.Unmarshal(a.body, &fields); err != nil {
		t.Fatalf("the answer is no JSON object: %s", a.body)
	}
	if fields[name] == nil {
		return ""
	}
	return fmt.Sprint(fields[name])
}

func do(t *testing.T, method, url, body string, headers ...string) answer {
	t.Helper()
	req, err := http.NewRequest(method, url, bytes.NewReader([]byte(body)))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for n := 0; n+1 < len(headers); n += 2 {
		req.Header.Set(headers[n], headers[n+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, data}
}

// order posts a capture of 49.99 USD.
func order(t *testing.T, url, key, token string) answer {
	t.Helper()
	return do(t, http.MethodPost, url+"/v1/captures",
		fmt.Sprintf(`{"reference":%q,"amount_minor":4999,"currency":"USD","payment_method":%q}`, key, token), "Idempotency-Key", key)
}

// clock is a time that only tests move.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("it never happened: %s", what)
		}
	}
}

// handler is a simulator without a network.
type handler struct{ http.Handler }

func handlerOf(s *sim.Sim) handler { return handler{s.Handler()} }

func (h handler) post(body, key string) answer {
	r := httptest.NewRequest(http.MethodPost, "/v1/captures", bytes.NewReader([]byte(body)))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", key)
	return h.serve(r)
}

func (h handler) get(path string) answer {
	return h.serve(httptest.NewRequest(http.MethodGet, path, nil))
}

func (h handler) serve(r *http.Request) answer {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return answer{w.Code, w.Header(), w.Body.Bytes()}
}

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// shop is a checkout backend: it posts charges to one service and reads the answers.
type shop struct {
	url, key string
	prefer   string // the Prefer header, if any
	client   *http.Client
}

func (w *world) shop(s *service) *shop { return newShop(s.URL, w.chargesKey) }

func newShop(url, key string) *shop {
	return &shop{url: url, key: key, client: &http.Client{Timeout: waitMax, Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
}

// order is a charge as a shop asks for it.
type order struct {
	Amount          string `json:"amount"`
	Currency        string `json:"currency"`
	Reference       string `json:"reference,omitempty"`
	PaymentMethod   string `json:"payment_method"`
	AllowConcurrent bool   `json:"allow_concurrent,omitempty"`
}

// with is a plain order paid by a token, which says how the acquirer behaves.
func with(token string) order { return order{Amount: "49.99", Currency: "USD", PaymentMethod: token} }

// reply is an answer of the API: a charge or a problem.
type reply struct {
	status   int
	header   http.Header
	text     string
	ID       string `json:"id"`
	ChargeID string `json:"charge_id"`
	State    any    `json:"status"` // a charge's state, or a problem's number
	Code     string `json:"code"`
	Reason   string `json:"reason"`
	Acquirer string `json:"acquirer"`
	AcqRef   string `json:"acquirer_reference"`
	Evidence string `json:"evidence"`
	Retry    bool   `json:"retryable"`
}

func (r reply) replayed() bool { return r.header.Get("Idempotent-Replayed") == "true" }

func (r reply) String() string { return fmt.Sprintf("%d %s", r.status, r.text) }

// post sends a charge. An error means that no whole answer came.
func (s *shop) post(ctx context.Context, key string, o order) (reply, error) {
	body, err := json.Marshal(o)
	if err != nil {
		return reply{}, err
	}
	return s.postJSON(ctx, "/v1/charges", key, string(body))
}

func (s *shop) postJSON(ctx context.Context, path, key, body string) (reply, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+path, strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	request.Header.Set("Content-Type", "application/json")
	if key != "" {
		request.Header.Set("Idempotency-Key", key)
		// With a key net/http would send the request again by itself; here every send has to be ours.
		request.GetBody = nil
	}
	return s.send(request)
}

func (s *shop) get(ctx context.Context, path string) (reply, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, nil)
	if err != nil {
		return reply{}, err
	}
	return s.send(request)
}

const replyMax = 1 << 20

func (s *shop) send(request *http.Request) (reply, error) {
	request.Header.Set("Authorization", "Bearer "+s.key)
	if s.prefer != "" {
		request.Header.Set("Prefer", s.prefer)
	}
	response, err := s.client.Do(request)
	if err != nil {
		return reply{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, replyMax))
	if err != nil {
		return reply{}, err
	}
	r := reply{status: response.StatusCode, header: response.Header, text: string(text)}
	if err := json.Unmarshal(text, &r); err != nil {
		return reply{}, fmt.Errorf("answer %d is not JSON: %.200q", r.status, text)
	}
	return r, nil
}

// charge posts and fails the test if no whole answer comes.
func (s *shop) charge(t *testing.T, key string, o order) reply {
	t.Helper()
	r, err := s.post(t.Context(), key, o)
	if err != nil {
		t.Fatalf("post under %q: %v", key, err)
	}
	return r
}

// lose posts in the background a charge whose answer does not matter. The channel closes when it is over.
func (s *shop) lose(ctx context.Context, key string, o order) <-chan struct{} {
	over := make(chan struct{})
	go func() {
		defer close(over)
		_, _ = s.post(ctx, key, o) // the service is about to be killed, or the client hangs up
	}()
	return over
}

// insist posts the same charge until it is not in flight any more, as a client has to.
func (s *shop) insist(t *testing.T, key string, o order) reply {
	t.Helper()
	var r reply
	until(t, "charge "+key+" is still in flight", func() bool {
		r = s.charge(t, key, o)
		if r.status != http.StatusConflict {
			return true
		}
		if r.Code != "idempotency_key_in_flight" || !r.Retry || r.header.Get("Retry-After") == "" || r.ChargeID == "" {
			t.Fatalf("a conflict that is not in flight, or does not say how to go on: %v", r)
		}
		time.Sleep(50 * time.Millisecond) // a client's pause
		return false
	})
	return r
}

// want fails the test unless the answer is this one.
func (r reply) want(t *testing.T, status int, state string) {
	t.Helper()
	if r.status != status || (state != "" && r.State != state) {
		t.Errorf("answer %v; want %d %s", r, status, state)
	}
}

package payment

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"paymentsd/acquirer"
	"paymentsd/acquirer/rest"
)

// outgoing is an acquirer that refuses the first tries and keeps what it was sent.
type outgoing struct {
	mu      sync.Mutex
	refuse  int
	headers []http.Header
	lengths []int64
	bodies  []string
}

func (o *outgoing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body) // a body that breaks off differs from the others
	o.mu.Lock()
	defer o.mu.Unlock()
	o.headers, o.lengths, o.bodies = append(o.headers, r.Header.Clone()), append(o.lengths, r.ContentLength), append(o.bodies, string(body))
	w.Header().Set("Content-Type", "application/json")
	if len(o.bodies) <= o.refuse {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, `{"code": "unavailable", "processed": false}`)
		return
	}
	var sent map[string]any
	_ = json.Unmarshal(body, &sent)
	sent["status"], sent["id"] = "captured", "cap_1"
	delete(sent, "payment_method")
	delete(sent, "description")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(sent)
}

// shopAt is a shop whose only acquirer is o, over HTTP, with an attempt timeout.
func (o *outgoing) shopAt(t *testing.T, timeout time.Duration) *shop {
	t.Helper()
	server := httptest.NewServer(o)
	t.Cleanup(server.Close)
	adapter, err := rest.New(acquirer.Config{Name: "north", URL: server.URL, Timeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	return openShop(t, []named{{"north", adapter, plainly()}})
}

func TestWhatGoesOut(t *testing.T) {
	t.Parallel()
	t.Run("resilience case 28: every try has the same bytes, the same length and the same key", func(t *testing.T) {
		t.Parallel()
		o := &outgoing{refuse: 2}
		s := o.shopAt(t, 5*time.Second)
		result := s.charge(s.request("k"))
		wantStatus(t, result, Captured)
		if len(o.bodies) != 3 {
			t.Fatalf("%d tries, want 3", len(o.bodies))
		}
		for i := range o.bodies {
			if o.bodies[i] == "" || o.bodies[i] != o.bodies[0] || o.lengths[i] != int64(len(o.bodies[0])) || o.headers[i].Get("Idempotency-Key") != result.Charge.AcqRef {
				t.Errorf("try %d sent %d bytes under %q: %s; the first: %s", i+1, o.lengths[i], o.headers[i].Get("Idempotency-Key"), o.bodies[i], o.bodies[0])
			}
		}
	})
	for name, c := range map[string]struct {
		timeout, patience time.Duration // of an attempt, of the caller (0: none was given)
		most              float64
	}{
		"the caller's patience, where it ends first": {timeout: 8 * time.Second, patience: 6 * time.Second, most: 6},
		"the attempt's timeout, where it ends first": {timeout: 2500 * time.Millisecond, patience: 15 * time.Second, most: 2.5},
		"the attempt's timeout, for who waits on":    {timeout: 2500 * time.Millisecond, most: 2.5},
	} {
		t.Run("the call carries what is left: "+name, func(t *testing.T) {
			t.Parallel()
			o := &outgoing{refuse: 1}
			s := o.shopAt(t, c.timeout)
			req := s.request("k")
			if c.patience > 0 {
				req.Deadline = time.Now().Add(c.patience)
			}
			wantStatus(t, s.charge(req), Captured)
			last := c.most
			for i, h := range o.headers {
				left, err := strconv.ParseFloat(h.Get("Request-Timeout"), 64)
				if err != nil || left <= 0 || left > last {
					t.Errorf("try %d said Request-Timeout %q, want more than 0 and at most %v", i+1, h.Get("Request-Timeout"), last)
				}
				last = left
			}
		})
	}
}

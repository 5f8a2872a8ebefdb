package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
)

// breaker is an acquirer's breaker as one replica shows it.
type breaker struct {
	State         string `json:"state"`
	Mode          string `json:"mode"`
	Epoch         int64  `json:"epoch"`
	Reason        string `json:"reason"`
	ProbeInFlight bool   `json:"probe_in_flight"`
}

// seenAcquirer is an element of GET /v1/acquirers.
type seenAcquirer struct {
	Name    string  `json:"name"`
	Breaker breaker `json:"breaker"`
	Sharing struct {
		Replica      string `json:"replica"`
		HeldBack     string `json:"held_back"`
		StoreAnswers bool   `json:"store_answers"`
		Learning     string `json:"learning"`
	} `json:"sharing"`
	Reports []struct {
		Replica            string
		Attempts, Failures int64
	} `json:"reports"`
}

// acquirerAt asks one replica how an acquirer stands.
func (w *world) acquirerAt(ctx context.Context, s *service, name string) (seenAcquirer, error) {
	r, err := newShop(s.URL, w.opsKey).get(ctx, "/v1/acquirers")
	if err != nil || r.status != http.StatusOK {
		return seenAcquirer{}, fmt.Errorf("GET /v1/acquirers: %v, %w", r, err)
	}
	var list struct{ Data []seenAcquirer }
	if err := json.Unmarshal([]byte(r.text), &list); err != nil {
		return seenAcquirer{}, err
	}
	for _, a := range list.Data {
		if a.Name == name {
			return a, nil
		}
	}
	return seenAcquirer{}, fmt.Errorf("no %s in %s", name, r.text)
}

// awaitBreaker waits until north's breaker is in a state on every one of the replicas.
func (w *world) awaitBreaker(t *testing.T, state string, all ...*service) (last breaker) {
	t.Helper()
	for _, s := range all {
		until(t, "north's breaker is "+state, func() bool {
			a, err := w.acquirerAt(t.Context(), s, "north")
			last = a.Breaker
			return err == nil && a.Breaker.State == state
		})
	}
	return last
}

package api_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"paymentsd/internal/pgtest"
)

// seenAcquirer is what the tests read of an acquirer.
type seenAcquirer struct {
	Name    string
	Breaker struct {
		State, Mode, Reason string
		Epoch, Attempts     int64
	}
	Sharing struct {
		Replica, Learning string
		StoreAnswers      bool `json:"store_answers"`
	}
	Reports []struct {
		Replica  string
		Attempts int64
	}
	ReportsError     string `json:"reports_error"`
	Transitions      []struct{ From, To, Mode, Reason, Replica string }
	TransitionsError string `json:"transitions_error"`
}

func (w *world) acquirer(name string) seenAcquirer {
	w.t.Helper()
	a := w.ask(http.MethodGet, "/v1/acquirers/"+name, "ops key", "")
	w.expect(a, http.StatusOK, "")
	var v seenAcquirer
	if err := json.Unmarshal([]byte(a.body), &v); err != nil {
		w.t.Fatal(err)
	}
	return v
}

func TestAcquirerShowsWhatTheReplicasReported(t *testing.T) {
	t.Parallel()
	w := newSharedWorld(t)
	w.expect(w.charge("k", goodCharge), http.StatusCreated, "")
	w.flushes()
	v := w.acquirer("north")
	if len(v.Reports) != 1 || v.Reports[0].Attempts != 1 || v.Reports[0].Replica != v.Sharing.Replica || len(v.Transitions) != 0 {
		t.Errorf("after one charge: %+v", v)
	}
	w.expect(w.ask(http.MethodPost, "/v1/acquirers/north/breaker", "ops key", `{"mode": "open", "reason": "maintenance"}`), http.StatusOK, "")
	v = w.acquirer("north")
	if len(v.Transitions) != 1 || v.Transitions[0].From != "closed" || v.Transitions[0].To != "open" || v.Transitions[0].Replica != v.Sharing.Replica {
		t.Errorf("after it was opened: %+v", v)
	}
}

// Whoever looks while the store is away sees what this replica knows, and why there is no more.
func TestAcquirersAreShownWithoutTheStore(t *testing.T) {
	t.Parallel()
	w := newSharedWorld(t)
	before := w.acquirer("north") // the key is known from now on
	w.wire.Set(pgtest.Cut)
	v := w.acquirer("north")
	if v.Breaker != before.Breaker || v.Reports != nil || v.Transitions != nil || v.ReportsError == "" || v.TransitionsError == "" {
		t.Errorf("%+v, before %+v", v, before)
	}
	list := w.ask(http.MethodGet, "/v1/acquirers", "ops key", "")
	w.expect(list, http.StatusOK, "")
	// An order that cannot be audited is not carried out.
	w.expect(w.ask(http.MethodPost, "/v1/acquirers/north/breaker", "ops key", `{"mode": "open", "reason": "maintenance"}`),
		http.StatusServiceUnavailable, "store_unavailable")
	if v := w.acquirer("north"); v.Breaker.Mode != "automatic" {
		t.Errorf("%+v", v)
	}
}

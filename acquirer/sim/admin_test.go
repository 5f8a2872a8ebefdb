package sim_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"paymentsd/acquirer/sim"
)

func TestStatsBySecond(t *testing.T) {
	t.Parallel()
	now := newClock()
	s, srv := start(t, sim.Config{Name: "north", Now: now.Now})
	begin := now.Now()
	for second, requests := range []int{2, 0, 3} {
		for n := range requests {
			order(t, srv.URL(), fmt.Sprintf("K%d-%d", second, n), "tok_ok")
		}
		now.Advance(time.Second)
	}
	order(t, srv.URL(), "K0-0", "tok_ok")
	want := []sim.Second{
		{At: begin, Requests: 2, Captures: 2},
		{At: begin.Add(2 * time.Second), Requests: 3, Captures: 3},
		{At: begin.Add(3 * time.Second), Requests: 1},
	}
	var got sim.Stats
	if err := json.Unmarshal(do(t, http.MethodGet, srv.URL()+"/admin/stats", "").body, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got.PerSecond); diff != "" {
		t.Error(diff)
	}
	if got.Name != "north" || got.Requests != 6 || got.Captures != 5 || got.DuplicatesSuppressed != 1 || len(got.CapturesByKey) != 5 || got.CapturesByKey["K0-0"] != 1 {
		t.Errorf("%+v", got)
	}
	now.Advance(time.Hour)
	if old := s.Stats().PerSecond; len(old) != 0 {
		t.Errorf("after an hour %d seconds are left", len(old))
	}
}

func TestBookIsListedInPages(t *testing.T) {
	t.Parallel()
	_, srv := start(t, sim.Config{})
	for n := range 5 {
		order(t, srv.URL(), fmt.Sprint("K", n), "tok_ok")
	}
	order(t, srv.URL(), "K5", "tok_declined")
	type page struct {
		Captures []struct {
			ID, Reference, Key, Status, Currency string
			AmountMinor                          int `json:"amount_minor"`
			At                                   time.Time
		}
		HasMore bool `json:"has_more"`
	}
	var keys []string
	after := ""
	for pages := 1; ; pages++ {
		var p page
		if err := json.Unmarshal(do(t, http.MethodGet, srv.URL()+"/admin/captures?limit=4&after="+after, "").body, &p); err != nil {
			t.Fatal(err)
		}
		for _, c := range p.Captures {
			keys = append(keys, c.Key+" "+c.Status)
			after = c.ID
			if c.AmountMinor != 4999 || c.Currency != "USD" || c.At.IsZero() || c.Reference != c.Key {
				t.Errorf("%+v", c)
			}
		}
		if !p.HasMore {
			break
		}
		if pages > 2 {
			t.Fatal("more pages than there are")
		}
	}
	want := []string{"K0 captured", "K1 captured", "K2 captured", "K3 captured", "K4 captured", "K5 declined"}
	if diff := cmp.Diff(want, keys); diff != "" {
		t.Error(diff)
	}
	var one page
	if err := json.Unmarshal(do(t, http.MethodGet, srv.URL()+"/admin/captures?reference=K3", "").body, &one); err != nil || len(one.Captures) != 1 {
		t.Errorf("by reference: %+v, %v", one, err)
	}
}

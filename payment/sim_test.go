package payment

import (
	"testing"
	"time"

	"paymentsd/acquirer"
	"paymentsd/acquirer/rest"
	"paymentsd/acquirer/sim"
)

// simulated is an acquirer of its own on a port of its own, and the adapter that speaks to it.
type simulated struct {
	*sim.Sim
	t       *testing.T
	adapter acquirer.Acquirer
}

// callTimeout is how long the adapter waits for a simulated acquirer; only requests that hold the
// connection on purpose take it.
const callTimeout = 250 * time.Millisecond

func simulate(t *testing.T, config sim.Config, settings map[string]string) *simulated {
	t.Helper()
	s, err := sim.New(config)
	if err != nil {
		t.Fatal(err)
	}
	server, err := sim.Serve(s, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	adapter, err := rest.New(acquirer.Config{Name: config.Name, URL: server.URL(), Timeout: callTimeout, Settings: settings})
	if err != nil {
		t.Fatal(err)
	}
	return &simulated{Sim: s, t: t, adapter: adapter}
}

func (s *simulated) set(faults ...sim.Fault) {
	s.t.Helper()
	if err := s.SetFaults(faults...); err != nil {
		s.t.Fatal(err)
	}
}

// wantCaptures checks how often money moved there, and how many requests reached it (-1: any number).
func (s *simulated) wantCaptures(captures, requests int) {
	s.t.Helper()
	stats := s.Stats()
	if stats.Captures != captures || (requests >= 0 && stats.Requests != requests) {
		s.t.Errorf("acquirer %s: %d captures from %d requests, want %d from %d", stats.Name, stats.Captures, stats.Requests, captures, requests)
	}
}

// simulatedShop opens a Service that has the acquirers north and south, in this order.
func (b *books) simulatedShop(t *testing.T, changes ...opening) (s *shop, north, south *simulated) {
	t.Helper()
	north = simulate(t, sim.Config{Name: "north"}, nil)
	south = simulate(t, sim.Config{Name: "south"}, nil)
	return b.shop(t, []named{{"north", north.adapter, plainly()}, {"south", south.adapter, plainly()}}, changes...), north, south
}

package e2e

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"paymentsd/acquirer/sim"
)

// Fifty identical requests, again and again, over three processes that share nothing but the database.
func TestParallelDuplicates(t *testing.T) {
	t.Parallel()
	const replicas, requests, repetitions = 3, 50, 20
	w := newWorld(t, options{limits: ordinary(), sim: sim.Config{Latency: 30 * time.Millisecond}})
	var shops []*shop
	for range replicas {
		shops = append(shops, w.shop(w.start()))
	}
	t.Run("idempotency case 11: 50 parallel identical POSTs over 3 pods make one capture", func(t *testing.T) {
		for n := range repetitions {
			key := fmt.Sprintf("order-%d", n)
			o := order{Amount: "12.00", Currency: "EUR", Reference: key, PaymentMethod: "tok_ok"}
			replies := burst(t, shops, requests, key, o)
			oneCapture(w.in(t), key, replies)
			for _, s := range shops {
				if r := s.charge(t, key, o); r.status != http.StatusCreated || !r.replayed() {
					t.Errorf("%s afterwards: %v; want a replay of 201 from every replica", key, r)
				}
			}
		}
	})
	t.Run("peers case 1: 20 at once make one acquirer call and one ledger entry, and replays are marked", func(t *testing.T) {
		asked := w.north.Stats().Requests
		replies := burst(t, shops, 20, "order-peers", with("tok_ok"))
		oneCapture(w.in(t), "order-peers", replies)
		if calls := w.north.Stats().Requests - asked; calls != 1 {
			t.Errorf("north was called %d times", calls)
		}
	})
	w.consistent()
	if all := w.north.Stats(); all.Captures != repetitions+1 || all.DuplicatesSuppressed != 0 || w.south.Stats().Requests != 0 {
		t.Errorf("north captured %d and suppressed %d duplicates, south was asked %d times; want %d, 0, 0",
			all.Captures, all.DuplicatesSuppressed, w.south.Stats().Requests, repetitions+1)
	}
}

// burst sends the same request many times at the same moment, spread over the services.
func burst(t *testing.T, shops []*shop, requests int, key string, o order) []reply {
	t.Helper()
	replies, errs := make([]reply, requests), make([]error, requests)
	begin := make(chan struct{})
	var all sync.WaitGroup
	for i := range requests {
		all.Go(func() {
			<-begin
			replies[i], errs[i] = shops[i%len(shops)].post(t.Context(), key, o)
		})
	}
	close(begin)
	all.Wait()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	return replies
}

// oneCapture holds that of many replies one is the capture, and all others are it again or say that it is running.
func oneCapture(w *world, key string, replies []reply) {
	t := w.t
	t.Helper()
	first, body := 0, ""
	for _, r := range replies {
		switch {
		case r.status == http.StatusCreated:
			if !r.replayed() {
				first++
			}
			if body == "" {
				body = r.text
			}
			if r.text != body {
				t.Errorf("%s: two answers of one charge differ:\n%s\n%s", key, body, r.text)
			}
		case r.status == http.StatusConflict && r.Code == "idempotency_key_in_flight" && r.header.Get("Retry-After") != "":
		default:
			t.Errorf("%s: answer %v; want 201, or 409 in flight with Retry-After", key, r)
		}
	}
	charge := w.row(key)
	if first != 1 || w.captures(charge.AcqRef) != 1 || charge.Status != "captured" || charge.Postings != 1 {
		t.Errorf("%s: %d first answers, %d captures, charge %+v; want one of each", key, first, w.captures(charge.AcqRef), charge)
	}
}

package payment

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"paymentsd/acquirer"
	"paymentsd/idempotency"
	"paymentsd/money"
	"paymentsd/resilience"
)

// The numbered cases are real reports from payment systems: an input, and what is right.

func TestIdempotencyCases(t *testing.T) {
	t.Parallel()
	b := openBooks(t)
	t.Run("idempotency case 6: two merchants with one key have two charges", func(t *testing.T) {
		t.Parallel()
		north := answering()
		mine := b.shop(t, []named{{"north", north, plainly()}})
		theirs := b.shop(t, []named{{"north", north, plainly()}})
		first := mine.charge(mine.request("1"))
		other := theirs.request("1")
		other.Fingerprint = idempotency.Fingerprint{77} // B's body may be anything
		second := theirs.charge(other)
		if first.Charge.ID == second.Charge.ID || first.Charge.AcqRef == second.Charge.AcqRef || second.Replayed {
			t.Errorf("%+v and %+v", first.Charge, second.Charge)
		}
		if _, err := theirs.Get(t.Context(), theirs.merchant.ID, first.Charge.ID); !errors.Is(err, ErrNotFound) {
			t.Errorf("B reads A's charge: %v", err)
		}
		mine.wantRows(1, 1, 1, 1, 1)
		theirs.wantRows(1, 1, 1, 1, 1)
	})
	t.Run("idempotency case 8, peers case 2: same key, other body, in every state", b.sameKeyOtherBody)
	t.Run("idempotency case 8: same key, other body, where our insert lost the race", sameKeyLostRace)
	t.Run("idempotency case 11, peers case 1: 50 parallel identical requests over 3 replicas are one call", b.manyAtOnce)
	t.Run("idempotency case 12: a duplicate that is told to wait gets the real result later", func(t *testing.T) {
		t.Parallel()
		inside, leave := make(chan struct{}), make(chan struct{})
		north := answering()
		north.during = inAndOut(inside, leave)
		s := b.shop(t, []named{{"north", north, plainly()}})
		first := s.chargeAside(s.request("k"))
		<-inside
		if refused := refusal[*InFlightError](s, s.request("k")); refused.RetryAfter <= 0 || refused.ChargeID == "" {
			t.Errorf("%+v", refused)
		}
		waiting := s.request("k")
		waiting.Wait = 10 * time.Second
		second := s.chargeAside(waiting)
		close(leave)
		a, b := first(), second()
		if !b.Replayed || b.Charge.ID != a.Charge.ID || !bytes.Equal(a.Frozen.Body, b.Frozen.Body) {
			t.Errorf("%+v, then %+v", a, b)
		}
		wantCalls(t, "north", north, 1)
	})
	t.Run("idempotency case 14: a lost process leaves an unknown, neither stuck nor run again", func(t *testing.T) {
		t.Parallel()
		north := answering()
		s := openShop(t, []named{{"north", north, plainly()}}, withFault(faultAfterCall, runtime.Goexit))
		s.killed(s.request("k"))
		refusal[*InFlightError](s, s.request("k"))
		if report, err := s.Sweep(t.Context()); err != nil || report.Unknown != 0 {
			t.Errorf("swept before the lease passed: %+v, %v", report, err)
		}
		s.letLeasePass("k")
		if report, err := s.Sweep(t.Context()); err != nil || report.Unknown != 1 || report.Failed != 0 || report.More {
			t.Errorf("%+v, %v", report, err)
		}
		again := s.charge(s.request("k"))
		wantStatus(t, again, Unknown)
		if again.Charge.Reason != reasonAbandoned {
			t.Errorf("reason %q", again.Charge.Reason)
		}
		wantCalls(t, "north", north, 1)
		s.wantRows(1, 1, 1, 0, 1)
	})
	t.Run("idempotency case 15: a failure of ours after the capture does not release the key", func(t *testing.T) {
		t.Parallel()
		north := answering()
		s := b.shop(t, []named{{"north", north, plainly()}}, func(c *Config) {
			c.Render = func(Charge) idempotency.Response { panic("the body cannot be encoded") }
		})
		func() {
			defer func() { _ = recover() }() // as an HTTP server does
			result, err := s.Charge(t.Context(), s.request("k"))
			t.Errorf("%+v, %v", result, err)
		}()
		refusal[*InFlightError](s, s.request("k"))
		s.letLeasePass("k")
		if _, err := s.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantStatus(t, s.charge(s.request("k")), Unknown)
		wantCalls(t, "north", north, 1)
	})
	t.Run("idempotency case 16: a client that hangs up does not cut the charge off", func(t *testing.T) {
		t.Parallel()
		north := answering()
		ctx, hangUp := context.WithCancel(t.Context())
		north.during = func(_ int, call context.Context) {
			hangUp()
			if call.Err() != nil {
				t.Error("the call was cancelled with the client")
			}
		}
		s := b.shop(t, []named{{"north", north, plainly()}})
		result, err := s.Charge(ctx, s.request("k"))
		if err != nil || result.Charge.Status != Captured {
			t.Fatalf("%+v, %v", result, err)
		}
		again := s.charge(s.request("k"))
		if !again.Replayed || again.Frozen.Status != 201 {
			t.Errorf("%+v", again)
		}
		s.wantRows(1, 1, 1, 1, 1)
	})
	t.Run("a client that is gone before anything was begun leaves no row", func(t *testing.T) {
		t.Parallel()
		s := b.shop(t, []named{{"north", answering(), plainly()}})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := s.Charge(ctx, s.request("k"))
		if refused, ok := asError[*NotExecutedError](err); !ok || refused.Rejection.Reason != resilience.CallerGone {
			t.Errorf("%v", err)
		}
		s.wantRows(0, 0, 0, 0, 0)
	})
	t.Run("idempotency case 19, peers case 4: after a timeout the same key and a new key for the order are held back", b.afterATimeout)
	t.Run("idempotency case 23, peers case 23: declined, then shown as paid: kept for all to see, the answer stands", b.declinedYetPaid)
	t.Run("idempotency case 29, peers case 5: failover on proof only", b.failoverOnProof)
	t.Run("idempotency case 30: under load each charge has its own reference on every try", b.referencesUnderLoad)
	t.Run("idempotency case 31: breaker open: not stored, and the same key runs later", b.breakerOpenThenClosed)
	t.Run("idempotency case 32: JPY 80 is 80 on the wire", func(t *testing.T) {
		t.Parallel()
		s, north, _ := b.simulatedShop(t)
		for currency, want := range map[money.Currency]int64{"JPY": 80, "USD": 8000, "KWD": 80000} {
			req := s.request("in-" + string(currency))
			req.Amount, _ = money.Parse("80", currency)
			result := s.charge(req)
			wantStatus(t, result, Captured)
			found := north.adapter.Lookup(t.Context(), result.Charge.AcqRef)
			if minor, err := found.Amount.Minor(currency.Exponent()); err != nil || minor != want || !found.Amount.Equal(req.Amount) {
				t.Errorf("the acquirer has %s %s, %v; want %d", found.Amount, currency, err, want)
			}
		}
	})
	t.Run("idempotency case 34: an amount that no acquirer can express is refused, never rounded", func(t *testing.T) {
		t.Parallel()
		coarse, fine := answering(), answering()
		coarse.promises.Exponents = map[money.Currency]int{"KWD": 2}
		s := b.shop(t, []named{{"north", coarse, plainly()}, {"south", fine, plainly()}})
		req := s.request("k")
		req.Amount, _ = money.Parse("5.124", "KWD")
		only := req
		only.Merchant.Acquirers = []string{"north"}
		if _, err := s.Charge(t.Context(), only); !errors.Is(err, ErrAmount) {
			t.Errorf("%v", err)
		}
		s.wantRows(0, 0, 0, 0, 0)
		if result := s.charge(req); result.Charge.Acquirer != "south" || !result.Charge.Amount.Equal(req.Amount) {
			t.Errorf("%+v", result.Charge)
		}
		wantCalls(t, "north", coarse, 0)
	})
	t.Run("idempotency case 36: a key past its retention is an error that names the old charge", keyPastRetention)
	t.Run("idempotency case 38: leases are measured by the database's clock", b.wrongClocks)
	t.Run("idempotency case 39: a replay has the same status, bytes, type and location", func(t *testing.T) {
		t.Parallel()
		s := b.shop(t, []named{{"north", answering(), plainly()}})
		first := s.charge(s.request("k"))
		again := s.charge(s.request("k"))
		if again.Frozen.Status != first.Frozen.Status || again.Frozen.ContentType != first.Frozen.ContentType ||
			again.Frozen.Location != first.Frozen.Location || !bytes.Equal(again.Frozen.Body, first.Frozen.Body) || first.Replayed || !again.Replayed {
			t.Errorf("%+v, then %+v", first, again)
		}
	})
}

func (b *books) sameKeyOtherBody(t *testing.T) {
	t.Parallel()
	inside, leave := make(chan struct{}), make(chan struct{})
	north := answering(of(acquirer.Unclear), of(acquirer.Unclear), of(acquirer.Unclear), of(acquirer.Captured))
	north.during = func(n int, _ context.Context) {
		if n == 5 {
			inside <- struct{}{}
			<-leave
		}
	}
	s := b.shop(t, []named{{"north", north, plainly()}})
	wantStatus(t, s.charge(s.request("unknown")), Unknown)
	wantStatus(t, s.charge(s.request("done")), Captured)
	running := s.chargeAside(s.request("running"))
	<-inside
	for _, key := range []string{"unknown", "done", "running"} {
		other := s.request(key)
		other.Amount, other.Fingerprint = usd("4999.00"), idempotency.Fingerprint{9, 9}
		if refused := refusal[*MismatchError](s, other); refused.ChargeID == "" || !errors.Is(refused, idempotency.ErrMismatch) {
			t.Errorf("%s: %v", key, refused)
		}
		other.Wait = time.Second // a request that would wait is told at once, too
		refusal[*MismatchError](s, other)
		s.hold("north", "open") // and one that could not be begun
		refusal[*MismatchError](s, other)
		s.hold("north", "close")
	}
	close(leave)
	running()
	wantCalls(t, "north", north, 5)
}

func sameKeyLostRace(t *testing.T) {
	t.Parallel()
	north := answering()
	s := openShop(t, []named{{"north", north, plainly()}})
	winner := s.newCharge(s.request("k"), "north")
	tx, err := s.db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(t.Context())) //nolint:errcheck // committed below
	if claimed := s.beginIn(tx, winner, idempotency.Fingerprint{8}); claimed.outcome != beginClaimed {
		t.Fatalf("%+v", claimed)
	}
	lost := make(chan error, 1)
	go func() {
		_, err := s.Charge(t.Context(), s.request("k"))
		lost <- err
	}()
	s.awaitWaiter("charge_begin_v")
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if refused, ok := asError[*MismatchError](<-lost); !ok || refused.ChargeID != winner.ID {
		t.Errorf("%v", refused)
	}
	wantCalls(t, "north", north, 0)
	s.wantRows(1, 1, 1, 0, 0)
}

func (b *books) manyAtOnce(t *testing.T) {
	t.Parallel()
	north := answering()
	north.during = func(int, context.Context) { time.Sleep(5 * time.Millisecond) } // as long as a call takes
	replicas := []*shop{}
	for range 3 {
		replicas = append(replicas, b.shop(t, []named{{"north", north, plainly()}}))
	}
	req := replicas[0].request("k")
	var mu sync.Mutex
	executed, replayed, inFlight := 0, 0, 0
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			result, err := replicas[i%3].Charge(t.Context(), req)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case errors.Is(err, ErrInFlight):
				inFlight++
			case err != nil:
				t.Errorf("request %d: %v", i, err)
			case result.Replayed:
				replayed++
			default:
				executed++
			}
		})
	}
	all.Wait()
	if executed != 1 || executed+replayed+inFlight != 50 {
		t.Errorf("%d executed, %d replayed, %d in flight", executed, replayed, inFlight)
	}
	wantCalls(t, "north", north, 1)
	replicas[0].wantRows(1, 1, 1, 1, 1)
}

func (b *books) afterATimeout(t *testing.T) {
	t.Parallel()
	s, north, south := b.simulatedShop(t)
	req := s.request("k")
	req.PaymentMethod = "tok_timeout_captured"
	first := s.charge(req)
	wantStatus(t, first, Unknown)
	asked := north.Stats().Requests
	wantStatus(t, s.charge(req), Unknown)

	renewed := s.request("new key")
	renewed.Reference = req.Reference
	refused := refusal[*ReferenceOpenError](s, renewed)
	if refused.ChargeID != first.Charge.ID || refused.Reference != req.Reference {
		t.Errorf("%+v", refused)
	}
	north.wantCaptures(1, asked)
	s.wantRows(1, 1, 1, 0, 1)

	renewed.AllowConcurrent = true
	allowed := s.charge(renewed)
	wantStatus(t, allowed, Captured)
	south.wantCaptures(0, 0)

	s.resolve(first.Charge, Resolution{ID: "e", Evidence: Operator, Outcome: OutcomeFailed, Actor: "ops", Reason: "seen"})
	third := s.request("third key")
	third.Reference = req.Reference
	wantStatus(t, s.charge(third), Captured)
}

func (b *books) declinedYetPaid(t *testing.T) {
	t.Parallel()
	north := answering(of(acquirer.Declined), of(acquirer.Rejected))
	s := b.shop(t, []named{{"north", north, plainly()}})
	for _, key := range []string{"declined", "failed"} {
		charge := s.charge(s.request(key)).Charge
		paid := Resolution{
			ID: "settlement:f1:7", Evidence: Settlement, Outcome: OutcomeCaptured, Acquirer: "north", CaptureID: "n7", Amount: charge.Amount,
			Actor: "settlement", Reason: "line 7 pays it", FileID: "f1", LineNo: 7,
		}
		_, err := s.Resolve(t.Context(), s.merchant.ID, charge.ID, paid)
		if refused, ok := asError[*ResolvedError](err); !ok || refused.By != nil || refused.Charge.Status != charge.Status {
			t.Errorf("%s: %v", key, err)
		}
		kept, err := s.Resolutions(t.Context(), s.merchant.ID, charge.ID)
		if err != nil || len(kept) != 1 || kept[0].Applied || kept[0].Outcome != OutcomeCaptured || kept[0].FileID != "f1" {
			t.Errorf("%s: evidence %+v, %v", key, kept, err)
		}
		now, err := s.Get(t.Context(), s.merchant.ID, charge.ID)
		if err != nil || now.Status != charge.Status {
			t.Errorf("%s: now %s, %v", key, now.Status, err)
		}
	}
	s.wantRows(0, 2, 2, 0, 2)
}

func keyPastRetention(t *testing.T) {
	t.Parallel()
	north := answering()
	s := openShop(t, []named{{"north", north, plainly()}})
	const retention = 30 * 24 * time.Hour
	today := time.Now()
	if _, _, err := idempotency.Maintain(t.Context(), s.db.Pool, today, retention); err != nil {
		t.Fatal(err)
	}
	first := s.charge(s.request("k"))
	if _, _, err := idempotency.Maintain(t.Context(), s.db.Pool, today.Add(retention), retention); err != nil {
		t.Fatal(err)
	}
	if again := s.charge(s.request("k")); !again.Replayed {
		t.Errorf("the key went a day too early: %+v", again)
	}
	if _, dropped, err := idempotency.Maintain(t.Context(), s.db.Pool, today.Add(retention+48*time.Hour), retention); err != nil || dropped < 1 {
		t.Fatalf("%d partitions dropped, %v", dropped, err)
	}
	for range 2 {
		if expired := refusal[*ExpiredKeyError](s, s.request("k")); expired.ChargeID != first.Charge.ID {
			t.Errorf("%+v", expired)
		}
	}
	other := s.request("k")
	other.Fingerprint = idempotency.Fingerprint{5}
	refusal[*MismatchError](s, other)
	wantCalls(t, "north", north, 1)
	s.wantRows(1, 1, 1, 1, 1)
}

func (b *books) wrongClocks(t *testing.T) {
	t.Parallel()
	for name, ahead := range map[string]time.Duration{"an hour ahead": time.Hour, "an hour behind": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inside, leave := make(chan struct{}), make(chan struct{})
			north := answering()
			north.during = inAndOut(inside, leave)
			wrong := func(c *Config) { c.Now = func() time.Time { return time.Now().Add(ahead) } }
			s := b.shop(t, []named{{"north", north, plainly()}}, wrong)
			running := s.chargeAside(s.request("k"))
			<-inside
			for range 2 {
				if _, err := s.Sweep(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if refused := refusal[*InFlightError](s, s.request("k")); refused.RetryAfter <= 0 {
				t.Errorf("retry after %v", refused.RetryAfter)
			}
			if n := s.count(`select count(*) from idempotency_keys where merchant_id = $1 and lease_until between now() and now() + interval '1 minute'`, s.merchant.ID); n != 1 {
				t.Error("a live lease was taken over, or is not within a minute of the database's clock")
			}
			close(leave)
			wantStatus(t, running(), Captured)
		})
	}
}

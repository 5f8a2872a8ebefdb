package payment

import (
	"context"
	"errors"
	"testing"
	"time"

	"paymentsd/acquirer"
	"paymentsd/acquirer/rest"
	"paymentsd/idempotency"
	"paymentsd/money"
	"paymentsd/resilience"
)

// Regression: after the merchant's routing was changed, a replay was answered as if it were a new request.
func TestKeyInUseIsAnsweredWhateverTheRoutingIsNow(t *testing.T) {
	t.Parallel()
	north, coarse := answering(), answering()
	coarse.promises.Exponents = map[money.Currency]int{"USD": 0}
	s := openShop(t, []named{{"north", north, plainly()}, {"coarse", coarse, plainly()}})
	req := s.request("k")
	first := s.charge(req)
	for name, routing := range map[string][]string{"cannot express the amount": {"coarse"}, "is not configured": {"gone"}} {
		req.Merchant.Acquirers = routing
		if again := s.charge(req); !again.Replayed || again.Charge.ID != first.Charge.ID {
			t.Errorf("%s: %+v", name, again)
		}
		other := req
		other.Fingerprint = idempotency.Fingerprint{6}
		refusal[*MismatchError](s, other)
	}
	req.Key = "new"
	if _, err := s.Charge(t.Context(), req); err == nil {
		t.Error("a new key was charged without an acquirer")
	}
	s.wantRows(1, 1, 1, 1, 1)
}

// Regression: a duplicate that waited for a charge which then failed was told not to come back.
func TestDuplicateThatWaitedForAFailureMayComeBack(t *testing.T) {
	t.Parallel()
	for class, want := range map[acquirer.Class]Status{acquirer.Refused: Failed, acquirer.Declined: Declined} {
		t.Run(string(class), func(t *testing.T) {
			t.Parallel()
			inside, leave := make(chan struct{}, 3), make(chan struct{})
			north := answering(times(3, of(class))...)
			north.during = inAndOut(inside, leave)
			s := openShop(t, []named{{"north", north, plainly()}})
			first := s.chargeAside(s.request("k"))
			<-inside
			waiting := s.request("k")
			waiting.Wait = 10 * time.Second
			second := s.chargeAside(waiting)
			s.awaitSeconds(func() bool { return s.db.Pool.Stat().AcquireCount() > 4 }) // it has looked at the key
			close(leave)
			a, b := first(), second()
			wantStatus(t, a, want)
			if b.Charge.ID != a.Charge.ID || !b.Replayed || b.RetryAfter != a.RetryAfter || b.Frozen != nil {
				t.Errorf("%+v, then %+v", a, b)
			}
		})
	}
}

func TestDeadlineOfTheCaller(t *testing.T) {
	t.Parallel()
	north := answering()
	b := openBooks(t)
	s := b.shop(t, []named{{"north", north, plainly()}})
	late := s.request("k")
	late.Deadline = time.Now().Add(callMin / 2)
	if refused := refusal[*NotExecutedError](s, late); refused.Rejection.Reason != resilience.DeadlineTooShort {
		t.Errorf("%v", refused)
	}
	s.wantRows(0, 0, 0, 0, 0)
	wantStatus(t, s.charge(s.request("k")), Captured)
	if again := s.charge(late); !again.Replayed {
		t.Errorf("a replay needs no time: %+v", again)
	}
	t.Run("it cuts off nothing that is sent", func(t *testing.T) {
		north := answering()
		north.during = func(_ int, ctx context.Context) {
			if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) < 10*time.Second {
				t.Errorf("the call must end in %v", time.Until(deadline))
			}
		}
		s := b.shop(t, []named{{"north", north, plainly()}})
		req := s.request("k")
		req.Deadline = time.Now().Add(3 * time.Second)
		wantStatus(t, s.charge(req), Captured)
	})
}

// What waits for the store until its caller has no time left is dropped: nothing is written for it, and nothing is sent.
func TestACallerWhoseTimeIsUpWhileTheStoreIsBusy(t *testing.T) {
	t.Parallel()
	b := openBooks(t)
	s := b.shop(t, []named{{"north", answering(), plainly()}})
	pool, err := b.smallPool(t, 1)
	if err != nil {
		t.Fatal(err)
	}
	s.pool = pool
	busy, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	req := s.request("k")
	req.Deadline = time.Now().Add(callMin + 50*time.Millisecond)
	refused := refusal[*UnavailableError](s, req)
	if rejection, ok := errors.AsType[*resilience.Rejection](refused); !ok || rejection.Reason != resilience.DeadlineTooShort {
		t.Errorf("%v", refused)
	}
	busy.Release()
	s.wantRows(0, 0, 0, 0, 0)
	wantStatus(t, s.charge(s.request("k")), Captured)
}

func TestNewSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	adapter, err := rest.New(acquirer.Config{Name: "north", URL: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	whole := Config{
		Routes: []Route{routeOf(t, named{"north", adapter, plainly()})}, Now: time.Now, Render: frozenAs,
		Lease: time.Minute, Budget: 20 * time.Second, StoreTime: 5 * time.Second,
	}
	if _, err := New(whole); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Config){
		"no acquirer":                            func(c *Config) { c.Routes = nil },
		"the same acquirer twice":                func(c *Config) { c.Routes = append(c.Routes, c.Routes[0]) },
		"a lease that a slow charge outlasts":    func(c *Config) { c.Lease = 30 * time.Second },
		"a name that the ledger would not store": func(c *Config) { c.Routes = []Route{{Name: "North", Adapter: adapter, Chain: c.Routes[0].Chain}} },
	} {
		config := whole
		spoil(&config)
		if _, err := New(config); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	if err := (&Service{}).SetBreaker(t.Context(), "north", "ajar", Act{Actor: "me"}); !errors.Is(err, ErrBreakerMode) {
		t.Errorf("%v", err)
	}
	if err := (&Service{}).SetBreaker(t.Context(), "east", "open", Act{Actor: "me"}); !errors.Is(err, ErrUnknownAcquirer) {
		t.Errorf("%v", err)
	}
}

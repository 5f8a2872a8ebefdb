package payment

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"paymentsd/acquirer"
	"paymentsd/idempotency"
)

// oneWriter makes everything that comes meanwhile one group.
func oneWriter(c *Config) { c.Groups.Writers = 1 }

// gather holds the first group of a step until it is released: what comes meanwhile is the next group.
type gather struct {
	formed  atomic.Int64
	hold    chan struct{}
	release func()
}

func gathering() (*gather, opening) {
	g := &gather{hold: make(chan struct{})}
	g.release = sync.OnceFunc(func() { close(g.hold) })
	return g, func(c *Config) {
		oneWriter(c)
		c.Fault = func(step string) {
			if step == faultGroupFormed && g.formed.Add(1) == 1 {
				<-g.hold
			}
		}
	}
}

// outcome is what one of many requests got.
type outcome struct {
	result Result
	err    error
}

// together posts requests so that T1 of all of them stands in one group, and gives what each got.
func (s *shop) together(g *gather, requests ...Request) []outcome {
	s.t.Helper()
	first := s.chargeAside(s.request("the first, alone"))
	s.awaitSeconds(func() bool { return g.formed.Load() == 1 })
	outcomes := make([]outcome, len(requests))
	var all sync.WaitGroup
	for i, r := range requests {
		all.Go(func() { outcomes[i].result, outcomes[i].err = s.Charge(s.t.Context(), r) })
	}
	s.awaitSeconds(func() bool { return s.queues.begin.Waiting() == len(requests) })
	g.release()
	all.Wait()
	wantStatus(s.t, first(), Captured)
	return outcomes
}

func (s *shop) requests(n int) (all []Request) {
	for i := range n {
		all = append(all, s.request(fmt.Sprintf("k%02d", i)))
	}
	return all
}

func (s *shop) wantAllCaptured(outcomes []outcome) {
	s.t.Helper()
	for i, o := range outcomes {
		if o.err != nil || o.result.Charge.Status != Captured {
			s.t.Errorf("request %d: %+v, %v", i, o.result.Charge, o.err)
		}
	}
	s.wantBalanced()
}

func TestGroupWithAPoisonedRow(t *testing.T) {
	t.Parallel()
	b := openBooks(t)
	t.Run("T1: the culprit gets the store's refusal, its neighbours are charged", func(t *testing.T) {
		t.Parallel()
		g, gathered := gathering()
		s := b.shop(t, []named{{"north", answering(), plainly()}}, gathered)
		requests := s.requests(20)
		requests[7].PaymentMethod = strings.Repeat("x", 300) // longer than its column takes
		outcomes := s.together(g, requests...)
		if sqlState(outcomes[7].err) != "23514" {
			t.Errorf("the culprit got %+v, %v", outcomes[7].result, outcomes[7].err)
		}
		s.wantAllCaptured(append(outcomes[:7:7], outcomes[8:]...))
		s.wantRows(20, 20, 20, 20, 20) // with the first, without the culprit
	})
	t.Run("T2: a row that cannot be written is unknown, its neighbours are captured", func(t *testing.T) {
		t.Parallel()
		north := answering()
		inside, leave := make(chan struct{}), make(chan struct{})
		north.during = inAndOut(inside, leave)
		s := b.shop(t, []named{{"north", north, plainly()}}, oneWriter)
		var ended []func() Result
		for _, r := range s.requests(8) {
			ended = append(ended, s.chargeAside(r))
			<-inside
		}
		s.exec(`update attempts set state = 'unclear', finished_at = now() where merchant_id = $1 and charge_id = $2`, s.merchant.ID, s.open("k03").ID)
		close(leave)
		for i, result := range ended {
			if want := map[bool]Status{true: Unknown, false: Captured}[i == 3]; result().Charge.Status != want {
				t.Errorf("request %d: %+v, want %s", i, result().Charge, want)
			}
		}
		s.wantRows(8, 8, 8, 7, 7)
	})
}

func TestFiftyOfOneKeyInOneGroup(t *testing.T) {
	t.Parallel()
	b := openBooks(t)
	for name, prepare := range map[string]func(*shop){
		"a new key":                 func(*shop) {},
		"a key that was used twice": func(s *shop) { s.charge(s.request("k")); s.charge(s.request("k")) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			north := answering(of(acquirer.Declined), of(acquirer.Declined))
			if name == "a new key" {
				north = answering()
			}
			g, gathered := gathering()
			open := b.shop(t, []named{{"north", north, plainly()}})
			prepare(open)
			s := b.shop(t, []named{{"north", north, plainly()}}, gathered)
			s.merchant = open.merchant
			before := north.calls()
			var requests []Request
			for range 50 {
				requests = append(requests, s.request("k"))
			}
			captured := 0
			for i, o := range s.together(g, requests...) {
				switch inFlight, ok := asError[*InFlightError](o.err); {
				case o.err == nil && o.result.Charge.Status == Captured:
					captured++
				case ok && inFlight.ChargeID == s.open("k").ID:
				default:
					t.Errorf("request %d: %+v, %v", i, o.result.Charge, o.err)
				}
			}
			if captured == 0 {
				t.Error("nobody was told of the capture")
			}
			if calls := north.calls() - before; calls != 2 { // the first's and theirs
				t.Errorf("%d calls", calls)
			}
			s.wantBalanced()
		})
	}
	t.Run("with two bodies: one body wins, the other is refused", func(t *testing.T) {
		t.Parallel()
		north := answering()
		g, gathered := gathering()
		s := b.shop(t, []named{{"north", north, plainly()}}, gathered)
		var requests []Request
		for i := range 50 {
			r := s.request("k")
			r.Fingerprint = idempotency.Fingerprint{byte(i % 2)}
			requests = append(requests, r)
		}
		mismatches := 0
		for _, o := range s.together(g, requests...) {
			if _, ok := asError[*MismatchError](o.err); ok {
				mismatches++
			}
		}
		if mismatches != 25 {
			t.Errorf("%d are told that the key was used with another body, want 25", mismatches)
		}
		wantCalls(t, "north", north, 2)
	})
}

func TestConnectionLostInAGroup(t *testing.T) {
	t.Parallel()
	b := openBooks(t)
	for name, l := range map[string]loss{
		"T1, before it is executed":                              {statement: "charge_begin_v2", times: 1},
		"T1, written, the answer lost":                           {statement: "charge_begin_v2", times: 1, executed: true},
		"T1, of several merchants, cut before COMMIT":            {statement: "commit", times: 1},
		"T1, of several merchants, COMMIT done, its answer lost": {statement: "commit", times: 1, executed: true},
		"T2, before it is executed":                              {statement: "charge_finish_v2", times: 1},
		"T2, written, the answer lost":                           {statement: "charge_finish_v2", times: 1, executed: true},
		"T2, lost twice":                                         {statement: "charge_finish_v2", times: 2, executed: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			north := answering()
			inside, leave := make(chan struct{}, 100), make(chan struct{})
			north.during = inAndOut(inside, leave)
			g, gathered := gathering()
			s, p := b.unreliableShop(t, []named{{"north", north, plainly()}}, gathered)
			requests := s.requests(12)
			if l.statement == "commit" {
				other := b.shop(t, []named{{"north", north, plainly()}})
				for i := range requests {
					if i%2 == 1 {
						requests[i].Merchant = other.merchant
					}
				}
			}
			p.lose(l)
			go func() { // all are at the acquirer at once, so that their T2 form groups
				for range len(requests) + 1 {
					<-inside
				}
				close(leave)
			}()
			s.wantAllCaptured(s.together(g, requests...))
			s.wantLossesMet(p)
			wantCalls(t, "north", north, len(requests)+1)
		})
	}
	t.Run("T1 in doubt twice: all are refused, nothing is sent, the sweep cleans up", func(t *testing.T) {
		t.Parallel()
		north := answering()
		g, gathered := gathering()
		s, p := b.unreliableShop(t, []named{{"north", north, plainly()}}, gathered)
		p.lose(loss{statement: "charge_begin_v2", times: 2, executed: true})
		requests := s.requests(6)
		for i, o := range s.together(g, requests...) {
			if _, ok := asError[*UnavailableError](o.err); !ok {
				t.Errorf("request %d: %+v, %v", i, o.result.Charge, o.err)
			}
		}
		wantCalls(t, "north", north, 1) // the first's
		for _, r := range requests {
			s.letLeasePass(r.Key)
		}
		s.sweep()
		for _, r := range requests {
			wantStatus(t, s.charge(r), Unknown)
		}
		wantCalls(t, "north", north, 1)
	})
}

// TestWriterLost ends the goroutine that writes a group, at each step of it: another takes its place, and the
// requests find out what became of them.
func TestWriterLost(t *testing.T) {
	t.Parallel()
	b := openBooks(t)
	for _, at := range []string{faultGroupFormed, faultGroupSent, faultGroupWritten} {
		for name, die := range map[string]func(){"ends": runtime.Goexit, "panics": func() { panic("a fault") }} {
			t.Run(at+", "+name, func(t *testing.T) {
				t.Parallel()
				north := answering()
				s := b.shop(t, []named{{"north", north, plainly()}}, oneWriter, withFault(at, die))
				var ended []func() Result
				for _, r := range s.requests(6) {
					ended = append(ended, s.chargeAside(r))
				}
				for _, result := range ended {
					wantStatus(t, result(), Captured)
				}
				wantCalls(t, "north", north, 6)
				s.wantRows(6, 6, 6, 6, 6)
				s.wantBalanced()
			})
		}
	}
}

// TestLockedRowHoldsUpNobodyElse has somebody hold the key of one charge of a group of T2.
func TestLockedRowHoldsUpNobodyElse(t *testing.T) {
	t.Parallel()
	b := openBooks(t)
	north := answering()
	inside, leave := make(chan struct{}), make(chan struct{})
	north.during = inAndOut(inside, leave)
	s := b.shop(t, []named{{"north", north, plainly()}}, oneWriter)
	var ended []func() Result
	for _, r := range s.requests(10) {
		ended = append(ended, s.chargeAside(r))
		<-inside
	}
	holder, err := b.owner.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Rollback(t.Context()) //nolint:errcheck // it only holds a lock
	if _, err := holder.Exec(t.Context(), `select 1 from idempotency_keys where merchant_id = $1 and key = 'k04' for update`, s.merchant.ID); err != nil {
		t.Fatal(err)
	}
	close(leave)
	for i, result := range ended {
		if i != 4 {
			wantStatus(t, result(), Captured)
		}
	}
	if now := s.open("k04"); now.Status != Pending {
		t.Errorf("%+v", now)
	}
	if err := holder.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantStatus(t, ended[4](), Captured)
	s.wantRows(10, 10, 10, 10, 10)
}

// TestACommitThatIsCutOff lets a COMMIT hang in the server, in a deferred trigger, and ends the backend there:
// the request cannot know, and runs its write again.
func TestACommitThatIsCutOff(t *testing.T) {
	t.Parallel()
	b := openBooks(t)
	s := b.shop(t, []named{{"north", answering(), plainly()}}, oneWriter)
	s.exec(`create function hang() returns trigger language plpgsql as $$ begin perform pg_advisory_xact_lock(4711); return null; end $$`)
	s.exec(`create constraint trigger hang after insert on outbox deferrable initially deferred for each row execute function hang()`)
	holder, err := b.owner.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Rollback(t.Context()) //nolint:errcheck // it only holds a lock
	if _, err := holder.Exec(t.Context(), `select pg_advisory_xact_lock(4711)`); err != nil {
		t.Fatal(err)
	}
	result := s.chargeAside(s.request("k"))
	s.awaitWaiter("charge_finish_v")
	if n := s.count(`select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like '%charge_finish_v%'`); n != 1 {
		t.Fatalf("%d backends ended", n)
	}
	if err := holder.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantStatus(t, result(), Captured)
	s.wantRows(1, 1, 1, 1, 1)
	s.wantBalanced()
}

func TestQueueThatIsFull(t *testing.T) {
	t.Parallel()
	north := answering()
	g, gathered := gathering()
	s := openShop(t, []named{{"north", north, plainly()}}, gathered, func(c *Config) { c.Groups.QueueMax = 3 })
	first := s.chargeAside(s.request("first"))
	s.awaitSeconds(func() bool { return g.formed.Load() == 1 })
	var waiting []func() Result
	for _, r := range s.requests(3) {
		waiting = append(waiting, s.chargeAside(r))
	}
	s.awaitSeconds(func() bool { return s.queues.begin.Waiting() == 3 })
	refused := refusal[*UnavailableError](s, s.request("one too many"))
	if r, ok := asError[*Rejection](refused); !ok || r.Reason != ReasonQueueFull || r.RetryAfter == 0 {
		t.Errorf("%v", refused)
	}
	g.release()
	for _, result := range append(waiting, first) {
		wantStatus(t, result(), Captured)
	}
	s.wantRows(4, 4, 4, 4, 4)
	s.Close()
	refusal[*UnavailableError](s, s.request("after closing"))
	wantCalls(t, "north", north, 4)
}

// TestGroupsOfTwoReplicasNeverDeadlock posts the same keys and order references, in crossed order, through two
// services at once, and then looks at the server's own count.
func TestGroupsOfTwoReplicasNeverDeadlock(t *testing.T) {
	t.Parallel()
	b := openBooks(t)
	one := b.shop(t, []named{{"north", answering(), plainly()}})
	two := b.shop(t, []named{{"north", answering(), plainly()}})
	merchants := []*shop{one, two}
	var all sync.WaitGroup
	for round := range 6 {
		for i := range 30 {
			all.Go(func() {
				s := merchants[i%2]
				r := s.request(fmt.Sprintf("%d-%d", round, i*7%10))
				r.Merchant = merchants[i/2%2].merchant
				r.Reference = fmt.Sprintf("order-%d-%d", round, (29-i)*3%10)
				_, _ = s.Charge(t.Context(), r)
			})
		}
		all.Wait()
	}
	var deadlocks int
	row := b.owner.QueryRow(t.Context(), `select deadlocks from pg_stat_database where datname = current_database()`)
	if err := row.Scan(&deadlocks); err != nil || deadlocks != 0 {
		t.Errorf("%d deadlocks, %v", deadlocks, err)
	}
	one.wantBalanced()
}

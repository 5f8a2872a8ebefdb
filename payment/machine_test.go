package payment

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"paymentsd/acquirer"
	"paymentsd/idempotency"
)

// truth is an acquirer that moves money or not, and says what it likes about it as long as it is no lie: a
// capture that it reports has happened, and so has one that it denies not.
type truth struct {
	name     string
	promises acquirer.Capabilities
	during   func() // inside every call

	mu       sync.Mutex
	script   []line
	captured map[string]int // by reference
	log      *callLog
}

// line is one answer, and whether money moves where the answer leaves that open.
type line struct {
	class acquirer.Class
	moves bool
}

type call struct {
	acquirer, ref string
	class         acquirer.Class
}

// callLog has the calls of all acquirers in their order.
type callLog struct {
	mu    sync.Mutex
	calls []call
}

func (a *truth) Capture(_ context.Context, req acquirer.CaptureRequest) acquirer.Answer {
	if a.during != nil {
		a.during()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	next := line{class: acquirer.Captured}
	if len(a.script) > 0 {
		next, a.script = a.script[0], a.script[1:]
	}
	before := a.captured[req.Ref] > 0
	if before && next.class == acquirer.Declined {
		next.class = acquirer.Captured
	}
	moves := next.class == acquirer.Captured || (ambiguous(next.class) && next.moves)
	if moves && !(before && a.promises.DeduplicatesByKey) {
		a.captured[req.Ref]++
	}
	a.log.mu.Lock()
	a.log.calls = append(a.log.calls, call{a.name, req.Ref, next.class})
	a.log.mu.Unlock()
	answer := of(next.class)
	if next.class == acquirer.Captured {
		answer.CaptureID = a.name + "-" + req.Ref
	}
	return answer
}

func (a *truth) Lookup(context.Context, string) acquirer.Inquiry { return acquirer.Inquiry{} }
func (a *truth) Capabilities() acquirer.Capabilities             { return a.promises }

func (a *truth) has(ref string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.captured[ref]
}

// machine runs a random script against a Service, and holds what is believed against the truth.
type machine struct {
	*shop
	north, south *truth
	log          *callLog
	die          string            // the fault point at which the next charge is lost
	ended        map[string]Status // terminal states that were seen
}

// drawnClass leaves in-progress answers out: they cost a second each, and mean what unclear means.
var drawnClass = rapid.SampledFrom([]acquirer.Class{
	acquirer.Captured, acquirer.Declined, acquirer.Rejected, acquirer.NotSent, acquirer.NotSent, acquirer.Refused, acquirer.Unclear, acquirer.Unclear,
})

func drawScript(t *rapid.T, who string) (script []line) {
	for range rapid.IntRange(0, 4).Draw(t, "answers of "+who) {
		script = append(script, line{drawnClass.Draw(t, who), rapid.Bool().Draw(t, "moves")})
	}
	return script
}

func (b *books) machine(t *testing.T, rt *rapid.T) *machine {
	log := &callLog{}
	m := &machine{log: log, ended: map[string]Status{}}
	m.north = &truth{name: "north", promises: dedupes, captured: map[string]int{}, log: log}
	m.south = &truth{name: "south", promises: rapid.SampledFrom([]acquirer.Capabilities{dedupes, forgets, noKeys}).Draw(rt, "promises of south"), captured: map[string]int{}, log: log}
	m.shop = b.shop(t, []named{{"north", m.north, plainly()}, {"south", m.south, plainly()}}, func(c *Config) {
		c.Fault = func(step string) {
			if step == m.die {
				runtime.Goexit()
			}
		}
	})
	return m
}

var machineKeys = rapid.SampledFrom([]string{"a", "b", "c"})

// step does one random thing.
func (m *machine) step(rt *rapid.T) {
	key := machineKeys.Draw(rt, "key")
	req := m.request(key)
	req.Reference = ""
	switch rapid.IntRange(0, 7).Draw(rt, "step") {
	case 0, 1: // a request, and perhaps a duplicate beside it
		m.north.script, m.south.script = drawScript(rt, "north"), drawScript(rt, "south")
		var both sync.WaitGroup
		for range rapid.IntRange(1, 3).Draw(rt, "at once") {
			both.Go(func() { _, _ = m.Charge(m.t.Context(), req) })
		}
		both.Wait()
	case 2: // another body under the key
		req.Fingerprint = idempotency.Fingerprint{byte(rapid.IntRange(4, 5).Draw(rt, "body"))}
		_, _ = m.Charge(m.t.Context(), req)
	case 3: // the process is lost on the way
		m.north.script, m.south.script = drawScript(rt, "north"), drawScript(rt, "south")
		m.die = rapid.SampledFrom([]string{faultClaimed, faultBeforeCall, faultAfterCall, faultFailedOver, faultFinished}).Draw(rt, "lost at")
		var lost sync.WaitGroup
		lost.Go(func() { _, _ = m.Charge(m.t.Context(), req) })
		lost.Wait()
		m.die = ""
	case 4: // the lease passes while an acquirer works
		m.north.script, m.south.script = drawScript(rt, "north"), drawScript(rt, "south")
		late := func() {
			m.letLeasePass(key)
			m.sweep()
		}
		rapid.SampledFrom([]*truth{m.north, m.south}).Draw(rt, "late at").during = late
		_, _ = m.Charge(m.t.Context(), req)
		m.north.during, m.south.during = nil, nil
	case 5:
		m.letLeasePass(key)
		m.sweep()
	default:
		m.bringEvidence(rt, key)
	}
}

// bringEvidence tells the truth about a charge, or nothing.
func (m *machine) bringEvidence(rt *rapid.T, key string) {
	record, err := idempotency.Lookup(m.t.Context(), m.db.Pool, m.merchant.ID, key)
	if err != nil {
		return
	}
	charge, err := m.Get(m.t.Context(), m.merchant.ID, record.ChargeID)
	if err != nil {
		rt.Fatalf("key %s names charge %s: %v", key, record.ChargeID, err)
	}
	evidence := Resolution{
		ID: fmt.Sprint("e", rapid.IntRange(0, 3).Draw(rt, "evidence")), Actor: "test", Reason: "the truth",
		Evidence: rapid.SampledFrom([]Evidence{Inquiry, Event, Operator}).Draw(rt, "kind"), Outcome: OutcomeFailed,
	}
	for _, a := range []*truth{m.north, m.south} {
		if a.has(charge.AcqRef) > 0 {
			evidence.Outcome, evidence.Acquirer, evidence.CaptureID, evidence.Amount = OutcomeCaptured, a.name, a.name+"-"+charge.AcqRef, charge.Amount
		}
	}
	if charge.Status == Pending && evidence.Outcome == OutcomeFailed {
		return // nobody can know yet
	}
	if evidence.Evidence != Operator && rapid.IntRange(0, 3).Draw(rt, "says nothing") == 0 {
		evidence.Outcome = OutcomeNone
	}
	_, err = m.Resolve(m.t.Context(), m.merchant.ID, charge.ID, evidence)
	if err != nil && !errors.Is(err, ErrNotUnknown) {
		rt.Fatalf("%+v: %v", evidence, err)
	}
}

// check holds every charge against the truth, its key, its events and the books.
func (m *machine) check(rt *rapid.T) {
	page, err := m.List(m.t.Context(), Filter{Merchant: &m.merchant.ID, Limit: 100})
	if err != nil || page.HasMore {
		rt.Fatalf("%v, %v", page.HasMore, err)
	}
	for _, c := range page.Charges {
		if want := AcqRef(m.merchant.ID, c.IdempotencyKey, c.Generation); c.AcqRef != want {
			rt.Fatalf("charge %s has reference %s, want %s", c.ID, c.AcqRef, want)
		}
		north, south := m.north.has(c.AcqRef), m.south.has(c.AcqRef)
		if north+south > 1 {
			rt.Fatalf("money moved %d times at north and %d times at south for charge %+v\n%v", north, south, c, m.log.calls)
		}
		switch moved := north+south == 1; c.Status {
		case Captured:
			if !moved || (north == 1) != (c.Acquirer == "north") {
				rt.Fatalf("captured, yet money moved %d, %d times: %+v", north, south, c)
			}
		case Declined, Failed:
			if moved {
				rt.Fatalf("%s, yet money moved: %+v\n%v", c.Status, c, m.log.calls)
			}
		}
		if before, seen := m.ended[c.ID]; seen && before != c.Status {
			rt.Fatalf("charge %s was %s and is %s", c.ID, before, c.Status)
		}
		if c.Status.Terminal() {
			m.ended[c.ID] = c.Status
		}
	}
	m.checkCalls(rt)
	_, faults, err := m.VerifyKeys(m.t.Context(), m.merchant.ID)
	if err != nil || len(faults) > 0 {
		rt.Fatalf("keys and charges: %+v, %v", faults, err)
	}
	m.wantBalanced()
}

// checkCalls: once an answer may have meant money, no other acquirer is called under the reference.
func (m *machine) checkCalls(rt *rapid.T) {
	tainted := map[string]string{}
	for _, c := range m.log.calls {
		if at, is := tainted[c.ref]; is && at != c.acquirer {
			rt.Fatalf("%s was called after an answer of %s that proves nothing\n%v", c.acquirer, at, m.log.calls)
		}
		if !c.class.ProvesNotExecuted() {
			tainted[c.ref] = c.acquirer
		}
	}
}

func TestRandomScripts(t *testing.T) {
	t.Parallel()
	b := openBooks(t)
	rapid.Check(t, func(rt *rapid.T) {
		m := b.machine(t, rt)
		for range rapid.IntRange(1, 8).Draw(rt, "steps") {
			m.step(rt)
			m.check(rt)
		}
	})
}

func TestStateMachine(t *testing.T) {
	t.Parallel()
	want := map[Status][]Status{
		Queued: {Pending}, Pending: {Captured, Declined, Failed, Unknown}, Unknown: {Captured, Failed}, Captured: nil, Declined: nil, Failed: nil,
	}
	if len(Statuses()) != len(want) {
		t.Errorf("%v", Statuses())
	}
	for _, from := range Statuses() {
		for _, to := range append(Statuses(), "", "refunded") {
			allowed := false
			for _, w := range want[from] {
				allowed = allowed || w == to
			}
			if from.CanBecome(to) != allowed {
				t.Errorf("%s to %q: %v", from, to, !allowed)
			}
		}
		if from.Terminal() != (len(want[from]) == 0) || !from.Valid() {
			t.Errorf("%s: terminal %v, valid %v", from, from.Terminal(), from.Valid())
		}
	}
	if Status("refunded").Valid() || Status("").Terminal() {
		t.Error("a state that is none")
	}
}

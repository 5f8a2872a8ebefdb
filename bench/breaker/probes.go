package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"paymentsd/internal/benchkit"
	"paymentsd/resilience"
	"paymentsd/resilience/shared"
)

const (
	callersEach = 4 // at every replica: 48 in all
	probeLease  = 500 * time.Millisecond
	killEvery   = 2 * time.Second
	// Of so many probes nobody ever hears of one, and somebody hears of another too late.
	fateEvery = 16
)

// acquirer counts the probes that it sees at once.
type acquirer struct{ inFlight, most atomic.Int64 }

// call takes as long as it takes, or as it may.
func (a *acquirer) call(ctx context.Context, takes time.Duration) {
	n := a.inFlight.Add(1)
	defer a.inFlight.Add(-1)
	for most := a.most.Load(); n > most && !a.most.CompareAndSwap(most, n); most = a.most.Load() {
	}
	timer := time.NewTimer(takes)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// fate is what happened to the result of a probe.
type fate int

const (
	inTime fate = iota
	lost        // nobody reported: the caller or its replica was killed
	late        // reported as a success, after the lease
)

// contention is callers who fight for probes.
type contention struct {
	acquirer acquirer
	probes   atomic.Int64
	members  [replicas]atomic.Pointer[member]
	mu       sync.Mutex
	fates    map[uint64]fate // by the epoch of the probe
	kills    int
}

// member is a replica between its start and its kill.
type member struct {
	*shared.Shared
	holds  atomic.Bool // a probe
	killed atomic.Bool
}

// probes has 48 callers contend, and judges by the acquirer's count and the stored transitions.
func probes(ctx context.Context, url string, o options, stdout io.Writer, figures map[string]float64) error {
	breaker := resilience.DefaultBreaker()
	breaker.MinAttempts = 10
	breaker.OpenFor, breaker.OpenMax, breaker.OpenJitterPercent = 10*time.Millisecond, 10*time.Millisecond, 0
	breaker.ProbeLease, breaker.ProbeMargin = probeLease, probeLease/2
	policy := shared.Acquirer{Name: "probes", Breaker: breaker, Budget: resilience.DefaultBudget()}
	all, err := cluster(ctx, url, policy)
	if err != nil {
		return err
	}
	c := &contention{fates: map[uint64]fate{}}
	for i, s := range all {
		c.members[i].Store(&member{Shared: s})
	}
	defer func() {
		for i := range c.members {
			c.members[i].Load().Close()
		}
	}()
	if err := c.run(ctx, url, policy, o.probes); err != nil {
		return err
	}
	transitions, err := c.members[0].Load().Transitions(ctx, policy.Name, 1_000_000)
	if err != nil {
		return err
	}
	return c.report(judge(c.fates, transitions, probeLease), stdout, figures)
}

// run contends for a time, and kills replicas meanwhile.
func (c *contention) run(ctx context.Context, url string, policy shared.Acquirer, length time.Duration) error {
	contending, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	var each sync.WaitGroup
	for i := range c.members {
		for range callersEach {
			each.Go(func() {
				for contending.Err() == nil {
					c.turn(c.members[i].Load(), policy.Name)
				}
			})
		}
	}
	err := c.kill(contending, url, policy)
	cancel()
	each.Wait()
	return err
}

// kill ends a replica with the probe that it holds, again and again, and starts another in its place.
func (c *contention) kill(ctx context.Context, url string, policy shared.Acquirer) error {
	tick := time.NewTicker(killEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		i := rand.IntN(len(c.members))
		for began := time.Now(); !c.members[i].Load().holds.Load() && time.Since(began) < time.Second; time.Sleep(100 * time.Microsecond) {
			i = rand.IntN(len(c.members))
		}
		m := c.members[i].Load()
		m.killed.Store(true)
		m.Close()
		c.kills++
		next, err := join(context.WithoutCancel(ctx), url, fmt.Sprint("bench-", i), policy)
		if err != nil {
			return err
		}
		c.members[i].Store(&member{Shared: next})
	}
}

// turn is one caller's next call. Nine in ten calls fail, so that the breaker opens again and again.
func (c *contention) turn(m *member, acquirer string) {
	b := m.Breaker(acquirer)
	p, refused := b.Acquire(context.Background())
	switch {
	case refused != nil:
		time.Sleep(rand.N(2 * time.Millisecond)) // the pace of the calls
	case !p.Probe:
		b.Done(p, resilience.Failure)
	default:
		m.holds.Store(true)
		c.probe(m, b, p)
		m.holds.Store(false)
	}
}

// probe makes the call of a probe. Its result is lost or late at times, and when its replica is killed.
func (c *contention) probe(m *member, b *shared.Breaker, p resilience.Permit) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), p.ProbeTimeout)
	defer cancel()
	n, takes := c.probes.Add(1), rand.N(5*time.Millisecond)
	isLost, isLate := n%fateEvery == 1, n%fateEvery == fateEvery/2
	if isLost && n%(2*fateEvery) == 1 {
		takes = probeLease // it hangs, to the end of its time
	}
	c.acquirer.call(ctx, takes)
	switch {
	case m.killed.Load() || isLost:
		c.note(p, lost)
	case isLate:
		time.Sleep(time.Until(began.Add(probeLease + 50*time.Millisecond)))
		b.Done(p, resilience.Success)
		c.note(p, late)
	case rand.IntN(10) == 0:
		c.note(p, inTime)
		b.Done(p, resilience.Success)
	default:
		c.note(p, inTime)
		b.Done(p, resilience.Failure)
	}
}

func (c *contention) note(p resilience.Permit, f fate) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fates[p.Epoch] = f
}

// judged is what the stored transitions say of the probes.
type judged struct {
	probes, lost, late int
	replaced           []time.Duration // after the lease of a lost or late one; negative would be before
	wrong              []string        // what a lost or late probe changed
}

// judge looks at what came after each probe that was not reported in time: the only thing that may end
// its epoch is another probe, after its lease. Times are the database's.
func judge(fates map[uint64]fate, transitions []resilience.Transition, lease time.Duration) judged {
	at := map[uint64]resilience.Transition{}
	for _, t := range transitions {
		at[uint64(t.Epoch)] = t
	}
	out := judged{probes: len(fates)}
	for epoch, f := range fates {
		switch f {
		case lost:
			out.lost++
		case late:
			out.late++
		default:
			continue
		}
		next, ended := at[epoch+1]
		if !ended {
			continue // the run ended first
		}
		after := next.At.Sub(at[epoch].At) - lease
		if next.From != resilience.HalfOpen || next.To != resilience.HalfOpen || after < 0 {
			out.wrong = append(out.wrong, fmt.Sprintf("epoch %d to %s, %v after the lease: %s", epoch, next.To, after, next.Reason))
			continue
		}
		out.replaced = append(out.replaced, after)
	}
	return out
}

func (c *contention) report(j judged, stdout io.Writer, figures map[string]float64) error {
	most := c.acquirer.most.Load()
	fmt.Fprintf(stdout, "\n%d callers at %d replicas contend for probes under a lease of %v; %d replicas were killed:\n\n", replicas*callersEach, replicas, probeLease, c.kills)
	table := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "probes\tmost in flight\tnever reported\treported late\tchanged anything\treplaced\tms after the lease: p50\tmax\t")
	fmt.Fprintf(table, "%d\t%d\t%d\t%d\t%d\t%d\t%.1f\t%.1f\t\n", j.probes, most, j.lost, j.late, len(j.wrong), len(j.replaced),
		benchkit.PercentileMS(j.replaced, 50), benchkit.PercentileMS(j.replaced, 100))
	figures["max_probes"], figures["probes"], figures["probes_lost"], figures["probes_late"] = float64(most), float64(j.probes), float64(j.lost), float64(j.late)
	figures["probes_replaced"], figures["replicas_killed"] = float64(len(j.replaced)), float64(c.kills)
	figures["replaced_p50_ms"], figures["replaced_max_ms"] = benchkit.PercentileMS(j.replaced, 50), benchkit.PercentileMS(j.replaced, 100)
	if err := table.Flush(); err != nil {
		return err
	}
	if most != 1 || len(j.wrong) > 0 {
		return fmt.Errorf("%d probes in flight at once; lost or late ones that changed something: %q", most, j.wrong)
	}
	return nil
}

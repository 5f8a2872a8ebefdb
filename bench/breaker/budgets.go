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

	"paymentsd/resilience"
	"paymentsd/resilience/shared"
)

// span is when a granted retry was asked for and when the answer was there: it was granted in between.
type span struct{ asked, answered time.Duration }

// taking is one acquirer whose budget is contended for. Without successes its rule is its floors.
type taking struct {
	shared.Acquirer
	mu      sync.Mutex
	granted []span
	denied  atomic.Int64
}

// budgets has every replica take retries as fast as it gets them, and compares with the rule.
func budgets(ctx context.Context, url string, o options, stdout io.Writer, figures map[string]float64) error {
	var all []*taking
	var policies []shared.Acquirer
	for _, a := range []shared.Acquirer{
		{Name: "quiet", Breaker: resilience.DefaultBreaker(), Budget: resilience.DefaultBudget()},
		{Name: "busy", Breaker: resilience.DefaultBreaker(), Budget: resilience.BudgetConfig{Floor: 300, BurstFloor: 20}},
	} {
		all, policies = append(all, &taking{Acquirer: a}), append(policies, a)
	}
	members, err := cluster(ctx, url, policies...)
	if err != nil {
		return err
	}
	defer closeAll(members)
	ctx, cancel := context.WithTimeout(ctx, o.budget)
	defer cancel()
	began := time.Now()
	var each sync.WaitGroup
	for _, t := range all {
		for _, s := range members {
			for range callersEach {
				each.Go(func() { t.take(ctx, s, began) })
			}
		}
	}
	each.Wait()

	fmt.Fprintf(stdout, "\n%d callers at %d replicas take retries for %v, without a success:\n\n", replicas*callersEach, replicas, o.budget)
	table := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "rule a minute\tbusiest minute\trule a second\tbusiest second\tgranted\tdenied\t")
	var over error
	for _, t := range all {
		rule := t.Budget
		minute, second := busiest(t.granted, time.Minute), busiest(t.granted, time.Second)
		fmt.Fprintf(table, "%d\t%d\t%d\t%d\t%d\t%d\t\n", rule.Floor, minute, rule.BurstFloor, second, len(t.granted), t.denied.Load())
		figures[t.Name+"_rule_minute"], figures[t.Name+"_busiest_minute"] = float64(rule.Floor), float64(minute)
		figures[t.Name+"_rule_second"], figures[t.Name+"_busiest_second"] = float64(rule.BurstFloor), float64(second)
		if minute > rule.Floor || second > rule.BurstFloor {
			over = fmt.Errorf("the budget of %s granted %d in a minute and %d in a second", t.Name, minute, second)
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	return over
}

func (t *taking) take(ctx context.Context, s *shared.Shared, began time.Time) {
	for ctx.Err() == nil {
		asked := time.Since(began)
		refused := s.Budget(t.Name).Take(ctx)
		answered := time.Since(began)
		if refused != nil {
			t.denied.Add(1)
			time.Sleep(rand.N(20 * time.Millisecond))
			continue
		}
		t.mu.Lock()
		t.granted = append(t.granted, span{asked, answered})
		t.mu.Unlock()
	}
}

// busiest is the most grants that certainly fall within one window of that length, however it lies.
func busiest(granted []span, window time.Duration) (most int) {
	for _, first := range granted {
		n := 0
		for _, g := range granted {
			if g.asked >= first.asked && g.answered < first.asked+window {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

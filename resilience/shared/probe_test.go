package shared

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"paymentsd/resilience"
)

// storm runs f in n goroutines at once.
func storm(n int, f func()) {
	var wg sync.WaitGroup
	for range n {
		wg.Go(f)
	}
	wg.Wait()
}

func TestProbe(t *testing.T) {
	t.Parallel()
	t.Run("resilience case 1: 1,000 calls on 3 replicas while the probe is out: none passes", func(t *testing.T) {
		t.Parallel()
		_, all := cluster(t, 3, quick())
		trip(t, all[0], all...)
		p := takeProbe(t, all[1])
		var admitted atomic.Int64
		for _, s := range all {
			storm(334, func() {
				if _, refused := north(s).Acquire(context.Background()); refused == nil {
					admitted.Add(1)
				}
			})
		}
		if admitted.Load() != 0 {
			t.Errorf("%d calls passed beside the probe", admitted.Load())
		}
		if got := mustRefuse(t, north(all[2])); got.RetryAfter <= 0 || got.RetryAfter > probeRetryAfter {
			t.Errorf("refused with %v: no wait to tell the caller", got)
		}
		north(all[1]).Done(p, resilience.Success)
		inState(t, resilience.Closed, all...)
	})
	t.Run("resilience case 2: 12 replicas cross the deadline together: one claim wins, 11 fail fast", func(t *testing.T) {
		t.Parallel()
		db, all := cluster(t, 12, quick())
		trip(t, all[0], all...)
		time.Sleep(100 * time.Millisecond) // the open time itself: all are due
		var probes, slow atomic.Int64
		var each sync.WaitGroup
		for _, s := range all {
			each.Go(func() {
				storm(4, func() {
					began := time.Now()
					if p, refused := north(s).Acquire(context.Background()); refused == nil && p.Probe {
						probes.Add(1)
					}
					if time.Since(began) > time.Second {
						slow.Add(1)
					}
				})
			})
		}
		each.Wait()
		if probes.Load() > 1 || slow.Load() > 0 {
			t.Errorf("%d probes, %d slow answers", probes.Load(), slow.Load())
		}
		if got := transitions(t, db, resilience.Open, resilience.HalfOpen); got > 1 {
			t.Errorf("%d claims", got)
		}
	})
}

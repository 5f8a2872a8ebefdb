package resilience

import (
	"sync"
	"time"
)

// Tally is what a breaker has seen in its window. Attempts are successes and
// failures; a slow call is counted beside its outcome.
type Tally struct{ Attempts, Failures, Slow int64 }

// window remembers outcomes. Every closed epoch has its own, so a result that
// arrives late falls into a window that nobody reads any more.
type window interface {
	record(elapsed time.Duration, failed, slow bool) Tally
	tally(elapsed time.Duration) Tally
}

// timeWindow remembers the outcomes of the last buckets x width.
type timeWindow struct{ attempts, failures, slow *counter }

func newTimeWindow(buckets int, width time.Duration) *timeWindow {
	return &timeWindow{newCounter(buckets, width), newCounter(buckets, width), newCounter(buckets, width)}
}

func (w *timeWindow) record(elapsed time.Duration, failed, slow bool) Tally {
	bucket := w.attempts.bucketAt(elapsed)
	w.attempts.add(bucket) // before its failure, so that no reader sees a rate too high
	if failed {
		w.failures.add(bucket)
	}
	if slow {
		w.slow.add(bucket)
	}
	return w.read(bucket)
}

func (w *timeWindow) tally(elapsed time.Duration) Tally {
	return w.read(w.attempts.bucketAt(elapsed))
}

func (w *timeWindow) read(bucket int64) Tally {
	failures, slow := w.failures.total(bucket), w.slow.total(bucket)
	return Tally{Attempts: w.attempts.total(bucket), Failures: failures, Slow: slow}
}

// countWindow remembers the last n outcomes, however old they are.
type countWindow struct {
	mu   sync.Mutex
	next int
	sum  Tally
	seen []Tally // each one outcome; a zero one was not seen yet
}

func newCountWindow(n int) *countWindow { return &countWindow{seen: make([]Tally, n)} }

func (w *countWindow) record(_ time.Duration, failed, slow bool) Tally {
	one := Tally{Attempts: 1}
	if failed {
		one.Failures = 1
	}
	if slow {
		one.Slow = 1
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	old := w.seen[w.next]
	w.seen[w.next] = one
	w.next = (w.next + 1) % len(w.seen)
	w.sum.Attempts += one.Attempts - old.Attempts
	w.sum.Failures += one.Failures - old.Failures
	w.sum.Slow += one.Slow - old.Slow
	return w.sum
}

func (w *countWindow) tally(time.Duration) Tally {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sum
}

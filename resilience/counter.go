package resilience

import (
	"sync"
	"sync/atomic"
	"time"
)

// counter counts over a sliding window of equal buckets, without a lock except
// when time enters a new bucket. Sum is exact to the bucket: it covers the
// current bucket and the n-1 before it.
type counter struct {
	width   time.Duration
	current atomic.Int64 // number of the newest bucket since the clock's start
	sum     atomic.Int64
	mu      sync.Mutex // held while old buckets are emptied
	buckets []atomic.Int64
}

func newCounter(buckets int, width time.Duration) *counter {
	return &counter{width: width, buckets: make([]atomic.Int64, buckets)}
}

// bucketAt gives the number of the bucket that the time falls into.
func (c *counter) bucketAt(elapsed time.Duration) int64 {
	return int64(elapsed / c.width)
}

func (c *counter) add(bucket int64) {
	bucket = c.advance(bucket)
	c.buckets[bucket%int64(len(c.buckets))].Add(1)
	c.sum.Add(1)
}

func (c *counter) total(bucket int64) int64 {
	c.advance(bucket)
	return c.sum.Load()
}

// advance empties the buckets that have left the window and gives the newest
// one. A caller who read the clock before another counts in the newest bucket.
func (c *counter) advance(to int64) int64 {
	if current := c.current.Load(); to <= current {
		return current
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	current := c.current.Load()
	n := int64(len(c.buckets))
	for b := max(current+1, to-n+1); b <= to; b++ {
		c.sum.Add(-c.buckets[b%n].Swap(0))
	}
	newest := max(current, to)
	c.current.Store(newest)
	return newest
}

// oldestLeaves says how long after the given time the oldest count leaves the
// window; 0 if it is empty.
func (c *counter) oldestLeaves(elapsed time.Duration) time.Duration {
	newest := c.advance(c.bucketAt(elapsed))
	n := int64(len(c.buckets))
	for b := max(newest-n+1, 0); b <= newest; b++ {
		if c.buckets[b%n].Load() > 0 {
			return time.Duration(b+n)*c.width - elapsed
		}
	}
	return 0
}

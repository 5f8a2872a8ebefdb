package advice

import (
	"math"
	"time"
)

// Buckets a doubling: a bucket is 9 % wide, and so is the error of a quantile, always upwards.
const (
	bucketsPerDoubling = 8
	doublings          = 17 // from 1 ms to 131 s
	bounds             = bucketsPerDoubling*doublings + 1
)

// Bounds are where the buckets begin: below the first is bucket 0, from the i-th on is bucket i+1. Who
// counts in SQL hands them to width_bucket, so that both sides agree.
func Bounds() []time.Duration {
	all := make([]time.Duration, bounds)
	for i := range all {
		all[i] = time.Duration(math.Round(1000*math.Exp2(float64(i)/bucketsPerDoubling))) * time.Microsecond
	}
	return all
}

// Histogram counts times in buckets of a fixed relative width.
type Histogram struct {
	counts [bounds + 1]int64
	total  int64
}

// Add counts n times in a bucket, as width_bucket over Bounds numbers it.
func (h *Histogram) Add(bucket int, n int64) {
	h.counts[min(max(bucket, 0), bounds)] += n
	h.total += n
}

// Total is how many times were counted.
func (h *Histogram) Total() int64 { return h.total }

// Quantile is the end of the bucket in which the num/den quantile lies: at most 9 % too long, never too
// short, up to 131 s. Of nothing it is 0.
func (h *Histogram) Quantile(num, den int64) time.Duration {
	if h.total == 0 {
		return 0
	}
	left, ends := rank(h.total, num, den), Bounds()
	for bucket, n := range h.counts {
		if left -= n; left <= 0 {
			return ends[min(bucket, len(ends)-1)]
		}
	}
	return ends[len(ends)-1]
}

func (h *Histogram) p99() time.Duration  { return h.Quantile(99, 100) }
func (h *Histogram) p999() time.Duration { return h.Quantile(999, 1000) }

// show rounds a time for people: three digits are more than a bucket knows.
func show(d time.Duration) time.Duration { return d.Round(unit(d, 1000)) }

// up rounds a time up to two digits, for a configuration.
func up(d time.Duration) time.Duration {
	u := unit(d, 100)
	return (d + u - 1) / u * u
}

// unit is the power of ten in which d has fewer digits than limit has.
func unit(d, limit time.Duration) time.Duration {
	u := time.Duration(1)
	for d/u >= limit {
		u *= 10
	}
	return u
}

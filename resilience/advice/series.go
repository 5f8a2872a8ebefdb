package advice

import (
	"slices"
	"time"
)

// series is the traffic by second, read once.
type series struct {
	calls                   []uint32
	usualSecond, busySecond int64
}

func summarise(t Traffic) series {
	var busy []int64
	for _, n := range t.CallsBySecond {
		if n > 0 {
			busy = append(busy, int64(n))
		}
	}
	slices.Sort(busy)
	return series{calls: t.CallsBySecond, usualSecond: quantile(busy, 1, 2), busySecond: quantile(busy, 99, 100)}
}

// usualWindow is the median of what a breaker with that window has counted when a call comes: it looks only
// then. Parts of a second do not count.
func (s series) usualWindow(window time.Duration) int64 {
	width := int(window / time.Second)
	var seen []int64
	var sum int64
	for i, n := range s.calls {
		sum += int64(n)
		if i >= width {
			sum -= int64(s.calls[i-width])
		}
		if n > 0 {
			seen = append(seen, sum)
		}
	}
	slices.Sort(seen)
	return quantile(seen, 1, 2)
}

// quantile is the least value of which num/den of all are no greater; 0 of nothing.
func quantile(sorted []int64, num, den int64) int64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[rank(int64(len(sorted)), num, den)-1]
}

// rank counts from 1.
func rank(n, num, den int64) int64 { return max(1, (n*num+den-1)/den) }

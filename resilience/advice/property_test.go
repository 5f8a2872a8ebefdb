package advice

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"paymentsd/resilience"
)

// anyTraffic is traffic as an acquirer may have it: quiet or busy, quick or slow, failing or not.
func anyTraffic(t *rapid.T) Traffic {
	traffic := Traffic{Acquirer: "north", CallsBySecond: make([]uint32, rapid.IntRange(1, 1000).Draw(t, "seconds"))}
	most := rapid.SampledFrom([]uint32{1, 3, 40, 400}).Draw(t, "most a second")
	for i := range traffic.CallsBySecond {
		if rapid.IntRange(0, 9).Draw(t, "busy") < 3 {
			traffic.CallsBySecond[i] = rapid.Uint32Range(0, most).Draw(t, "calls")
			traffic.Calls += int64(traffic.CallsBySecond[i])
		}
	}
	traffic.Attempts = traffic.Calls
	traffic.Failures = traffic.Calls * rapid.Int64Range(0, 60).Draw(t, "failed percent") / 100
	traffic.Retries = traffic.Calls * rapid.Int64Range(0, 30).Draw(t, "retried percent") / 100
	fastest := rapid.IntRange(0, 60).Draw(t, "fastest bucket") // so that the slowest ends at 1024 ms
	for range 40 {
		traffic.Answered.Add(fastest+rapid.IntRange(0, 20).Draw(t, "bucket"), rapid.Int64Range(0, 2000).Draw(t, "times"))
	}
	return traffic
}

func anyConfigured(t *rapid.T) Configured {
	c := standard()
	c.Timeout = time.Duration(rapid.Int64Range(1100, 19_000).Draw(t, "timeout ms")) * time.Millisecond
	c.Replicas = rapid.IntRange(0, 20).Draw(t, "replicas")
	c.Breaker.Window = time.Duration(rapid.IntRange(1, 300).Draw(t, "window s")) * time.Second
	c.Breaker.WindowCount = rapid.SampledFrom([]int{0, 0, 20, 500}).Draw(t, "window count")
	c.Breaker.MinAttempts = rapid.IntRange(1, 20).Draw(t, "min attempts")
	c.Breaker.Failures = resilience.Share{Num: rapid.Int64Range(1, 99).Draw(t, "fail percent"), Den: 100}
	c.Breaker.SlowCall = time.Duration(rapid.Int64Range(0, 20_000).Draw(t, "slow ms")) * time.Millisecond
	c.Retry.Attempts = rapid.IntRange(1, 4).Draw(t, "attempts")
	c.Retry.CallP99 = time.Duration(rapid.Int64Range(0, 20_000).Draw(t, "p99 ms")) * time.Millisecond
	c.Bulkhead.Slots = rapid.IntRange(1, 5000).Draw(t, "slots")
	c.Budget.Percent = rapid.IntRange(0, 100).Draw(t, "percent")
	c.Budget.Floor = rapid.IntRange(0, 1000).Draw(t, "floor")
	c.Budget.BurstFloor = rapid.IntRange(0, 100).Draw(t, "burst floor")
	return c
}

// adopt configures what was suggested.
func adopt(c Configured, findings []Finding) Configured {
	for _, f := range findings {
		if f.Verdict != OutOfLine {
			continue
		}
		switch value := f.Suggested; f.Setting {
		case "timeout":
			c.Timeout = time.Duration(value)
		case "breaker.window":
			c.Breaker.Window = time.Duration(value)
		case "breaker.window_count":
			c.Breaker.WindowCount = int(value)
		case "breaker.min_attempts":
			c.Breaker.MinAttempts = int(value)
		case "breaker.fail_percent":
			c.Breaker.Failures = resilience.Share{Num: value, Den: 100}
		case "breaker.slow_call":
			c.Breaker.SlowCall = time.Duration(value)
		case "retry.call_p99":
			c.Retry.CallP99 = time.Duration(value)
		case "bulkhead.slots":
			c.Bulkhead.Slots = int(value)
		case "budget.percent":
			c.Budget.Percent = int(value)
		case "budget.floor":
			c.Budget.Floor = int(value)
		case "budget.burst_floor":
			c.Budget.BurstFloor = int(value)
		}
	}
	return c
}

// TestAdviceThatIsTakenEndsTheMatter: who configures what is suggested hears no more of it, and can start
// with it. The timeout comes first, since two others depend on it. A minimum that no window ever reaches,
// and one that is above a burst and so above its window, have no cure: those stay.
func TestAdviceThatIsTakenEndsTheMatter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		traffic, configured := anyTraffic(t), anyConfigured(t)
		for _, f := range Judge(traffic, configured) {
			switch {
			case f.Why == "" || f.Setting == "":
				t.Fatalf("without a word: %+v", f)
			case f.Verdict == InLine && (f.Suggested != f.Configured || f.Configured < f.Low || f.Configured > f.High):
				t.Fatalf("in line and yet not: %+v", f)
			case f.Verdict == OutOfLine && f.Low <= f.Configured && f.Configured <= f.High:
				t.Fatalf("out of line and yet within: %+v", f)
			case f.Verdict == OutOfLine && f.Setting == "timeout" &&
				(time.Duration(f.Suggested) <= configured.StoreTime || time.Duration(f.Suggested) >= configured.ChargeBudget):
				t.Fatalf("the ladder refuses what is suggested: %+v", f)
			}
		}
		for range 2 {
			configured = adopt(configured, Judge(traffic, configured))
		}
		if err := configured.Validate(); err != nil {
			t.Fatalf("what is suggested cannot be configured: %v", err)
		}
		for _, f := range Judge(traffic, configured) {
			if f.Verdict == OutOfLine && !(f.Setting == "breaker.min_attempts" && f.Low > f.High) {
				t.Fatalf("still out of line: %+v", f)
			}
		}
	})
}

func TestAQuantileIsNeverTooShortAndAtMostABucketTooLong(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var h Histogram
		var all []time.Duration
		for range rapid.IntRange(1, 200).Draw(t, "n") {
			d := time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(130*time.Second)).Draw(t, "d"))
			all = append(all, d)
			h.Add(bucketOf(d), 1)
		}
		slices.Sort(all)
		num := rapid.Int64Range(1, 1000).Draw(t, "per mille")
		want := all[rank(int64(len(all)), num, 1000)-1]
		if got := h.Quantile(num, 1000); got < want || got > want+want/10 {
			t.Fatalf("%v for %v", got, want)
		}
		if h.Total() != int64(len(all)) {
			t.Fatalf("%d of %d counted", h.Total(), len(all))
		}
	})
	var h Histogram
	if got := h.Quantile(99, 100); got != 0 {
		t.Errorf("of nothing: %v", got)
	}
	h.Add(10_000, 1)
	if got, ends := h.Quantile(1, 2), Bounds(); got != ends[len(ends)-1] {
		t.Errorf("beyond the last bucket: %v", got)
	}
}

func TestAWindowIsCountedAsABreakerCounts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		calls := rapid.SliceOfN(rapid.Uint32Range(0, 5), 1, 200).Draw(t, "calls")
		width := rapid.IntRange(1, 250).Draw(t, "width")
		var seen []int64
		for i, n := range calls {
			var sum int64
			for _, earlier := range calls[max(0, i-width+1) : i+1] {
				sum += int64(earlier)
			}
			if n > 0 {
				seen = append(seen, sum)
			}
		}
		slices.Sort(seen)
		want := int64(0)
		if len(seen) > 0 {
			want = seen[(len(seen)+1)/2-1]
		}
		if got := (series{calls: calls}).usualWindow(time.Duration(width) * time.Second); got != want {
			t.Fatalf("%d, want %d", got, want)
		}
	})
}

func TestRoundingUp(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "d"))
		if got := up(d); got < d || got > d+d/9+1 {
			t.Fatalf("%v for %v", got, d)
		}
	})
}

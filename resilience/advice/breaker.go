package advice

import (
	"fmt"
	"time"

	"paymentsd/resilience"
)

const (
	// volumeMin keeps two failures out of two in a quiet period from opening a breaker (seed 000); that it
	// is five is ours.
	volumeMin = 5
	// windowMax is the longest window that replicas share.
	windowMax = 5 * time.Minute
	// callsAWindow is what a window should usually hold: twice the least volume, so that the least can be
	// reached (ours).
	callsAWindow = 2 * volumeMin
)

// volume judges the breaker's window and its least number of attempts together, since one is nothing
// without the other. "Twenty requests in sixty seconds is a threshold that needs to be derived from the
// actual traffic rather than copied" (seed 000).
//
// In line is a minimum that is more than the calls of a usual second, or one bad second opens the breaker,
// and no more than the calls of a usual window, or it can never open.
func volume(t Traffic, s series, c Configured) []Finding {
	const window, count, least = "breaker.window", "breaker.window_count", "breaker.min_attempts"
	b := c.Breaker
	minimum, preferred := int64(b.MinAttempts), int64(resilience.DefaultBreaker().MinAttempts)
	if t.Calls < enoughForVolume {
		return []Finding{thin(least, Count, minimum, t.Calls, enoughForVolume, "calls")}
	}
	low := max(volumeMin, s.usualSecond+1)
	second := fmt.Sprintf("a usual second has %d calls", s.usualSecond)
	if b.WindowCount > 0 {
		// Judged by the last so many outcomes, however old: the minimum is always reached at last.
		n := int64(b.WindowCount)
		wide := judge(count, Count, n, low, 100_000, max(low, preferred), second+": fewer outcomes are all of one bad second")
		return []Finding{wide, judge(least, Count, minimum, low, wide.Suggested, preferred, pace(minimum, s.usualSecond, wide.Suggested, second))}
	}
	usual := s.usualWindow(b.Window)
	f := judge(least, Count, minimum, low, usual, preferred,
		pace(minimum, s.usualSecond, usual, fmt.Sprintf("%s, %v usually have %d", second, show(b.Window), usual)))
	best, reachable, why := b.Window, usual, fmt.Sprintf("%v usually have %d calls", show(b.Window), usual)
	if minimum > usual {
		best, reachable = longEnough(s, b.Window)
	}
	if best > b.Window {
		why += fmt.Sprintf(", %v have %d", show(best), reachable)
	}
	if f.Verdict == OutOfLine {
		f.Suggested = max(low, min(preferred, reachable))
		if low > reachable {
			f.Why += fmt.Sprintf("; nothing fits, since %v usually have no more than %d", show(best), reachable)
		}
	}
	return []Finding{judge(window, Time, int64(b.Window), int64(best), int64(max(best, windowMax)), int64(best), why), f}
}

// longEnough is the window itself if it usually holds enough calls to judge by, else a longer one that
// does, else the longest; and how many calls it holds.
func longEnough(s series, window time.Duration) (best time.Duration, calls int64) {
	for _, best = range []time.Duration{window, 2 * window, windowMax} {
		if calls = s.usualWindow(best); calls >= callsAWindow && best <= max(window, windowMax) {
			return best, calls
		}
	}
	best = max(window, windowMax)
	return best, s.usualWindow(best)
}

// pace says how soon a minimum is reached at the usual rate.
func pace(minimum, second, window int64, seen string) string {
	switch {
	case minimum <= second:
		return seen + ": the minimum is reached in less than a second, so that one bad second opens the breaker"
	case minimum > window:
		return seen + ": the minimum is usually never reached, so that the breaker cannot open"
	case minimum < volumeMin:
		return fmt.Sprintf("%s; below %d, a few failures in a quiet time open the breaker", seen, volumeMin)
	}
	return seen
}

// The bounds of breaker.fail_percent.
const (
	failuresPreferred = 50 // design: more than half
	failuresMax       = 90 // above it only an acquirer that does nothing at all opens the breaker (ours)
)

// failPercent has to stay clear of what fails on ordinary days: at least twice that (ours). "A rate over a
// rolling window" (seed 000): a service that fails one request in three is unhealthy.
func failPercent(t Traffic, c Configured) Finding {
	const setting = "breaker.fail_percent"
	value := c.Breaker.Failures.Num * 100 / c.Breaker.Failures.Den
	if t.Calls < enoughForP99 {
		return thin(setting, Percent, value, t.Calls, enoughForP99, "calls")
	}
	low := min(max(1, ceil(2*100*t.Failures, t.Calls)), failuresMax)
	why := fmt.Sprintf("%s of the calls failed", percent(t.Failures, t.Calls))
	switch {
	case value < low:
		why += ": less than twice that may open the breaker on an ordinary day"
	case value > failuresMax:
		why += ": only an acquirer that does nothing at all opens the breaker"
	}
	return judge(setting, Percent, value, low, failuresMax, failuresPreferred, why)
}

func ceil(a, b int64) int64 { return (a + b - 1) / b }

// percent writes a share with two decimals.
func percent(part, whole int64) string {
	hundredths := part * 10_000 / max(whole, 1)
	return fmt.Sprintf("%d.%02d %%", hundredths/100, hundredths%100)
}

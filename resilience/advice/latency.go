package advice

import (
	"fmt"
	"time"

	"paymentsd/resilience"
)

// farAbove is how many times longer than measured a limit may be before it is no limit any more, if it is
// longer than the default, too (ours).
const farAbove = 16

// timeoutDefault is never called far above: research, section 4.
const timeoutDefault = 8 * time.Second

// timeout has to leave 99.9 % of the answers in: each call that it cuts off is an unknown charge, which
// somebody has to close. An answered call is never longer than the timeout of its time, so a p99.9 this
// near to it means that the tail is cut off: a quarter more is wanted, twice as much is suggested (ours),
// one second at least, within the ladder of the configuration.
func timeout(t Traffic, c Configured) Finding {
	const setting = "timeout"
	if n := t.Answered.Total(); n < enoughForP999 {
		return thin(setting, Time, int64(c.Timeout), n, enoughForP999, "answered calls")
	}
	tail := t.Answered.p999()
	ladderLow, ladderHigh := c.StoreTime+time.Second, c.ChargeBudget*3/4
	low, high := tail+tail/4, max(farAbove*tail, timeoutDefault, ladderLow)
	preferred := min(max(up(2*tail), time.Second, ladderLow), ladderHigh)
	why := fmt.Sprintf("p99.9 of answered calls is %v", show(tail))
	switch {
	case c.Timeout < low:
		why += "; each call that is cut off is an unknown charge"
	case c.Timeout > high:
		why += "; an acquirer that hangs holds each slot this long"
	}
	if low > ladderHigh {
		why += fmt.Sprintf("; charge.budget (%v) leaves no room for more", c.ChargeBudget)
	}
	return judge(setting, Time, int64(c.Timeout), int64(low), int64(high), int64(preferred), why)
}

// slowCall must be longer than p99, or ordinary calls count as slow, and shorter than the timeout, or none
// ever does (design: slow rule, calls over 5 s).
func slowCall(t Traffic, c Configured) Finding {
	const setting = "breaker.slow_call"
	value, standard := c.Breaker.SlowCall, resilience.DefaultBreaker().SlowCall
	if value == 0 {
		return notJudged(setting, Time, 0, "the slow rule is switched off")
	}
	if n := t.Answered.Total(); n < enoughForP99 {
		return thin(setting, Time, int64(value), n, enoughForP99, "answered calls")
	}
	p99 := t.Answered.p99()
	high := min(max(farAbove*p99, standard), c.Timeout-time.Millisecond)
	preferred := min(standard, max(up(2*p99), c.Timeout*3/4))
	why := fmt.Sprintf("p99 is %v", show(p99))
	switch {
	case value < p99:
		why += ": ordinary calls count as slow"
	case value >= c.Timeout:
		why += fmt.Sprintf(", and the timeout cuts calls off at %v: none can ever count as slow", c.Timeout)
	case int64(value) > int64(high):
		why += ": a brown-out is noticed late or not at all"
	}
	return judge(setting, Time, int64(value), int64(p99), int64(high), int64(preferred), why)
}

// callP99 is what must be left to start a retry (research: "remaining >= delay + acquirer p99 (start:
// 2 s)"): as long as measured, or retries are started that cannot end in time; no longer than the timeout.
func callP99(t Traffic, c Configured) Finding {
	const setting = "retry.call_p99"
	value := c.Retry.CallP99
	if c.Retry.Attempts == 1 {
		return notJudged(setting, Time, int64(value), "retry.attempts is 1: there are no retries")
	}
	if n := t.Answered.Total(); n < enoughForP99 {
		return thin(setting, Time, int64(value), n, enoughForP99, "answered calls")
	}
	p99 := t.Answered.p99()
	high := min(max(farAbove*p99, resilience.DefaultRetry().CallP99), c.Timeout)
	why := fmt.Sprintf("p99 is %v", show(p99))
	switch {
	case value < p99:
		why += ": retries are started that cannot end in time"
	case value > high:
		why += ": retries are refused that would have fitted"
	}
	return judge(setting, Time, int64(value), int64(p99), int64(high), int64(up(p99)), why)
}

// slots is the size of the bulkhead: rate x p99 / replicas x 2 (research, section 4), at the rate of a busy
// second. If one attempt in a hundred found it full, it is too small whatever the product says (ours).
func slots(t Traffic, s series, c Configured) Finding {
	const setting = "bulkhead.slots"
	value := int64(c.Bulkhead.Slots)
	if n := t.Answered.Total(); n < enoughForP99 {
		return thin(setting, Count, value, n, enoughForP99, "answered calls")
	}
	p99 := t.Answered.p99()
	need := max(1, ceil(2*s.busySecond*p99.Microseconds(), int64(c.Replicas)*time.Second.Microseconds()))
	why := fmt.Sprintf("%d calls in a busy second x p99 %v / %d x 2 = %d", s.busySecond, show(p99), c.Replicas, need)
	low := need
	if full := t.Refused[resilience.BulkheadFull]; full > 0 {
		why += fmt.Sprintf("; %d attempts found it full", full)
		if full*100 > t.Attempts {
			low = max(low, 2*value)
		}
	}
	standard := int64(resilience.DefaultBulkhead().Slots)
	return judge(setting, Count, value, low, max(farAbove*low, standard), max(low, standard), why)
}

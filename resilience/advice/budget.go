package advice

import (
	"fmt"
	"time"

	"paymentsd/resilience"
)

// retriesMax is the greatest share of retries that is called in line: twice the design's 10 % (ours).
const retriesMax = 20

// budget judges the three numbers of the retry budget. Design: retries <= max(10, 10 % of successes in
// 60 s), and in any second <= max(1, 10 % of the mean successes a second).
//
// The share must be above what ordinary days need, or the budget is always spent, and low enough to bound
// the load. A floor must not be 0, since "a budget that reaches zero and stays there never recovers on its
// own" (seed 000), nor more than the traffic itself: then, in an outage, it alone may double the load (ours).
func budget(t Traffic, s series, c Configured) []Finding {
	const share, floor, burst = "budget.percent", "budget.floor", "budget.burst_floor"
	b, standard := c.Budget, resilience.DefaultBudget()
	values := []int64{int64(b.Percent), int64(b.Floor), int64(b.BurstFloor)}
	if c.Retry.Attempts == 1 {
		return []Finding{notJudged(share, Percent, values[0], "retry.attempts is 1: there are no retries")}
	}
	if t.Calls < enoughForP99 {
		return []Finding{thin(share, Percent, values[0], t.Calls, enoughForP99, "calls")}
	}
	successes := max(1, t.Calls-t.Failures)
	why := fmt.Sprintf("%d retries to %d successes, %s", t.Retries, successes, percent(t.Retries, successes))
	if spent := t.Refused[resilience.BudgetSpent]; spent > 0 {
		why += fmt.Sprintf("; %d attempts found the budget spent", spent)
	}
	minute := s.usualWindow(time.Minute)
	return []Finding{
		judge(share, Percent, values[0], min(retriesMax, 100*t.Retries/successes+1), retriesMax, int64(standard.Percent), why),
		judgeFloor(floor, values[1], int64(standard.Floor), minute, "60s usually have"),
		judgeFloor(burst, values[2], int64(standard.BurstFloor), s.usualSecond, "a usual second has"),
	}
}

func judgeFloor(setting string, value, standard, calls int64, usually string) Finding {
	why, high := fmt.Sprintf("%s %d calls", usually, calls), max(standard, calls)
	switch {
	case value < 1:
		why += "; a budget that reaches zero and has no floor stays there"
	case value > high:
		why += "; in an outage the floor alone may double them"
	}
	return judge(setting, Count, value, 1, high, standard, why)
}

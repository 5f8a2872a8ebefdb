package advice

import (
	"strings"
	"testing"
	"time"

	"paymentsd/resilience"
)

// steady is traffic of n calls in every step-th second for an hour, each answered within took.
func steady(n uint32, step int, took time.Duration) Traffic {
	t := Traffic{Acquirer: "north", CallsBySecond: make([]uint32, 3600)}
	for i := 0; i < len(t.CallsBySecond); i += step {
		t.CallsBySecond[i] = n
		t.Calls += int64(n)
	}
	t.Attempts = t.Calls
	t.Answered.Add(bucketOf(took), max(t.Calls, enoughForP999))
	return t
}

// bucketOf numbers buckets as width_bucket does.
func bucketOf(d time.Duration) (bucket int) {
	for _, bound := range Bounds() {
		if d >= bound {
			bucket++
		}
	}
	return bucket
}

func standard() Configured {
	return Configured{
		Settings: resilience.DefaultSettings(), Timeout: 8 * time.Second,
		StoreTime: 5 * time.Second, ChargeBudget: 20 * time.Second, Replicas: 1,
	}
}

// of is the finding about one setting.
func of(tb testing.TB, all []Finding, setting string) Finding {
	tb.Helper()
	for _, f := range all {
		if f.Setting == setting {
			return f
		}
	}
	tb.Fatalf("no finding about %s in %+v", setting, all)
	return Finding{}
}

func TestJudge(t *testing.T) {
	t.Parallel()
	type change = func(*Traffic, *Configured)
	const ms = int64(time.Millisecond)
	at300 := steady(3, 1, 300*time.Millisecond)
	for name, c := range map[string]struct {
		traffic   Traffic
		change    change
		setting   string
		verdict   Verdict
		suggested int64 // 0: not looked at
		why       string
	}{
		"a minimum of seven seconds' calls": {at300, nil, "breaker.min_attempts", InLine, 20, "a usual second has 3 calls, 1m0s usually have 180"},
		"a minimum that one second reaches": {steady(30, 1, 300*time.Millisecond), nil, "breaker.min_attempts", OutOfLine, 31, "in less than a second"},
		"a minimum that is exactly a second's calls": {at300, func(_ *Traffic, c *Configured) { c.Breaker.MinAttempts = 3 },
			"breaker.min_attempts", OutOfLine, 20, "in less than a second"},
		"a minimum that a window never reaches": {steady(1, 12, 300*time.Millisecond), nil, "breaker.min_attempts", OutOfLine, 10, "usually never reached"},
		"a window too short for its minimum":    {steady(1, 12, 300*time.Millisecond), nil, "breaker.window", OutOfLine, int64(2 * time.Minute), "1m0s usually have 5 calls, 2m0s have 10"},
		"a window too short at any length":      {steady(1, 36, 300*time.Millisecond), func(t *Traffic, _ *Configured) { t.CallsBySecond = append(t.CallsBySecond[:0:0], 1) }, "breaker.window", OutOfLine, int64(5 * time.Minute), "5m0s have 1"},
		"bursts that fill a window in a second": {steady(100, 600, 300*time.Millisecond), nil, "breaker.min_attempts", OutOfLine, 101, "nothing fits, since 1m0s usually have no more than 100"},
		"two failures out of two":               {steady(1, 2, 300*time.Millisecond), func(_ *Traffic, c *Configured) { c.Breaker.MinAttempts = 2 }, "breaker.min_attempts", OutOfLine, 20, "a few failures"},
		"a window of counts, one bad second full": {steady(30, 1, 300*time.Millisecond), func(_ *Traffic, c *Configured) { c.Breaker.WindowCount = 30 },
			"breaker.window_count", OutOfLine, 31, "one bad second"},
		"the seed's window of counts": {at300, func(_ *Traffic, c *Configured) { c.Breaker.WindowCount, c.Breaker.MinAttempts = 20, 20 },
			"breaker.min_attempts", InLine, 20, "3 calls"},

		"a threshold clear of ordinary failures": {at300, nil, "breaker.fail_percent", InLine, 50, "0.00 % of the calls failed"},
		"a threshold at what fails anyway": {at300, func(t *Traffic, c *Configured) {
			t.Failures = t.Calls / 20
			c.Breaker.Failures = resilience.Share{Num: 5, Den: 100}
		}, "breaker.fail_percent", OutOfLine, 50, "5.00 % of the calls failed"},
		"a threshold that nearly nothing passes": {at300, func(_ *Traffic, c *Configured) { c.Breaker.Failures = resilience.Share{Num: 95, Den: 100} },
			"breaker.fail_percent", OutOfLine, 50, "failed"},

		"slow is longer than p99":         {at300, nil, "breaker.slow_call", InLine, 5000 * ms, "p99 is 304ms"},
		"slow is what ordinary calls are": {at300, func(_ *Traffic, c *Configured) { c.Breaker.SlowCall = 200 * time.Millisecond }, "breaker.slow_call", OutOfLine, 0, "ordinary calls count as slow"},
		"slow is longer than the timeout": {at300, func(_ *Traffic, c *Configured) { c.Timeout = 3 * time.Second }, "breaker.slow_call", OutOfLine, 2250 * ms, "none can ever count as slow"},
		"slow is hardly ever":             {at300, func(_ *Traffic, c *Configured) { c.Breaker.SlowCall = 7 * time.Second }, "breaker.slow_call", OutOfLine, 5000 * ms, "brown-out"},
		"the slow rule is off":            {at300, func(_ *Traffic, c *Configured) { c.Breaker.SlowCall = 0 }, "breaker.slow_call", NotJudged, 0, "switched off"},

		"a timeout with room":           {at300, nil, "timeout", InLine, 8000 * ms, "p99.9 of answered calls is 304ms"},
		"a timeout that cuts the tail":  {at300, func(_ *Traffic, c *Configured) { c.Timeout = 350 * time.Millisecond }, "timeout", OutOfLine, 6000 * ms, "unknown charge"},
		"a timeout far above the tail":  {at300, func(_ *Traffic, c *Configured) { c.Timeout = 15 * time.Second }, "timeout", OutOfLine, 6000 * ms, "holds each slot"},
		"a timeout in a ladder of dev":  {at300, func(_ *Traffic, c *Configured) { c.Timeout, c.StoreTime = 350*time.Millisecond, 0 }, "timeout", OutOfLine, 1000 * ms, ""},
		"no room for a longer timeout":  {steady(3, 1, 16*time.Second), nil, "timeout", OutOfLine, 0, "charge.budget (20s) leaves no room"},
		"a retry shorter than a call":   {steady(3, 1, 3*time.Second), nil, "retry.call_p99", OutOfLine, 3200 * ms, "cannot end in time"},
		"a retry that always fits":      {at300, nil, "retry.call_p99", InLine, 2000 * ms, "p99 is 304ms"},
		"a retry that is never allowed": {at300, func(_ *Traffic, c *Configured) { c.Retry.CallP99 = 7 * time.Second }, "retry.call_p99", OutOfLine, 310 * ms, "refused that would have fitted"},
		"no retries at all":             {at300, func(_ *Traffic, c *Configured) { c.Retry.Attempts = 1 }, "retry.call_p99", NotJudged, 0, "no retries"},

		"a budget above what is needed": {at300, func(t *Traffic, _ *Configured) { t.Retries = t.Calls / 100 }, "budget.percent", InLine, 10, "1.00 %"},
		"a budget that is always spent": {at300, func(t *Traffic, _ *Configured) { t.Retries = t.Calls / 8 }, "budget.percent", OutOfLine, 13, "12.50 %"},
		"a budget that bounds little":   {at300, func(_ *Traffic, c *Configured) { c.Budget.Percent = 50 }, "budget.percent", OutOfLine, 10, "0.00 %"},
		"a budget that found its end":   {at300, func(t *Traffic, _ *Configured) { t.Refused = map[resilience.Reason]int64{resilience.BudgetSpent: 4} }, "budget.percent", InLine, 10, "4 attempts found the budget spent"},
		"no floor":                      {at300, func(_ *Traffic, c *Configured) { c.Budget.Floor = 0 }, "budget.floor", OutOfLine, 10, "60s usually have 180"},
		"a floor above the traffic":     {at300, func(_ *Traffic, c *Configured) { c.Budget.Floor = 500 }, "budget.floor", OutOfLine, 10, "60s usually have 180"},
		"a burst above the traffic":     {at300, func(_ *Traffic, c *Configured) { c.Budget.BurstFloor = 50 }, "budget.burst_floor", OutOfLine, 1, "3 calls"},

		// 100 x 4.096 s / 4 x 2: research, section 4.
		"a bulkhead by the book": {steady(100, 1, 4*time.Second), func(_ *Traffic, c *Configured) { c.Replicas, c.Bulkhead.Slots = 4, 205 },
			"bulkhead.slots", InLine, 205, "100 calls in a busy second x p99 4.1s / 4 x 2 = 205"},
		"a bulkhead one slot too small": {steady(100, 1, 4*time.Second), func(_ *Traffic, c *Configured) { c.Replicas, c.Bulkhead.Slots = 4, 204 },
			"bulkhead.slots", OutOfLine, 205, "= 205"},
		"fewer replicas need more slots each": {steady(100, 1, 4*time.Second), func(_ *Traffic, c *Configured) { c.Bulkhead.Slots = 205 },
			"bulkhead.slots", OutOfLine, 820, "/ 1 x 2 = 820"},
		"a bulkhead that holds nothing back": {at300, func(_ *Traffic, c *Configured) { c.Bulkhead.Slots = 1000 }, "bulkhead.slots", OutOfLine, 64, "= 2"},
		"a bulkhead that was full": {at300, func(t *Traffic, _ *Configured) {
			t.Refused = map[resilience.Reason]int64{resilience.BulkheadFull: t.Attempts / 50}
		}, "bulkhead.slots", OutOfLine, 128, "216 attempts found it full"},

		"too few calls for a volume":   {Traffic{Calls: 99}, nil, "breaker.min_attempts", NotJudged, 0, "not enough traffic to judge: 99 calls, 100 are needed"},
		"too few answers for a p99":    {Traffic{Calls: 999}, nil, "bulkhead.slots", NotJudged, 0, "0 answered calls, 1000 are needed"},
		"too few answers for a p99.9":  {Traffic{}, nil, "timeout", NotJudged, 0, "10000 are needed"},
		"too few calls for a share":    {Traffic{Calls: 999}, nil, "breaker.fail_percent", NotJudged, 0, "1000 are needed"},
		"too few calls for a budget":   {Traffic{Calls: 999}, nil, "budget.percent", NotJudged, 0, "1000 are needed"},
		"too few answers for slow":     {Traffic{Calls: 999}, nil, "breaker.slow_call", NotJudged, 0, "1000 are needed"},
		"too few answers for a retry":  {Traffic{Calls: 999}, nil, "retry.call_p99", NotJudged, 0, "1000 are needed"},
		"nothing at all, and defaults": {Traffic{}, nil, "breaker.min_attempts", NotJudged, 0, "0 calls"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			traffic, configured := c.traffic, standard()
			if c.change != nil {
				c.change(&traffic, &configured)
			}
			f := of(t, Judge(traffic, configured), c.setting)
			if f.Verdict != c.verdict || !strings.Contains(f.Why, c.why) || (c.suggested != 0 && f.Suggested != c.suggested) {
				t.Errorf("%s, suggested %s, because %s\nwant %s, %s, %q", f.Verdict, f.Text(f.Suggested), f.Why,
					c.verdict, f.Text(c.suggested), c.why)
			}
		})
	}
}

func TestTheDefaultsFitTheTrafficTheyWereMadeFor(t *testing.T) {
	t.Parallel()
	for _, f := range Judge(steady(3, 1, 300*time.Millisecond), standard()) {
		if f.Verdict != InLine || f.Suggested != f.Configured {
			t.Errorf("%+v", f)
		}
	}
}

func TestDescribe(t *testing.T) {
	t.Parallel()
	traffic := Traffic{CallsBySecond: make([]uint32, 86_400)} // nights do not count
	for i := range 200 {
		traffic.CallsBySecond[1000+i] = 2
	}
	traffic.CallsBySecond[1100], traffic.CallsBySecond[1101], traffic.CallsBySecond[1102] = 50, 50, 50
	if got, want := Describe(traffic), (Rates{UsualSecond: 2, BusySecond: 50, UsualMinute: 120}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := Describe(Traffic{}); got != (Rates{}) {
		t.Errorf("of nothing: %+v", got)
	}
}

func TestTextIsWhatTheConfigurationTakes(t *testing.T) {
	t.Parallel()
	for want, f := range map[string]Finding{"8s": {Unit: Time, Configured: int64(8 * time.Second)}, "50": {Unit: Percent, Configured: 50}, "20": {Configured: 20}} {
		if got := f.Text(f.Configured); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

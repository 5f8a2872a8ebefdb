package main

import (
	"time"

	"paymentsd/resilience"
	"paymentsd/resilience/shared"
)

// The policies' settings that differ from resilience's defaults. What is left out keeps the default; a
// zero that is written down is a zero.
type breakerConfig struct {
	Window            *time.Duration `yaml:"window"`
	WindowCount       *int           `yaml:"window_count"` // judge the last so many instead of a time
	MinAttempts       *int           `yaml:"min_attempts"`
	FailPercent       *int           `yaml:"fail_percent"`         // opens above it
	OpenAtFailPercent bool           `yaml:"open_at_fail_percent"` // opens at it, too
	SlowCall          *time.Duration `yaml:"slow_call"`            // 0: slow calls do not open
	SlowPercent       *int           `yaml:"slow_percent"`         // opens at it
	OpenFor           *time.Duration `yaml:"open_for"`
	OpenMax           *time.Duration `yaml:"open_max"`
	OpenJitterPercent *int           `yaml:"open_jitter_percent"`
	ReopenWithin      *time.Duration `yaml:"reopen_within"` // of a closing, an opening doubles the open time; 0: never
	ProbesToClose     *int           `yaml:"probes_to_close"`
	ProbeLease        *time.Duration `yaml:"probe_lease"`
	ProbeMargin       *time.Duration `yaml:"probe_margin"`
	Ramp              *[]int         `yaml:"ramp"` // percentages of the bulkhead after a closing; []: all at once
	RampStep          *time.Duration `yaml:"ramp_step"`
}

type retryConfig struct {
	Attempts *int           `yaml:"attempts"`
	Base     *time.Duration `yaml:"base"`
	Cap      *time.Duration `yaml:"cap"`
	CallP99  *time.Duration `yaml:"call_p99"`
}

type budgetConfig struct {
	Floor      *int `yaml:"floor"`
	Percent    *int `yaml:"percent"`
	BurstFloor *int `yaml:"burst_floor"`
}

type bulkheadConfig struct {
	Slots *int           `yaml:"slots"`
	Wait  *time.Duration `yaml:"wait"`
	Queue *int           `yaml:"queue"`
}

// check reports what package resilience would report under another name, or not at all.
func (b breakerConfig) check(at string, want func(ok bool, format string, args ...any)) {
	if p := b.FailPercent; p != nil {
		least, most := 0, 99 // more than 100 % never fails
		if b.OpenAtFailPercent {
			least, most = 1, 100
		}
		want(least <= *p && *p <= most, "%s: breaker.fail_percent is %d: it must be %d to %d", at, *p, least, most)
	}
	if p := b.SlowPercent; p != nil {
		want(1 <= *p && *p <= 100, "%s: breaker.slow_percent is %d: it must be 1 to 100", at, *p)
	}
	if w := b.Window; w != nil {
		want(*w <= shared.WindowMax, "%s: breaker.window is %v: it must be at most %v, since replicas share it", at, *w, shared.WindowMax)
	}
}

// policies are what was set for an acquirer, over the defaults.
func (a acquirerConfig) policies() resilience.Settings {
	return resilience.Settings{
		Breaker: a.Breaker.settings(), Budget: a.Budget.settings(), Bulkhead: a.Bulkhead.settings(), Retry: a.Retry.settings(a.Timeout),
	}
}

func set[T any](into, value *T) {
	if value != nil {
		*into = *value
	}
}

func (b breakerConfig) settings() resilience.BreakerConfig {
	c := resilience.DefaultBreaker()
	set(&c.Window, b.Window)
	set(&c.WindowCount, b.WindowCount)
	if c.WindowCount > 0 {
		c.MinAttempts = min(c.MinAttempts, c.WindowCount) // a short window is judged once it is full
	}
	set(&c.MinAttempts, b.MinAttempts)
	failPercent := 50
	set(&failPercent, b.FailPercent)
	if b.FailPercent != nil || b.OpenAtFailPercent {
		c.Failures = resilience.Share{Num: int64(failPercent), Den: 100, OrEqual: b.OpenAtFailPercent}
	}
	set(&c.SlowCall, b.SlowCall)
	if b.SlowPercent != nil {
		c.Slow = resilience.Share{Num: int64(*b.SlowPercent), Den: 100, OrEqual: true}
	}
	set(&c.OpenFor, b.OpenFor)
	c.OpenMax = max(c.OpenMax, c.OpenFor)
	set(&c.OpenMax, b.OpenMax)
	set(&c.OpenJitterPercent, b.OpenJitterPercent)
	set(&c.ReopenWithin, b.ReopenWithin)
	set(&c.ProbesToClose, b.ProbesToClose)
	set(&c.ProbeLease, b.ProbeLease)
	set(&c.ProbeMargin, b.ProbeMargin)
	set(&c.Ramp, b.Ramp)
	set(&c.RampStep, b.RampStep)
	return c
}

func (r retryConfig) settings(timeout time.Duration) resilience.Retry {
	c := resilience.DefaultRetry()
	set(&c.Attempts, r.Attempts)
	set(&c.Backoff.Base, r.Base)
	c.Backoff.Cap = max(c.Backoff.Cap, c.Backoff.Base)
	set(&c.Backoff.Cap, r.Cap)
	c.CallP99 = min(c.CallP99, timeout)
	set(&c.CallP99, r.CallP99)
	c.FirstMin = min(c.FirstMin, timeout/2)
	return c
}

func (b budgetConfig) settings() resilience.BudgetConfig {
	c := resilience.DefaultBudget()
	set(&c.Floor, b.Floor)
	set(&c.Percent, b.Percent)
	set(&c.BurstFloor, b.BurstFloor)
	return c
}

func (b bulkheadConfig) settings() resilience.BulkheadConfig {
	c := resilience.DefaultBulkhead()
	set(&c.Slots, b.Slots)
	set(&c.Wait, b.Wait)
	c.Queue = max(c.Queue, c.Slots)
	set(&c.Queue, b.Queue)
	return c
}

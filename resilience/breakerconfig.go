package resilience

import (
	"fmt"
	"slices"
	"time"
)

// BreakerConfig is everything that can be set on a breaker. It is checked and
// copied at construction, and fixed from then on.
type BreakerConfig struct {
	// Window is how far back outcomes count, in buckets of one second.
	Window time.Duration
	// WindowCount, if not 0, counts the last so many outcomes instead of a time.
	WindowCount int
	// MinAttempts is the least number of attempts in the window to judge by.
	MinAttempts int
	// Failures opens the breaker when failures reach this share of attempts.
	Failures Share
	// Slow opens it when calls over SlowCall do. SlowCall 0 switches that off.
	Slow     Share
	SlowCall time.Duration

	// OpenFor is the time from opening to the first probe, OpenMax its limit.
	OpenFor, OpenMax time.Duration
	// OpenJitterPercent spreads the open time both ways.
	OpenJitterPercent int
	// ReopenWithin of a closing, an opening doubles the open time.
	ReopenWithin time.Duration

	// ProbesToClose successful probes in a row, one at a time, close the breaker.
	ProbesToClose int
	// ProbeLease is how long a probe may be unheard of before another goes out;
	// a probe is told to end ProbeMargin earlier.
	ProbeLease, ProbeMargin time.Duration

	// Ramp is the percentage of the bulkhead in use after a closing, each for RampStep.
	Ramp     []int
	RampStep time.Duration

	// Listeners hear every transition, in order, outside the breaker's lock.
	// They may call the breaker. They run on a caller's goroutine: be quick.
	Listeners []func(Event)
	// Rand and Now are for simulators; nil means the real ones.
	Rand Rand
	Now  func() time.Time
}

// DefaultBreaker gives the settings for a payments acquirer: more than half of
// at least 20 attempts in 60 s failed, or 80 % were slower than 5 s; open 5 s
// +/- 20 %, doubling to 30 s while it flaps; one probe closes.
func DefaultBreaker() BreakerConfig {
	return BreakerConfig{
		Window:            60 * time.Second,
		MinAttempts:       20,
		Failures:          Share{Num: 1, Den: 2},
		Slow:              Share{Num: 8, Den: 10, OrEqual: true},
		SlowCall:          5 * time.Second,
		OpenFor:           5 * time.Second,
		OpenMax:           30 * time.Second,
		OpenJitterPercent: 20,
		ReopenWithin:      60 * time.Second,
		ProbesToClose:     1,
		ProbeLease:        15 * time.Second,
		ProbeMargin:       time.Second,
		Ramp:              []int{25, 50, 100},
		RampStep:          2 * time.Second,
	}
}

// Validate reports every setting that cannot be used, as a *ConfigError.
func (c BreakerConfig) Validate() error {
	k := checker{prefix: "breaker."}
	c.check(&k)
	return k.err()
}

func (c BreakerConfig) check(k *checker) {
	k.between("window", c.Window, time.Second, time.Hour)
	k.count("window_count", c.WindowCount, 0, 100_000)
	k.count("min_attempts", c.MinAttempts, 1, 1_000_000)
	if c.WindowCount > 0 {
		k.want(c.MinAttempts <= c.WindowCount, "min_attempts", c.MinAttempts,
			fmt.Sprintf("at most window_count (%d), or it never opens", c.WindowCount))
	}
	c.Failures.check(k, "failures")
	k.between("slow_call", c.SlowCall, 0, time.Hour)
	if c.SlowCall > 0 {
		c.Slow.check(k, "slow")
	}
	k.between("open_for", c.OpenFor, time.Millisecond, 24*time.Hour)
	k.between("open_max", c.OpenMax, c.OpenFor, 24*time.Hour)
	k.count("open_jitter_percent", c.OpenJitterPercent, 0, 90)
	k.between("reopen_within", c.ReopenWithin, 0, 24*time.Hour)
	k.count("probes_to_close", c.ProbesToClose, 1, 100)
	k.between("probe_lease", c.ProbeLease, 10*time.Millisecond, time.Hour)
	k.want(0 <= c.ProbeMargin && c.ProbeMargin < c.ProbeLease, "probe_margin", c.ProbeMargin,
		fmt.Sprintf("0 to less than probe_lease (%v)", c.ProbeLease))
	k.between("ramp_step", c.RampStep, 0, time.Hour)
	for i, percent := range c.Ramp {
		k.count(fmt.Sprintf("ramp[%d]", i), percent, 1, 100)
	}
	k.want(slices.IsSorted(c.Ramp), "ramp", c.Ramp, "rising percentages")
	for i, listener := range c.Listeners {
		k.want(listener != nil, fmt.Sprintf("listeners[%d]", i), "nil", "a function")
	}
}

func (s Share) check(k *checker, field string) {
	text := fmt.Sprintf("%d/%d", s.Num, s.Den)
	k.want(0 < s.Den && s.Den <= 1_000_000, field, text, "a denominator from 1 to 1000000")
	if s.OrEqual {
		k.want(0 < s.Num && s.Num <= s.Den, field, text, "a share above 0 and at most 1")
	} else {
		k.want(0 <= s.Num && s.Num < s.Den, field, text, "a share below 1, or it never opens")
	}
}

// frozen is a copy that shares nothing with the caller's.
func (c BreakerConfig) frozen() BreakerConfig {
	c.Ramp = slices.Clone(c.Ramp)
	c.Listeners = slices.Clone(c.Listeners)
	c.Rand = c.Rand.orDefault()
	return c
}

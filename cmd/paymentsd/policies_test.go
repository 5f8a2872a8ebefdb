package main

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"paymentsd/resilience"
)

// seeds are the seeds' own settings as they are written in a file: a cooldown of 30 s, the last ten
// outcomes, a rate of one half or more, three good probes to close; no jitter, no doubling, no ramp.
const seeds = `
acquirers:
- name: north
  url: http://127.0.0.1:1
  breaker:
    window_count: 10
    fail_percent: 50
    open_at_fail_percent: true
    slow_call: 0s
    open_for: 30s
    open_max: 30s
    open_jitter_percent: 0
    reopen_within: 0s
    probes_to_close: 3
    ramp: []
`

// seedBreaker reads what serve would hand to the breaker.
func seedBreaker(t *testing.T) resilience.BreakerConfig {
	t.Helper()
	c, err := readConfig(writeConfig(t, seeds))
	if err != nil {
		t.Fatal(err)
	}
	plans, err := planRoutes(c, func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	return plans[0].settings.Breaker
}

func TestSeedsSettings(t *testing.T) {
	t.Parallel()
	t.Run("a file gives exactly the seeds' breaker", func(t *testing.T) {
		t.Parallel()
		want := resilience.BreakerConfig{
			Window: time.Minute, WindowCount: 10, MinAttempts: 10,
			Failures: resilience.Share{Num: 50, Den: 100, OrEqual: true},
			Slow:     resilience.Share{Num: 8, Den: 10, OrEqual: true}, // of no use: SlowCall is 0
			OpenFor:  30 * time.Second, OpenMax: 30 * time.Second,
			ProbesToClose: 3, ProbeLease: 15 * time.Second, ProbeMargin: time.Second,
			Ramp: []int{}, RampStep: 2 * time.Second,
		}
		if diff := cmp.Diff(want, seedBreaker(t)); diff != "" {
			t.Error(diff)
		}
	})
	cfg := seedBreaker(t)
	for name, test := range map[string]func(*testing.T, *seedRun){
		"stays closed while the failure rate is below threshold": func(t *testing.T, r *seedRun) {
			for range 50 {
				r.record(resilience.Success, 6)
				r.record(resilience.Failure, 4)
			}
			r.want(resilience.Closed)
		},
		"trips open when the rate crosses the threshold": func(t *testing.T, r *seedRun) {
			r.record(resilience.Success, 5)
			r.record(resilience.Failure, 4)
			r.want(resilience.Closed) // nine outcomes: the window is not full
			r.record(resilience.Failure, 1)
			r.want(resilience.Open)
		},
		"open circuit fails fast, for the whole cooldown": func(t *testing.T, r *seedRun) {
			r.record(resilience.Failure, 10)
			for _, after := range []time.Duration{0, 30*time.Second - 1} {
				time.Sleep(after)
				if _, refused := r.Acquire(t.Context()); refused == nil || refused.RetryAfter != 30*time.Second-after {
					t.Errorf("after %v: %v", after, refused)
				}
			}
		},
		"three good probes close it, one at a time, and nothing is ramped": func(t *testing.T, r *seedRun) {
			r.record(resilience.Failure, 10)
			time.Sleep(30 * time.Second)
			for range 3 {
				p := r.probe()
				r.want(resilience.HalfOpen)
				if _, refused := r.Acquire(t.Context()); refused == nil {
					t.Error("a second call passed beside the probe")
				}
				r.Done(p, resilience.Success)
			}
			r.want(resilience.Closed)
			if p, refused := r.Acquire(t.Context()); refused != nil || p.RampPercent != 100 {
				t.Errorf("%+v, %v", p, refused)
			}
		},
		"a failed probe reopens at once, for 30 s again, however often": func(t *testing.T, r *seedRun) {
			r.record(resilience.Failure, 10)
			for range 4 {
				time.Sleep(30 * time.Second)
				r.Done(r.probe(), resilience.Failure)
				r.want(resilience.Open)
				if _, refused := r.Acquire(t.Context()); refused == nil || refused.RetryAfter != 30*time.Second {
					t.Errorf("refused with %v, want a whole cooldown", refused)
				}
			}
		},
		"opening soon after closing does not prolong the cooldown": func(t *testing.T, r *seedRun) {
			for range 3 {
				r.record(resilience.Failure, 10)
				if _, refused := r.Acquire(t.Context()); refused == nil || refused.RetryAfter != 30*time.Second {
					t.Errorf("refused with %v", refused)
				}
				time.Sleep(30 * time.Second)
				for range 3 {
					r.Done(r.probe(), resilience.Success)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, err := resilience.NewLocalBreaker(cfg)
				if err != nil {
					t.Fatal(err)
				}
				test(t, &seedRun{b, t})
			})
		})
	}
}

type seedRun struct {
	*resilience.LocalBreaker
	t *testing.T
}

func (r *seedRun) record(o resilience.Outcome, n int) {
	r.t.Helper()
	for range n {
		p, refused := r.Acquire(context.Background())
		if refused != nil {
			r.t.Fatal(refused)
		}
		r.Done(p, o)
	}
}

func (r *seedRun) probe() resilience.Permit {
	r.t.Helper()
	p, refused := r.Acquire(context.Background())
	if refused != nil || !p.Probe {
		r.t.Fatalf("%+v, %v: want a probe", p, refused)
	}
	return p
}

func (r *seedRun) want(state resilience.State) {
	r.t.Helper()
	if got := r.Snapshot(); got.State != state {
		r.t.Fatalf("%s, want %s: %s", got.State, state, got.Reason)
	}
}

// TestPolicySettings: what is written down counts, zeros included, and what cannot be used is named as it is
// written.
func TestPolicySettings(t *testing.T) {
	t.Parallel()
	read := func(t *testing.T, policies string) (resilience.Settings, error) {
		t.Helper()
		c, err := readConfig(writeConfig(t, "acquirers:\n- {name: north, url: 'http://127.0.0.1:1', "+policies+"}\n"))
		if err != nil {
			return resilience.Settings{}, err
		}
		plans, err := planRoutes(c, func(string) string { return "" })
		return plans[0].settings, err
	}
	for name, test := range map[string]struct{ policies, want string }{
		"a percentage of failures":     {"breaker: {fail_percent: 500}", "acquirers[0] (north): breaker.fail_percent is 500: it must be 0 to 99"},
		"one that never opens":         {"breaker: {fail_percent: 100}", "breaker.fail_percent is 100: it must be 0 to 99"},
		"one that always opens":        {"breaker: {fail_percent: 0, open_at_fail_percent: true}", "breaker.fail_percent is 0: it must be 1 to 100"},
		"a percentage of slow calls":   {"breaker: {slow_percent: 0}", "breaker.slow_percent is 0: it must be 1 to 100"},
		"a window too long to share":   {"breaker: {window: 10m}", "breaker.window is 10m0s: it must be at most 5m0s, since replicas share it"},
		"nothing to judge by":          {"breaker: {min_attempts: 0}", "breaker.min_attempts is 0"},
		"a window that is never full":  {"breaker: {window_count: 10, min_attempts: 20}", "at most window_count (10)"},
		"an open time above its limit": {"breaker: {open_for: 30s, open_max: 5s}", "breaker.open_max is 5s"},
		"no probe closes it":           {"breaker: {probes_to_close: 0}", "breaker.probes_to_close is 0"},
		"a probe without time":         {"breaker: {probe_lease: 1s, probe_margin: 1s}", "breaker.probe_margin is 1s"},
		"a ramp that falls":            {"breaker: {ramp: [100, 50]}", "breaker.ramp is [100 50]"},
		"no attempt":                   {"retry: {attempts: 0}", "retry.attempts is 0"},
		"no slot":                      {"bulkhead: {slots: 0}", "bulkhead.slots is 0"},
		"a negative budget":            {"budget: {floor: -1}", "budget.floor is -1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := read(t, test.policies); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v does not say %q", err, test.want)
			}
		})
	}
	t.Run("nothing said: the defaults", func(t *testing.T) {
		t.Parallel()
		want := resilience.DefaultSettings()
		got, err := read(t, "timeout: 8s")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("a zero that is written down is a zero", func(t *testing.T) {
		t.Parallel()
		got, err := read(t, "breaker: {slow_call: 0s, open_jitter_percent: 0, reopen_within: 0s, probe_margin: 0s, fail_percent: 0}, "+
			"budget: {floor: 0, percent: 0, burst_floor: 0}, bulkhead: {wait: 0s, queue: 0}")
		b := got.Breaker
		if err != nil || b.SlowCall != 0 || b.OpenJitterPercent != 0 || b.ReopenWithin != 0 || b.ProbeMargin != 0 || b.Failures.Num != 0 ||
			got.Budget.Floor != 0 || got.Budget.Percent != 0 || got.Budget.BurstFloor != 0 || got.Bulkhead.Wait != 0 || got.Bulkhead.Queue != 0 {
			t.Errorf("%+v, %v", got, err)
		}
	})
	t.Run("at the threshold, without a percentage, is at half", func(t *testing.T) {
		t.Parallel()
		got, err := read(t, "breaker: {open_at_fail_percent: true}")
		if want := (resilience.Share{Num: 50, Den: 100, OrEqual: true}); err != nil || got.Breaker.Failures != want {
			t.Errorf("%+v, %v", got.Breaker.Failures, err)
		}
	})
}

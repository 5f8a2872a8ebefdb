// Package advice holds what is configured for an acquirer against the traffic that it had: which numbers
// are in line, which are not, and what would be.
//
// It is pure: it is handed counts and a histogram, and gives findings. Every rule is a range; a value
// inside it is in line. Where a rule comes from stands at the rule: "design" is the design of the
// resilience policies, "research" the comparison of libraries that it rests on (section 4: recommended
// defaults), "seed" one of the incident reports that the project began with. Numbers that are nobody's but
// ours are called so.
package advice

import (
	"fmt"
	"strconv"
	"time"

	"paymentsd/resilience"
)

// Traffic is what one acquirer saw in a period.
type Traffic struct {
	Acquirer string
	// CallsBySecond are the calls of the attempts that began in each second of the period.
	CallsBySecond []uint32
	// Attempts are those that ended, with or without a call. Calls, of which Retries were not the first of
	// their attempt, are what the breaker counts.
	Attempts, Calls, Retries int64
	// Failures are the calls that a breaker counts as failed, as far as the rows tell.
	Failures int64
	// Refused counts attempts that a mechanism of ours ended, by its reason.
	Refused map[resilience.Reason]int64
	// Answered holds the times of single calls that were answered for certain.
	Answered Histogram
}

// Configured is what stands in the configuration for one acquirer.
type Configured struct {
	resilience.Settings
	// Timeout is for one call. It has to lie between StoreTime and ChargeBudget.
	Timeout, StoreTime, ChargeBudget time.Duration
	// Replicas share the traffic; at least 1.
	Replicas int
}

// Verdict is what became of a rule.
type Verdict string

// The verdicts.
const (
	InLine    Verdict = "in line"
	OutOfLine Verdict = "out of line"
	NotJudged Verdict = "not judged" // not enough traffic, or switched off
)

// Unit is what a number counts.
type Unit int

// The units. A Time is in nanoseconds.
const (
	Count Unit = iota
	Percent
	Time
)

// Finding is one setting, held against the traffic.
type Finding struct {
	Setting string // as in the configuration: "breaker.min_attempts"
	Unit    Unit
	// Configured is in line from Low to High. Suggested is Configured itself where that is in line. All but
	// Configured mean nothing if it was not judged.
	Configured, Suggested, Low, High int64
	Verdict                          Verdict
	Why                              string
}

// Text writes a value of the finding as the configuration does.
func (f Finding) Text(value int64) string {
	if f.Unit == Time {
		return time.Duration(value).String()
	}
	return strconv.FormatInt(value, 10)
}

// The least numbers of calls to judge by: at least ten lie beyond a quantile, so that one odd call does not
// decide (ours).
const (
	enoughForVolume = 100
	enoughForP99    = 1_000
	enoughForP999   = 10_000
)

// judge finds where value stands in [low, high]. Preferred is suggested where it is not in line, as near as
// the range allows; if nothing fits (low > high), the low end is not given up.
func judge(setting string, unit Unit, value, low, high, preferred int64, why string) Finding {
	f := Finding{Setting: setting, Unit: unit, Configured: value, Suggested: value, Low: low, High: high, Verdict: InLine, Why: why}
	if value < low || value > high {
		f.Verdict, f.Suggested = OutOfLine, max(low, min(preferred, high))
	}
	return f
}

func notJudged(setting string, unit Unit, value int64, format string, args ...any) Finding {
	return Finding{Setting: setting, Unit: unit, Configured: value, Verdict: NotJudged, Why: fmt.Sprintf(format, args...)}
}

func thin(setting string, unit Unit, value, have, need int64, what string) Finding {
	return notJudged(setting, unit, value, "not enough traffic to judge: %d %s, %d are needed", have, what, need)
}

// Judge holds every setting against the traffic, in the order of the configuration.
func Judge(t Traffic, c Configured) []Finding {
	c.Replicas = max(c.Replicas, 1)
	s := summarise(t)
	findings := []Finding{timeout(t, c)}
	findings = append(findings, volume(t, s, c)...)
	findings = append(findings, failPercent(t, c), slowCall(t, c), callP99(t, c))
	findings = append(findings, budget(t, s, c)...)
	return append(findings, slots(t, s, c))
}

// Rates describes the traffic as people and breakers see it.
type Rates struct {
	// UsualSecond and BusySecond are calls a second: the median and the 99th percentile over the seconds in
	// which there was any. At night there is nothing to judge.
	UsualSecond, BusySecond int64
	// UsualMinute is the calls of the last 60 s, looked at in each second with a call: the median.
	UsualMinute int64
}

// Describe gives the rates of t.
func Describe(t Traffic) Rates {
	s := summarise(t)
	return Rates{UsualSecond: s.usualSecond, BusySecond: s.busySecond, UsualMinute: s.usualWindow(time.Minute)}
}

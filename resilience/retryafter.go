package resilience

import (
	"strconv"
	"strings"
	"time"
)

// RetryAfterMax bounds what an acquirer can ask of us. It is far beyond any
// deadline of ours, so a longer request ends the tries just the same; and a
// garbled year does not tell our own clients to return in a decade.
const RetryAfterMax = time.Hour

// The three forms of an HTTP date, RFC 9110 section 5.6.7.
const (
	imfFixdate = "Mon, 02 Jan 2006 15:04:05 GMT"
	rfc850Date = "Monday, 02-Jan-06 15:04:05 GMT"
	asctime    = "Mon Jan _2 15:04:05 2006"
)

// ParseRetryAfter reads all the values of a Retry-After header (RFC 9110 section
// 10.2.3): whole seconds or an HTTP date in any of its three forms. The result is
// in [0, RetryAfterMax]. Of several values the longest counts, whether sent as
// several fields or joined by commas; a fraction of a second is rounded up.
//
// It is false if nothing could be read, as for a negative number, NaN or
// garbage: then the caller's own backoff applies. A date that has passed gives 0
// and true, to which a retry adds its backoff as it does to any other.
func ParseRetryAfter(values []string, now time.Time) (time.Duration, bool) {
	longest, found := time.Duration(0), false
	keep := func(d time.Duration, ok bool) {
		if ok {
			longest, found = max(longest, d), true
		}
	}
	for _, value := range values {
		value = strings.Trim(value, " \t")
		if d, ok := parseDate(value, now); ok {
			keep(d, true)
			continue
		}
		for part := range strings.SplitSeq(value, ",") {
			keep(parseSeconds(strings.Trim(part, " \t")))
		}
	}
	return longest, found
}

func parseSeconds(s string) (time.Duration, bool) {
	whole, fraction, hasFraction := strings.Cut(s, ".")
	if !isDigits(whole) || hasFraction && !isDigits(fraction) {
		return 0, false
	}
	seconds, err := strconv.ParseUint(whole, 10, 64)
	if err != nil || seconds >= uint64(RetryAfterMax/time.Second) { // err: out of range, so huge
		return RetryAfterMax, true
	}
	if strings.Trim(fraction, "0") != "" {
		seconds++
	}
	return time.Duration(seconds) * time.Second, true
}

func isDigits(s string) bool {
	for _, r := range s {
		if r < '0' || r > '9' {
			return false
		}
	}
	return s != ""
}

func parseDate(s string, now time.Time) (time.Duration, bool) {
	for _, layout := range []string{imfFixdate, rfc850Date, asctime} {
		t, err := time.Parse(layout, s)
		if err != nil {
			continue
		}
		if layout == rfc850Date {
			t = nearestCentury(t, now)
		}
		return min(max(t.Sub(now), 0), RetryAfterMax), true
	}
	return 0, false
}

// nearestCentury resolves a two-digit year: one that appears to be more than 50
// years ahead is in the past, and the other way about.
func nearestCentury(t, now time.Time) time.Time {
	switch {
	case t.After(now.AddDate(50, 0, 0)):
		return t.AddDate(-100, 0, 0)
	case t.Before(now.AddDate(-50, 0, 0)):
		return t.AddDate(100, 0, 0)
	}
	return t
}

package resilience

import (
	"net/http"
	"testing"
	"time"
)

var testNow = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

func TestParseRetryAfter(t *testing.T) {
	t.Parallel()
	in90s := testNow.Add(90 * time.Second)
	tests := []struct {
		name   string
		values []string
		want   time.Duration
		found  bool
	}{
		{"no header", nil, 0, false},
		{"seconds", []string{"120"}, 2 * time.Minute, true},
		{"zero is a wish, to which the backoff is added", []string{"0"}, 0, true},
		{"blanks around it", []string{" 7\t"}, 7 * time.Second, true},
		{"a fraction is rounded up", []string{"1.2"}, 2 * time.Second, true},
		{"a fraction of nothing", []string{"3.000"}, 3 * time.Second, true},
		{"IMF-fixdate", []string{in90s.Format(http.TimeFormat)}, 90 * time.Second, true},
		{"RFC 850", []string{in90s.Format("Monday, 02-Jan-06 15:04:05 GMT")}, 90 * time.Second, true},
		{"asctime", []string{in90s.Format(time.ANSIC)}, 90 * time.Second, true},
		{"RFC 850 of the last century is past", []string{"Sunday, 06-Nov-94 08:49:37 GMT"}, 0, true},
		{"RFC 850 within 50 years is ahead", []string{"Wednesday, 06-Nov-75 08:49:37 GMT"}, RetryAfterMax, true},
		{"a date that has passed", []string{testNow.Add(-time.Hour).Format(http.TimeFormat)}, 0, true},
		{"a date in a decade is bounded", []string{"Thu, 01 Jan 2037 00:00:00 GMT"}, RetryAfterMax, true},
		{"huge", []string{"10000000000"}, RetryAfterMax, true},
		{"beyond 64 bits", []string{"99999999999999999999999999"}, RetryAfterMax, true},
		{"a day is bounded", []string{"86400"}, RetryAfterMax, true},
		{"negative", []string{"-5"}, 0, false},
		{"NaN", []string{"NaN"}, 0, false},
		{"infinite", []string{"Inf"}, 0, false},
		{"an exponent", []string{"1e3"}, 0, false},
		{"empty", []string{""}, 0, false},
		{"a dot", []string{"."}, 0, false},
		{"words", []string{"soon"}, 0, false},
		{"other digits than ASCII", []string{"٣"}, 0, false},
		{"twice: the longer", []string{"5", "60"}, time.Minute, true},
		{"twice the other way: the longer", []string{"60", "5"}, time.Minute, true},
		{"joined by a proxy", []string{"5, 60"}, time.Minute, true},
		{"one of two is garbage", []string{"-1", "9"}, 9 * time.Second, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, found := ParseRetryAfter(test.values, testNow)
			if got != test.want || found != test.found {
				t.Errorf("ParseRetryAfter(%q) = %v, %v, want %v, %v", test.values, got, found, test.want, test.found)
			}
		})
	}
}

func FuzzParseRetryAfter(f *testing.F) {
	for _, seed := range []string{"0", "120", "-5", "NaN", "1.5", "5, 60", "10000000000", "Thu, 01 Jan 2037 00:00:00 GMT",
		"Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994", "Fri, 31 Dec 9999 23:59:59 GMT"} {
		f.Add(seed, "7", int64(0))
	}
	f.Fuzz(func(t *testing.T, a, b string, seconds int64) {
		now := time.Unix(seconds%1e11, 0)
		both, found := ParseRetryAfter([]string{a, b}, now)
		if both < 0 || both > RetryAfterMax || !found && both != 0 {
			t.Fatalf("%q, %q: %v, %v", a, b, both, found)
		}
		for _, one := range []string{a, b} {
			if d, ok := ParseRetryAfter([]string{one}, now); d > both || ok && !found {
				t.Fatalf("%q alone asks for %v, both for %v", one, d, both)
			}
		}
	})
}

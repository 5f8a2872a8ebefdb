package reconcile

import "time"

// Days are counted in UTC, which is also what a canonical file's period is in. A day off is Saturday or
// Sunday: bank holidays differ by country, and a cut-off that is a day early only asks a person sooner.

// dayOf is the UTC day of a moment, at midnight.
func dayOf(t time.Time) time.Time {
	t = t.UTC()
	return time.Date(t.Year(), t.Month(), t.Day(), 0, 0, 0, 0, time.UTC)
}

func businessDay(day time.Time) bool {
	return day.Weekday() != time.Saturday && day.Weekday() != time.Sunday
}

// businessDays counts the business days after from's day, up to and including to's; 0 if to is not
// later.
func businessDays(from, to time.Time) int {
	const week, workingWeek = 7, 5
	from, to = dayOf(from), dayOf(to)
	if !to.After(from) {
		return 0
	}
	days := int(to.Sub(from) / (24 * time.Hour))
	count := days / week * workingWeek
	for i := range days % week {
		if businessDay(to.AddDate(0, 0, -i)) {
			count++
		}
	}
	return count
}

// cutoffEnd is when the n-th business day after t's day is over.
func cutoffEnd(t time.Time, n int) time.Time {
	day := dayOf(t)
	for n > 0 {
		day = day.AddDate(0, 0, 1)
		if businessDay(day) {
			n--
		}
	}
	return day.AddDate(0, 0, 1)
}

// pastCutoff is the first day on which something of t's day is past its cut-off: a report of that day
// can tell.
func pastCutoff(t, asOf time.Time, n int) bool { return businessDays(t, asOf) > n }

// lastDayPastCutoff is the latest day whose events are past their cut-off on asOf.
func lastDayPastCutoff(asOf time.Time, n int) time.Time {
	day := dayOf(asOf)
	for !pastCutoff(day, asOf, n) {
		day = day.AddDate(0, 0, -1)
	}
	return day
}

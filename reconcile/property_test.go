package reconcile

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"paymentsd/ledger"
	"paymentsd/payment"
	"paymentsd/settlement"
)

// world is what rapid drew: a charge, and what the acquirer says about it.
type world struct {
	status payment.Status
	amount int // cents
	// lines are the gross amounts of capture lines, in cents, each under a capture id of its own.
	lines  []int
	denied bool
}

// drawWorld draws the nth charge. Amounts differ from charge to charge: a line that fits no charge and has the
// amount of another one may be its capture under a damaged reference, and keeps it unknown.
func drawWorld(rt *rapid.T, n int) world {
	w := world{
		status: rapid.SampledFrom([]payment.Status{payment.Captured, payment.Unknown, payment.Unknown, payment.Declined, payment.Failed}).Draw(rt, "status"),
		amount: 1000*(n+1) + rapid.IntRange(0, 499).Draw(rt, "amount"),
		denied: rapid.Bool().Draw(rt, "denied"),
	}
	for range rapid.IntRange(0, 3).Draw(rt, "lines") {
		if rapid.Bool().Draw(rt, "whole") {
			w.lines = append(w.lines, w.amount)
		} else {
			w.lines = append(w.lines, rapid.IntRange(1, 500).Draw(rt, "part"))
		}
	}
	return w
}

// settles says whether the lines are the charge's capture: together, or one of them alone.
func (w world) settles() bool {
	sum, whole := 0, false
	for _, l := range w.lines {
		sum, whole = sum+l, whole || l == w.amount
	}
	return len(w.lines) > 0 && (sum == w.amount || whole)
}

// after is what the charge must be on the day after the cut-off, all files being here.
func (w world) after() payment.Status {
	switch {
	case w.status != payment.Unknown:
		return w.status
	case w.settles():
		return payment.Captured
	case len(w.lines) == 0 && w.denied:
		return payment.Failed
	}
	return payment.Unknown
}

func cents(n int) string { return fmt.Sprintf("%d.%02d", n/100, n%100) }

// Whatever acquirers say about whatever charges: an unknown ends only by lines that add up exactly or by
// a whole absence, nothing else changes its state, every cent that came is in the books, which
// balance, and a second run changes nothing.
func TestAnyFeedOfAnyCharges(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	round := 0
	rapid.Check(t, func(rt *rapid.T) {
		round++
		acquirer := fmt.Sprintf("acq_%d", round) // a fresh one: earlier rounds' files are another's
		s.exec(`insert into merchants (merchant_id, name, acquirers, created_at) values ($1, 'routed', array[$2], $3)`, 5000+round, acquirer, monday)
		worlds := make([]world, rapid.IntRange(1, 4).Draw(rt, "charges"))
		charges := make([]payment.Charge, len(worlds))
		var lines []settlement.Line
		came := 0
		for i := range worlds {
			worlds[i] = drawWorld(rt, i)
			w := worlds[i]
			charges[i] = s.charge(spec{status: w.status, amount: cents(w.amount), tried: []string{acquirer}})
			for n, l := range w.lines {
				id := fmt.Sprintf("%d-%d-%d", round, i, n)
				change := []func(*settlement.Line){gross(t, cents(l), "USD")}
				if n > 0 || w.status != payment.Captured {
					change = append(change, capture(id))
				}
				lines, came = append(lines, line(id, charges[i], change...)), came+l
			}
			if w.denied {
				lines = append(lines, denied(t, fmt.Sprintf("%d-%d-no", round, i), charges[i]))
			}
		}
		lines = rapid.Permutation(lines).Draw(rt, "order")
		q := request(acquirer, late, week(t, acquirer, toCutoff, lines...)...)
		first := s.run(q)
		for i, w := range worlds {
			if got, want := s.status(charges[i]), w.after(); got != want {
				rt.Errorf("%+v became %s, want %s", w, got, want)
			}
		}
		want := "none"
		if came > 0 {
			want = cents(came)
		}
		if got := s.balance(ledger.Bank(acquirer), "USD"); got != want {
			rt.Errorf("the bank of %s has %s, want %s", acquirer, got, want)
		}
		if first.Lines.NotExamined != 0 || first.Lines.Waiting != 0 {
			rt.Errorf("lines are left over: %+v", first.Lines)
		}
		if second := text(t, s.run(q)); second != text(t, first) {
			rt.Errorf("a second run says\n%s\nnot\n%s", second, text(t, first))
		}
	})
}

// Days between dates are counted by a formula; one by one they are the same.
func TestBusinessDays(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		from := monday.AddDate(0, 0, rapid.IntRange(-400, 400).Draw(rt, "from"))
		to := from.AddDate(0, 0, rapid.IntRange(-3, 40).Draw(rt, "days"))
		want := 0
		for d := dayOf(from).AddDate(0, 0, 1); !d.After(dayOf(to)); d = d.AddDate(0, 0, 1) {
			if businessDay(d) {
				want++
			}
		}
		if got := businessDays(from, to); got != want {
			rt.Errorf("from %s to %s: %d, want %d", from, to, got, want)
		}
		n := rapid.IntRange(1, 20).Draw(rt, "cutoff")
		if end := cutoffEnd(from, n); businessDays(from, end.AddDate(0, 0, -1)) != n || !businessDay(end.AddDate(0, 0, -1)) {
			rt.Errorf("the cut-off of %d days from %s ends at %s", n, from, end)
		}
		if last := lastDayPastCutoff(to, n); !pastCutoff(last, to, n) || pastCutoff(last.AddDate(0, 0, 1), to, n) {
			rt.Errorf("the last day past its cut-off on %s is %s", to, last)
		}
	})
}

package shared

import (
	"time"

	"paymentsd/resilience"
)

// history is what this replica alone saw in the window, a step a flush. Only the flusher uses it.
type history struct {
	steps []step
}

type step struct {
	at    time.Duration
	tally resilience.Tally
}

// add notes what came since the last step, and forgets what has left the window.
func (h *history) add(now, window time.Duration, came resilience.Tally) {
	old := 0
	for old < len(h.steps) && h.steps[old].at <= now-window {
		old++
	}
	h.steps = append(h.steps[:0], h.steps[old:]...)
	if came != (resilience.Tally{}) {
		h.steps = append(h.steps, step{now, came})
	}
}

// tally sums the window; with a count, the newest steps that hold so many attempts.
func (h *history) tally(count int) (sum resilience.Tally) {
	for i := len(h.steps) - 1; i >= 0; i-- {
		if count > 0 && sum.Attempts >= int64(count) {
			break
		}
		sum = plus(sum, h.steps[i].tally)
	}
	return sum
}

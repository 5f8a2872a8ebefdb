package resilience

import (
	"fmt"
	"time"
)

// Retry says whether and when to try again. Retries belong at one layer only:
// stacked, they multiply.
type Retry struct {
	// Attempts is the most calls for one request, the first included.
	Attempts int
	Backoff  Backoff
	// CallP99 is the acquirer's 99th percentile: a retry is started only if as
	// much time is left after its wait.
	CallP99 time.Duration
	// FirstMin is the least time that must be left to make the first call.
	FirstMin time.Duration
}

// DefaultRetry gives 3 attempts with full jitter from 250 ms to 5 s, a p99 of
// 2 s and at least 1 s for the first call.
func DefaultRetry() Retry {
	return Retry{
		Attempts: 3,
		Backoff:  Backoff{Jitter: JitterFull, Base: 250 * time.Millisecond, Cap: 5 * time.Second},
		CallP99:  2 * time.Second,
		FirstMin: time.Second,
	}
}

// Next gives the wait before the next try, after the given number of tries
// (from 1) of which the last came to v: the acquirer's Retry-After plus the
// jittered backoff, so never earlier than asked and never in step. Previous is
// the last backoff, which is given back for the next turn. If the wait and a
// call do not fit into what remains, it refuses now rather than at the deadline.
// Whether v may be retried at all, and Attempts, are the caller's to ask.
func (r Retry) Next(tries int, previous time.Duration, v Verdict, remaining time.Duration, random Rand) (wait, backoff time.Duration, refused *Rejection) {
	asked := max(v.RetryAfter, 0)
	backoff = r.Backoff.Delay(tries, previous, random)
	wait = addSaturating(asked, backoff)
	if remaining >= r.CallP99 && wait <= remaining-r.CallP99 { // a sum that saturates would seem to fit
		return wait, backoff, nil
	}
	refused = &Rejection{
		Reason:     DeadlineTooShort,
		RetryAfter: asked,
		Detail: fmt.Sprintf("%v left, a retry needs %v and a wait of %v",
			remaining.Round(time.Millisecond), r.CallP99, wait.Round(time.Millisecond)),
	}
	if asked > 0 && (remaining < r.CallP99 || asked > remaining-r.CallP99) {
		refused.Reason = RetryAfterTooLong
		refused.Detail = fmt.Sprintf("%v left, a retry needs %v and the acquirer asked to wait %v",
			remaining.Round(time.Millisecond), r.CallP99, asked)
	}
	return 0, backoff, refused
}

// Validate reports every setting that cannot be used, as a *ConfigError.
func (r Retry) Validate() error {
	k := checker{prefix: "retry."}
	r.check(&k)
	return k.err()
}

func (r Retry) check(k *checker) {
	k.count("attempts", r.Attempts, 1, 10)
	r.Backoff.check(k)
	k.between("call_p99", r.CallP99, 0, time.Hour)
	k.between("first_min", r.FirstMin, 0, time.Hour)
}

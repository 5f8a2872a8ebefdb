// Package resilience decides whether, when and how often to call something
// that may fail: jitter, retry, budget, breaker, bulkhead, deadline, shedding.
//
// It is pure policy. It opens no connection, writes no log and knows nothing of
// charges; it is told what came of a call (a [Verdict]) and says what may happen
// next. Whatever it refuses, it refuses with a [Rejection]: which mechanism, its
// numbers, and when to try again.
//
// A [Chain] composes the mechanisms for one acquirer, and asks them in this
// order before every single try, so that a running retry loop stops the moment
// the breaker opens:
//
//	deadline > budget (retries only) > breaker > bulkhead > the call
//
// [Breaker] and [Budget] are interfaces. [LocalBreaker] and [LocalBudget] decide
// within one process; a form that every replica shares implements the same two.
//
// One rule stands above the others: bookkeeping never changes the outcome of a
// call that was made.
package resilience

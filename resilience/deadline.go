package resilience

import (
	"context"
	"errors"
	"fmt"
	"time"
)

type startByKey struct{}

// WithStartBy says until when work may be started under ctx. Unlike a deadline
// it never cuts off a call that was sent: it carries the caller's patience on a
// context that is detached from the caller. The earlier of two limits holds.
func WithStartBy(ctx context.Context, t time.Time) context.Context {
	if earlier, ok := ctx.Value(startByKey{}).(time.Time); ok && earlier.Before(t) {
		return ctx
	}
	return context.WithValue(ctx, startByKey{}, t)
}

// Remaining is the time until the earlier of ctx's deadline and its start-by
// limit; the largest duration if it has neither. It may be negative.
func Remaining(ctx context.Context) time.Duration {
	limit, limited := ctx.Deadline()
	if startBy, ok := ctx.Value(startByKey{}).(time.Time); ok && (!limited || startBy.Before(limit)) {
		limit, limited = startBy, true
	}
	if !limited {
		return forever
	}
	return time.Until(limit)
}

// mayStart refuses to begin what could not end: nobody starts work for a caller
// who has gone.
func mayStart(ctx context.Context, need time.Duration) *Rejection {
	if ctx.Err() != nil {
		return gone(ctx)
	}
	if left := Remaining(ctx); left < need {
		return &Rejection{
			Reason: DeadlineTooShort,
			Detail: fmt.Sprintf("%v left, a call needs %v", left.Round(time.Millisecond), need),
		}
	}
	return nil
}

// gone turns the end of a context into a refusal.
func gone(ctx context.Context) *Rejection {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return &Rejection{Reason: DeadlineTooShort, Detail: fmt.Sprintf("the deadline passed %v before the call was made", max(-Remaining(ctx), 0).Round(time.Millisecond))}
	}
	return &Rejection{Reason: CallerGone, Detail: "the caller cancelled before the call was made"}
}

package groupcommit

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"
)

// flush writes group after group until none is left.
func (q *Queue[T, A]) flush() {
	ended := false
	defer func() {
		if !ended {
			go q.flush() // a Write ended this goroutine: another takes its place
		}
	}()
	for q.stays() {
		q.turn()
	}
	ended = true
}

// turn writes one group.
func (q *Queue[T, A]) turn() {
	ctx, cancel := context.WithTimeout(context.Background(), q.TimeMax)
	defer cancel()
	var group []*entry[T, A]
	ended := false
	defer func() {
		cause := recover()
		if ended {
			return
		}
		err := fmt.Errorf("%w: %v\n%s", ErrFlusherLost, cause, debug.Stack())
		for _, e := range group {
			e.fail(err)
		}
	}()
	w, err := q.Open(ctx)
	if err != nil {
		group = q.take()
		for _, e := range group {
			e.fail(fmt.Errorf("%w: %w", ErrNotWritten, err))
		}
		ended = true
		return
	}
	defer w.Close()
	group = q.take()
	q.serve(w, group)
	ended = true
}

// serve answers every item of a group. While that takes long, this flusher does not count as one.
func (q *Queue[T, A]) serve(w Writer[T, A], group []*entry[T, A]) {
	aside := false
	timer := time.AfterFunc(q.Slow, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if aside || q.slow >= q.SlowMax {
			return
		}
		aside = true
		q.slow++
		q.active--
		q.hire()
	})
	defer func() {
		timer.Stop()
		q.mu.Lock()
		defer q.mu.Unlock()
		if aside {
			q.slow--
			q.active++ // stays ends this flusher if that is one too many
		}
		aside = true // if the timer has fired just now it comes too late
	}()
	for _, part := range q.parts(fresh(group)) {
		q.write(w, part, len(part) > 1)
	}
}

// fresh drops what nobody waits for any more, or what is too late.
func fresh[T, A any](group []*entry[T, A]) []*entry[T, A] {
	kept := make([]*entry[T, A], 0, len(group))
	for _, e := range group {
		switch {
		case e.ctx.Err() != nil:
			e.fail(fmt.Errorf("%w: %w", ErrNotWritten, e.ctx.Err()))
		case !e.turnBy.IsZero() && !time.Now().Before(e.turnBy):
			e.fail(ErrLate)
		default:
			kept = append(kept, e)
		}
	}
	return kept
}

// parts divides a group into those that may share a commit.
func (q *Queue[T, A]) parts(group []*entry[T, A]) [][]*entry[T, A] {
	if q.Scope == nil {
		return [][]*entry[T, A]{group}
	}
	var parts [][]*entry[T, A]
	place := map[int64]int{}
	for _, e := range group {
		scope := q.Scope(e.item)
		at, known := place[scope]
		if !known {
			at = len(parts)
			place[scope] = at
			parts = append(parts, nil)
		}
		parts[at] = append(parts[at], e)
	}
	return parts
}

// write writes a group, and halves it if one of its items may have spoiled it. It does not stay with the
// culprit: the others come first.
func (q *Queue[T, A]) write(w Writer[T, A], group []*entry[T, A], hurry bool) {
	if len(group) == 0 {
		return
	}
	answers, err := q.once(w, group, hurry)
	if err == nil && len(answers) != len(group) {
		err = fmt.Errorf("%d items got %d answers", len(group), len(answers))
	}
	if err != nil && hurry && q.Split(err) {
		if len(group) == 1 {
			q.setAside(group[0])
			return
		}
		half := len(group) / 2
		q.write(w, group[:half], true)
		q.write(w, group[half:], true)
		return
	}
	for i, e := range group {
		if err != nil {
			e.fail(err)
			continue
		}
		e.answer = answers[i]
		close(e.done)
	}
}

func (q *Queue[T, A]) once(w Writer[T, A], group []*entry[T, A], hurry bool) ([]A, error) {
	ctx, cancel := context.WithTimeout(context.Background(), q.TimeMax)
	defer cancel()
	items := make([]T, len(group))
	for i, e := range group {
		items[i] = e.item
	}
	return w.Write(ctx, items, hurry)
}

// fail answers with an error, unless there is an answer.
func (e *entry[T, A]) fail(err error) {
	select {
	case <-e.done:
	default:
		e.err = err
		close(e.done)
	}
}

// Package groupcommit lets many callers share one write: each hands over an item and waits for its own
// answer, and whatever has come meanwhile is written together, in one commit, while the next group forms.
// Nothing waits for company: an item that comes while a flusher is free is written at once.
package groupcommit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"
)

// Why an item was not written. ErrNotWritten is behind the others: it is certain that no Write saw the item.
var (
	ErrNotWritten = errors.New("not written")
	ErrFull       = fmt.Errorf("%w: the queue is full", ErrNotWritten)
	ErrLate       = fmt.Errorf("%w: its time was up before its turn came", ErrNotWritten)
	ErrClosed     = fmt.Errorf("%w: the queue is closed", ErrNotWritten)
)

// ErrFlusherLost says that a Write panicked, or ended its goroutine: the items may be written or not.
var ErrFlusherLost = errors.New("the flusher was lost")

// Config says how groups are written. Every number is at least 1, every duration more than 0.
type Config[T, A any] struct {
	// Flushers is how many groups may be on their way at once.
	Flushers int
	// GroupMax is how many items one group has at most.
	GroupMax int
	// QueueMax is how many items may wait; beyond it Do refuses with ErrFull.
	QueueMax int
	// TimeMax bounds one Open and one Write.
	TimeMax time.Duration
	// Slow is how long a group may take before another flusher takes its place, so that a row that is
	// locked elsewhere holds up nobody but itself. SlowMax bounds how many may be slow at once.
	Slow    time.Duration
	SlowMax int
	// Open gets hold of what a group is written with, such as a connection. The items wait in the queue
	// meanwhile; if it fails they are not written, and get its error.
	Open func(ctx context.Context) (Writer[T, A], error)
	// Split reports an error after which it is certain that nothing was written, and one item may be to
	// blame: the group is then halved, and again, until that item stands alone. It then goes to the head of
	// the queue and is written by itself, without hurry: what that brings is its answer.
	Split func(error) bool
	// Scope, if set, says which items may share a commit: those with the same number.
	Scope func(T) int64
}

// Writer writes groups, one at a time.
type Writer[T, A any] interface {
	// Write writes a group, all or nothing, and answers each item, in order. An error is about the whole.
	// In a hurry it gives up early, with an error to split for, if one item has to wait for somebody else:
	// there are neighbours who need not. An item that came alone is never in a hurry.
	Write(ctx context.Context, group []T, hurry bool) ([]A, error)
	// Close gives back what Open got hold of.
	Close()
}

// Queue is what callers share. Make one with New. It is safe for concurrent use.
type Queue[T, A any] struct {
	Config[T, A]

	mu      sync.Mutex
	waiting []*entry[T, A]
	active  int // flushers, without those that are slow
	slow    int
	closed  bool
	idle    *sync.Cond // signalled when a flusher ends
}

// entry is one item and where its answer goes.
type entry[T, A any] struct {
	ctx    context.Context
	turnBy time.Time // zero: any time
	alone  bool      // it is written by itself
	item   T
	done   chan struct{} // closed when answered
	answer A
	err    error
}

// New makes a Queue. It starts nothing: flushers live while there is something to write.
func New[T, A any](c Config[T, A]) *Queue[T, A] {
	q := &Queue[T, A]{Config: c}
	q.idle = sync.NewCond(&q.mu)
	return q
}

// AnyTime lets an item wait for its turn as long as its context allows.
const AnyTime = time.Duration(math.MaxInt64)

// Do hands item over and waits for its answer. An item whose turn does not come within the given time is not
// written: ErrLate. If ctx ends while it waits for its turn it is not written either
// (ErrNotWritten and ctx's error); if ctx ends later it may be (ctx's error alone).
func (q *Queue[T, A]) Do(ctx context.Context, within time.Duration, item T) (A, error) {
	e := &entry[T, A]{ctx: ctx, item: item, done: make(chan struct{})}
	if within != AnyTime {
		e.turnBy = time.Now().Add(within)
	}
	var none A
	if err := q.add(e); err != nil {
		return none, err
	}
	var late <-chan time.Time // nil: never
	if within != AnyTime {
		timer := time.NewTimer(within)
		defer timer.Stop()
		late = timer.C
	}
	for {
		select {
		case <-e.done:
			return e.answer, e.err
		case <-late:
			if q.remove(e) {
				return none, ErrLate
			}
			late = nil // it is being written
		case <-ctx.Done():
			if q.remove(e) {
				return none, fmt.Errorf("%w: %w", ErrNotWritten, ctx.Err())
			}
			return none, ctx.Err() // the answer may be on its way just now
		}
	}
}

func (q *Queue[T, A]) add(e *entry[T, A]) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return ErrClosed
	case len(q.waiting) >= q.QueueMax:
		return ErrFull
	}
	q.waiting = append(q.waiting, e)
	q.hire()
	return nil
}

// hire starts a flusher if one is missing. The caller holds the lock.
func (q *Queue[T, A]) hire() {
	if q.active < q.Flushers && len(q.waiting) > 0 {
		q.active++
		go q.flush()
	}
}

// remove takes an item out of the queue; false if its turn has come.
func (q *Queue[T, A]) remove(e *entry[T, A]) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	at := slices.Index(q.waiting, e)
	if at < 0 {
		return false
	}
	q.waiting = slices.Delete(q.waiting, at, at+1)
	return true
}

// setAside puts an item that spoils its group to the head of the queue, to be written by itself.
func (q *Queue[T, A]) setAside(e *entry[T, A]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e.alone = true
	q.waiting = slices.Insert(q.waiting, 0, e)
	q.hire()
}

// stays reports whether there is something to do for a flusher. If not, it has ended.
func (q *Queue[T, A]) stays() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) > 0 && q.active <= q.Flushers {
		return true
	}
	q.active--
	q.idle.Broadcast()
	return false
}

// take gives the next group; it may be empty by now.
func (q *Queue[T, A]) take() []*entry[T, A] {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := min(len(q.waiting), q.GroupMax)
	if first := slices.IndexFunc(q.waiting[:n], func(e *entry[T, A]) bool { return e.alone }); first >= 0 {
		n = max(first, 1)
	}
	group := slices.Clone(q.waiting[:n])
	q.waiting = slices.Delete(q.waiting, 0, n)
	return group
}

// Close refuses new items and waits until all that were taken in are answered.
func (q *Queue[T, A]) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	for q.active+q.slow > 0 {
		q.idle.Wait()
	}
}

// Waiting is how many items wait for their turn.
func (q *Queue[T, A]) Waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting)
}

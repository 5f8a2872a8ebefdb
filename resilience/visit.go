package resilience

import (
	"context"
	"sync"
	"time"
)

// Visit is one request that a [Shedder] admitted, from Enter to Leave. A nil Visit, and one that was
// never admitted, stand for a request that nobody counts: every method may be called on them.
type Visit struct {
	mu      sync.Mutex
	shedder *Shedder // nil before Enter and after Leave
	kind    int
	alone   bool          // it came in with nearly nobody else
	out     int           // how many times it has stepped out and not yet back in
	since   time.Duration // when it came in, or came back in
	own     time.Duration // what it has been in our hands before
}

func (v *Visit) begin(s *Shedder, kind int, inProgress int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.shedder, v.kind, v.alone = s, kind, inProgress <= aloneMax
	v.out, v.own, v.since = 0, 0, s.clock.elapsed()
}

// Outside does what is somebody else's work: a call to an acquirer, a read from the client, a wait. The
// request gives its place away meanwhile, and its time does not count as ours. Afterwards it comes
// back in whatever the limit says: what was begun is finished.
func (v *Visit) Outside(do func()) {
	v.StepOut()
	defer v.StepIn()
	do()
}

// StepOut begins what Outside does in one call; StepIn ends it.
func (v *Visit) StepOut() {
	if v == nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.shedder == nil {
		return
	}
	if v.out++; v.out == 1 {
		v.own += v.shedder.clock.elapsed() - v.since
		v.shedder.inProgress.Add(-1)
	}
}

// StepIn brings the request back after StepOut.
func (v *Visit) StepIn() {
	if v == nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.shedder == nil || v.out == 0 {
		return
	}
	if v.out--; v.out == 0 {
		v.shedder.inProgress.Add(1)
		v.since = v.shedder.clock.elapsed()
	}
}

// Reweigh asks once more for a request that is in, when more is known of it than at the door. Refused,
// it is still in, and has to Leave.
func (v *Visit) Reweigh(priority Priority) *Rejection {
	if v == nil {
		return nil
	}
	v.mu.Lock()
	s := v.shedder
	v.mu.Unlock()
	if s == nil || s.cfg.Off {
		return nil
	}
	place := placeOf(priority)
	others, limit := s.inProgress.Load()-1, s.limit.Load()
	if others >= s.share(limit, place) {
		return s.refuse(place, others, limit)
	}
	return nil
}

// Leave ends the visit; a second Leave does nothing. Counts says that the request was carried through, so that its
// time says something: what is refused half-way is quick however slow we are.
func (v *Visit) Leave(counts bool) {
	if v == nil {
		return
	}
	v.mu.Lock()
	s := v.shedder
	v.shedder = nil
	if s == nil {
		v.mu.Unlock()
		return
	}
	now := s.clock.elapsed()
	inProgress := s.inProgress.Load()
	if v.out == 0 {
		v.own += now - v.since
		s.inProgress.Add(-1)
	}
	kind, own, alone := v.kind, v.own, v.alone && inProgress <= aloneMax
	v.mu.Unlock()
	if counts {
		s.observe(now, kind, own, alone, inProgress)
	}
}

type visitKey struct{}

// WithVisit carries a visit to those who call others for the request.
func WithVisit(ctx context.Context, v *Visit) context.Context {
	return context.WithValue(ctx, visitKey{}, v)
}

// VisitOf is the visit that ctx carries, or nil.
func VisitOf(ctx context.Context) *Visit {
	v, _ := ctx.Value(visitKey{}).(*Visit)
	return v
}

package resilience

import "time"

// How the limit of a Shedder follows the time that requests take.
//
// Requests of a kind are compared with what that kind takes alone, which is learnt only from
// requests that were alone: none is under overload, so that a long overload does not come to look normal
// (the drift of limiters that take their baseline from all requests).
const (
	// limitStart is the limit before anything is known.
	limitStart = 64
	// aloneMax is how many requests, itself included, may be in for one to count as alone.
	aloneMax = 2
	// aloneGuess is the least that a request is taken to need alone, until that is learnt.
	aloneGuess = 10 * time.Millisecond
	// aloneEnough samples replace the guess; later ones are averaged over aloneMemory.
	aloneEnough, aloneMemory = 8, 32
	// outlier bounds what one request may say, in multiples of its time alone: one that waited seconds
	// for a lock says nothing of the others.
	outlier = 10
	// limitWindow is how often the limit may change, and limitSamples how many requests that takes.
	limitWindow, limitSamples = 100 * time.Millisecond, 10
	// calm is how long nothing may have been refused for a request to count as alone: refusing takes
	// processor time too.
	calm = time.Second
)

// limiter is what a Shedder has learnt. Its owner's lock protects it.
type limiter struct {
	kinds   []aloneTime
	began   time.Duration // the window
	samples int
	own     time.Duration // that the window's requests took, outliers cut
	alone   time.Duration // that they would have taken alone
	peak    int64         // the most in progress
	refused int64         // in all, when the window began
	heard   int64         // in all, when the last request left
	loud    time.Duration // when that was last more than before
}

// aloneTime is what a kind of request takes alone.
type aloneTime struct {
	mean    time.Duration
	samples int
	// quickest is the least that one among others took. It stands in until enough were alone: a replica
	// that starts under traffic must not take a store that answers in 30 ms for an overload.
	quickest time.Duration
}

func newLimiter(kinds int) limiter { return limiter{kinds: make([]aloneTime, max(kinds, 1))} }

// learn adds one sample.
func (a *aloneTime) learn(own time.Duration) {
	if a.samples >= aloneEnough {
		own = min(own, a.mean*outlier)
	}
	a.samples = min(a.samples+1, aloneMemory)
	a.mean += (own - a.mean) / time.Duration(a.samples)
}

// amongOthers notes what a request took that was not alone.
func (a *aloneTime) amongOthers(own time.Duration) {
	if a.quickest == 0 || own < a.quickest {
		a.quickest = own
	}
}

// time is at least a microsecond, so that nothing is divided by nothing.
func (a *aloneTime) time() time.Duration {
	if a.samples < aloneEnough {
		return max(aloneGuess, a.quickest)
	}
	return max(a.mean, time.Microsecond)
}

// observe takes in how long a request was in our hands, and sets the limit anew when a window is full.
func (s *Shedder) observe(now time.Duration, kind int, own time.Duration, alone bool, inProgress int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &s.limiter
	refused := s.refused[0].Load() + s.refused[1].Load() + s.refused[2].Load()
	if refused != p.heard {
		p.heard, p.loud = refused, now
	}
	k := &p.kinds[min(kind, len(p.kinds)-1)]
	if alone { // which is no sign of too much to do, however long it took
		if p.heard == 0 || now-p.loud >= calm {
			k.learn(own)
		}
		return
	}
	k.amongOthers(own)
	expected := k.time()
	p.samples++
	p.own += min(own, expected*outlier)
	p.alone += expected
	p.peak = max(p.peak, inProgress)
	if now-p.began < limitWindow || p.samples < limitSamples {
		return
	}
	limit := s.limit.Load()
	switch slow := p.own*100 > p.alone*time.Duration(s.cfg.Slowdown); {
	case slow:
		// From what was in use, not from a limit that nobody reached: one window is enough to react.
		limit = min(limit, p.peak) * 9 / 10
	case refused != p.refused:
		limit += max(limit/20, 1)
	}
	s.limit.Store(min(max(limit, int64(s.cfg.Min)), int64(s.cfg.Max)))
	p.began, p.samples, p.own, p.alone, p.peak, p.refused = now, 0, 0, 0, 0, refused
}

package resilience

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// ShedderConfig is everything that can be set on a shedder.
type ShedderConfig struct {
	// Off admits everything that is not too late; what is in progress is still counted.
	Off bool
	// Min and Max bound the limit: the most requests that are in our hands at once.
	Min, Max int
	// NormalPercent and LowPercent of the limit may be in use, by anybody, for
	// such a request still to come in. The rest is kept for critical work.
	NormalPercent, LowPercent int
	// Slowdown is how many times longer than alone requests may take, in percent
	// (200 is twice as long), before the limit falls.
	Slowdown int

	Now  func() time.Time // nil means time.Now
	Rand Rand             // spreads Retry-After; nil means the runtime's own generator
}

// DefaultShedder keeps between 48 and 1,024 requests in progress, so that they take
// at most twice as long as alone. Batch work stops at an eighth of the limit, and all but checkout at a
// quarter: under overload the others fill their share at once, and checkout needs room for its bursts.
func DefaultShedder() ShedderConfig {
	return ShedderConfig{Min: 48, Max: 1024, NormalPercent: 25, LowPercent: 12, Slowdown: 200}
}

// Validate reports every setting that cannot be used, as a *ConfigError.
func (c ShedderConfig) Validate() error {
	k := checker{prefix: "shedding."}
	k.count("limit_min", c.Min, 1, 100_000)
	k.count("limit_max", c.Max, 1, 100_000)
	k.want(c.Min <= c.Max, "limit_min", c.Min, fmt.Sprintf("at most limit_max (%d)", c.Max))
	k.count("normal_percent", c.NormalPercent, 0, 100)
	k.count("low_percent", c.LowPercent, 0, 100)
	k.want(c.LowPercent <= c.NormalPercent, "low_percent", c.LowPercent,
		fmt.Sprintf("at most normal_percent (%d)", c.NormalPercent))
	k.count("slowdown_percent", c.Slowdown, 110, 10_000)
	return k.err()
}

// Shedder refuses work early and cheaply, the least important first, so that
// the rest can be finished. It keeps no queue: what is refused costs nothing.
//
// It counts the requests that are in our own hands. A request that waits for
// somebody else, an acquirer or its own client, has stepped out meanwhile
// (see [Visit]): an acquirer that takes seconds is not our overload.
type Shedder struct {
	cfg        ShedderConfig
	percents   [3]int64 // low, normal, critical
	inProgress atomic.Int64
	limit      atomic.Int64
	refused    [3]atomic.Int64
	records    [3]atomic.Pointer[shedRecord]

	clock   clock
	mu      sync.Mutex
	limiter limiter
}

// NewShedder makes a shedder for kinds of request, numbered from 0, or gives a *ConfigError.
func NewShedder(cfg ShedderConfig, kinds int) (*Shedder, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.Rand = cfg.Rand.orDefault()
	s := &Shedder{
		cfg: cfg, clock: newClock(cfg.Now), limiter: newLimiter(kinds),
		percents: [3]int64{int64(cfg.LowPercent), int64(cfg.NormalPercent), 100},
	}
	s.limit.Store(int64(min(max(limitStart, cfg.Min), cfg.Max)))
	return s, nil
}

// Enter admits a request of a kind, or refuses it. Admitted, it is v until Leave.
// A request whose deadline has passed is dropped unprocessed: of all measures
// against overload, that one gains the most.
func (s *Shedder) Enter(ctx context.Context, v *Visit, kind int, priority Priority) *Rejection {
	if ctx.Err() != nil {
		return gone(ctx)
	}
	if Remaining(ctx) <= 0 {
		return &Rejection{Reason: DeadlineTooShort, Detail: "the caller's time was up before the work was begun"}
	}
	place := placeOf(priority)
	for {
		n, limit := s.inProgress.Load(), s.limit.Load()
		if n >= s.share(limit, place) && !s.cfg.Off {
			return s.refuse(place, n, limit)
		}
		if s.inProgress.CompareAndSwap(n, n+1) {
			v.begin(s, kind, n+1)
			return nil
		}
	}
}

// placeOf is where a priority stands in the tables by priority.
func placeOf(p Priority) int { return int(min(max(p, Low), Critical) - Low) }

// share is how many of the limit may be in use for a priority to come in; never 0, or
// a service that has nothing else to do would refuse.
func (s *Shedder) share(limit int64, place int) int64 {
	return max(limit*s.percents[place]/100, 1)
}

// shedRecord is a refusal's text, kept while the numbers stay as they are: under
// overload they mostly do.
type shedRecord struct {
	n, limit int64
	detail   string
}

// shedWaits are the least waits before another try, by place. Up to as much again is added at random,
// so that what was refused together does not come back together.
var shedWaits = [3]time.Duration{5 * time.Second, 2 * time.Second, time.Second}

func (s *Shedder) refuse(place int, n, limit int64) *Rejection {
	s.refused[place].Add(1)
	record := s.records[place].Load()
	if record == nil || record.n != n || record.limit != limit {
		record = &shedRecord{n: n, limit: limit, detail: fmt.Sprintf(
			"%d requests in progress, %s stops at %d of %d", n, Priority(place)+Low, s.share(limit, place), limit)}
		s.records[place].Store(record)
	}
	reason := [...]Reason{ShedLowPriority, ShedNormalPriority, Overloaded}[place]
	return &Rejection{Reason: reason, RetryAfter: shedWaits[place] + s.cfg.Rand.scale(shedWaits[place]), Detail: record.detail}
}

// ShedderSnapshot is a shedder at one moment.
type ShedderSnapshot struct {
	InProgress, Limit int64
	// Refused counts since the start.
	RefusedLow, RefusedNormal, RefusedCritical int64
}

// Snapshot gives the numbers of now.
func (s *Shedder) Snapshot() ShedderSnapshot {
	return ShedderSnapshot{
		InProgress: s.inProgress.Load(), Limit: s.limit.Load(),
		RefusedLow: s.refused[0].Load(), RefusedNormal: s.refused[1].Load(), RefusedCritical: s.refused[2].Load(),
	}
}

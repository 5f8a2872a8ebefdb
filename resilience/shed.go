package resilience

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// ShedderConfig is everything that can be set on a shedder.
type ShedderConfig struct {
	// Slots is the most requests in progress in this process.
	Slots int
	// NormalPercent and LowPercent of the slots may be in use, by anybody, for
	// such a request still to come in. The rest is kept for critical work.
	NormalPercent, LowPercent int
}

// DefaultShedder gives 512 slots, the last 20 % for checkout alone; batch work
// stops at half.
func DefaultShedder() ShedderConfig {
	return ShedderConfig{Slots: 512, NormalPercent: 80, LowPercent: 50}
}

// Validate reports every setting that cannot be used, as a *ConfigError.
func (c ShedderConfig) Validate() error {
	k := checker{prefix: "shedder."}
	k.count("slots", c.Slots, 1, 1_000_000)
	k.count("normal_percent", c.NormalPercent, 0, 100)
	k.count("low_percent", c.LowPercent, 0, 100)
	k.want(c.LowPercent <= c.NormalPercent, "low_percent", c.LowPercent,
		fmt.Sprintf("at most normal_percent (%d)", c.NormalPercent))
	return k.err()
}

// Shedder refuses work early and cheaply, the least important first, so that
// the rest can be finished. It keeps no queue: what is refused costs nothing.
type Shedder struct {
	limits     [3]int64 // low, normal, critical
	inProgress atomic.Int64
}

// NewShedder starts empty, or gives a *ConfigError.
func NewShedder(cfg ShedderConfig) (*Shedder, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	slots := int64(cfg.Slots)
	return &Shedder{limits: [3]int64{
		slots * int64(cfg.LowPercent) / 100,
		slots * int64(cfg.NormalPercent) / 100,
		slots,
	}}, nil
}

// Enter admits a request, to be ended by Leave, or refuses it. A request whose
// deadline passed while it was waiting for us is dropped unprocessed: of all
// measures against overload, that one gains the most.
func (s *Shedder) Enter(ctx context.Context, priority Priority) *Rejection {
	if refused := mayStart(ctx, 1); refused != nil {
		return refused
	}
	place := min(max(priority, Low), Critical)
	limit := s.limits[place-Low]
	for {
		n := s.inProgress.Load()
		if n >= limit {
			reason := [...]Reason{ShedLowPriority, ShedNormalPriority, Overloaded}[place-Low]
			return &Rejection{
				Reason: reason, RetryAfter: time.Second,
				Detail: fmt.Sprintf("%d requests in progress, %s stops at %d of %d", n, place, limit, s.limits[2]),
			}
		}
		if s.inProgress.CompareAndSwap(n, n+1) {
			return nil
		}
	}
}

// Leave ends a request that Enter admitted.
func (s *Shedder) Leave() { s.inProgress.Add(-1) }

// InProgress is how many requests are in progress now.
func (s *Shedder) InProgress() int64 { return s.inProgress.Load() }

package sim

import (
	"maps"
	"time"
)

const (
	secondsMax = 3600   // of history
	byKeyMax   = 10_000 // keys listed in Stats
)

// Stats is what this acquirer counted since it started.
type Stats struct {
	Name                 string         `json:"name"`
	Requests             int            `json:"requests"` // captures and lookups, refused ones included
	Captures             int            `json:"captures"`
	Declines             int            `json:"declines"`
	Pending              int            `json:"pending"`
	Lost                 int            `json:"lost"` // asked for and never processed
	DuplicatesSuppressed int            `json:"duplicates_suppressed"`
	InProgress           int            `json:"in_progress"`
	KeyReused            int            `json:"key_reused"`
	Lookups              int            `json:"lookups"`
	OverCapacity         int            `json:"over_capacity"`
	EventsDelivered      int            `json:"events_delivered"`
	EventsLost           int            `json:"events_lost"` // on purpose, or because nobody took them
	EventsUnderWay       int            `json:"events_under_way"`
	TornBytes            int            `json:"torn_bytes"` // cut off the book's end at the start
	Faults               map[string]int `json:"faults"`     // hits by kind
	PerSecond            []Second       `json:"per_second"` // the last hour, seconds without requests left out
	CapturesByKey        map[string]int `json:"captures_by_key"`
	KeysLeftOut          bool           `json:"keys_left_out"` // CapturesByKey is cut at 10,000 keys
}

// Second is one second of traffic.
type Second struct {
	At           time.Time `json:"at"`
	Requests     int       `json:"requests"`
	Captures     int       `json:"captures"`
	OverCapacity int       `json:"over_capacity"`
}

// counters is Stats while it grows; seconds is a ring by unix second.
type counters struct {
	Stats
	seconds [secondsMax]Second
}

func newCounters() counters { return counters{Stats: Stats{Faults: map[string]int{}}} }

func (c *counters) second(now time.Time) *Second {
	at := now.UTC().Truncate(time.Second)
	slot := &c.seconds[((at.Unix()%secondsMax)+secondsMax)%secondsMax]
	if !slot.At.Equal(at) {
		*slot = Second{At: at}
	}
	return slot
}

// request counts one and returns how many this second has seen.
func (c *counters) request(now time.Time) int {
	c.Requests++
	slot := c.second(now)
	slot.Requests++
	return slot.Requests
}

func (c *counters) overCapacity(now time.Time) {
	c.OverCapacity++
	c.second(now).OverCapacity++
}

func (c *counters) booked(now time.Time, m movement) {
	switch m {
	case captures, captures2:
		n := 1
		if m == captures2 {
			n = 2
		}
		c.Captures += n
		c.second(now).Captures += n
	case declines:
		c.Declines++
	case pends, pendsToFail:
		c.Pending++
	case loses:
		c.Lost++
	}
}

// Stats is a copy of the counts. CapturesByKey is taken from the book, so it also counts what
// was captured before a restart.
func (s *Sim) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.cfg.Now()
	out := s.stats.Stats
	out.Name = s.cfg.Name
	out.TornBytes = s.book.torn
	out.Faults = maps.Clone(s.stats.Faults)
	out.CapturesByKey = map[string]int{}
	for _, r := range s.book.records {
		if r, _ = r.asOf(now); r.Status != StatusCaptured {
			continue
		}
		if _, listed := out.CapturesByKey[r.Key]; !listed && len(out.CapturesByKey) >= byKeyMax {
			out.KeysLeftOut = true
			continue
		}
		out.CapturesByKey[r.Key]++
	}
	out.PerSecond = []Second{}
	oldest := now.Add(-secondsMax * time.Second)
	for i := range int64(secondsMax) {
		slot := s.stats.seconds[(now.Unix()+1+i)%secondsMax]
		if slot.Requests > 0 && slot.At.After(oldest) {
			out.PerSecond = append(out.PerSecond, slot)
		}
	}
	return out
}

package sim

import (
	"net/http"
	"strconv"
	"time"
)

const listMax = 1000

// Captures is the whole book as it stands now, in the order of processing. Declined, pending and
// lost records are in it too.
func (s *Sim) Captures() []Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.cfg.Now()
	out := make([]Record, 0, len(s.book.records))
	for _, r := range s.book.records {
		r, _ = r.asOf(now)
		out = append(out, r)
	}
	return out
}

// CapturesOf counts the captures under one reference: more than one is a double charge.
func (s *Sim) CapturesOf(reference string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	count, now := 0, s.cfg.Now()
	for _, n := range s.book.byReference[reference] {
		if r, _ := s.book.records[n].asOf(now); r.Status == StatusCaptured {
			count++
		}
	}
	return count
}

func (s *Sim) getStats(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, s.Stats())
}

// recordView is a line of GET /admin/captures.
type recordView struct {
	captureView
	Key string    `json:"key"`
	At  time.Time `json:"at"`
}

// getCaptures lists the book in pages: ?after=ID continues behind a record, ?reference= filters.
func (s *Sim) getCaptures(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	limit := listMax
	if text := query.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > listMax {
			refuse(w, refusal(http.StatusBadRequest, "invalid_query", "limit", "want 1 to %d", listMax))
			return
		}
		limit = n
	}
	views, more, known := s.page(query.Get("reference"), query.Get("after"), limit)
	if !known {
		refuse(w, refusal(http.StatusBadRequest, "invalid_query", "after", "no such record"))
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"captures": views, "has_more": more})
}

func (s *Sim) page(reference, after string, limit int) (views []recordView, more, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.cfg.Now()
	views, known = []recordView{}, after == ""
	for _, r := range s.book.records {
		if !known {
			known = r.ID == after
			continue
		}
		if reference != "" && r.Reference != reference {
			continue
		}
		if len(views) == limit {
			return views, true, known
		}
		views = append(views, recordView{viewOf(r, now), r.Key, r.At})
	}
	return views, false, known
}

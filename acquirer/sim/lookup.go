package sim

import (
	"net/http"
	"net/url"
	"time"
)

// lookup is GET /v1/captures?reference=.
func (s *Sim) lookup(w http.ResponseWriter, r *http.Request) {
	if p := s.admit(r); p != nil {
		refuse(w, p)
		return
	}
	if s.cfg.Variant.NoLookup {
		refuse(w, refusal(http.StatusNotFound, "no_lookup", "", "this acquirer answers no inquiries"))
		return
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	reference := query.Get("reference")
	if err != nil || len(query) != 1 || len(query["reference"]) != 1 || reference == "" || len(reference) > referenceBytesMax || !visible(reference) {
		refuse(w, refusal(http.StatusBadRequest, "invalid_query", "reference", "want exactly ?reference=REFERENCE"))
		return
	}
	s.mu.Lock()
	s.stats.Lookups++
	fault, hit := s.rollFault(OnLookups)
	views := s.visibleCaptures(reference, s.cfg.Now())
	s.mu.Unlock()
	if hit {
		switch fault.reply {
		case wrongAmount:
			for i := range views {
				views[i].AmountMinor++
			}
		case wrongReference:
			reference = "X" + reference[1:] + "X"
		default:
			if fault.slow {
				s.wait(s.cfg.SlowLatency)
			}
			if s.misbehave(w, r, fault.reply) {
				return
			}
		}
	}
	writeJSON(w, http.StatusOK, lookupView{reference, views})
}

// lookupView answers an inquiry: an empty list says that the reference is not known (yet).
type lookupView struct {
	Reference string        `json:"reference"`
	Captures  []captureView `json:"captures"`
}

// visibleCaptures lists what inquiries may see by now: captures and pending ones, or else the last
// decline. s.mu is held.
func (s *Sim) visibleCaptures(reference string, now time.Time) []captureView {
	views := []captureView{}
	var declined *captureView
	for _, n := range s.book.byReference[reference] {
		r := s.book.records[n]
		if r.Status == StatusLost || now.Sub(r.At) < s.cfg.LookupLag {
			continue
		}
		view := viewOf(r, now)
		if view.Status == StatusDeclined {
			declined = &view
			continue
		}
		views = append(views, view)
	}
	if len(views) == 0 && declined != nil {
		views = append(views, *declined)
	}
	return views
}

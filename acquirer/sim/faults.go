package sim

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// Down is the kind of fault that closes the port for Fault.For: connections are refused, those
// that are open break.
const Down = "down"

// Target says which requests a fault meets.
type Target string

// The targets of faults.
const (
	OnCaptures Target = "captures"
	OnLookups  Target = "lookups" // only what the kind does to the answer applies
)

// Fault makes requests go wrong, by share, by time or by number.
type Fault struct {
	Kind    string        // a name of Behaviours, or Down
	On      Target        // OnCaptures if empty
	Percent int           // of the requests, 1 to 100; 100 if 0
	For     time.Duration // how long from now; until it is removed if 0
	Count   int           // how many requests at most; no limit if 0
}

const (
	faultsMax    = 32
	faultForMax  = 24 * time.Hour
	downForMax   = 10 * time.Minute
	faultHitsMax = 1_000_000_000
)

type activeFault struct {
	Fault
	behaviour Behaviour
	until     time.Time // zero for no end
	hits      int
}

func (f *Fault) complete() error {
	f.On = or(f.On, OnCaptures)
	f.Percent = or(f.Percent, 100)
	_, known := behaviourNamed(f.Kind)
	switch {
	case !known && f.Kind != Down:
		return &faultError{"kind", fmt.Sprintf("%q is not in the table of docs/simulator.md", f.Kind)}
	case f.On != OnCaptures && f.On != OnLookups:
		return &faultError{"on", fmt.Sprintf("%q is neither captures nor lookups", f.On)}
	case f.Percent < 1 || f.Percent > 100:
		return &faultError{"percent", "want 1 to 100"}
	case f.For < 0 || f.For > faultForMax:
		return &faultError{"for", fmt.Sprintf("want at most %s", faultForMax)}
	case f.Kind == Down && (f.For == 0 || f.For > downForMax):
		return &faultError{"for", fmt.Sprintf("down needs a time, at most %s: nobody can end it from outside", downForMax)}
	case f.Count < 0 || f.Count > faultHitsMax:
		return &faultError{"count", fmt.Sprintf("want 1 to %d", faultHitsMax)}
	}
	return nil
}

type faultError struct{ field, message string }

func (e *faultError) Error() string { return e.field + ": " + e.message }

// SetFaults replaces every fault. Down needs a Server; when SetFaults returns, the port refuses.
func (s *Sim) SetFaults(faults ...Fault) error { return s.setFaults(nil, faults) }

// ClearFaults removes every fault and ends an outage.
func (s *Sim) ClearFaults() error { return s.setFaults(nil, nil) }

// setFaults leaves one connection alive, over which an outage may have been asked for.
func (s *Sim) setFaults(keep net.Conn, faults []Fault) error {
	if len(faults) > faultsMax {
		return &faultError{"faults", fmt.Sprintf("at most %d at a time", faultsMax)}
	}
	outage := time.Duration(0)
	var active []activeFault
	for i, f := range faults {
		if err := f.complete(); err != nil {
			return fmt.Errorf("faults[%d].%w", i, err)
		}
		if f.Kind == Down {
			outage = max(outage, f.For)
			continue
		}
		a := activeFault{Fault: f}
		a.behaviour, _ = behaviourNamed(f.Kind)
		if f.For > 0 {
			a.until = s.cfg.Now().Add(f.For)
		}
		active = append(active, a)
	}
	s.mu.Lock()
	port := s.port
	if port != nil || outage == 0 {
		s.faults = active
	}
	s.mu.Unlock()
	switch {
	case port != nil && outage > 0:
		return port.takeDown(outage, keep)
	case port != nil:
		port.restore()
	case outage > 0:
		return &faultError{"kind", "down needs the simulator's own server"}
	}
	return nil
}

// rollFault picks the first active fault that hits this request. s.mu is held.
func (s *Sim) rollFault(on Target) (Behaviour, bool) {
	now := s.cfg.Now()
	for i := range s.faults {
		f := &s.faults[i]
		if f.On != on || f.spent(now) {
			continue
		}
		if f.Percent < 100 && s.dice.IntN(100) >= f.Percent {
			continue
		}
		f.hits++
		s.stats.Faults[f.Kind]++
		return f.behaviour, true
	}
	return Behaviour{}, false
}

func (f *activeFault) spent(now time.Time) bool {
	return f.Count > 0 && f.hits >= f.Count || !f.until.IsZero() && !now.Before(f.until)
}

// faultView is a fault in JSON; durations as Go writes them: "40s".
type faultView struct {
	Kind    string `json:"kind"`
	On      Target `json:"on"`
	Percent int    `json:"percent"`
	For     string `json:"for,omitempty"`
	Count   int    `json:"count,omitempty"`
	Hits    int    `json:"hits"`
}

func (s *Sim) getFaults(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	now, views := s.cfg.Now(), []faultView{}
	for _, f := range s.faults {
		if f.spent(now) {
			continue
		}
		v := faultView{Kind: f.Kind, On: f.On, Percent: f.Percent, Count: f.Count, Hits: f.hits}
		if f.For > 0 {
			v.For = f.until.Sub(now).String()
		}
		views = append(views, v)
	}
	s.mu.Unlock()
	writeJSON(w, http.StatusOK, map[string]any{"faults": views})
}

func (s *Sim) putFaults(w http.ResponseWriter, r *http.Request) {
	body, p := readBody(w, r)
	if p != nil {
		refuse(w, p)
		return
	}
	faults, p := readFaults(body)
	if p != nil {
		refuse(w, p)
		return
	}
	keep, _ := r.Context().Value(connKey{}).(net.Conn)
	if err := s.setFaults(keep, faults); err != nil {
		field := ""
		if wrong, ok := errors.AsType[*faultError](err); ok {
			field = wrong.field
		}
		refuse(w, invalid(field, "%v", err))
		return
	}
	for _, f := range faults {
		if f.Kind == Down {
			w.Header().Set("Connection", "close")
		}
	}
	s.getFaults(w, r)
}

func (s *Sim) deleteFaults(w http.ResponseWriter, r *http.Request) {
	if err := s.ClearFaults(); err != nil {
		refuse(w, invalid("", "%v", err))
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// readFaults decodes {"faults":[{"kind":"timeout_captured","percent":20,"for":"40s","count":3}]}.
func readFaults(body []byte) ([]Fault, *problem) {
	f, p := readFields(body, "", "faults")
	if p != nil {
		return nil, p
	}
	var list []json.RawMessage
	if json.Unmarshal(f["faults"], &list) != nil || list == nil {
		return nil, invalid("faults", "a list is required; an empty one removes every fault")
	}
	if len(list) > faultsMax {
		return nil, invalid("faults", "at most %d at a time", faultsMax)
	}
	faults := make([]Fault, 0, len(list))
	for i, raw := range list {
		one, p := readFault(raw, fmt.Sprintf("faults[%d]", i))
		if p != nil {
			return nil, p
		}
		faults = append(faults, one)
	}
	return faults, nil
}

func readFault(raw []byte, path string) (Fault, *problem) {
	f, p := readFields(raw, path, "kind", "on", "percent", "for", "count")
	if p != nil {
		return Fault{}, p
	}
	var out Fault
	if out.Kind, p = f.text(path, "kind", 64, true); p != nil {
		return Fault{}, p
	}
	on, p := f.text(path, "on", 64, false)
	if p != nil {
		return Fault{}, p
	}
	out.On = Target(on)
	for name, to := range map[string]*int{"percent": &out.Percent, "count": &out.Count} {
		if _, there := f[name]; !there {
			continue
		}
		n, p := f.integer(path, name, 1, faultHitsMax)
		if p != nil {
			return Fault{}, p
		}
		*to = int(n)
	}
	lasting, p := f.text(path, "for", 32, false)
	if p != nil || lasting == "" {
		return out, p
	}
	d, err := time.ParseDuration(lasting)
	if err != nil || d <= 0 {
		return Fault{}, invalid(join(path, "for"), "want a duration such as 40s")
	}
	out.For = d
	return out, nil
}

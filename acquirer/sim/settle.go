package sim

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"paymentsd/settlement"
	"paymentsd/settlement/feedtest"
)

// issue is one settlement file that was handed out. With the book it is enough to write the same
// bytes again: the records that were known then, as they stood then.
type issue struct {
	Sequence int       `json:"sequence"`
	Replaces int       `json:"replaces,omitempty"`
	From     time.Time `json:"from"`
	To       time.Time `json:"to"`    // never after AsOf: a file does not cover what has not happened
	Asked    time.Time `json:"asked"` // the end that was asked for
	Records  int       `json:"records"`
	AsOf     time.Time `json:"as_of"`
}

func (i issue) open() bool { return i.To.Before(i.Asked) }

func (i issue) header(cfg Config) settlement.Header {
	return settlement.Header{Acquirer: cfg.Name, Account: cfg.Account, From: i.From, To: i.To, Sequence: i.Sequence, Replaces: i.Replaces}
}

// issueFile is the settlement file of a period. Asked again it is the same file, byte for byte,
// unless it would have other lines by now, or covered only the part of its period that had passed
// and the period has ended: then it is a re-issue under a new sequence.
func (s *Sim) issueFile(format string, from, to time.Time) (issue, []byte, error) {
	s.issuing.Lock()
	defer s.issuing.Unlock()

	s.mu.Lock()
	now := s.cfg.Now().UTC().Truncate(time.Microsecond)
	records, issues := s.book.records, s.book.issues // append-only: what is there never changes
	s.mu.Unlock()

	next := issue{Sequence: len(issues) + 1, From: from, To: to, Asked: to, Records: len(records), AsOf: now}
	if now.Before(to) {
		next.To = now
	}
	if !next.To.After(next.From) {
		return issue{}, nil, invalid("from", "the period has not begun: it is %s", now.Format(time.RFC3339))
	}
	lines := linesOf(next, records)
	for n := len(issues) - 1; n >= 0; n-- {
		old := issues[n]
		if !old.From.Equal(from) || !old.Asked.Equal(to) {
			continue
		}
		before := linesOf(old, records)
		if (old.open() && next.open() || old.To.Equal(next.To)) && sameLines(before, lines) {
			file, err := s.writeFile(format, old, issues, before)
			return old, file, err
		}
		next.Replaces = old.Sequence
		break
	}
	file, err := s.writeFile(format, next, issues, lines)
	if err != nil {
		return issue{}, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return next, file, s.book.addIssue(next)
}

// issuedFile is a file that was handed out before, the same bytes again.
func (s *Sim) issuedFile(format string, sequence int) (issue, []byte, error) {
	s.mu.Lock()
	records, issues := s.book.records, s.book.issues
	s.mu.Unlock()
	if sequence < 1 || sequence > len(issues) {
		return issue{}, nil, refusal(http.StatusNotFound, "no_such_file", "sequence", "files 1 to %d were issued", len(issues))
	}
	i := issues[sequence-1]
	file, err := s.writeFile(format, i, issues, linesOf(i, records))
	return i, file, err
}

// writeFile writes an issue in a format. That a capture failed is left out where the format cannot say it, as
// every acquirer's own does; anything else that it cannot say refuses the file.
func (s *Sim) writeFile(format string, i issue, issues []issue, lines []settlement.Line) ([]byte, error) {
	h := i.header(s.cfg)
	if format == "adyen" {
		h.Sequence = batchOf(i, issues)
	}
	said := make([]settlement.Line, 0, len(lines))
	for _, l := range lines {
		if l.Kind != settlement.CaptureFailed || feedtest.Says(format, l) {
			said = append(said, l)
		}
	}
	file, err := feedtest.Write(format, h, said)
	if errors.Is(err, feedtest.ErrUnsayable) {
		return nil, refusal(http.StatusUnprocessableEntity, "format_cannot_say", "format", "%v", err)
	}
	if err != nil {
		return nil, fmt.Errorf("settlement file %d: %w", i.Sequence, err)
	}
	return file.Bytes(), nil
}

// batchOf is the number of an issue where a report keeps its number when it is issued again.
func batchOf(i issue, issues []issue) int {
	first := i.Sequence
	for replaced := i.Replaces; replaced > 0; replaced = issues[replaced-1].Replaces {
		first = replaced
	}
	batch := 1
	for _, before := range issues {
		if before.Sequence < first && before.Replaces == 0 {
			batch++
		}
	}
	return batch
}

// settlement is GET /settlement: the index, or with ?from=&to= or ?sequence= one file.
func (s *Sim) settlement(w http.ResponseWriter, r *http.Request) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	format := s.formatOf(query)
	switch {
	case err != nil:
		refuse(w, refusal(http.StatusBadRequest, "invalid_query", "", "the query cannot be read"))
	case !slices.Contains(feedtest.Formats(), format):
		refuse(w, refusal(http.StatusBadRequest, "invalid_query", "format", "want one of %s", strings.Join(feedtest.Formats(), ", ")))
	case len(query) == 0:
		s.settlementIndex(w, format)
	case len(query) == 1 && query.Has("sequence"):
		n, err := strconv.Atoi(query.Get("sequence"))
		if err != nil {
			n = 0
		}
		i, file, err := s.issuedFile(format, n)
		s.sendFile(w, i, file, err)
	case len(query) == 2 && query.Has("from") && query.Has("to"):
		s.settlementPeriod(w, format, query.Get("from"), query.Get("to"))
	default:
		refuse(w, refusal(http.StatusBadRequest, "invalid_query", "", "want nothing, ?sequence=N or ?from=TIME&to=TIME, each with or without &format=NAME"))
	}
}

// formatOf takes the format out of the query: what is left says which file.
func (s *Sim) formatOf(query url.Values) string {
	format := s.cfg.Format
	if query.Has("format") {
		format = query.Get("format")
	}
	query.Del("format")
	return format
}

func (s *Sim) settlementPeriod(w http.ResponseWriter, format, fromText, toText string) {
	from, err := time.Parse(time.RFC3339, fromText)
	if err != nil {
		refuse(w, refusal(http.StatusBadRequest, "invalid_query", "from", "want a time such as 2026-01-31T00:00:00Z"))
		return
	}
	to, err := time.Parse(time.RFC3339, toText)
	if err != nil || !to.After(from) {
		refuse(w, refusal(http.StatusBadRequest, "invalid_query", "to", "want a time after from, such as 2026-02-01T00:00:00Z"))
		return
	}
	i, file, err := s.issueFile(format, from.UTC(), to.UTC())
	s.sendFile(w, i, file, err)
}

// settlementDay is GET /settlement/{yyyy-mm-dd}: one day of UTC.
func (s *Sim) settlementDay(w http.ResponseWriter, r *http.Request) {
	day, err := time.Parse(time.DateOnly, r.PathValue("day"))
	if err != nil {
		refuse(w, refusal(http.StatusNotFound, "no_such_file", "day", "want a day such as 2026-01-31"))
		return
	}
	format := s.formatOf(r.URL.Query())
	if !slices.Contains(feedtest.Formats(), format) {
		refuse(w, refusal(http.StatusBadRequest, "invalid_query", "format", "want one of %s", strings.Join(feedtest.Formats(), ", ")))
		return
	}
	i, file, err := s.issueFile(format, day, day.AddDate(0, 0, 1))
	s.sendFile(w, i, file, err)
}

func (s *Sim) sendFile(w http.ResponseWriter, i issue, file []byte, err error) {
	if p, ok := err.(*problem); ok {
		refuse(w, p)
		return
	}
	if err != nil {
		s.log.Error("a settlement file could not be issued", "error", err)
		writeProblem(w, problem{status: http.StatusInternalServerError, Code: "internal_error", Message: err.Error()})
		return
	}
	h := w.Header()
	h.Set("Settlement-Sequence", strconv.Itoa(i.Sequence))
	if i.Replaces > 0 {
		h.Set("Settlement-Replaces", strconv.Itoa(i.Replaces))
	}
	h.Set("Content-Disposition", fmt.Sprintf("attachment; filename=%s-%s-%06d.csv", s.cfg.Name, s.cfg.Account, i.Sequence))
	writeRaw(w, http.StatusOK, "text/csv; charset=utf-8", string(file))
}

// fileView is a line of the index.
type fileView struct {
	Sequence int       `json:"sequence"`
	Replaces int       `json:"replaces,omitempty"`
	From     time.Time `json:"from"`
	To       time.Time `json:"to"`
	Address  string    `json:"address"`
}

// daysMax bounds how many days an index goes back.
const daysMax = 400

// issueDays issues every day of UTC since the first capture, today as far as it has gone: whoever
// fetches what the index lists has everything.
func (s *Sim) issueDays() error {
	s.mu.Lock()
	now, records := s.cfg.Now().UTC(), s.book.records
	s.mu.Unlock()
	if len(records) == 0 {
		return nil
	}
	first := records[0].At
	for _, r := range records { // the clock may have been set back
		if r.At.Before(first) {
			first = r.At
		}
	}
	day := first.Truncate(24 * time.Hour)
	if oldest := now.AddDate(0, 0, -daysMax).Truncate(24 * time.Hour); day.Before(oldest) {
		day = oldest
	}
	for ; day.Before(now); day = day.AddDate(0, 0, 1) {
		today := issue{From: day, To: day.AddDate(0, 0, 1), Records: len(records), AsOf: now}
		if now.Before(today.To) && len(linesOf(today, records)) == 0 {
			return nil // nothing to tell of today yet
		}
		if _, _, err := s.issueFile("canonical", day, today.To); err != nil {
			return err
		}
	}
	return nil
}

func (s *Sim) settlementIndex(w http.ResponseWriter, format string) {
	if err := s.issueDays(); err != nil {
		s.sendFile(w, issue{}, nil, err)
		return
	}
	s.mu.Lock()
	issues := s.book.issues
	s.mu.Unlock()
	files := make([]fileView, 0, len(issues))
	for _, i := range issues {
		address := fmt.Sprintf("/settlement?sequence=%d", i.Sequence)
		if format != s.cfg.Format {
			address += "&format=" + url.QueryEscape(format)
		}
		files = append(files, fileView{i.Sequence, i.Replaces, i.From, i.To, address})
	}
	writeJSON(w, http.StatusOK, map[string]any{"files": files})
}

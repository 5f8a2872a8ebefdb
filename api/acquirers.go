package api

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"

	"paymentsd/payment"
)

type acquirerView struct {
	Object   string       `json:"object"`
	Name     string       `json:"name"`
	Breaker  breakerView  `json:"breaker"`
	Budget   budgetView   `json:"budget"`
	Bulkhead bulkheadView `json:"bulkhead"`
	Sharing  *sharingView `json:"sharing,omitempty"`
	// What the store was asked for: an empty list is an answer, and no answer is not.
	Reports          []reportView     `json:"reports,omitzero"`
	ReportsError     string           `json:"reports_error,omitempty"`
	Transitions      []transitionView `json:"transitions,omitzero"`
	TransitionsError string           `json:"transitions_error,omitempty"`
}

type breakerView struct {
	State          string `json:"state"`
	Mode           string `json:"mode"`
	Epoch          uint64 `json:"epoch"`
	Since          string `json:"since"`
	Reason         string `json:"reason,omitempty"`
	Rule           string `json:"rule"`
	Attempts       int64  `json:"attempts"`
	Failures       int64  `json:"failures"`
	Slow           int64  `json:"slow"`
	NextProbe      string `json:"next_probe,omitempty"`
	ProbeInFlight  bool   `json:"probe_in_flight"`
	ProbeSuccesses int    `json:"probe_successes"`
	RampPercent    int    `json:"ramp_percent"`
	Reopenings     int    `json:"reopenings"`
}

type budgetView struct {
	Retries60s   int64 `json:"retries_60s"`
	Limit60s     int64 `json:"limit_60s"`
	Left60s      int64 `json:"left_60s"`
	Retries1s    int64 `json:"retries_1s"`
	Limit1s      int64 `json:"limit_1s"`
	Left1s       int64 `json:"left_1s"`
	Successes60s int64 `json:"successes_60s"`
}

type bulkheadView struct {
	InFlight int `json:"in_flight"`
	Waiting  int `json:"waiting"`
	Limit    int `json:"limit"`
	Slots    int `json:"slots"`
}

// sharingView is how the replica that answers takes part in what all share.
type sharingView struct {
	Replica      string `json:"replica"`
	HeldBack     string `json:"held_back,omitempty"`
	Reporting    int    `json:"replicas_reporting"`
	Seeing       int    `json:"replicas_seeing_failures"`
	StoreAnswers bool   `json:"store_answers"`
	HeardAt      string `json:"heard_at,omitempty"`
	Learning     string `json:"learning"`
}

type reportView struct {
	Replica    string `json:"replica"`
	Attempts   int64  `json:"attempts"`
	Failures   int64  `json:"failures"`
	Slow       int64  `json:"slow"`
	AgeSeconds int64  `json:"age_seconds"`
}

type transitionView struct {
	Epoch   int64  `json:"epoch"`
	From    string `json:"from"`
	To      string `json:"to"`
	Mode    string `json:"mode"`
	Reason  string `json:"reason"`
	Replica string `json:"replica"`
	At      string `json:"at"`
}

func viewAcquirer(s payment.AcquirerStatus) acquirerView {
	b := s.Breaker
	return acquirerView{
		Object: "acquirer", Name: s.Name,
		Breaker: breakerView{
			State: string(b.State), Mode: string(b.Mode), Epoch: b.Epoch, Since: timestamp(b.Since), Reason: b.Reason,
			Rule: b.Rule, Attempts: b.Attempts, Failures: b.Failures, Slow: b.Slow, NextProbe: optionalTime(b.NextProbe),
			ProbeInFlight: b.ProbeInFlight, ProbeSuccesses: b.ProbeSuccesses, RampPercent: b.RampPercent, Reopenings: b.Reopenings,
		},
		Budget: budgetView{
			Retries60s: s.Budget.Retries60s, Limit60s: s.Budget.Limit60s, Left60s: max(s.Budget.Limit60s-s.Budget.Retries60s, 0),
			Retries1s: s.Budget.Retries1s, Limit1s: s.Budget.Limit1s, Left1s: max(s.Budget.Limit1s-s.Budget.Retries1s, 0),
			Successes60s: s.Budget.Successes60s,
		},
		Bulkhead: bulkheadView{
			InFlight: s.Bulkhead.InFlight, Waiting: s.Bulkhead.Waiting, Limit: s.Bulkhead.Limit, Slots: s.Bulkhead.Slots,
		},
		Sharing: viewSharing(s),
	}
}

// viewSharing leaves out what the store said: it may name hosts, and stands in the log.
func viewSharing(s payment.AcquirerStatus) *sharingView {
	shared := s.Breaker.Sharing
	if shared == nil {
		return nil
	}
	v := &sharingView{
		Replica: shared.Replica, HeldBack: shared.HeldBack, Reporting: shared.Reporting, Seeing: shared.Seeing,
		StoreAnswers: shared.StoreError == "", HeardAt: optionalTime(shared.Heard), Learning: "polling",
	}
	if shared.Listening {
		v.Learning = "listening"
	}
	return v
}

func viewTransition(t payment.Transition) transitionView {
	return transitionView{
		Epoch: t.Epoch, From: string(t.From), To: string(t.To), Mode: string(t.Mode), Reason: t.Reason, Replica: t.Replica, At: timestamp(t.At),
	}
}

// notAnswered stands where the store did not answer; what this replica knows stands beside it.
const notAnswered = "The store did not answer: ask again."

// reports adds what each replica reported. Without an answer of the store the rest stands.
func (a *api) reports(ctx context.Context, views []acquirerView) {
	reports, err := a.Acquirers.Reports(ctx)
	if err != nil {
		a.Log.WarnContext(ctx, "the replicas' reports could not be read", "error", err)
	}
	for i := range views {
		if err != nil {
			views[i].ReportsError = notAnswered
			continue
		}
		own := []reportView{}
		for _, r := range reports {
			if r.Acquirer == views[i].Name {
				own = append(own, reportView{r.Replica, r.Attempts, r.Failures, r.Slow, r.AgeSeconds})
			}
		}
		views[i].Reports = own
	}
}

// transitionsMost bounds the history that an acquirer is shown with.
const transitionsMost = 20

func (a *api) transitions(ctx context.Context, v *acquirerView) {
	all, err := a.Acquirers.Transitions(ctx, v.Name, transitionsMost)
	if err != nil {
		a.Log.WarnContext(ctx, "the transitions could not be read", "acquirer", v.Name, "error", err)
		v.TransitionsError = notAnswered
		return
	}
	v.Transitions = make([]transitionView, len(all))
	for i, t := range all {
		v.Transitions[i] = viewTransition(t)
	}
}

func (a *api) listAcquirers(w http.ResponseWriter, r *http.Request) error {
	if err := noQuery(r); err != nil {
		return err
	}
	var views []acquirerView
	for _, status := range a.Acquirers.Acquirers() {
		views = append(views, viewAcquirer(status))
	}
	a.reports(r.Context(), views)
	return writeList(w, views, false, func(v acquirerView) acquirerView { return v })
}

// getAcquirer adds how its breaker came to be where it is.
func (a *api) getAcquirer(w http.ResponseWriter, r *http.Request) error {
	if err := noQuery(r); err != nil {
		return err
	}
	return a.writeAcquirer(w, r)
}

func (a *api) writeAcquirer(w http.ResponseWriter, r *http.Request) error {
	status, err := a.Acquirers.Acquirer(chi.URLParam(r, "name"))
	if err != nil {
		return err
	}
	views := []acquirerView{viewAcquirer(status)}
	a.reports(r.Context(), views)
	a.transitions(r.Context(), &views[0])
	writeJSON(w, typeJSON, http.StatusOK, views[0])
	return nil
}

// breakerModes are the words for who decides: ops hold it open or closed, or it decides itself.
func breakerModes() []string { return []string{"open", "close", "auto"} }

// postBreaker steers a breaker. Who did it and why is in the audit log, or it was not done.
func (a *api) postBreaker(w http.ResponseWriter, r *http.Request) error {
	if err := noQuery(r); err != nil {
		return err
	}
	_, doc, err := a.readJSON(w, r)
	if err != nil {
		return err
	}
	mode, reason := doc.text("mode", true, nameMax), doc.text("reason", true, reasonMax)
	if mode != "" && !slices.Contains(breakerModes(), mode) {
		doc.wrong("mode", "invalid", "must be one of "+strings.Join(breakerModes(), ", "))
	}
	if err := doc.finish(); err != nil {
		return err
	}
	x := exchangeOf(r)
	act := payment.Act{Actor: x.principal.Actor(), Reason: reason, ID: x.id}
	if err := a.Acquirers.SetBreaker(r.Context(), chi.URLParam(r, "name"), mode, act); err != nil {
		return err
	}
	return a.writeAcquirer(w, r)
}

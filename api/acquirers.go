package api

import (
	"fmt"
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
}

type breakerView struct {
	State         string `json:"state"`
	Mode          string `json:"mode"`
	Epoch         uint64 `json:"epoch"`
	Since         string `json:"since"`
	Reason        string `json:"reason,omitempty"`
	Attempts      int64  `json:"attempts"`
	Failures      int64  `json:"failures"`
	Slow          int64  `json:"slow"`
	NextProbe     string `json:"next_probe,omitempty"`
	ProbeInFlight bool   `json:"probe_in_flight"`
	RampPercent   int    `json:"ramp_percent"`
}

type budgetView struct {
	Retries60s   int64 `json:"retries_60s"`
	Limit60s     int64 `json:"limit_60s"`
	Retries1s    int64 `json:"retries_1s"`
	Limit1s      int64 `json:"limit_1s"`
	Successes60s int64 `json:"successes_60s"`
}

type bulkheadView struct {
	InFlight int `json:"in_flight"`
	Waiting  int `json:"waiting"`
	Limit    int `json:"limit"`
	Slots    int `json:"slots"`
}

func viewAcquirer(s payment.AcquirerStatus) acquirerView {
	b := s.Breaker
	return acquirerView{
		Object: "acquirer", Name: s.Name,
		Breaker: breakerView{
			State: string(b.State), Mode: string(b.Mode), Epoch: b.Epoch, Since: timestamp(b.Since), Reason: b.Reason,
			Attempts: b.Attempts, Failures: b.Failures, Slow: b.Slow, NextProbe: optionalTime(b.NextProbe),
			ProbeInFlight: b.ProbeInFlight, RampPercent: b.RampPercent,
		},
		Budget: budgetView{
			Retries60s: s.Budget.Retries60s, Limit60s: s.Budget.Limit60s,
			Retries1s: s.Budget.Retries1s, Limit1s: s.Budget.Limit1s, Successes60s: s.Budget.Successes60s,
		},
		Bulkhead: bulkheadView{
			InFlight: s.Bulkhead.InFlight, Waiting: s.Bulkhead.Waiting, Limit: s.Bulkhead.Limit, Slots: s.Bulkhead.Slots,
		},
	}
}

func (a *api) listAcquirers(w http.ResponseWriter, r *http.Request) error {
	if err := noQuery(r); err != nil {
		return err
	}
	return writeList(w, a.Acquirers.Acquirers(), false, viewAcquirer)
}

// breakerModes are the words for who decides: ops hold it open or closed, or it decides itself.
func breakerModes() []string { return []string{"open", "close", "auto"} }

// postBreaker steers a breaker, and writes into the audit log who did it and why.
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
	name, x := chi.URLParam(r, "name"), exchangeOf(r)
	actor := x.principal.Actor()
	if err := a.Acquirers.SetBreaker(r.Context(), name, mode, actor+": "+reason); err != nil {
		return err
	}
	if err := a.Resolver.AuditAppend(r.Context(), actor, "breaker.force", name, mode+": "+reason, x.id); err != nil {
		return fmt.Errorf("the breaker of %s was set to %s, and the audit log could not be written: %w", name, mode, err)
	}
	for _, status := range a.Acquirers.Acquirers() {
		if status.Name == name {
			writeJSON(w, typeJSON, http.StatusOK, viewAcquirer(status))
			return nil
		}
	}
	return payment.ErrUnknownAcquirer
}

package api

import (
	"net/http"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

type healthView struct {
	Status  string `json:"status"`
	Version string `json:"version,omitempty"`
}

// getHealth says that the process answers; it asks nobody else, so that a database that is away does
// not make an orchestrator kill every replica.
func (a *api) getHealth(w http.ResponseWriter, _ *http.Request) error {
	writeJSON(w, typeJSON, http.StatusOK, healthView{Status: "ok", Version: a.Version})
	return nil
}

// getReady says whether this process should get requests.
func (a *api) getReady(w http.ResponseWriter, r *http.Request) error {
	if a.Ready != nil {
		if err := a.Ready(r.Context()); err != nil {
			return &notReadyError{cause: err}
		}
	}
	writeJSON(w, typeJSON, http.StatusOK, healthView{Status: "ready", Version: a.Version})
	return nil
}

type notReadyError struct{ cause error }

func (e *notReadyError) Error() string { return "not ready: " + e.cause.Error() }
func (e *notReadyError) Unwrap() error { return refuse(codeNotReady, "") }

// problemView is the page behind a problem's type.
type problemView struct {
	Code      string `json:"code"`
	Status    int    `json:"status"`
	Title     string `json:"title"`
	Advice    string `json:"advice"`
	Retryable bool   `json:"retryable"`
}

func (a *api) getProblem(w http.ResponseWriter, r *http.Request) error {
	rule, ok := ruleOf(chi.URLParam(r, "code"))
	if !ok {
		return refuse(codeProblemNotFound, "")
	}
	writeJSON(w, typeJSON, http.StatusOK, problemView{
		Code: rule.code, Status: rule.status, Title: rule.title, Advice: rule.advice, Retryable: rule.retryable,
	})
	return nil
}

func (a *api) getMetrics(w http.ResponseWriter, r *http.Request) error {
	gatherer := a.Gatherer
	if gatherer == nil {
		gatherer = prometheus.NewRegistry()
	}
	promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError, DisableCompression: true,
	}).ServeHTTP(w, r)
	return nil
}

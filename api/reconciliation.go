package api

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"

	"paymentsd/merchant"
	"paymentsd/reconcile"
)

type runView struct {
	Object     string   `json:"object"`
	ID         string   `json:"id"`
	Acquirer   string   `json:"acquirer"`
	AsOf       string   `json:"as_of"`
	Status     string   `json:"status"`
	FileIDs    []string `json:"file_ids"`
	FileNames  []string `json:"file_names"`
	Examined   int64    `json:"examined"`
	Captured   int64    `json:"captured"`
	Failed     int64    `json:"failed"`
	Exceptions int64    `json:"exceptions"`
	Error      string   `json:"error,omitempty"`
	StartedAt  string   `json:"started_at"`
	FinishedAt string   `json:"finished_at,omitempty"`
}

func viewRun(r reconcile.Run) runView {
	return runView{
		Object: "run", ID: r.ID, Acquirer: r.Acquirer, AsOf: day(r.AsOf), Status: string(r.Status),
		FileIDs: append([]string{}, r.FileIDs...), FileNames: append([]string{}, r.FileNames...),
		Examined: r.Examined, Captured: r.Captured, Failed: r.Failed, Exceptions: r.Exceptions,
		Error: r.Error, StartedAt: timestamp(r.StartedAt), FinishedAt: optionalTime(r.FinishedAt),
	}
}

func (a *api) listRuns(w http.ResponseWriter, r *http.Request) error {
	q, err := parseQuery(r)
	if err != nil {
		return err
	}
	filter := reconcile.RunFilter{Acquirer: q.text("acquirer"), StartingAfter: q.text("starting_after"), Limit: q.limit()}
	if err := q.finish(); err != nil {
		return err
	}
	runs, more, err := a.Reconciliation.Runs(r.Context(), filter)
	if err != nil {
		return err
	}
	return writeList(w, runs, more, viewRun)
}

type exceptionView struct {
	Object      string     `json:"object"`
	ID          string     `json:"id"`
	State       string     `json:"state"`
	Class       string     `json:"class"`
	Severity    string     `json:"severity"`
	Acquirer    string     `json:"acquirer"`
	MerchantID  string     `json:"merchant_id,omitempty"`
	ChargeID    string     `json:"charge_id,omitempty"`
	Reference   string     `json:"acquirer_reference,omitempty"`
	FileID      string     `json:"file_id,omitempty"`
	LineNo      int        `json:"line_no,omitempty"`
	AtRisk      string     `json:"at_risk,omitempty"`
	Currency    string     `json:"currency,omitempty"`
	Ours        string     `json:"ours,omitempty"`
	Theirs      string     `json:"theirs,omitempty"`
	Detail      string     `json:"detail,omitempty"`
	Action      string     `json:"action,omitempty"`
	Since       string     `json:"since"`
	AgeDays     int        `json:"age_business_days"`
	OpenedAt    string     `json:"opened_at"`
	ClosedAt    string     `json:"closed_at,omitempty"`
	ClosedBy    string     `json:"closed_by,omitempty"`
	CloseReason string     `json:"close_reason,omitempty"`
	Notes       []noteView `json:"notes,omitempty"`
}

type noteView struct {
	Object    string `json:"object"`
	ID        string `json:"id"`
	Actor     string `json:"actor"`
	Text      string `json:"text"`
	CreatedAt string `json:"created_at"`
}

func viewNote(n reconcile.Note) noteView {
	return noteView{Object: "note", ID: n.ID, Actor: n.Actor, Text: n.Text, CreatedAt: timestamp(n.At)}
}

// The states of an exception.
const (
	stateOpen   = "open"
	stateClosed = "closed"
)

func (a *api) viewException(e reconcile.Exception) exceptionView {
	view := exceptionView{
		Object: "exception", ID: e.ID, State: stateOpen, Class: string(e.Class), Severity: string(e.Severity), Acquirer: e.Acquirer,
		ChargeID: e.ChargeID, Reference: e.AcqRef, FileID: e.FileID, LineNo: e.LineNo,
		Ours: e.Ours, Theirs: e.Theirs, Detail: e.Detail, Action: e.Action(),
		Since: day(e.Since), AgeDays: e.Age(a.Now()), OpenedAt: timestamp(e.OpenedAt),
	}
	if e.Merchant != nil {
		view.MerchantID = e.Merchant.Code()
	}
	if e.AtRisk.Currency() != "" {
		view.AtRisk, view.Currency = e.AtRisk.String(), string(e.AtRisk.Currency())
	}
	if c := e.Closed; c != nil {
		view.State, view.ClosedAt, view.ClosedBy, view.CloseReason = stateClosed, timestamp(c.At), c.By, c.Reason
	}
	return view
}

// listExceptions puts the gravest first, then the oldest.
func (a *api) listExceptions(w http.ResponseWriter, r *http.Request) error {
	q, err := parseQuery(r)
	if err != nil {
		return err
	}
	filter := reconcile.ExceptionFilter{
		Merchant: q.merchant(exchangeOf(r).principal),
		Acquirer: q.text("acquirer"),
		Class:    reconcile.Class(q.oneOf("class", exceptionClasses()...)),
		Severity: reconcile.Severity(q.oneOf("severity", severities()...)),
		State:    q.oneOf("state", stateOpen, stateClosed),
		ChargeID: q.text("charge_id"), StartingAfter: q.text("starting_after"), Limit: q.limit(),
	}
	if err := q.finish(); err != nil {
		return err
	}
	exceptions, more, err := a.Reconciliation.Exceptions(r.Context(), filter)
	if err != nil {
		return err
	}
	return writeList(w, exceptions, more, a.viewException)
}

func exceptionClasses() []string {
	var names []string
	for _, info := range reconcile.Classes() {
		names = append(names, string(info.Class))
	}
	slices.Sort(names)
	return names
}

func severities() []string {
	return []string{string(reconcile.Critical), string(reconcile.High), string(reconcile.Warning)}
}

// exceptionAddressed reads the exception of the path. Another merchant's is not found.
func (a *api) exceptionAddressed(r *http.Request, p merchant.Principal) (reconcile.Exception, error) {
	id := chi.URLParam(r, "id")
	if !printable(id) { // Postgres would refuse some bytes, as if it were in trouble
		return reconcile.Exception{}, reconcile.ErrNoException
	}
	e, err := a.Reconciliation.Exception(r.Context(), id)
	if err == nil && p.Merchant != nil && (e.Merchant == nil || *e.Merchant != p.Merchant.ID) {
		err = reconcile.ErrNoException
	}
	return e, err
}

func (a *api) getException(w http.ResponseWriter, r *http.Request) error {
	if err := noQuery(r); err != nil {
		return err
	}
	e, err := a.exceptionAddressed(r, exchangeOf(r).principal)
	if err != nil {
		return err
	}
	return a.writeException(r.Context(), w, e)
}

func (a *api) writeException(ctx context.Context, w http.ResponseWriter, e reconcile.Exception) error {
	notes, err := a.Reconciliation.Notes(ctx, e.ID)
	if err != nil {
		return err
	}
	view := a.viewException(e)
	for _, n := range notes {
		view.Notes = append(view.Notes, viewNote(n))
	}
	writeJSON(w, typeJSON, http.StatusOK, view)
	return nil
}

// exceptionActions is what a person may do about an exception. Neither moves money or changes a charge.
func exceptionActions() []string { return []string{"close", "note"} }

func (a *api) postException(w http.ResponseWriter, r *http.Request) error {
	if err := noQuery(r); err != nil {
		return err
	}
	_, doc, err := a.readJSON(w, r)
	if err != nil {
		return err
	}
	action, reason := doc.text("action", true, nameMax), doc.text("reason", true, reasonMax)
	if action != "" && !slices.Contains(exceptionActions(), action) {
		doc.wrong("action", "invalid", "must be one of "+strings.Join(exceptionActions(), ", "))
	}
	if err := doc.finish(); err != nil {
		return err
	}
	p := exchangeOf(r).principal
	e, err := a.exceptionAddressed(r, p)
	if err != nil {
		return err
	}
	if action == "close" {
		e, err = a.Reconciliation.CloseException(r.Context(), e.ID, p.Actor(), reason)
	} else {
		_, err = a.Reconciliation.AddNote(r.Context(), e.ID, p.Actor(), reason)
	}
	if err != nil {
		return err
	}
	return a.writeException(r.Context(), w, e)
}

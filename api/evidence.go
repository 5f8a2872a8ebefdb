package api

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"

	"paymentsd/money"
	"paymentsd/payment"
)

type attemptView struct {
	Object     string `json:"object"`
	N          int    `json:"n"`
	Acquirer   string `json:"acquirer"`
	State      string `json:"state"`
	Calls      int    `json:"calls"`
	HTTPStatus int    `json:"http_status,omitempty"`
	Code       string `json:"code,omitempty"`
	Reason     string `json:"reason,omitempty"`
	Detail     string `json:"detail,omitempty"`
	StartedAt  string `json:"started_at"`
	FinishedAt string `json:"finished_at,omitempty"`
}

func viewAttempt(a payment.Attempt) attemptView {
	return attemptView{
		Object: "attempt", N: a.N, Acquirer: a.Acquirer, State: a.State, Calls: a.Calls, HTTPStatus: a.HTTPStatus,
		Code: a.Code, Reason: a.Reason, Detail: a.Detail,
		StartedAt: timestamp(a.StartedAt), FinishedAt: optionalTime(a.FinishedAt),
	}
}

func (a *api) listAttempts(w http.ResponseWriter, r *http.Request) error {
	m, id, err := a.chargeAddressed(r)
	if err != nil {
		return err
	}
	attempts, err := a.Records.Attempts(r.Context(), m, id)
	if err == nil && len(attempts) == 0 {
		_, err = a.Records.Get(r.Context(), m, id) // a charge without attempts, or no charge?
	}
	if err != nil {
		return err
	}
	return writeList(w, attempts, false, viewAttempt)
}

type resolutionView struct {
	Object    string `json:"object"`
	ID        string `json:"id"`
	Evidence  string `json:"evidence"`
	Outcome   string `json:"outcome"`
	Applied   bool   `json:"applied"`
	Finding   string `json:"finding,omitempty"`
	Acquirer  string `json:"acquirer,omitempty"`
	CaptureID string `json:"capture_id,omitempty"`
	Amount    string `json:"amount,omitempty"`
	Currency  string `json:"currency,omitempty"`
	Actor     string `json:"actor"`
	Reason    string `json:"reason"`
	FileID    string `json:"file_id,omitempty"`
	LineNo    int    `json:"line_no,omitempty"`
	CreatedAt string `json:"created_at"`
}

// The outcomes as clients read and write them: failed is a word for charges, evidence says what it
// knows of the capture.
const (
	outcomeCaptured    = "captured"
	outcomeNotCaptured = "not_captured"
)

func viewResolution(e payment.Resolution) resolutionView {
	view := resolutionView{
		Object: "resolution", ID: e.ID, Evidence: string(e.Evidence), Outcome: e.Outcome, Applied: e.Applied,
		Finding: string(e.Finding), Acquirer: e.Acquirer, CaptureID: e.CaptureID, Actor: e.Actor, Reason: e.Reason,
		FileID: e.FileID, LineNo: e.LineNo, CreatedAt: timestamp(e.CreatedAt),
	}
	if e.Outcome == payment.OutcomeFailed {
		view.Outcome = outcomeNotCaptured
	}
	if e.Amount.Currency() != "" {
		view.Amount, view.Currency = e.Amount.String(), string(e.Amount.Currency())
	}
	return view
}

func (a *api) listResolutions(w http.ResponseWriter, r *http.Request) error {
	m, id, err := a.chargeAddressed(r)
	if err != nil {
		return err
	}
	resolutions, err := a.Records.Resolutions(r.Context(), m, id)
	if err == nil && len(resolutions) == 0 {
		_, err = a.Records.Get(r.Context(), m, id)
	}
	if err != nil {
		return err
	}
	return writeList(w, resolutions, false, viewResolution)
}

// The greatest lengths of what an operator writes, in bytes.
const (
	nameMax   = 40
	idMax     = 200
	reasonMax = 1000
)

func decodeResolution(doc *document) (payment.Resolution, error) {
	e := payment.Resolution{
		Evidence:  payment.Operator,
		Outcome:   doc.text("outcome", true, nameMax),
		Acquirer:  doc.text("acquirer", false, nameMax),
		CaptureID: doc.text("capture_id", false, idMax),
		Reason:    doc.text("reason", true, reasonMax),
	}
	if _, ok := doc.members["amount"]; ok {
		e.Amount = doc.money()
	} else if _, ok := doc.members["currency"]; ok {
		e.Amount = doc.money() // which says that the amount is missing
	}
	switch e.Outcome {
	case outcomeCaptured:
		e.Outcome = payment.OutcomeCaptured
		if e.Acquirer == "" && !doc.named("acquirer") {
			doc.wrong("acquirer", "required", "is missing: which acquirer captured?")
		}
		if e.CaptureID == "" && !doc.named("capture_id") {
			doc.wrong("capture_id", "required", "is missing: the acquirer's id of the capture")
		}
	case outcomeNotCaptured:
		e.Outcome = payment.OutcomeFailed
		if e.CaptureID != "" {
			doc.wrong("capture_id", "not_allowed", "must be left out when nothing was captured")
		}
	case "":
	default:
		doc.wrong("outcome", "invalid", "must be captured or not_captured")
	}
	return e, doc.finish()
}

// named reports whether a field was found wrong already.
func (d *document) named(field string) bool {
	for _, e := range d.errors {
		if e.Field == field {
			return true
		}
	}
	return false
}

// postResolution closes an unknown by a person's word. The same word again, after a lost answer, is
// the same evidence and changes nothing. The audit log is written by the resolver, with the act.
func (a *api) postResolution(w http.ResponseWriter, r *http.Request) error {
	m, id, err := a.chargeAddressed(r)
	if err != nil {
		return err
	}
	_, doc, err := a.readJSON(w, r)
	if err != nil {
		return err
	}
	evidence, err := decodeResolution(doc)
	if err != nil {
		return err
	}
	evidence.Actor = exchangeOf(r).principal.Actor()
	evidence.ID = evidenceID(evidence)
	c, err := a.Resolver.Resolve(r.Context(), m, id, evidence)
	if err != nil {
		return err
	}
	writeJSON(w, typeJSON, http.StatusOK, viewCharge(c))
	return nil
}

// evidenceID is derived from who says what.
func evidenceID(e payment.Resolution) string {
	hash := sha256.New()
	amount := e.Amount.String() + " " + string(e.Amount.Currency())
	if e.Amount.Currency() == money.Currency("") {
		amount = ""
	}
	for _, part := range []string{e.Actor, e.Outcome, e.Acquirer, e.CaptureID, amount, e.Reason} {
		fmt.Fprintf(hash, "%d:%s", len(part), part)
	}
	return "operator:" + hex.EncodeToString(hash.Sum(nil)[:12])
}

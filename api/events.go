package api

import (
	"errors"
	"net/http"

	"github.com/go-chi/chi/v5"

	"paymentsd/payment"
)

// receiptView is what an acquirer is told of an event that we have.
type receiptView struct {
	Object   string `json:"object"`
	Acquirer string `json:"acquirer"`
	ID       string `json:"id"`
	Replayed bool   `json:"replayed"`
}

// postEvent takes an acquirer's event in. The signature is the only proof of who sends it, so it is judged
// before anything else; 200 means that we have the event, now or from before, and not what we made of it.
// Its body is the acquirer's, in whatever form: only its size and card numbers are looked at here.
func (a *api) postEvent(w http.ResponseWriter, r *http.Request) error {
	if err := noQuery(r); err != nil {
		return err
	}
	name := chi.URLParam(r, "name")
	if a.Events == nil {
		return payment.ErrUnknownAcquirer
	}
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return refuse(codeContentType, "Send the event without a content encoding.")
	}
	body, err := readBody(w, r, a.Limits.BodyBytesMax)
	if err != nil {
		return err
	}
	event, err := a.Events.Verify(name, r.Header, body)
	if err != nil {
		return err
	}
	if err := refuseCardNumbers(body); err != nil {
		return err
	}
	if holdsCardNumber(event.ID()) {
		return refuse(codeCardNumber, "", fieldError{Field: "(event id)", Code: "card_number", Detail: "holds a card number"})
	}
	replayed, err := a.Events.Receive(r.Context(), event)
	if err != nil {
		return err
	}
	writeJSON(w, typeJSON, http.StatusOK, receiptView{Object: "acquirer_event", Acquirer: name, ID: event.ID(), Replayed: replayed})
	return nil
}

// refuseCardNumbers searches a body of somebody else's form: JSON member by member, anything else as a text.
func refuseCardNumbers(body []byte) error {
	_, err := parseDocument(body)
	if refused, ok := errors.AsType[*refusal](err); ok && refused.code == codeCardNumber {
		return err
	}
	if err != nil && holdsCardNumber(string(body)) {
		return refuse(codeCardNumber, "", fieldError{Field: "(body)", Code: "card_number", Detail: "holds a card number"})
	}
	return nil
}

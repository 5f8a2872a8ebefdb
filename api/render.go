package api

import (
	"net/http"

	"paymentsd/idempotency"
	"paymentsd/payment"
)

// chargeView is a charge as clients see it. Empty members are left out.
type chargeView struct {
	Object            string `json:"object"`
	ID                string `json:"id"`
	MerchantID        string `json:"merchant_id"`
	Status            string `json:"status"`
	Amount            string `json:"amount"`
	Currency          string `json:"currency"`
	Reference         string `json:"reference,omitempty"`
	Description       string `json:"description,omitempty"`
	PaymentMethod     string `json:"payment_method"`
	AllowConcurrent   bool   `json:"allow_concurrent"`
	IdempotencyKey    string `json:"idempotency_key"`
	Generation        int    `json:"generation"`
	Acquirer          string `json:"acquirer,omitempty"`
	AcquirerReference string `json:"acquirer_reference"`
	CaptureID         string `json:"capture_id,omitempty"`
	DeclineCode       string `json:"decline_code,omitempty"`
	Reason            string `json:"reason,omitempty"`
	Detail            string `json:"detail,omitempty"`
	Evidence          string `json:"evidence,omitempty"`
	Next              string `json:"next,omitempty"`
	CreatedAt         string `json:"created_at"`
	UpdatedAt         string `json:"updated_at"`
}

// What happens next to a charge without an outcome, and what not to do meanwhile.
const (
	nextOfUnknown = "Money may have moved. The acquirer's inquiry or settlement file will decide; look again with GET, or send the same request with the same key. Do not charge this order under another key."
	nextOfPending = "An acquirer is being asked. Look again with GET, or send the same request with the same key."
)

func viewCharge(c payment.Charge) chargeView {
	view := chargeView{
		Object: "charge", ID: c.ID, MerchantID: c.Merchant.Code(), Status: string(c.Status),
		Amount: c.Amount.String(), Currency: string(c.Amount.Currency()),
		Reference: c.Reference, Description: c.Description, PaymentMethod: c.PaymentMethod, AllowConcurrent: c.AllowConcurrent,
		IdempotencyKey: c.IdempotencyKey, Generation: c.Generation,
		Acquirer: c.Acquirer, AcquirerReference: c.AcqRef, CaptureID: c.CaptureID, DeclineCode: c.DeclineCode,
		Reason: c.Reason, Detail: c.Detail, Evidence: string(c.Evidence),
		CreatedAt: timestamp(c.CreatedAt), UpdatedAt: timestamp(c.UpdatedAt),
	}
	switch c.Status {
	case payment.Unknown:
		view.Next = nextOfUnknown
	case payment.Pending, payment.Queued:
		view.Next = nextOfPending
	}
	return view
}

func chargePath(id string) string { return "/v1/charges/" + id }

// Render makes the answer that is frozen with an outcome: 201 with the charge if it is captured, and 402
// with a problem if it was unknown and is resolved as failed. It is a payment.Render. The bytes depend
// on the charge alone, so that the request, recovery and reconciliation freeze the same ones.
func Render(c payment.Charge) idempotency.Response {
	if c.Status == payment.Captured {
		return idempotency.Response{
			Status: http.StatusCreated, ContentType: typeJSON, Location: chargePath(c.ID), Body: marshal(viewCharge(c)),
		}
	}
	r, _ := ruleOf(codeNotCaptured)
	p := r.problem()
	p.about(c.ID)
	p.Reason = c.Reason
	return idempotency.Response{
		Status: p.Status, ContentType: typeProblem, Location: chargePath(c.ID), Body: marshal(p),
	}
}

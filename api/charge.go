package api

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"time"

	"github.com/go-chi/chi/v5"

	"paymentsd/idempotency"
	"paymentsd/merchant"
	"paymentsd/money"
	"paymentsd/payment"
)

// The greatest lengths of a charge's texts, in bytes of UTF-8.
const (
	referenceMax   = 255
	descriptionMax = 255
	methodMax      = 255
)

// paymentToken is what a payment_method may look like.
var paymentToken = regexp.MustCompile(`^[A-Za-z0-9_.:-]+$`)

// chargeBody is the body of a POST of a charge.
type chargeBody struct {
	amount          money.Amount
	reference       string
	paymentMethod   string
	description     string
	allowConcurrent bool
}

func decodeCharge(doc *document) (chargeBody, error) {
	c := chargeBody{
		amount:          doc.money(),
		paymentMethod:   doc.text("payment_method", true, methodMax),
		reference:       doc.text("reference", false, referenceMax),
		description:     doc.text("description", false, descriptionMax),
		allowConcurrent: doc.flag("allow_concurrent"),
	}
	if c.paymentMethod != "" && !paymentToken.MatchString(c.paymentMethod) {
		doc.wrong("payment_method", "characters", "must be a token of letters, digits and _ . : -")
	}
	return c, doc.finish()
}

// money reads amount and currency: a plain decimal as a JSON string, more than nothing, with at most
// the currency's decimals.
func (d *document) money() money.Amount {
	const amountMax = 40
	text := ""
	if raw, ok := d.members["amount"]; ok && raw[0] != '"' {
		d.take("amount")
		d.wrong("amount", "type", `must be a JSON string such as "49.99": a number loses exactness on its way`)
	} else {
		text = d.text("amount", true, amountMax)
	}
	code := d.text("currency", true, 3)
	currency, err := money.ParseCurrency(code)
	if code != "" && err != nil {
		d.wrong("currency", "unknown_currency", "must be a code of ISO 4217 in upper case, such as USD")
	}
	if text == "" {
		return money.Amount{}
	}
	amount, err := money.Parse(text, currency)
	switch {
	case errors.Is(err, money.ErrSyntax):
		d.wrong("amount", "syntax", `must be a plain decimal such as "49.99": no sign, exponent, separators or leading zeros`)
	case errors.Is(err, money.ErrTooPrecise):
		d.wrong("amount", "too_precise", fmt.Sprintf("has more decimals than %s has, %d", currency, currency.Exponent()))
	case errors.Is(err, money.ErrTooLarge):
		d.wrong("amount", "too_large", fmt.Sprintf("has more than %d digits before the point", money.MaxIntegerDigits))
	case err != nil: // the currency is wrong, and was said so
	case !amount.IsPositive():
		d.wrong("amount", "not_positive", "must be more than zero")
	}
	return amount
}

func (a *api) postCharge(w http.ResponseWriter, r *http.Request) error {
	if err := noQuery(r); err != nil {
		return err
	}
	headers, err := a.readChargeHeaders(r.Header)
	if err != nil {
		return err
	}
	w.Header().Set(headerKey, headers.key)
	body, doc, err := a.readJSON(w, r)
	if err != nil {
		return err
	}
	c, err := decodeCharge(doc)
	if err != nil {
		return err
	}
	fingerprint, err := a.Fingerprinter.Of(idempotency.Subject{
		Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery, Body: body,
		Canonical: map[string]string{"amount": c.amount.String()},
	})
	if err != nil {
		return err
	}
	request := payment.Request{
		Merchant: *exchangeOf(r).principal.Merchant, Key: headers.key, Fingerprint: fingerprint,
		Amount: c.amount, Reference: c.reference, PaymentMethod: c.paymentMethod, Description: c.description,
		AllowConcurrent: c.allowConcurrent, Wait: headers.wait, Priority: exchangeOf(r).priority,
		Deadline: exchangeOf(r).startBy,
	}
	if headers.wait > 0 {
		w.Header().Set("Preference-Applied", fmt.Sprintf("wait=%d", int(headers.wait/time.Second)))
	}
	result, err := a.Charges.Charge(r.Context(), request)
	if errors.Is(err, payment.ErrUnknownAcquirer) {
		// Our routing is at fault, not the request: nothing was sent, and the key is free.
		err = fmt.Errorf("%w (%v)", &payment.NotExecutedError{Rejection: &payment.Rejection{Reason: reasonNoAcquirer, Detail: err.Error()}}, err)
	}
	if err != nil {
		return err
	}
	return a.answerCharge(w, r, result)
}

// reasonNoAcquirer: none of the acquirers to which the merchant is routed is configured here.
const reasonNoAcquirer = "no_acquirer"

func (a *api) answerCharge(w http.ResponseWriter, r *http.Request, result payment.Result) error {
	c := result.Charge
	exchangeOf(r).chargeID = c.ID
	a.metrics.answered(c.Status, result.Replayed)
	h := w.Header()
	if result.Replayed {
		h.Set("Idempotent-Replayed", "true")
	}
	switch {
	case result.Frozen != nil:
		if result.Frozen.Status >= http.StatusBadRequest {
			exchangeOf(r).code, exchangeOf(r).reason = codeNotCaptured, c.Reason
		}
		h.Set("Content-Type", result.Frozen.ContentType)
		if result.Frozen.Location != "" {
			h.Set("Location", result.Frozen.Location)
		}
		w.WriteHeader(result.Frozen.Status)
		_, _ = w.Write(result.Frozen.Body) // the client has gone: the answer is kept for its next try
		return nil
	case c.Status == payment.Declined || c.Status == payment.Failed:
		return &ending{result: result}
	case c.Status == payment.Captured:
		return fmt.Errorf("charge %s is captured, and its frozen answer was not handed over", c.ID)
	}
	h.Set("Location", chargePath(c.ID))
	setRetryAfter(h, max(result.RetryAfter, time.Second))
	writeJSON(w, typeJSON, http.StatusAccepted, viewCharge(c))
	return nil
}

func (a *api) getCharge(w http.ResponseWriter, r *http.Request) error {
	m, id, err := a.chargeAddressed(r)
	if err != nil {
		return err
	}
	c, err := a.Records.Get(r.Context(), m, id)
	if err != nil {
		return err
	}
	writeJSON(w, typeJSON, http.StatusOK, viewCharge(c))
	return nil
}

func (a *api) listCharges(w http.ResponseWriter, r *http.Request) error {
	q, err := parseQuery(r)
	if err != nil {
		return err
	}
	statuses := make([]string, 0, len(payment.Statuses()))
	for _, s := range payment.Statuses() {
		statuses = append(statuses, string(s))
	}
	filter := payment.Filter{
		Merchant:       q.merchant(exchangeOf(r).principal),
		Reference:      q.text("reference"),
		IdempotencyKey: q.text("idempotency_key"),
		Status:         payment.Status(q.oneOf("status", statuses...)),
		Acquirer:       q.text("acquirer"),
		CreatedAfter:   q.time("created_after"),
		StartingAfter:  q.text("starting_after"),
		Limit:          q.limit(),
	}
	if err := q.finish(); err != nil {
		return err
	}
	page, err := a.Records.List(r.Context(), filter)
	if err != nil {
		return err
	}
	return writeList(w, page.Charges, page.HasMore, viewCharge)
}

// chargeAddressed reads the charge of the path, for an operation without parameters.
func (a *api) chargeAddressed(r *http.Request) (m merchant.ID, id string, err error) {
	if err := noQuery(r); err != nil {
		return 0, "", err
	}
	id = chi.URLParam(r, "id")
	m, err = merchantOf(exchangeOf(r).principal, id)
	if err == nil {
		exchangeOf(r).chargeID = id
	}
	return m, id, err
}

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// checkout is the demo's checkout backend: it posts charges and reads answers.
type checkout struct {
	url, key string
	client   http.Client
}

func newCheckout(url, key string) *checkout {
	return &checkout{url: url, key: key, client: http.Client{Timeout: 30 * time.Second}}
}

// reply is an answer of the API.
type reply struct {
	status int
	header http.Header
	text   string
	body   struct {
		ID         string `json:"id"`
		ChargeID   string `json:"charge_id"`
		Status     any    `json:"status"` // a charge's state, or a problem's number
		Code       string `json:"code"`
		Acquirer   string `json:"acquirer"`
		CaptureID  string `json:"capture_id"`
		AcqRef     string `json:"acquirer_reference"`
		Evidence   string `json:"evidence"`
		Decline    string `json:"decline_code"`
		Detail     string `json:"detail"`
		Generation int    `json:"generation"`
		Data       []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
}

func (r reply) replayed() bool { return r.header.Get("Idempotent-Replayed") == "true" }

// order is a charge as the demo asks for it.
type order struct {
	Amount        string `json:"amount"`
	Currency      string `json:"currency"`
	Reference     string `json:"reference"`
	PaymentMethod string `json:"payment_method"`
}

// charge posts an order under a key.
func (c *checkout) charge(ctx context.Context, key string, o order) (reply, error) {
	body, err := json.Marshal(o)
	if err != nil {
		return reply{}, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+"/v1/charges", bytes.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	request.Header.Set("Idempotency-Key", key)
	request.Header.Set("Content-Type", "application/json")
	return c.send(request)
}

const replyMax = 1 << 20

func (c *checkout) send(request *http.Request) (reply, error) {
	request.Header.Set("Authorization", "Bearer "+c.key)
	response, err := c.client.Do(request)
	if err != nil {
		return reply{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, replyMax))
	if err != nil {
		return reply{}, err
	}
	r := reply{status: response.StatusCode, header: response.Header, text: string(text)}
	if err := json.Unmarshal(text, &r.body); err != nil {
		return reply{}, fmt.Errorf("answer %d is not JSON: %.200q", r.status, text)
	}
	return r, nil
}

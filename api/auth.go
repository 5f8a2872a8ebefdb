package api

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"paymentsd/merchant"
	"paymentsd/payment"
	"paymentsd/resilience"
)

// access says why a principal may not use a route, or nil.
type access func(merchant.Principal) error

// mayCharge: only a merchant's own checkout. A platform key has no merchant to charge for.
func mayCharge(p merchant.Principal) error {
	if p.Role != merchant.RoleCharges || p.Merchant == nil {
		return refuse(codeForbidden, "A key with the role charges may post charges.")
	}
	return nil
}

// mayRead: every key reads what is its merchant's.
func mayRead(p merchant.Principal) error {
	if !p.Role.Valid() {
		return refuse(codeForbidden, "A key with the role charges, read or ops may read.")
	}
	return nil
}

func mayOperate(p merchant.Principal) error {
	if p.Role != merchant.RoleOps {
		return refuse(codeForbidden, "A key with the role ops may do this.")
	}
	return nil
}

// maySteer: what touches every merchant is for the platform's own keys.
func maySteer(p merchant.Principal) error {
	if p.Role != merchant.RoleOps || p.Merchant != nil {
		return refuse(codeForbidden, "A key of the platform with the role ops may do this: it touches every merchant.")
	}
	return nil
}

// authenticated lets through to h who may use its route, as far as the overload lets them.
func (a *api) authenticated(may access, h handler) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if err := a.authenticate(r, may); err != nil {
			return err
		}
		if err := a.reweigh(r); err != nil {
			return err
		}
		return h(w, r)
	}
}

// authenticate finds out who asks and whether they may.
func (a *api) authenticate(r *http.Request, may access) error {
	presented, err := bearer(r.Header.Values("Authorization"))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), min(a.Limits.StoreTime, resilience.Remaining(r.Context())))
	defer cancel()
	p, err := a.Auth.Authenticate(ctx, presented)
	switch {
	case errors.Is(err, merchant.ErrUnknownKey):
		return err
	case err != nil:
		return &payment.UnavailableError{Cause: err}
	}
	exchangeOf(r).principal = p
	return may(p)
}

// bearer reads the token of RFC 6750; the scheme's case does not matter (RFC 9110, 11.1).
func bearer(values []string) (string, error) {
	if len(values) != 1 {
		return "", refuse(codeUnauthorized, "Send one Authorization header.")
	}
	scheme, token, ok := strings.Cut(values[0], " ")
	token = strings.Trim(token, " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") || token == "" || strings.ContainsAny(token, " ,") {
		return "", refuse(codeUnauthorized, "Send Authorization: Bearer and the key.")
	}
	return token, nil
}

// merchantOf is whose tables hold the charge, for this principal. Another merchant's charge is not
// found, in the same words as one that never was.
func merchantOf(p merchant.Principal, chargeID string) (merchant.ID, error) {
	m, err := payment.MerchantOf(chargeID)
	if err != nil {
		return 0, err
	}
	if p.Merchant != nil && p.Merchant.ID != m {
		return 0, payment.ErrNotFound
	}
	return m, nil
}

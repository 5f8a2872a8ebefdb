package api_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"paymentsd/api"
	"paymentsd/merchant"
	"paymentsd/payment"
)

// hanging is a store that never answers, as Postgres does behind a cut network or on a frozen machine.
type hanging struct{ api.Records }

func (hanging) Authenticate(ctx context.Context, presented string) (merchant.Principal, error) {
	if presented == "known" {
		return merchant.Principal{Role: merchant.RoleOps}, nil
	}
	<-ctx.Done()
	return merchant.Principal{}, ctx.Err()
}

func (hanging) List(ctx context.Context, _ payment.Filter) (payment.Page, error) {
	<-ctx.Done()
	return payment.Page{}, ctx.Err()
}

type hangingAcquirers struct{ anyAcquirers }

// anyAcquirers has another name than its method, so that it can be embedded.
type anyAcquirers interface{ api.Acquirers }

func (hangingAcquirers) SetBreaker(ctx context.Context, _, _ string, _ payment.Act) error {
	<-ctx.Done()
	return ctx.Err()
}

// A store that hangs is a store that is not available, also for who has a key that must be looked up.
func TestAStoreThatHangsIsAnswered503InTime(t *testing.T) {
	t.Parallel()
	handler := api.New(api.Deps{
		Auth: hanging{}, Records: hanging{}, Now: time.Now, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Ready:  func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		Limits: api.Limits{StoreTime: 20 * time.Millisecond},
	})
	for name, c := range map[string]struct{ method, target, key, code string }{
		"a key that must be looked up": {http.MethodPost, "/v1/charges", "other", "store_unavailable"},
		"a read":                       {http.MethodGet, "/v1/charges", "known", "store_unavailable"},
		"readiness":                    {http.MethodGet, "/readyz", "", "not_ready"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequestWithContext(t.Context(), c.method, c.target, nil) // without a deadline of its own
			r.Header.Set("Authorization", "Bearer "+c.key)
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" || codeOf(w.Body.Bytes()) != c.code {
				t.Errorf("answered %d %v %s, want 503 %s", w.Code, w.Header(), w.Body, c.code)
			}
		})
	}
}

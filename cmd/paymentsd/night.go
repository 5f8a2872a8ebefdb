package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"paymentsd/api"
	"paymentsd/internal/postgres"
	"paymentsd/ledger"
	"paymentsd/merchant"
	"paymentsd/payment"
	"paymentsd/reconcile"
)

// nightly runs the reconciliation as cmd/reconcile does, on the files that both acquirers serve.
func (s *stage) nightly(ctx context.Context) (string, error) {
	pool, err := postgres.Open(ctx, postgres.Config{URL: s.plant.databaseURL(), Role: postgres.ServiceRole, MaxConns: 4, Name: "demo night", StatementTimeout: time.Minute})
	if err != nil {
		return "", err
	}
	defer pool.Close()
	log := slog.New(slog.DiscardHandler)
	reconciler := reconcile.New(reconcile.Config{
		Pool: pool, Merchants: merchant.NewStore(pool, time.Now), Now: time.Now, Log: log,
		Resolver: payment.NewResolver(payment.ResolverConfig{Pool: pool, Render: api.Render, Now: time.Now, Log: log}),
	})
	var told []string
	for _, a := range s.plant.acquirers {
		report, err := reconciler.Run(ctx, reconcile.Request{
			Acquirer: a.name, Format: "canonical", AsOf: time.Now().UTC(), Feeds: []reconcile.Feed{feedOf(a)},
		})
		if err != nil {
			return "", fmt.Errorf("reconcile %s: %w", a.name, err)
		}
		if err := hold(len(report.Exceptions) == 0, "%s: %d exceptions, the first is %+v", a.name, len(report.Exceptions), report.Exceptions); err != nil {
			return "", err
		}
		told = append(told, fmt.Sprintf("%s: lines matched: %d, %s", a.name, report.Lines.Matched, resolved(report)))
	}
	left, err := s.unknowns(ctx)
	if err != nil {
		return "", err
	}
	return strings.Join(told, "; ") + ". Each closing cites file and line.", hold(left == 0, "%d charges are still unknown", left)
}

// resolved says what a run ended.
func resolved(report reconcile.Report) string {
	if len(report.Resolved) == 0 {
		return "no unknown to close"
	}
	var told []string
	for _, total := range report.Resolved {
		told = append(told, fmt.Sprintf("%d unknown closed as %s (%s %s)", total.Count, total.Word, total.Amount, total.Amount.Currency()))
	}
	return strings.Join(told, ", ")
}

// feedOf is today's settlement file of an acquirer, up to now.
func feedOf(a simulated) reconcile.Feed {
	now := time.Now().UTC().Add(time.Second).Truncate(time.Second)
	from := now.Truncate(24*time.Hour).AddDate(0, 0, -1) // the demo may run over midnight
	url := fmt.Sprintf("%s/settlement?from=%s&to=%s", a.server.URL(), from.Format(time.RFC3339), now.Format(time.RFC3339))
	return reconcile.Feed{Name: a.name + ".csv", Open: func(ctx context.Context) (io.ReadCloser, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return nil, err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return nil, err
		}
		if response.StatusCode != http.StatusOK {
			return nil, errors.Join(fmt.Errorf("%s answers %s", url, response.Status), response.Body.Close())
		}
		return response.Body, nil
	}}
}

func (s *stage) unknowns(ctx context.Context) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.replica.URL+"/v1/charges?status=unknown&limit=100", nil)
	if err != nil {
		return 0, err
	}
	r, err := newCheckout(s.replica.URL, s.plant.opsKey).send(request)
	if err != nil {
		return 0, err
	}
	return len(r.body.Data), hold(r.status == http.StatusOK, "answer %d: %s", r.status, r.text)
}

// closed shows what a merchant sees of it. The charge of the killed service may have been closed by an inquiry,
// if that was faster than the night.
func (s *stage) closed(ctx context.Context) (string, error) {
	crashed, err := s.shop().charge(ctx, "order-6", order{"75.00", "USD", "order-6", "tok_slow"})
	if err != nil {
		return "", err
	}
	if err := hold(crashed.status == http.StatusCreated && crashed.replayed(), "answer %d: %s", crashed.status, crashed.text); err != nil {
		return "", err
	}
	return fmt.Sprintf("The charge of the killed service is now 201 captured, on the evidence of: %s. One capture.", crashed.body.Evidence),
		hold(s.captures(crashed) == 1, "the acquirers hold %d captures", s.captures(crashed))
}

// books proves the ledger: nothing is owed that was not captured, and both sides are equal.
func (s *stage) books(ctx context.Context) (string, error) {
	pool, err := postgres.Open(ctx, postgres.Config{URL: s.plant.databaseURL(), Role: postgres.ServiceRole, MaxConns: 2, Name: "demo books"})
	if err != nil {
		return "", err
	}
	defer pool.Close()
	sums, err := ledger.TrialBalance(ctx, pool)
	if err != nil {
		return "", err
	}
	for _, sum := range sums {
		if err := hold(sum.Net().IsZero(), "the trial balance of %s is off by %s", sum.Currency, sum.Net()); err != nil {
			return "", err
		}
	}
	balances, err := ledger.Balances(ctx, pool, s.plant.merchant.ID)
	if err != nil {
		return "", err
	}
	lines := make([]string, 0, len(balances))
	for _, b := range balances {
		lines = append(lines, "      "+b.String())
	}
	return "The trial balance is zero in every currency. The merchant's accounts:\n" + strings.Join(lines, "\n"),
		hold(len(sums) > 0, "the ledger is empty")
}

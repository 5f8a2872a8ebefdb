package main

import (
	"errors"
	"fmt"
	"log/slog"

	"paymentsd/acquirer"
	"paymentsd/acquirer/builtin"
	"paymentsd/payment"
	"paymentsd/resilience"
)

// routes builds every configured acquirer with its policies, or reports every problem.
func routes(c config, getenv func(string) string, log *slog.Logger) ([]payment.Route, error) {
	var all []payment.Route
	var problems []error
	for i, a := range c.Acquirers {
		route, err := newRoute(a, getenv, log)
		if err != nil {
			problems = append(problems, fmt.Errorf("acquirers[%d] (%s): %w", i, a.Name, err))
		}
		all = append(all, route)
	}
	return all, errors.Join(problems...)
}

func newRoute(a acquirerConfig, getenv func(string) string, log *slog.Logger) (payment.Route, error) {
	secret, secretErr := a.Secret.read(getenv)
	adapter, adapterErr := newAdapter(a, secret)
	breaker := a.Breaker.settings()
	breaker.Listeners = append(breaker.Listeners, func(e resilience.Event) {
		log.Warn("breaker", "acquirer", a.Name, "from", e.From, "to", e.To, "epoch", e.Epoch, "reason", e.Reason)
	})
	chain, err := resilience.NewLocal(resilience.Settings{
		Breaker: breaker, Budget: a.Budget.settings(), Bulkhead: a.Bulkhead.settings(), Retry: a.Retry.settings(a.Timeout),
	})
	return payment.Route{Name: a.Name, Adapter: adapter, Chain: chain}, errors.Join(secretErr, adapterErr, err)
}

func newAdapter(a acquirerConfig, secret acquirer.Secret) (acquirer.Acquirer, error) {
	factory, ok := builtin.Factories()[a.Adapter]
	if !ok {
		return nil, fmt.Errorf("adapter %q is not known", a.Adapter)
	}
	return factory(acquirer.Config{
		Name: a.Name, URL: a.URL, Secret: secret, Account: a.Account, Timeout: a.Timeout, Settings: a.Settings,
	})
}

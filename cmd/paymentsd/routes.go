package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/jackc/pgx/v5"

	"paymentsd/acquirer"
	"paymentsd/acquirer/builtin"
	"paymentsd/internal/postgres"
	"paymentsd/payment"
	"paymentsd/resilience"
	"paymentsd/resilience/shared"
)

// plan is a configured acquirer: all that a route needs but what the replicas share.
type plan struct {
	name     string
	adapter  acquirer.Acquirer
	settings resilience.Settings
}

// planRoutes reads every configured acquirer, or reports every problem. It opens nothing.
func planRoutes(c config, getenv func(string) string) ([]plan, error) {
	var all []plan
	var problems []error
	for i, a := range c.Acquirers {
		p, err := newPlan(a, getenv)
		if err != nil {
			problems = append(problems, fmt.Errorf("acquirers[%d] (%s): %w", i, a.Name, err))
		}
		all = append(all, p)
	}
	return all, errors.Join(problems...)
}

func newPlan(a acquirerConfig, getenv func(string) string) (plan, error) {
	secret, secretErr := a.Secret.read(getenv)
	eventSecrets, eventsErr := a.Events.read(getenv)
	adapter, adapterErr := newAdapter(a, secret, eventSecrets)
	settings := a.policies()
	return plan{a.Name, adapter, settings}, errors.Join(secretErr, eventsErr, adapterErr, settings.Validate())
}

func newAdapter(a acquirerConfig, secret acquirer.Secret, eventSecrets []acquirer.Secret) (acquirer.Acquirer, error) {
	factory, ok := builtin.Factories()[a.Adapter]
	if !ok {
		return nil, fmt.Errorf("adapter %q is not known", a.Adapter)
	}
	adapter, err := factory(acquirer.Config{
		Name: a.Name, URL: a.URL, Secret: secret, Account: a.Account, Timeout: a.Timeout, Settings: a.Settings,
		EventSecrets: eventSecrets, EventTolerance: a.Events.Tolerance,
	})
	if err != nil {
		return nil, err
	}
	if _, sends := adapter.(acquirer.EventSource); !sends && len(eventSecrets) > 0 {
		return nil, fmt.Errorf("events.secrets: adapter %q takes no events", a.Adapter)
	}
	return adapter, nil
}

// join makes this process one of the replicas that share breakers and budgets.
func join(ctx context.Context, c gatewayConfig, plans []plan, metrics *breakerMetrics, tracer pgx.QueryTracer) (*shared.Shared, error) {
	name := c.Server.Replica
	if name == "" {
		var err error
		if name, err = os.Hostname(); err != nil {
			return nil, fmt.Errorf("the host has no name for this replica (PAYMENTSD_REPLICA or server.replica gives it one): %w", err)
		}
	}
	all := make([]shared.Acquirer, len(plans))
	for i, p := range plans {
		breaker := p.settings.Breaker
		breaker.Listeners = append(breaker.Listeners, metrics.heard(p.name), logged(c.log, p.name))
		all[i] = shared.Acquirer{Name: p.name, Breaker: breaker, Budget: p.settings.Budget}
	}
	return shared.Open(ctx, shared.Config{
		URL: c.databaseURL, Role: postgres.ServiceRole, Replica: name, Acquirers: all, Log: c.log, Tracer: tracer,
	})
}

// logged writes a line for every transition that this replica learns of.
func logged(log *slog.Logger, acquirer string) func(resilience.Event) {
	return func(e resilience.Event) {
		level := slog.LevelInfo
		if e.To == resilience.Open || e.Mode != resilience.Automatic {
			level = slog.LevelWarn
		}
		log.Log(context.Background(), level, "breaker", "acquirer", acquirer, "from", e.From, "to", e.To, "mode", e.Mode,
			"epoch", e.Epoch, "by", e.Replica, "open_for", e.OpenFor, "reason", e.Reason)
	}
}

// route gives each plan its chain: the breaker and the budget of all replicas, and a bulkhead of our own.
func route(plans []plan, s *shared.Shared) ([]payment.Route, error) {
	var routes []payment.Route
	for _, p := range plans {
		bulkhead, err := resilience.NewBulkhead(p.settings.Bulkhead)
		if err != nil {
			return nil, err
		}
		chain, err := resilience.NewChain(resilience.ChainConfig{
			Breaker: s.Breaker(p.name), Budget: s.Budget(p.name), Bulkhead: bulkhead, Retry: p.settings.Retry,
		})
		if err != nil {
			return nil, err
		}
		routes = append(routes, payment.Route{Name: p.name, Adapter: p.adapter, Chain: chain})
	}
	return routes, nil
}

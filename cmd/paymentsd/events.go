package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"paymentsd/acquirer"
	"paymentsd/events"
	"paymentsd/payment"
	"paymentsd/reconcile"
)

// read gives the secrets of an acquirer's events, or says which is not there.
func (c eventsConfig) read(getenv func(string) string) ([]acquirer.Secret, error) {
	secrets := make([]acquirer.Secret, 0, len(c.Secrets))
	var problems []error
	for i, source := range c.Secrets {
		secret, err := source.read(getenv)
		if err == nil && secret == "" {
			err = errors.New("name env or file")
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("events.secrets[%d]: %w", i, err))
			continue
		}
		secrets = append(secrets, secret)
	}
	return secrets, errors.Join(problems...)
}

// newEvents takes events from the acquirers that have secrets for them. Routes are in the order of the
// configuration.
func (g *gateway) newEvents(c gatewayConfig, routes []payment.Route, reconciler *reconcile.Reconciler, observer *observer) *events.Service {
	sources := map[string]events.Source{}
	for i, route := range routes {
		source, sends := route.Adapter.(acquirer.EventSource)
		if sends && len(g.Acquirers[i].Events.Secrets) > 0 {
			sources[route.Name] = events.Source{EventSource: source, Capabilities: route.Adapter.Capabilities()}
		}
	}
	return events.New(events.Config{
		Pool: g.pool, Sources: sources, Charges: g.service, Exceptions: reconciler, Now: time.Now, Log: g.log,
		Observe: observer.Event, Fault: faultPoints(c.getenv),
	})
}

// eventsEvery is how often events that wait are looked for: those that are received are handled at once.
const eventsEvery = time.Second

// handleEvents goes on while there is more.
func (g *gateway) handleEvents(ctx context.Context) error {
	for {
		more, err := g.events.HandleDue(ctx)
		if err != nil || !more {
			return err
		}
	}
}

// expireEvents deletes events that said nothing new, longer ago than answers are kept.
func (g *gateway) expireEvents(ctx context.Context) error {
	before := time.Now().Add(-g.Retention)
	for {
		more, err := g.events.Expire(ctx, before)
		if err != nil || !more {
			return err
		}
	}
}

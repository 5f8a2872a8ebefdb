package payment

import (
	"context"
	"fmt"

	"paymentsd/acquirer"
	"paymentsd/resilience"
)

// Replicas is what the replicas of this service know together. Its methods ask the store.
type Replicas interface {
	// Reports says what each replica reported in the last minute, of every acquirer.
	Reports(ctx context.Context) ([]resilience.ReplicaReport, error)
	// Transitions gives the newest transitions of an acquirer's breaker, newest first.
	Transitions(ctx context.Context, acquirer string, most int) ([]resilience.Transition, error)
}

// AcquirerStatus is how an acquirer stands with this replica.
type AcquirerStatus struct {
	Name string
	resilience.ChainSnapshot
	Capabilities acquirer.Capabilities
}

// Acquirers reports every acquirer, in configured order. It asks nobody.
func (s *Service) Acquirers() []AcquirerStatus {
	all := make([]AcquirerStatus, 0, len(s.routes))
	for _, route := range s.routes {
		all = append(all, route.status())
	}
	return all
}

// Acquirer reports one acquirer, or gives ErrUnknownAcquirer.
func (s *Service) Acquirer(name string) (AcquirerStatus, error) {
	route, err := s.route(name)
	if err != nil {
		return AcquirerStatus{}, err
	}
	return route.status(), nil
}

func (r Route) status() AcquirerStatus {
	return AcquirerStatus{Name: r.Name, ChainSnapshot: r.Chain.Snapshot(), Capabilities: r.Adapter.Capabilities()}
}

func (s *Service) route(name string) (Route, error) {
	for _, route := range s.routes {
		if route.Name == name {
			return route, nil
		}
	}
	return Route{}, fmt.Errorf("%w: %q", ErrUnknownAcquirer, name)
}

// Reports says which replica reported what in the last minute. Breakers that are not shared have none.
func (s *Service) Reports(ctx context.Context) ([]resilience.ReplicaReport, error) {
	if s.replicas == nil {
		return nil, nil
	}
	return s.replicas.Reports(ctx)
}

// Transitions gives the newest transitions of an acquirer's breaker, newest first.
func (s *Service) Transitions(ctx context.Context, acquirer string, most int) ([]resilience.Transition, error) {
	if s.replicas == nil {
		return nil, nil
	}
	return s.replicas.Transitions(ctx, acquirer, most)
}

// modes are the words of the API for a breaker's mode.
var modes = map[string]resilience.Mode{
	"open": resilience.ForcedOpen, "close": resilience.ForcedClosed, "auto": resilience.Automatic,
}

// Act is what a person does: who, why, and the act's own name in the audit log.
type Act struct{ Actor, Reason, ID string }

// SetBreaker holds an acquirer's breaker open or closed on every replica, or gives it back to its own
// rules (auto). The breaker and the audit log are written together, both or neither.
func (s *Service) SetBreaker(ctx context.Context, name, mode string, act Act) error {
	wanted, ok := modes[mode]
	if !ok {
		return fmt.Errorf("%w: %q is not open, close or auto", ErrBreakerMode, mode)
	}
	route, err := s.route(name)
	if err != nil {
		return err
	}
	return route.Chain.Breaker().Force(ctx, resilience.Order{
		Mode: wanted, Why: act.Reason, Actor: act.Actor, Act: act.ID,
	})
}

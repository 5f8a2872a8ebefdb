package payment

import (
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"paymentsd/acquirer"
	"paymentsd/resilience"
)

// Route is one acquirer, and the policies under which it is called.
type Route struct {
	Name    string
	Adapter acquirer.Acquirer
	Chain   *resilience.Chain
}

// Observer is told what happened, for metrics. Its methods must not block.
type Observer interface {
	ChargeEnded(status Status, reason string)
	AcquirerAnswered(acquirer string, class acquirer.Class, took time.Duration)
	Rejected(acquirer string, reason resilience.Reason)
	ErrandEnded(kind ErrandKind, result ErrandResult)
	// GroupWritten: so many rows of T1 ("begin") or T2 ("finish") shared a commit, which took so long.
	GroupWritten(step string, rows int, took time.Duration)
}

// ErrandResult is what came of one go at an errand.
type ErrandResult string

// The results of errands.
const (
	ErrandDone     ErrandResult = "done"
	ErrandAgain    ErrandResult = "again"    // used a try, comes again
	ErrandDeferred ErrandResult = "deferred" // put off without a call and without using up a try
	ErrandGivenUp  ErrandResult = "given_up" // its tries are used up
	ErrandError    ErrandResult = "error"    // could not be carried out; comes again
)

// Config is what a Service needs. Every time is validated by the wiring's ladder.
type Config struct {
	Pool     *pgxpool.Pool
	Routes   []Route
	Render   Render
	Log      *slog.Logger
	Now      func() time.Time
	Observer Observer
	// Lease is how long a charge may be in flight before a sweep takes it for lost: longer than
	// Budget and StoreTime together.
	Lease time.Duration
	// Budget is how long one charge may take at all acquirers together.
	Budget time.Duration
	// StoreTime is how long one write may be tried.
	StoreTime time.Duration
	// Inquiries is how long to wait after each inquiry that settled nothing; DefaultInquiries if empty.
	Inquiries []time.Duration
	// News, if set, is called when there is something in the outbox or among the errands. It must not block.
	News func()
	// Groups says how writes share commits; the zero value has every default.
	Groups Groups
	// Fault is only set by tests of crashes.
	Fault Fault
	// Replicas, if set, knows what the replicas report of each acquirer.
	Replicas Replicas
}

// Service carries charges from request to outcome. It is safe for concurrent use.
type Service struct {
	*Resolver
	routes    []Route
	observer  Observer
	replicas  Replicas
	lease     time.Duration
	budget    time.Duration
	storeMax  time.Duration
	inquiries []time.Duration
	news      func()
	queues    queues
}

var acquirerName = regexp.MustCompile(`^[a-z0-9_-]{1,40}$`)

// New makes a Service, or says what is wrong with c.
func New(c Config) (*Service, error) {
	var problems []error
	if c.Lease <= c.Budget+2*c.StoreTime {
		problems = append(problems, fmt.Errorf("the lease %v must be longer than the charge budget %v and two writes of %v", c.Lease, c.Budget, c.StoreTime))
	}
	if len(c.Routes) == 0 {
		problems = append(problems, errors.New("no acquirer is configured"))
	}
	names := map[string]bool{}
	for _, route := range c.Routes {
		// The name is part of ledger accounts: a capture under another kind of name could not be posted.
		if !acquirerName.MatchString(route.Name) {
			problems = append(problems, fmt.Errorf("acquirer name %q: use 1 to 40 of a-z, 0-9, - and _", route.Name))
		}
		if names[route.Name] {
			problems = append(problems, fmt.Errorf("acquirer %q is configured twice", route.Name))
		}
		names[route.Name] = true
	}
	if g := c.Groups; g.Writers < 0 || g.RowsMax < 0 || g.QueueMax < 0 {
		problems = append(problems, fmt.Errorf("groups %+v: no number may be negative", g))
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	if c.Observer == nil {
		c.Observer = silent{}
	}
	if len(c.Inquiries) == 0 {
		c.Inquiries = DefaultInquiries()
	}
	if c.News == nil {
		c.News = func() {}
	}
	s := &Service{
		Resolver: NewResolver(ResolverConfig{Pool: c.Pool, Render: c.Render, Now: c.Now, Log: c.Log, Fault: c.Fault}),
		routes:   slices.Clone(c.Routes), observer: c.Observer, replicas: c.Replicas,
		lease: c.Lease, budget: c.Budget, storeMax: c.StoreTime, inquiries: slices.Clone(c.Inquiries), news: c.News,
	}
	s.openQueues(c.Groups)
	return s, nil
}

type silent struct{}

func (silent) ChargeEnded(Status, string)                             {}
func (silent) AcquirerAnswered(string, acquirer.Class, time.Duration) {}
func (silent) Rejected(string, resilience.Reason)                     {}
func (silent) ErrandEnded(ErrandKind, ErrandResult)                   {}
func (silent) GroupWritten(string, int, time.Duration)                {}

// routesFor are the acquirers of a merchant that can express the amount exactly, in its order.
func (s *Service) routesFor(req Request) ([]Route, error) {
	var usable []Route
	known := false
	for _, name := range req.Merchant.Acquirers {
		for _, route := range s.routes {
			if route.Name != name {
				continue
			}
			known = true
			if route.Adapter.Capabilities().Expressible(req.Amount) {
				usable = append(usable, route)
			}
		}
	}
	switch {
	case !known:
		return nil, fmt.Errorf("%w: none of %v, to which the merchant is routed, is configured", ErrUnknownAcquirer, req.Merchant.Acquirers)
	case len(usable) == 0:
		return nil, fmt.Errorf("%w: %s %s", ErrAmount, req.Amount, req.Amount.Currency())
	}
	return usable, nil
}

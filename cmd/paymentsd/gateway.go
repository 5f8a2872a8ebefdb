package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"paymentsd/api"
	"paymentsd/events"
	"paymentsd/idempotency"
	"paymentsd/internal/postgres"
	"paymentsd/jobs"
	"paymentsd/merchant"
	"paymentsd/migrations"
	"paymentsd/payment"
	"paymentsd/reconcile"
	"paymentsd/resilience"
	"paymentsd/resilience/shared"
)

// gatewayConfig is what a gateway needs; everything in it was checked.
type gatewayConfig struct {
	config
	databaseURL    string
	fingerprintKey []byte
	getenv         func(string) string
	log            *slog.Logger
	listener       net.Listener // nil: listen on config's server.addr
}

// gateway is one replica: the API, the pipeline behind it, and the loops beside it.
type gateway struct {
	config
	pool     *pgxpool.Pool
	shared   *shared.Shared
	jobsPool *pgxpool.Pool
	jobs     *jobs.Jobs
	service  *payment.Service
	events   *events.Service
	handler  http.Handler
	listener net.Listener
	log      *slog.Logger
	stopping atomic.Bool
}

// newGateway builds a replica and binds its port, but serves nothing yet.
func newGateway(ctx context.Context, c gatewayConfig) (*gateway, error) {
	fingerprinter, err := idempotency.NewFingerprinter(c.fingerprintKey)
	if err != nil {
		return nil, err
	}
	plans, err := planRoutes(c.config, c.getenv)
	if err != nil {
		return nil, err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	pool, err := postgres.Open(ctx, postgres.Config{
		URL: c.databaseURL, Role: postgres.ServiceRole, Name: "paymentsd",
		Tracer:   newStatements(registry, "paymentsd_database_statements_total", "Statements sent to Postgres, without those of the shared breaker."),
		MaxConns: int32(c.Server.DatabaseConns), StatementTimeout: c.Charge.StoreTime,
	})
	if err != nil {
		return nil, fmt.Errorf("DATABASE_URL: %w", err)
	}
	g := &gateway{config: c.config, pool: pool, log: c.log}
	if err := g.build(ctx, c, plans, fingerprinter, registry); err != nil {
		g.close()
		return nil, err
	}
	return g, nil
}

// close gives back what newGateway took. What is in flight has to be over.
func (g *gateway) close() {
	if g.shared != nil {
		g.shared.Close()
	}
	if g.jobsPool != nil {
		g.jobsPool.Close()
	}
	g.pool.Close()
}

func (g *gateway) build(ctx context.Context, c gatewayConfig, plans []plan, fingerprinter *idempotency.Fingerprinter, registry *prometheus.Registry) error {
	if err := migrations.Check(ctx, g.pool); err != nil {
		return err
	}
	breakers := newBreakerMetrics(registry)
	var err error
	// Nobody calls an acquirer, nor is this process ready, before it knows where every breaker stands.
	g.shared, err = join(ctx, c, plans, breakers,
		newStatements(registry, "paymentsd_breaker_statements_total", "Statements sent to Postgres by the shared breaker and budget."))
	if err != nil {
		return err
	}
	routes, err := route(plans, g.shared)
	if err != nil {
		return err
	}
	observer := newObserver(registry)
	distributed, err := postgres.IsCitus(ctx, g.pool)
	if err != nil {
		return err
	}
	g.service, err = payment.New(payment.Config{
		Pool: g.pool, Routes: routes, Replicas: g.shared, Render: api.Render, Log: g.log, Now: time.Now, Observer: observer,
		Lease: g.Charge.Lease, Budget: g.Charge.Budget, StoreTime: g.Charge.StoreTime, Fault: faultPoints(c.getenv),
		Inquiries: g.Jobs.Inquiries, News: func() { g.jobs.News() },
		Groups: payment.Groups{
			Writers: g.Charge.Writers, RowsMax: g.Charge.GroupMax, QueueMax: g.Charge.QueueMax, OneMerchant: distributed,
		},
	})
	if err != nil {
		return err
	}
	breakers.show(g.service.Acquirers)
	if err := g.buildJobs(ctx, c); err != nil {
		return err
	}
	shedder, err := resilience.NewShedder(g.Shedding.settings(), api.ShedKinds())
	if err != nil {
		return err
	}
	merchants := merchant.NewStore(g.pool, time.Now)
	reconciler := reconcile.New(reconcile.Config{
		Pool: g.pool, Resolver: g.service.Resolver, Merchants: merchants, Now: time.Now, Log: g.log,
	})
	g.events = g.newEvents(c, routes, reconciler, observer)
	g.handler = api.New(api.Deps{
		Auth: merchants, Charges: g.service, Records: g.service, Resolver: g.service, Acquirers: g.service,
		Exposures: g.service, Ledger: books{g.pool}, Fingerprinter: fingerprinter,
		Reconciliation: reconciler, Events: g.events,
		Shedder: shedder, Limits: api.Limits{RequestTimeMax: g.Server.RequestTimeMax},
		Ready: g.ready, Metrics: registry, Gatherer: registry, Log: g.log, Now: time.Now, Version: version(debug.ReadBuildInfo),
	})
	if g.listener = c.listener; g.listener == nil {
		g.listener, err = listen(g.Server.Addr)
	}
	return err
}

// buildJobs makes what works beside charges. Its connections are its own: river holds some of them for good.
func (g *gateway) buildJobs(ctx context.Context, c gatewayConfig) error {
	var err error
	g.jobsPool, err = postgres.Open(ctx, postgres.Config{
		URL: c.databaseURL, Role: postgres.ServiceRole, Name: "paymentsd jobs",
		MaxConns: int32(c.Jobs.DatabaseConns), StatementTimeout: jobsStatementMax,
	})
	if err != nil {
		return fmt.Errorf("DATABASE_URL: %w", err)
	}
	g.jobs, err = jobs.New(jobs.Config{
		Pool: g.jobsPool, Errands: g.service, Log: g.log, Poll: g.Jobs.Poll, JobTime: g.Charge.Lease,
		ChargeWorkers: g.Jobs.ChargeWorkers, InquiryWorkers: g.Jobs.InquiryWorkers,
	})
	return err
}

// jobsStatementMax bounds a statement of river, whose cleaning takes longer than a charge's.
const jobsStatementMax = 30 * time.Second

func listen(addr string) (net.Listener, error) {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w (PAYMENTSD_ADDR or --addr names another address)", addr, err)
	}
	return listener, nil
}

// ready says whether this replica should get requests.
func (g *gateway) ready(ctx context.Context) error {
	if g.stopping.Load() {
		return errors.New("the process is stopping")
	}
	return g.pool.Ping(ctx)
}

func (g *gateway) url() string { return "http://" + g.listener.Addr().String() }

const (
	headerTimeMax = 5 * time.Second
	readTimeMax   = 10 * time.Second
	idleTimeMax   = 2 * time.Minute
	headerMax     = 16 << 10
	// drainTime is how long readiness is false before the port closes, for load balancers to see.
	drainTime = 200 * time.Millisecond
)

// serve answers requests until ctx ends. Then: readiness false, no new connections, what is in flight
// is finished within the ladder, and what is not finished by then is left to recovery.
func (g *gateway) serve(ctx context.Context) error {
	defer g.close()
	if err := g.jobs.Start(ctx); err != nil {
		return err
	}
	server := &http.Server{
		Handler: g.handler, ReadHeaderTimeout: headerTimeMax, ReadTimeout: readTimeMax, IdleTimeout: idleTimeMax,
		WriteTimeout: g.Server.RequestTimeMax + readTimeMax, MaxHeaderBytes: headerMax,
		ErrorLog: slog.NewLogLogger(g.log.Handler(), slog.LevelWarn),
	}
	loops := g.startLoops(context.WithoutCancel(ctx))
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(g.listener) }()
	g.log.Info("listening", "url", g.url())
	select {
	case err := <-failed:
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.Server.RequestTimeMax)
		defer cancel()
		loops.stop()
		return errors.Join(fmt.Errorf("serve: %w", err), g.jobs.Stop(last))
	case <-ctx.Done():
	}
	g.stopping.Store(true)
	g.log.Info("stopping: finishing what is in flight", "within", g.Server.RequestTimeMax)
	time.Sleep(drainTime)
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.Server.RequestTimeMax)
	defer cancel()
	jobsEnded := make(chan error, 1)
	go func() { jobsEnded <- g.jobs.Stop(last) }()
	err := server.Shutdown(last)
	if err := <-jobsEnded; err != nil {
		g.log.Warn("not all jobs ended in time; what they did not do is woken again", "error", err)
	}
	loops.stop()
	if err != nil {
		g.log.Warn("not all requests ended in time; their charges become unknown", "error", err)
		return server.Close()
	}
	g.log.Info("stopped")
	return nil
}

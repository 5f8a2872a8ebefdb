package main

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"paymentsd/acquirer"
	"paymentsd/payment"
	"paymentsd/resilience"
)

// observer counts what the pipeline did. It is a payment.Observer.
type observer struct {
	groups
	charges  *prometheus.CounterVec
	answers  *prometheus.HistogramVec
	rejected *prometheus.CounterVec
	errands  *prometheus.CounterVec
	events   *prometheus.CounterVec
}

func newObserver(registry prometheus.Registerer) *observer {
	o := &observer{
		groups: newGroups(registry),
		charges: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "paymentsd_charges_ended_total", Help: "Charges that were asked of an acquirer, by outcome and reason.",
		}, []string{"status", "reason"}),
		answers: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "paymentsd_acquirer_seconds", Help: "Time of one call to an acquirer, by what the answer proves.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"acquirer", "class"}),
		rejected: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "paymentsd_rejections_total", Help: "Calls to acquirers that we refused ourselves, by mechanism.",
		}, []string{"acquirer", "reason"}),
		errands: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "paymentsd_errands_total", Help: "Inquiries and queued charges that were attended to, by what came of it.",
		}, []string{"kind", "result"}),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "paymentsd_acquirer_events_total", Help: "Events of acquirers, by what became of the request (received, replayed, refused) and of the event.",
		}, []string{"acquirer", "result"}),
	}
	registry.MustRegister(o.charges, o.answers, o.rejected, o.errands, o.events)
	return o
}

func (o *observer) ChargeEnded(status payment.Status, reason string) {
	o.charges.WithLabelValues(string(status), reason).Inc()
}

func (o *observer) AcquirerAnswered(name string, class acquirer.Class, took time.Duration) {
	o.answers.WithLabelValues(name, string(class)).Observe(took.Seconds())
}

func (o *observer) Rejected(name string, reason resilience.Reason) {
	o.rejected.WithLabelValues(name, string(reason)).Inc()
}

func (o *observer) ErrandEnded(kind payment.ErrandKind, result payment.ErrandResult) {
	o.errands.WithLabelValues(string(kind), string(result)).Inc()
}

// Event counts what became of an acquirer's event.
func (o *observer) Event(acquirer, result string) { o.events.WithLabelValues(acquirer, result).Inc() }

// statements counts what is sent to Postgres. It is a pgx.QueryTracer and a pgx.BatchTracer.
type statements struct{ sent prometheus.Counter }

func newStatements(registry prometheus.Registerer, name, help string) statements {
	s := statements{prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})}
	registry.MustRegister(s.sent)
	return s
}

func (s statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	s.sent.Inc()
	return ctx
}

func (statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (statements) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (s statements) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {
	s.sent.Inc()
}

func (statements) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// breakerMetrics shows what stands between us and each acquirer. It is a prometheus.Collector that reads
// snapshots: a scrape sends no statement.
type breakerMetrics struct {
	transitions *prometheus.CounterVec
	acquirers   atomic.Pointer[func() []payment.AcquirerStatus]

	state, epoch, heldBack, storeUp, listening *prometheus.Desc
	retries, limit                             *prometheus.Desc
	inFlight, waiting, slots                   *prometheus.Desc
}

func newBreakerMetrics(registry prometheus.Registerer) *breakerMetrics {
	describe := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, append([]string{"acquirer"}, labels...), nil)
	}
	m := &breakerMetrics{
		transitions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "paymentsd_breaker_transitions_total", Help: "Transitions of an acquirer's breaker that this replica learnt of.",
		}, []string{"acquirer", "from", "to"}),
		state:     describe("paymentsd_breaker_state", "1 for the state in which an acquirer's breaker stands with this replica, 0 for the others.", "state"),
		epoch:     describe("paymentsd_breaker_epoch", "Epoch of an acquirer's breaker; it rises at every transition, and is the same on all replicas."),
		heldBack:  describe("paymentsd_breaker_held_back", "1 while this replica alone refuses to call the acquirer."),
		storeUp:   describe("paymentsd_breaker_store_up", "1 while the store of the shared breaker answers."),
		listening: describe("paymentsd_breaker_listening", "1 while this replica is notified, 0 while it learns by polling alone."),
		retries:   describe("paymentsd_retry_budget_used", "Retries of all replicas in the window.", "window"),
		limit:     describe("paymentsd_retry_budget_limit", "Retries that all replicas may make in the window.", "window"),
		inFlight:  describe("paymentsd_bulkhead_in_flight", "Calls of this replica in flight at the acquirer."),
		waiting:   describe("paymentsd_bulkhead_waiting", "Calls of this replica that wait for a slot."),
		slots:     describe("paymentsd_bulkhead_limit", "Slots of this replica, fewer while the ramp after a closing lasts."),
	}
	registry.MustRegister(m.transitions, m)
	return m
}

// heard counts the transitions of one breaker.
func (m *breakerMetrics) heard(acquirer string) func(resilience.Event) {
	return func(e resilience.Event) {
		m.transitions.WithLabelValues(acquirer, string(e.From), string(e.To)).Inc()
	}
}

// show says where the snapshots come from; before that there is nothing to show.
func (m *breakerMetrics) show(acquirers func() []payment.AcquirerStatus) {
	m.acquirers.Store(&acquirers)
}

// Describe implements prometheus.Collector.
func (m *breakerMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		m.state, m.epoch, m.heldBack, m.storeUp, m.listening, m.retries, m.limit, m.inFlight, m.waiting, m.slots,
	} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (m *breakerMetrics) Collect(to chan<- prometheus.Metric) {
	acquirers := m.acquirers.Load()
	if acquirers == nil {
		return
	}
	for _, a := range (*acquirers)() {
		gauge := func(d *prometheus.Desc, value float64, labels ...string) {
			to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, append([]string{a.Name}, labels...)...)
		}
		for _, state := range []resilience.State{resilience.Closed, resilience.Open, resilience.HalfOpen} {
			gauge(m.state, oneIf(a.Breaker.State == state), string(state))
		}
		gauge(m.epoch, float64(a.Breaker.Epoch))
		if s := a.Breaker.Sharing; s != nil {
			gauge(m.heldBack, oneIf(s.HeldBack != ""))
			gauge(m.storeUp, oneIf(s.StoreError == ""))
			gauge(m.listening, oneIf(s.Listening))
		}
		gauge(m.retries, float64(a.Budget.Retries60s), "60s")
		gauge(m.retries, float64(a.Budget.Retries1s), "1s")
		gauge(m.limit, float64(a.Budget.Limit60s), "60s")
		gauge(m.limit, float64(a.Budget.Limit1s), "1s")
		gauge(m.inFlight, float64(a.Bulkhead.InFlight))
		gauge(m.waiting, float64(a.Bulkhead.Waiting))
		gauge(m.slots, float64(a.Bulkhead.Limit))
	}
}

func oneIf(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// groups counts how charges share commits.
type groups struct{ rows, seconds *prometheus.HistogramVec }

func newGroups(registry prometheus.Registerer) groups {
	g := groups{
		rows: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "paymentsd_group_rows", Help: "Charges that shared one commit, before (begin) and after (finish) the acquirer was asked.",
			Buckets: []float64{1, 2, 4, 8, 16, 32, 64, 128},
		}, []string{"step"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "paymentsd_group_seconds", Help: "Time of one such commit.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5},
		}, []string{"step"}),
	}
	registry.MustRegister(g.rows, g.seconds)
	return g
}

func (g groups) GroupWritten(step string, rows int, took time.Duration) {
	g.rows.WithLabelValues(step).Observe(float64(rows))
	g.seconds.WithLabelValues(step).Observe(took.Seconds())
}

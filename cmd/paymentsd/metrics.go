package main

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"paymentsd/acquirer"
	"paymentsd/payment"
	"paymentsd/resilience"
)

// observer counts what the pipeline did. It is a payment.Observer.
type observer struct {
	charges  *prometheus.CounterVec
	answers  *prometheus.HistogramVec
	rejected *prometheus.CounterVec
}

func newObserver(registry prometheus.Registerer) *observer {
	o := &observer{
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
	}
	registry.MustRegister(o.charges, o.answers, o.rejected)
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

// statements counts what is sent to Postgres. It is a pgx.QueryTracer.
type statements struct{ sent prometheus.Counter }

func newStatements(registry prometheus.Registerer) statements {
	s := statements{prometheus.NewCounter(prometheus.CounterOpts{
		Name: "paymentsd_database_statements_total", Help: "Statements sent to Postgres.",
	})}
	registry.MustRegister(s.sent)
	return s
}

func (s statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	s.sent.Inc()
	return ctx
}

func (statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

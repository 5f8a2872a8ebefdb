package api

import (
	"context"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"paymentsd/payment"
	"paymentsd/resilience"
)

// metrics is what the api counts. Calls to acquirers are counted where they are made.
type metrics struct {
	requests *prometheus.HistogramVec
	answers  *prometheus.CounterVec
	refusals *prometheus.CounterVec
	sheds    *prometheus.CounterVec
}

func newMetrics(d Deps) *metrics {
	m := &metrics{
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "paymentsd_http_request_seconds", Help: "Time to answer a request, by route, method and status.",
			Buckets: prometheus.ExponentialBucketsRange(.001, 30, 16),
		}, []string{"route", "method", "status"}),
		answers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "paymentsd_charges_total", Help: "Answers to POSTs of charges that say what became of the charge, by outcome; replays apart.",
		}, []string{"outcome", "replayed"}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "paymentsd_refusals_total", Help: "Requests that were answered with a problem, by its code and by the mechanism or answer that was the reason.",
		}, []string{"code", "reason"}),
		sheds: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "paymentsd_shed_total", Help: "Requests that were refused at the door for overload or because their time was up, by priority and reason.",
		}, []string{"priority", "reason"}),
	}
	if d.Metrics == nil {
		return m
	}
	d.Metrics.MustRegister(m.requests, m.answers, m.refusals, m.sheds, shedGauge(
		"paymentsd_in_progress", "Requests in our own hands now: not those that wait for an acquirer or their client.",
		func() int64 { return d.Shedder.Snapshot().InProgress },
	), shedGauge(
		"paymentsd_in_progress_limit", "The most requests in our own hands for a critical one still to be let in.",
		func() int64 { return d.Shedder.Snapshot().Limit },
	))
	if d.Exposures != nil {
		d.Metrics.MustRegister(newExposureCollector(d.Exposures, d.Now, d.Log))
	}
	return m
}

func (m *metrics) served(method, route string, status int, took time.Duration) {
	m.requests.WithLabelValues(route, methodLabel(method), strconv.Itoa(status)).Observe(took.Seconds())
}

func (m *metrics) answered(status payment.Status, replayed bool) {
	m.answers.WithLabelValues(string(status), strconv.FormatBool(replayed)).Inc()
}

func (m *metrics) shed(p payment.Priority, reason resilience.Reason) {
	m.sheds.WithLabelValues(p.String(), string(reason)).Inc()
}

func shedGauge(name, help string, read func() int64) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(read()) })
}

func (m *metrics) rejected(p problem) { m.refusals.WithLabelValues(p.Code, p.Reason).Inc() }

// exposureCollector shows the unknown charges at each scrape. The sums are read from the store at most
// once in exposureAge, however many scrape.
type exposureCollector struct {
	source             Exposures
	now                func() time.Time
	log                *slog.Logger
	count, oldest, sum *prometheus.Desc
	up                 *prometheus.Desc

	mu     sync.Mutex
	known  []payment.Exposure
	failed bool
	at     time.Time
}

const (
	exposureAge     = 5 * time.Second
	exposureTimeout = 2 * time.Second
)

func newExposureCollector(source Exposures, now func() time.Time, log *slog.Logger) *exposureCollector {
	describe := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &exposureCollector{
		source: source, now: now, log: log,
		count:  describe("paymentsd_unknown_charges", "Charges whose outcome is unknown, by acquirer and currency.", "acquirer", "currency"),
		oldest: describe("paymentsd_unknown_oldest_seconds", "Age of the oldest unknown charge, by acquirer and currency.", "acquirer", "currency"),
		sum:    describe("paymentsd_unknown_amount", "Money at risk in unknown charges, in major units, by acquirer and currency.", "acquirer", "currency"),
		up:     describe("paymentsd_unknown_up", "1 if the unknown charges could be read, 0 if the other gauges of them are missing."),
	}
}

// Describe implements prometheus.Collector.
func (c *exposureCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.count, c.oldest, c.sum, c.up} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c *exposureCollector) Collect(to chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	if c.at.IsZero() || now.Sub(c.at) >= exposureAge || now.Before(c.at) {
		c.read(now)
	}
	to <- gauge(c.up, gaugeOf(!c.failed))
	for _, e := range c.known {
		labels := []string{e.Acquirer, string(e.Sum.Currency())}
		to <- gauge(c.count, float64(e.Count), labels...)
		to <- gauge(c.oldest, now.Sub(e.Oldest).Seconds(), labels...)
		to <- gauge(c.sum, e.Sum.Decimal().InexactFloat64(), labels...)
	}
}

// gauge takes what prometheus takes: a floating point number. Nothing decides by it.
func gauge(d *prometheus.Desc, value float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
}

func gaugeOf(up bool) float64 {
	if up {
		return 1
	}
	return 0
}

func (c *exposureCollector) read(now time.Time) {
	ctx, cancel := context.WithTimeout(context.Background(), exposureTimeout)
	defer cancel()
	known, err := c.source.Exposures(ctx)
	if err != nil {
		c.log.Warn("the unknown charges could not be counted", "error", err)
		known = nil // rather no figure than an old one
	}
	c.known, c.failed, c.at = known, err != nil, now
}

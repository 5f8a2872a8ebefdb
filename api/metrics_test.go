package api

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"paymentsd/money"
	"paymentsd/payment"
)

type exposureSource struct {
	asked int
	known []payment.Exposure
	err   error
}

func (s *exposureSource) Exposures(context.Context) ([]payment.Exposure, error) {
	s.asked++
	return s.known, s.err
}

func TestExposuresAreReadAtMostEveryFewSeconds(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	sum, err := money.Parse("99.98", "USD")
	if err != nil {
		t.Fatal(err)
	}
	source := &exposureSource{known: []payment.Exposure{{Acquirer: "north", Count: 2, Sum: sum, Oldest: now.Add(-time.Hour)}}}
	registry := prometheus.NewRegistry()
	registry.MustRegister(newExposureCollector(source, func() time.Time { return now }, slog.New(slog.NewTextHandler(io.Discard, nil))))
	expect := func(want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, scrape(t, registry)); diff != "" {
			t.Errorf("scraped (-want +got):\n%s", diff)
		}
	}
	seen := []string{
		`paymentsd_unknown_amount{acquirer="north",currency="USD"} 99.98`,
		`paymentsd_unknown_charges{acquirer="north",currency="USD"} 2`,
		`paymentsd_unknown_oldest_seconds{acquirer="north",currency="USD"} 3600`,
		`paymentsd_unknown_up 1`,
	}
	expect(seen...)
	expect(seen...)
	if source.asked != 1 {
		t.Errorf("the store was asked %d times for two scrapes", source.asked)
	}
	now = now.Add(exposureAge)
	source.err = errors.New("the store is away")
	expect(`paymentsd_unknown_up 0`) // rather no figure than an old one
	if source.asked != 2 {
		t.Errorf("the store was asked %d times", source.asked)
	}
}

// scrape reads every sample, as /metrics shows them.
func scrape(t *testing.T, gatherer prometheus.Gatherer) []string {
	t.Helper()
	w := httptest.NewRecorder()
	promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	var samples []string
	for line := range strings.Lines(w.Body.String()) {
		if !strings.HasPrefix(line, "#") {
			samples = append(samples, strings.TrimSpace(line))
		}
	}
	return samples
}

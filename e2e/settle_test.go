package e2e

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"time"

	"paymentsd/acquirer/sim"
	"paymentsd/api"
	"paymentsd/merchant"
	"paymentsd/payment"
	"paymentsd/reconcile"
)

// pastCutoff is when every line that will ever come has come.
const pastCutoff = 30 * 24 * time.Hour

// settle is the night after: both acquirers' files are reconciled, as of a day on which nothing more can
// come. What the acquirers hold is then captured with us, and what is still unknown is not with them
// and is reported.
func (w *world) settle() {
	w.t.Helper()
	until(w.t, "an acquirer still has something pending", func() bool {
		return !slices.ContainsFunc(append(w.north.Captures(), w.south.Captures()...), func(r sim.Record) bool { return r.Status == sim.StatusPending })
	})
	resolver := payment.NewResolver(payment.ResolverConfig{Pool: w.pool, Render: api.Render, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	r := reconcile.New(reconcile.Config{
		Pool: w.pool, Resolver: resolver, Merchants: merchant.NewStore(w.pool, time.Now), Now: time.Now, Log: slog.New(slog.DiscardHandler),
	})
	reported := int64(0)
	for _, name := range w.merchant.Acquirers {
		acquirer := map[string]*acquirerSim{"north": w.north, "south": w.south}[name]
		report, err := r.Run(w.t.Context(), reconcile.Request{
			Acquirer: name, Format: "canonical", AsOf: time.Now().Add(pastCutoff), Feeds: []reconcile.Feed{acquirer.feed()},
		})
		if err != nil {
			w.t.Fatalf("reconcile %s: %v", name, err)
		}
		if status := report.Status(); status == reconcile.RunRefused {
			w.t.Errorf("the settlement file of %s is refused: %+v", name, report.Files)
		}
		for _, total := range report.Unknown {
			reported += total.Count
		}
	}
	w.settled(reported)
	checks, err := r.Verify(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, check := range checks {
		if check.Faults != 0 {
			w.t.Errorf("verify: %s: %d faults: %v", check.Name, check.Faults, check.Samples)
		}
	}
}

// settled holds that after settlement captured here means captured there, and the reverse.
func (w *world) settled(reported int64) {
	w.t.Helper()
	w.consistent()
	open := int64(0)
	for _, charge := range w.rows() {
		if charge.Status != "unknown" {
			continue
		}
		open++
		if n := w.captures(charge.AcqRef); n != 0 {
			w.t.Errorf("after settlement charge %s is unknown, and the acquirers hold %d captures", charge.ID, n)
		}
	}
	if open != reported {
		w.t.Errorf("%d charges are still unknown, reconciliation reports %d", open, reported)
	}
}

// settlementURL is where the acquirer's settlement file over all that this test did is.
func (a *acquirerSim) settlementURL() string {
	period := url.Values{}
	period.Set("from", time.Now().AddDate(0, 0, -1).UTC().Format(time.RFC3339))
	period.Set("to", time.Now().AddDate(0, 0, 1).UTC().Format(time.RFC3339))
	return a.url + "/settlement?" + period.Encode()
}

func (a *acquirerSim) feed() reconcile.Feed {
	address := a.settlementURL()
	return reconcile.Feed{Name: "everything", Open: func(ctx context.Context) (io.ReadCloser, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
		if err != nil {
			return nil, err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return nil, err
		}
		if response.StatusCode != http.StatusOK {
			response.Body.Close()
			return nil, fmt.Errorf("the settlement file: HTTP %d", response.StatusCode)
		}
		return response.Body, nil
	}}
}

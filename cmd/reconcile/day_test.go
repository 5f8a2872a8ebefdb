package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"paymentsd/acquirer/sim"
	"paymentsd/payment"
)

// daySize is how many charges the simulated day has: 20,000 takes minutes, and shows the same.
var daySize = flag.Int("day-size", 500, "charges of the simulated day")

// fates are what an acquirer does with a charge of which we only know that the answer did not come.
var fates = []struct {
	token     string
	settled   bool   // its capture is in the file as it was asked for
	exception string // that it has to be, and no other
}{
	{"tok_ok", true, ""},
	{"tok_error_captured", true, ""},
	{"tok_truncated_captured", true, ""},
	{"tok_garbled_captured", true, ""},
	{"tok_unknown_captured", true, ""},
	{"tok_wrong_amount", true, ""},
	{"tok_declined_captured", true, ""},
	{"tok_captured_twice", true, "duplicate_capture"},
	{"tok_settled_short", false, "amount_mismatch"},
	{"tok_unsettled", false, ""},
	{"tok_error_lost", false, ""},
	{"tok_html_lost", false, ""},
	{"tok_maintenance_lost", false, ""},
	{"tok_declined", false, ""},
	{"tok_unprocessed", false, ""},
}

// TestASimulatedDayInAcquirersOwnFormats: two acquirers, a day of charges with every fault that leaves us without
// an answer, and files as Adyen and Stripe send them. Every unknown whose capture is in a file is captured
// afterwards and no other is, and the exceptions are those that were put in, one to one.
func TestASimulatedDayInAcquirersOwnFormats(t *testing.T) {
	t.Parallel()
	o := newOffice(t, "north", "south")
	formats := map[string]string{"north": "adyen", "south": "stripe"}
	servers := map[string]*httptest.Server{}
	for name, format := range formats {
		acquirer, err := sim.New(sim.Config{Name: name, Account: "shop", Format: format, FeeBasisPoints: 140, FeeFixedMinor: 25, ReportsLost: true, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		servers[name] = httptest.NewServer(acquirer.Handler())
		t.Cleanup(func() { servers[name].Close(); _ = acquirer.Close() })
	}
	charges := make([]payment.Charge, *daySize)
	where := func(i int) string { return []string{"north", "south"}[i/len(fates)%2] }
	for i := range charges {
		charges[i] = unknownAt(t, o.db, o.merchant, where(i), fmt.Sprintf("order-%d", i))
		ask(t, servers[where(i)], charges[i], fates[i%len(fates)].token)
	}
	t.Logf("%d charges asked for", len(charges))
	found := map[string][]string{} // acq_ref by class
	for name, format := range formats {
		to := time.Now().UTC().Add(time.Second).Truncate(time.Second)
		address := fmt.Sprintf("%s/settlement?from=%s&to=%s", servers[name].URL, to.AddDate(0, 0, -1).Format(time.RFC3339), to.Format(time.RFC3339))
		r := o.shell.want(exitExceptions, o.run("", "run", "--acquirer", name, "--format", format, "--feed", address, "--output", "json", "--quiet"))
		var report reported
		if err := json.Unmarshal([]byte(r.stdout), &report); err != nil {
			t.Fatalf("%s: %v: %s", name, err, r.stderr)
		}
		t.Logf("%s reconciled: %d exceptions", name, len(report.Exceptions))
		for _, e := range report.Exceptions {
			found[e.Class] = append(found[e.Class], e.Ref)
		}
	}
	wanted, became := map[string][]string{}, o.statuses()
	for i, c := range charges {
		fate, want := fates[i%len(fates)], payment.Unknown
		if fate.settled {
			want = payment.Captured
		}
		if got := became[c.ID]; got != want {
			t.Errorf("%s at %s: %s, want %s", fate.token, where(i), got, want)
		}
		if fate.exception != "" {
			wanted[fate.exception] = append(wanted[fate.exception], c.AcqRef)
		}
	}
	for class, refs := range found {
		slices.Sort(refs)
		slices.Sort(wanted[class])
		if !slices.Equal(refs, wanted[class]) {
			t.Errorf("%s: %d found, %d put in: %v and %v", class, len(refs), len(wanted[class]), refs, wanted[class])
		}
		delete(wanted, class)
	}
	if len(wanted) > 0 {
		t.Errorf("missed: %v", wanted)
	}
	o.sound()
}

// statuses are those of all charges.
func (o *office) statuses() map[string]payment.Status {
	o.t.Helper()
	rows, err := o.db.Pool.Query(o.t.Context(), `select charge_id, status from charges where merchant_id = $1`, o.merchant)
	if err != nil {
		o.t.Fatal(err)
	}
	became := map[string]payment.Status{}
	var id string
	var status payment.Status
	if _, err := pgx.ForEachRow(rows, []any{&id, &status}, func() error { became[id] = status; return nil }); err != nil {
		o.t.Fatal(err)
	}
	return became
}

// ask sends a capture as the gateway would, and does not look at the answer.
func ask(t *testing.T, server *httptest.Server, c payment.Charge, token string) {
	t.Helper()
	minor, err := c.Amount.Minor(2)
	if err != nil {
		t.Fatal(err)
	}
	body := fmt.Sprintf(`{"reference":%q,"amount_minor":%d,"currency":"USD","payment_method":%q}`, c.AcqRef, minor, token)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/v1/captures", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Idempotency-Key", c.AcqRef)
	if response, err := server.Client().Do(request); err == nil {
		_ = response.Body.Close()
	}
}

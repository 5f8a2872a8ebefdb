package main

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"paymentsd/internal/pgtest"
	"paymentsd/merchant"
	"paymentsd/money"
	"paymentsd/payment"
	"paymentsd/settlement"
	"paymentsd/settlement/feedtest"
)

// reported is what a test reads of a report.
type reported struct {
	Status string
	Files  []struct {
		Name, Status, Class, Remark                            string
		Lines, Counted, Repeated, Bad, Added, Removed, Changed int64
	}
	Exceptions []struct {
		Class, Theirs, Detail string
		Acquirer              string
		Ref                   string `json:"acq_ref"`
		ChargeID              string `json:"charge_id"`
		Line                  int
	}
}

// office is a merchant with charges, and the command that reconciles them.
type office struct {
	t        *testing.T
	db       *pgtest.DB
	merchant merchant.ID
	resolver *payment.Resolver
	shell
}

func newOffice(t *testing.T, acquirers ...string) *office {
	t.Helper()
	db := pgtest.New(t)
	const routes = 8 // of one merchant; the others only make more acquirers known
	var m merchant.Merchant
	for some := range slices.Chunk(acquirers, routes) {
		var err error
		if m, err = merchant.NewStore(db.Pool, time.Now).Create(t.Context(), "shop", some); err != nil {
			t.Fatal(err)
		}
	}
	return &office{t: t, db: db, merchant: m.ID,
		resolver: payment.NewResolver(payment.ResolverConfig{Pool: db.Pool, Now: time.Now, Log: slog.New(slog.DiscardHandler)}),
		shell:    shell{t: t, env: map[string]string{"DATABASE_URL": db.ServiceURL()}}}
}

func (o *office) status(c payment.Charge) payment.Status {
	o.t.Helper()
	got, err := o.resolver.Get(o.t.Context(), o.merchant, c.ID)
	if err != nil {
		o.t.Fatal(err)
	}
	return got.Status
}

// nightly runs the command on files, in this order.
func (o *office) nightly(acquirer, format string, files ...[]byte) (reported, int) {
	o.t.Helper()
	dir := o.t.TempDir()
	for i, text := range files {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.csv", i+1)), text, 0o600); err != nil {
			o.t.Fatal(err)
		}
	}
	r := o.run("", "run", "--acquirer", acquirer, "--format", format, "--feed", dir, "--output", "json", "--quiet")
	var report reported
	if err := json.Unmarshal([]byte(r.stdout), &report); err != nil {
		o.t.Fatalf("%s, %s: exit %d, %v: %s", acquirer, format, r.code, err, r.stderr)
	}
	return report, r.code
}

// settles is the capture line of a charge. Fees differ, so that lines do.
func settles(c payment.Charge, n int) settlement.Line {
	fee, _ := money.FromMinor(int64(100+n), 2, "USD")
	l := settlement.Line{
		ID: fmt.Sprintf("line_%s", c.AcqRef), Kind: settlement.Capture, Reference: c.AcqRef, CaptureID: "cap_" + c.AcqRef, Gross: c.Amount, Fee: fee,
		OccurredAt: c.CreatedAt.Add(time.Second), Payout: "po_1",
	}
	l.Net, _ = l.Gross.Sub(l.Fee)
	return l
}

// reportOf is the header of an acquirer's n-th report: one a day.
func reportOf(acquirer string, n int) settlement.Header {
	from := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, n-1)
	return settlement.Header{Acquirer: acquirer, Account: "main", From: from, To: from.AddDate(0, 0, 1), Sequence: n}
}

func written(t *testing.T, format string, h settlement.Header, lines ...settlement.Line) feedtest.File {
	t.Helper()
	f, err := feedtest.Write(format, h, lines)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestEveryDamagedFileIsNamedAndResolvesNothing: whatever happens to a file, on real Postgres: what is wrong is an
// exception with its class, file and line, the damaged line or file ends no charge, the file after it counts,
// and the exit code is 2 if the file is refused.
func TestEveryDamagedFileIsNamedAndResolvesNothing(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"canonical", "stripe", "adyen", "paypal", "csv:checkout"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			var acquirers []string // one for each fault, so that what one leaves is not another's
			for _, fault := range feedtest.Faults() {
				acquirers = append(acquirers, string(fault))
			}
			o := newOffice(t, acquirers...)
			for _, fault := range feedtest.Faults() {
				o.damaged(format, string(fault), fault)
			}
		})
	}
}

func (o *office) damaged(format, acquirer string, fault feedtest.Fault) {
	o.t.Helper()
	const count, target = 3, 1
	var charges []payment.Charge
	var lines []settlement.Line
	for i := range count {
		c := unknownAt(o.t, o.db, o.merchant, acquirer, fmt.Sprintf("%s-%d", acquirer, i))
		charges, lines = append(charges, c), append(lines, settles(c, i))
	}
	after := unknownAt(o.t, o.db, o.merchant, acquirer, acquirer+"-after")
	d, ok := written(o.t, format, reportOf(acquirer, 1), lines...).Inject(fault, target)
	if !ok {
		return
	}
	later := written(o.t, format, reportOf(acquirer, 2), settles(after, 0))
	report, code := o.nightly(acquirer, format, d.Bytes, later.Bytes())
	name := fmt.Sprintf("%s, %s", format, fault)
	if (code == exitRefused) != d.Want.Refused || (report.Files[0].Status == "quarantined") != d.Want.Refused {
		o.t.Errorf("%s: exit %d, the file is %+v", name, code, report.Files[0])
	}
	for i, c := range charges {
		want := payment.Captured
		if odd := d.Want.Match != "" || d.Want.Class != "" && d.Want.Class != settlement.DuplicateLine; d.Want.Refused || odd && i == target {
			want = payment.Unknown
		}
		if got := o.status(c); got != want {
			o.t.Errorf("%s: the charge of line %d is %s, want %s", name, i, got, want)
		}
	}
	if got := o.status(after); got != payment.Captured {
		o.t.Errorf("%s: the charge in the file after it is %s", name, got)
	}
	o.named(name, report, d.Want)
}

// named looks for the one exception that has to be there, beside the gap that a refused file leaves.
func (o *office) named(name string, report reported, want feedtest.Finding) {
	o.t.Helper()
	class := want.Match + string(want.Class)
	found := 0
	for _, e := range report.Exceptions {
		switch {
		case e.Class == "missing_file" && want.Refused:
		case e.Class == class && want.Refused && e.Theirs == "1.csv" && (want.Line == 0 || strings.Contains(e.Detail, fmt.Sprintf("line %d", want.Line))):
			found++
		case e.Class == class && !want.Refused && e.Line == want.Line:
			found++
		default:
			o.t.Errorf("%s: nobody did this: %+v", name, e)
		}
	}
	if expected := min(len(class), 1); found != expected {
		o.t.Errorf("%s: %d exceptions of class %q in line %d, want %d: %+v", name, found, class, want.Line, expected, report.Exceptions)
	}
}

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"paymentsd/acquirer/sim"
	"paymentsd/internal/pgtest"
	"paymentsd/merchant"
	"paymentsd/payment"
)

// shell runs the command as a shell would.
type shell struct {
	t   *testing.T
	env map[string]string
}

type result struct {
	code           int
	stdout, stderr string
}

func (s shell) run(stdin string, args ...string) result {
	s.t.Helper()
	var out, diagnostics bytes.Buffer
	code := run(s.t.Context(), args, func(name string) string { return s.env[name] }, strings.NewReader(stdin), &out, &diagnostics)
	return result{code, out.String(), diagnostics.String()}
}

func (s shell) want(code int, r result) result {
	s.t.Helper()
	if r.code != code {
		s.t.Errorf("exit %d, want %d\n%s\n%s", r.code, code, r.stdout, r.stderr)
	}
	return r
}

func TestASettingThatCannotBeUsedIsNamed(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "day.csv")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"files":[{"sequence":1,"address":"http://192.0.2.1/other"}]}`)
	}))
	t.Cleanup(elsewhere.Close)
	broken := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(broken.Close)
	run1 := func(more ...string) []string { return append([]string{"run", "--acquirer", "north"}, more...) }
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"no acquirer":            {[]string{"run", "--feed", file}, exitRefused, "--acquirer"},
		"no feed":                {run1(), exitRefused, "--feed"},
		"an unknown flag":        {run1("--feed", file, "--fast"), exitRefused, "--fast"},
		"an unknown output":      {run1("--feed", file, "--output", "pdf"), exitRefused, "--output"},
		"a day that is none":     {run1("--feed", file, "--as-of", "29/11/2026"), exitRefused, "--as-of"},
		"no database":            {run1("--feed", file), exitRefused, "DATABASE_URL"},
		"a database that is off": {run1("--feed", file, "--database-url", "postgres://127.0.0.1:1/x"), exitInternal, "--database-url"},
		"a cut-off of no days":   {run1("--feed", file, "--database-url", "postgres://127.0.0.1:1/x", "--cutoff", "0"), exitRefused, "--cutoff"},
		"no look back":           {run1("--feed", file, "--lookback", "0"), exitRefused, "--lookback"},
		"a file that is missing": {run1("--feed", file+"x"), exitRefused, "--feed"},
		"an empty directory":     {run1("--feed", t.TempDir()), exitRefused, "no settlement file there"},
		"an address that is off": {run1("--feed", "http://u:hidden@127.0.0.1:1/settlement"), exitRefused, "--feed"},
		"an address without one": {run1("--feed", broken.URL), exitRefused, "404"},
		"an index that leads on": {run1("--feed", elsewhere.URL), exitRefused, "not an address at"},
		"a format that is none":  {run1("--feed", file, "--format", "excel"), exitRefused, "use one of [canonical stripe adyen paypal csv:checkout csv:mollie csv:worldpay]"},
		"a profile that is off":  {run1("--feed", file, "--profile", file+"x"), exitRefused, "--profile"},
		"a profile of nothing":   {run1("--feed", file, "--profile", file), exitRefused, "columns.gross: is missing"},
		"a profile's typo":       {run1("--feed", file, "--profile", profile(t, "name: bank\ncolums: {}\n")), exitRefused, "[2:1] unknown field \"colums\""},
		"a profile's own words":  {run1("--feed", file, "--profile", profile(t, "name: bank\ndates: {layouts: [\"2006-01-02\"], zone: Europe/Atlantis}\n")), exitRefused, "dates.zone: unknown time zone Europe/Atlantis"},
		"a name that is taken":   {run1("--feed", file, "--profile", "../../settlement/profiles/mollie.yaml"), exitRefused, "give yours another"},
		"two formats at once":    {run1("--feed", file, "--format", "stripe", "--profile", profile(t, ownProfile)), exitRefused, "leave one of the two out"},
		"a class that is none":   {[]string{"exceptions", "--class", "odd"}, exitRefused, "--class"},
		"verify as csv":          {[]string{"verify", "--output", "csv", "--database-url", "postgres://127.0.0.1:1/x"}, exitRefused, "--output"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := shell{t: t, env: map[string]string{}}
			r := s.want(c.code, s.run("", c.args...))
			if !strings.Contains(r.stderr, c.says) || r.stdout != "" || strings.Contains(r.stderr, "hidden") {
				t.Errorf("%q is not said, or too much is: %q %q", c.says, r.stderr, r.stdout)
			}
		})
	}
	s := shell{t: t}
	if r := s.want(exitClean, s.run("", "run", "--help")); !strings.Contains(r.stdout, "--as-of") {
		t.Errorf("help: %s", r.stdout)
	}
}

// ownProfile is a small one that is sound.
const ownProfile = `
name: bank
columns: {id: [Ref], reference: Ref, currency: Cur, gross: Amount, occurred_at: Day}
dates: {layouts: ["2006-01-02"], zone: UTC}
kinds: [{when: {Type: IN}, kind: capture}]
`

func profile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "profile.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// north is a simulated acquirer with one capture of each of the charges.
func north(t *testing.T, charges ...payment.Charge) *httptest.Server {
	t.Helper()
	acquirer, err := sim.New(sim.Config{Name: "north", FeeBasisPoints: 100, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(acquirer.Handler())
	t.Cleanup(func() { server.Close(); _ = acquirer.Close() })
	for _, c := range charges {
		minor, err := c.Amount.Minor(2)
		if err != nil {
			t.Fatal(err)
		}
		body := fmt.Sprintf(`{"reference":%q,"amount_minor":%d,"currency":"USD","payment_method":"tok_ok"}`, c.AcqRef, minor)
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/v1/captures", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Idempotency-Key", c.AcqRef)
		response, err := server.Client().Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusCreated {
			t.Fatalf("the simulator answers %s", response.Status)
		}
	}
	return server
}

// issue has the acquirer write its file of today and the day before, and gives its address.
func issue(t *testing.T, server *httptest.Server) string {
	t.Helper()
	to := time.Now().UTC().Add(time.Second).Truncate(time.Second)
	address := fmt.Sprintf("%s/settlement?from=%s&to=%s", server.URL, to.AddDate(0, 0, -2).Format(time.RFC3339), to.Format(time.RFC3339))
	response, err := server.Client().Get(address)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Fatalf("the simulator answers %s", response.Status)
	}
	return address
}

// unknown is a charge of 49.99 USD whose request at north timed out.
func unknown(t *testing.T, db *pgtest.DB, m merchant.ID, key string) payment.Charge {
	t.Helper()
	return unknownAt(t, db, m, "north", key)
}

func unknownAt(t *testing.T, db *pgtest.DB, m merchant.ID, acquirer, key string) payment.Charge {
	t.Helper()
	now := time.Now().UTC().Truncate(time.Microsecond)
	id, ref := payment.NewChargeID(m, now), payment.AcqRef(m, key, 0)
	for _, q := range []struct {
		sql  string
		args []any
	}{
		{`select charge_begin_v1($1, $2, '1 minute', array[$3], array[$4::bytea], array[$5], array[0], array[$6], array[49.99], array['USD'],
			array[null]::text[], array[false], array['tok_ok'], array[null]::text[], array[$7])`, []any{m, now, key, make([]byte, 33), id, ref, acquirer}},
		{`select charge_finish_v1($1, $2, array[$3], array[$4], array[1::bigint], array[1], array['unclear'], array[1], array[null]::int[],
			array[null]::text[], array[null]::text[], array[null]::text[], array['unknown'], array[null]::text[], array[null]::text[],
			array[null]::int[], array[null]::text[], array[null]::text[], array[null]::bytea[], array[null]::text[], array[null]::text[], array[null]::text[])`,
			[]any{m, now, key, id}},
	} {
		if _, err := db.Pool.Exec(t.Context(), q.sql, q.args...); err != nil {
			t.Fatal(err)
		}
	}
	resolver := payment.NewResolver(payment.ResolverConfig{Pool: db.Pool, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	c, err := resolver.Get(t.Context(), m, id)
	if err != nil || c.Status != payment.Unknown {
		t.Fatalf("%+v, %v", c, err)
	}
	return c
}

// Regression: a run under a misspelt name found nothing, and said that all was well.
func TestAMisspeltAcquirerIsRefused(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	if _, err := merchant.NewStore(db.Pool, time.Now).Create(context.Background(), "shop", []string{"south", "north"}); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "day.csv")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s := shell{t: t, env: map[string]string{"DATABASE_URL": db.ServiceURL()}}
	for _, args := range [][]string{{"run", "--feed", file}, {"report"}, {"exceptions"}} {
		r := s.want(exitRefused, s.run("", append(args, "--acquirer", "nroth")...))
		if !strings.Contains(r.stderr, `--acquirer: not the name of an acquirer that is known: "nroth"; known are north, south`) || r.stdout != "" {
			t.Errorf("%s: %q %q", args[0], r.stderr, r.stdout)
		}
	}
	var files int
	if err := db.Pool.QueryRow(t.Context(), "select count(*) from settlement_files").Scan(&files); err != nil || files != 0 {
		t.Errorf("%d files are on record (%v)", files, err)
	}
}

func TestTheNightlyRunAgainstTheSimulator(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	m, err := merchant.NewStore(db.Pool, time.Now).Create(context.Background(), "shop", []string{"north"})
	if err != nil {
		t.Fatal(err)
	}
	first, second := unknown(t, db, m.ID, "order-1"), unknown(t, db, m.ID, "order-2")
	server := north(t, first, second)
	issue(t, server)
	s := shell{t: t, env: map[string]string{"DATABASE_URL": db.ServiceURL(), "RECONCILE_ACQUIRER": "north"}}

	s.want(exitRefused, s.run("", "report"))
	r := s.want(exitClean, s.run("", "run", "--feed", server.URL+"/settlement", "--output", "json"))
	var report struct {
		Status   string
		Resolved []struct {
			What  string
			Count int
		}
	}
	if err := json.Unmarshal([]byte(r.stdout), &report); err != nil || report.Status != "clean" ||
		len(report.Resolved) != 1 || report.Resolved[0].Count != 2 || report.Resolved[0].What != "captured" {
		t.Errorf("the report says %s, %v", r.stdout, err)
	}
	if !strings.Contains(r.stderr, "settlement#1: accepted, 2 lines, 2 new") {
		t.Errorf("progress: %q", r.stderr)
	}
	if latest := s.want(exitClean, s.run("", "report", "--output", "json")); latest.stdout != r.stdout {
		t.Errorf("the report read later differs: %s", latest.stdout)
	}
	again := s.want(exitClean, s.run("", "run", "--feed", server.URL+"/settlement", "--output", "json", "--quiet"))
	if again.stdout != r.stdout || again.stderr != "" {
		t.Errorf("the same run again says %s %s", again.stdout, again.stderr)
	}
	if verified := s.want(exitClean, s.run("", "verify")); strings.Contains(verified.stdout, "FAULT") {
		t.Errorf("verify: %s", verified.stdout)
	}
	none := s.run("", "exceptions")
	s.want(exitClean, none)
	if none.stdout != "No exceptions.\n" {
		t.Errorf("no exceptions: %q", none.stdout)
	}

	// The same bytes as a file, in a directory, by standard input and by another address.
	whole := fetch(t, server.URL+"/settlement?sequence=1")
	dir := t.TempDir()
	file := filepath.Join(dir, "a.csv")
	if err := os.WriteFile(file, []byte(whole), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, r := range map[string]result{
		"file": s.run("", "run", "--feed", file), "directory": s.run("", "run", "--feed", dir),
		"standard input": s.run(whole, "run", "--feed", "-"), "address": s.run("", "run", "--feed", server.URL+"/settlement?sequence=1"),
		"two": s.run("", "run", "--feed", file, file),
	} {
		if s.want(exitClean, r); !strings.Contains(r.stderr, "taken in before as settlement#1, nothing to do") {
			t.Errorf("%s: %s", name, r.stderr)
		}
	}

	// A file that is cut short proves nothing, and the exit code says so.
	r = s.want(exitRefused, s.run(whole[:len(whole)/2], "run", "--feed", "-"))
	if !strings.Contains(r.stderr, "refused, nothing of it is used") || !strings.Contains(r.stdout, "empty_or_truncated") {
		t.Errorf("a truncated file: %s %s", r.stdout, r.stderr)
	}
	// A capture that nobody here asked for.
	north2 := unknown(t, db, m.ID, "order-3")
	north2.AcqRef = payment.AcqRef(m.ID, "never", 0)
	other := north(t, north2)
	r = s.want(exitExceptions, s.run("", "run", "--feed", issue(t, other), "--output", "csv"))
	if !strings.Contains(r.stdout, "missing_with_us") {
		t.Errorf("the exceptions: %s", r.stdout)
	}
	s.want(exitExceptions, s.run("", "exceptions", "--class", "missing_with_us", "--output", "json"))
	s.want(exitClean, s.run("", "exceptions", "--class", "bad_date", "--all"))
	s.want(exitRefused, s.run("", "run", "--feed", file, "--format", "excel"))
	s.want(exitRefused, s.run("", "run", "--feed", file, "--acquirer", "A/B"))
}

func fetch(t *testing.T, address string) string {
	t.Helper()
	feed := fromURL("x", address)
	in, err := feed.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(in); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

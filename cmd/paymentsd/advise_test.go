package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"paymentsd/internal/pgtest"
	"paymentsd/merchant"
	"paymentsd/payment"
)

var update = flag.Bool("update", false, "write what advise says into testdata/advise.txt")

// trafficAt is so many attempts, one each third of a second, the last of a hundred slow.
type trafficAt struct {
	acquirer string
	attempts int
	took     time.Duration
}

var trafficFrom = time.Date(2026, 3, 27, 9, 0, 0, 0, time.UTC)

// seedTraffic writes captured charges past the charge path.
func seedTraffic(t *testing.T, db *pgtest.DB, all ...trafficAt) {
	t.Helper()
	m := merchant.ID(db.Merchant())
	var charges, attempts [][]any
	for _, a := range all {
		for i := range a.attempts {
			at, took := trafficFrom.Add(time.Duration(i)*time.Second/3), a.took
			if i%100 == 0 {
				took *= 2
			}
			id, key := payment.NewChargeID(m, at), fmt.Sprint(a.acquirer, i)
			charges = append(charges, []any{m, id, key, 0, payment.AcqRef(m, key, 0), "1.00", "USD", false, "tok_ok", "captured", a.acquirer, "cap_" + key, at, at})
			attempts = append(attempts, []any{m, id, 1, a.acquirer, "captured", 1, 201, at, at.Add(took)})
		}
	}
	copyRows(t, db.Owner(), "charges", charges, "merchant_id", "charge_id", "idempotency_key", "generation", "acq_ref", "amount", "currency",
		"allow_concurrent", "payment_method", "status", "acquirer", "capture_id", "created_at", "updated_at")
	copyRows(t, db.Owner(), "attempts", attempts, "merchant_id", "charge_id", "n", "acquirer", "state", "calls", "http_status", "started_at", "finished_at")
}

func copyRows(t *testing.T, conn *pgx.Conn, table string, rows [][]any, columns ...string) {
	t.Helper()
	if _, err := conn.CopyFrom(context.Background(), pgx.Identifier{table}, columns, pgx.CopyFromRows(rows)); err != nil {
		t.Fatalf("seed %s: %v", table, err)
	}
}

const adviseConfig = `
acquirers:
- {name: north, url: 'http://127.0.0.1:1'}
- {name: south, url: 'http://127.0.0.1:1', breaker: {min_attempts: 2, slow_call: 200ms}, bulkhead: {slots: 1}, budget: {floor: 0}}
- {name: west, url: 'http://127.0.0.1:1'}
`

func TestAdvise(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	seedTraffic(t, db, trafficAt{"north", 12_000, 300 * time.Millisecond}, trafficAt{"south", 1_200, 300 * time.Millisecond}, trafficAt{"east", 3, time.Second})
	env := map[string]string{"DATABASE_URL": db.OwnerURL(), "PAYMENTSD_CONFIG": writeConfig(t, adviseConfig)}
	with := func(config string) map[string]string {
		changed := maps.Clone(env)
		changed["PAYMENTSD_CONFIG"] = writeConfig(t, config)
		return changed
	}

	t.Run("a table for people, and exit 1", func(t *testing.T) {
		code, stdout, stderr := command(t, env, "advise", "--as-of", "2026-03-28", "--replicas", "3")
		if code != exitOutOfLine || stderr != "" {
			t.Errorf("code %d: %s", code, stderr)
		}
		const golden = "testdata/advise.txt"
		if *update {
			if err := os.WriteFile(golden, []byte(stdout), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), stdout); diff != "" {
			t.Errorf("(- %s, + got)\n%s", golden, diff)
		}
		if _, again, _ := command(t, env, "advise", "--as-of", "2026-03-28", "--replicas", "3"); again != stdout {
			t.Errorf("the second time it says\n%s", again)
		}
	})
	t.Run("JSON for programs", func(t *testing.T) {
		code, stdout, stderr := command(t, env, "advise", "--as-of", "2026-03-28T00:00:00Z", "--days", "1", "--json")
		var report adviceReport
		if err := json.Unmarshal([]byte(stdout), &report); err != nil || code != exitOutOfLine {
			t.Fatalf("code %d, %v: %s%s", code, err, stdout, stderr)
		}
		north := report.Acquirers[0]
		if report.InLine || report.Replicas != 1 || !strings.Contains(report.ReplicasHow, "assumed") || len(report.Acquirers) != 3 ||
			north.Calls != 12_000 || north.UsualSecond != 3 || north.Settings[0].Setting != "timeout" || cmp.Diff(report.Unconfigured, []string{"east"}) != "" {
			t.Errorf("%+v", report)
		}
	})
	t.Run("exit 0 when all is in line, or too little to judge", func(t *testing.T) {
		fine := with("acquirers:\n- {name: north, url: 'http://127.0.0.1:1'}\n- {name: west, url: 'http://127.0.0.1:1'}\n")
		code, stdout, stderr := command(t, fine, "advise", "--as-of", "2026-03-28")
		if code != 0 || !strings.Contains(stdout, "not enough traffic to judge") || !strings.Contains(stdout, "\n0 of 10 settings") {
			t.Errorf("code %d: %s%s", code, stdout, stderr)
		}
		if code, stdout, stderr := command(t, env, "advise", "--as-of", "2020-01-01"); code != 0 || !strings.Contains(stdout, "0 of 0 settings") {
			t.Errorf("nothing to judge: code %d: %s%s", code, stdout, stderr)
		}
	})
	t.Run("as many replicas as reported lately", func(t *testing.T) {
		const add = `insert into outcome_windows (acquirer, replica, seq, epoch, sec, attempts, failures, slow, successes)
			select 'north', 'r' || i % 4, i, 1, extract(epoch from clock_timestamp())::bigint - case when i % 4 = 3 then 500 else 5 end, 1, 0, 0, 1
			  from generate_series(1, 8) i`
		if _, err := db.Pool.Exec(t.Context(), add); err != nil {
			t.Fatal(err)
		}
		if _, stdout, stderr := command(t, env, "advise"); !strings.Contains(stdout, "and 3 replicas (reported calls in the last 2m0s") {
			t.Errorf("%s%s", stdout, stderr)
		}
	})
}

func TestAdviseCannotBeGiven(t *testing.T) {
	t.Parallel()
	fine := writeConfig(t, "acquirers:\n- {name: north, url: 'http://127.0.0.1:1'}\n")
	const away = "postgres://nobody@127.0.0.1:1/x"
	for name, c := range map[string]struct {
		env  map[string]string
		args []string
		says string
	}{
		"no configuration":                {map[string]string{"DATABASE_URL": away}, nil, "PAYMENTSD_CONFIG"},
		"a configuration that is missing": {map[string]string{"DATABASE_URL": away, "PAYMENTSD_CONFIG": fine + "x"}, nil, "no such file"},
		"a policy that cannot be used": {map[string]string{"DATABASE_URL": away,
			"PAYMENTSD_CONFIG": writeConfig(t, "acquirers:\n- {name: north, url: 'http://127.0.0.1:1', bulkhead: {slots: -1}}\n")}, nil, "acquirers[0] (north): resilience: unusable settings\nbulkhead.slots is -1"},
		"no database":              {map[string]string{"PAYMENTSD_CONFIG": fine}, nil, "DATABASE_URL"},
		"a database that is away":  {map[string]string{"DATABASE_URL": away, "PAYMENTSD_CONFIG": fine}, nil, "reach the database"},
		"no days":                  {map[string]string{"DATABASE_URL": away, "PAYMENTSD_CONFIG": fine}, []string{"--days", "0"}, "--days is 0"},
		"a day that is none":       {map[string]string{"DATABASE_URL": away, "PAYMENTSD_CONFIG": fine}, []string{"--as-of", "29/11/2026"}, `--as-of is "29/11/2026"`},
		"an unknown flag":          {nil, []string{"--weeks", "1"}, "--weeks"},
		"all at once, not the one": {map[string]string{}, []string{"--days", "99"}, "--days is 99"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr := command(t, c.env, append([]string{"advise"}, c.args...)...)
			if code != exitNoAdvice || stdout != "" || !strings.Contains(stderr, c.says) {
				t.Errorf("code %d, want %d and %q in\n%s%s", code, exitNoAdvice, c.says, stdout, stderr)
			}
		})
	}
	t.Run("fewer than no replicas, interrupted", func(t *testing.T) {
		t.Parallel()
		env := map[string]string{"DATABASE_URL": pgtest.New(t).OwnerURL(), "PAYMENTSD_CONFIG": fine}
		if code, _, stderr := command(t, env, "advise", "--replicas=-1"); code != exitNoAdvice || !strings.Contains(stderr, "--replicas is -1") {
			t.Errorf("code %d: %s", code, stderr)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		var out strings.Builder
		if code := run(ctx, []string{"advise"}, func(name string) string { return env[name] }, &out, &out); code != exitNoAdvice {
			t.Errorf("interrupted: code %d, which says that all is in line: %s", code, out.String())
		}
	})
}

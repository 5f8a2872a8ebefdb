package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"paymentsd/internal/benchkit"
)

// figures are the medians for one number of clients.
type figures struct {
	charges, pgbench, ratio       float64 // per second; the ratio is the median of the rounds' ratios
	p50, p99                      float64 // milliseconds above the acquirer's own
	statements, commits, walBytes float64 // per charge
}

// measure runs both sides in turn, round by round.
func (b *bed) measure(ctx context.Context, clients int) (figures, error) {
	var charges, pgbench, ratio, p50, p99, statements, commits, wal []float64
	for range b.rounds {
		rate, err := b.pgbench(ctx, clients)
		if err != nil {
			return figures{}, err
		}
		before, err := b.counters(ctx)
		if err != nil {
			return figures{}, err
		}
		l, err := b.load(ctx, clients)
		if err != nil {
			return figures{}, err
		}
		after, err := b.counters(ctx)
		if err != nil {
			return figures{}, err
		}
		n := float64(l.done)
		charges, pgbench, ratio = append(charges, l.rate), append(pgbench, rate), append(ratio, l.rate/rate)
		p50, p99 = append(p50, l.percentile(50)), append(p99, l.percentile(99))
		statements = append(statements, float64(after.statements-before.statements)/n)
		commits = append(commits, float64(after.xids-before.xids)/n)
		wal = append(wal, float64(after.wal-before.wal)/n)
	}
	return figures{
		charges: benchkit.Median(charges), pgbench: benchkit.Median(pgbench), ratio: benchkit.Median(ratio), p50: benchkit.Median(p50), p99: benchkit.Median(p99),
		statements: benchkit.Median(statements), commits: benchkit.Median(commits), walBytes: benchkit.Median(wal),
	}, nil
}

// counters are the service's own for statements, and the database's for the rest: a transaction takes an
// xid only if it writes, so xids count durable commits.
type counters struct{ statements, xids, wal int64 }

const readCounters = `
select pg_snapshot_xmax(pg_current_snapshot())::text::bigint, (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint`

func (b *bed) counters(ctx context.Context) (c counters, err error) {
	if err = b.Pool.QueryRow(ctx, readCounters).Scan(&c.xids, &c.wal); err != nil {
		return counters{}, err
	}
	c.statements, err = b.scrape(ctx, "paymentsd_database_statements_total")
	return c, err
}

// scrape reads one counter from the service's metrics.
func (b *bed) scrape(ctx context.Context, name string) (int64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, b.Service.URL+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			value, err := strconv.ParseFloat(text, 64)
			return int64(value), err
		}
	}
	return 0, fmt.Errorf("the service's metrics have no %s", name)
}

// script is T1 and T2 as the service sends them: the same functions, the same columns, fresh keys.
const script = `\set a random(1, 9000000000000000000)
select o_outcome from charge_begin_v1(%[1]d, now(), interval '60 s', array['bench-' || to_hex(:a::bigint)], array[decode('01' || repeat('ab', 32), 'hex')],
 array['ch_%[2]s0000' || upper(lpad(to_hex(:a::bigint), 16, '0'))], array[0], array['%[2]s' || upper(right(lpad(to_hex(:a::bigint), 16, '0'), 14))],
 array[49.99], array['USD'], array['order-' || to_hex(:a::bigint)], array[false], array['tok_ok'], array[null], array['fast']);
select o_outcome from charge_finish_v1(%[1]d, now(), array['bench-' || to_hex(:a::bigint)], array['ch_%[2]s0000' || upper(lpad(to_hex(:a::bigint), 16, '0'))],
 array[1::bigint], array[1], array['captured'], array[1], array[201], array[null], array[null], array[null], array['captured'], array['cap_fast_' || to_hex(:a::bigint)], array[null],
 array[201], array['application/json'], array['/v1/charges/ch_%[2]s0000' || upper(lpad(to_hex(:a::bigint), 16, '0'))], array[convert_to(repeat('x', 560), 'UTF8')],
 array['capture'], array['acquirer_receivable' || chr(58) || 'fast'], array['merchant_payable']);
`

var tps = regexp.MustCompile(`tps = ([0-9.]+)`)

// pgbench runs the script with as many clients, each with its own connection.
func (b *bed) pgbench(ctx context.Context, clients int) (float64, error) {
	path := filepath.Join(b.Dir, "charge.sql")
	if err := os.WriteFile(path, fmt.Appendf(nil, script, b.Merchant, b.Merchant.Code()), 0o600); err != nil {
		return 0, err
	}
	b.serial++
	command := exec.CommandContext(ctx, "pgbench", "--no-vacuum", "--protocol=prepared", "--client="+strconv.Itoa(clients),
		"--jobs=2", "--time="+strconv.Itoa(b.seconds), "--random-seed="+strconv.Itoa(b.serial), "--file="+path, b.URL())
	out, err := command.CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("pgbench (of Postgres' client package) failed: %w\n%s", err, out)
	}
	found := tps.FindSubmatch(out)
	if found == nil {
		return 0, fmt.Errorf("pgbench printed no rate:\n%s", out)
	}
	return strconv.ParseFloat(string(found[1]), 64)
}

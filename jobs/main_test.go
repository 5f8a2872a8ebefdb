package jobs

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"paymentsd/internal/pgtest"
	"paymentsd/internal/postgres"
	"paymentsd/merchant"
	"paymentsd/payment"
)

// desk is a database with a Resolver on it: the truth that jobs are made of.
type desk struct {
	*payment.Resolver
	db    *pgtest.DB
	owner *pgxpool.Pool
	t     *testing.T

	mu  sync.Mutex
	ran []string // charges whose errands were run, in order
	run func(chargeID string) error
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	db := pgtest.New(t)
	owner, err := postgres.Open(t.Context(), postgres.Config{URL: db.OwnerURL(), MaxConns: 4, Name: "the test itself"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(owner.Close)
	return &desk{
		Resolver: payment.NewResolver(payment.ResolverConfig{Pool: db.Pool, Now: time.Now, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}),
		db:       db, owner: owner, t: t,
	}
}

func (d *desk) RunErrand(_ context.Context, _ merchant.ID, chargeID string, _ payment.ErrandKind) error {
	d.mu.Lock()
	d.ran = append(d.ran, chargeID)
	run := d.run
	d.mu.Unlock()
	if run != nil {
		return run(chargeID)
	}
	return nil
}

func (d *desk) Follow(context.Context, payment.OutboxEvent) error { return nil }

func (d *desk) haveRun() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.ran)
}

func (d *desk) exec(sql string, args ...any) {
	d.t.Helper()
	if _, err := d.owner.Exec(d.t.Context(), sql, args...); err != nil {
		d.t.Fatalf("%s: %v", sql, err)
	}
}

func (d *desk) count(sql string, args ...any) (n int) {
	d.t.Helper()
	if err := d.owner.QueryRow(d.t.Context(), sql, args...).Scan(&n); err != nil {
		d.t.Fatalf("%s: %v", sql, err)
	}
	return n
}

// event puts an event into the outbox.
func (d *desk) event(m merchant.ID, id, kind, chargeID string) {
	d.t.Helper()
	d.exec(`insert into outbox (merchant_id, event_id, kind, charge_id, created_at) values ($1, $2, $3, $4, now())`, m, id, kind, chargeID)
}

// errand makes a charge, queued, with an errand that is due.
func (d *desk) errand(m merchant.ID, kind payment.ErrandKind, tries int) string {
	d.t.Helper()
	id := payment.NewChargeID(m, time.Now())
	d.exec(`insert into charges (merchant_id, charge_id, idempotency_key, generation, acq_ref, amount, currency, allow_concurrent,
	          payment_method, status, acquirer, created_at, updated_at)
	        values ($1, $2, $2, 0, $3, 10, 'USD', false, 'tok_ok', 'queued', 'north', now(), now())`, m, id, payment.AcqRef(m, id, 0))
	d.exec(`insert into errands (merchant_id, charge_id, kind, due_at, wake_at, tries, deferrals, created_at)
	        values ($1, $2, $3, now(), now(), $4, 0, now())`, m, id, kind, tries)
	return id
}

// jobs makes Jobs on the desk that do nothing until they are told to.
func (d *desk) jobs(extensions ...Extension) *Jobs {
	d.t.Helper()
	j, err := New(Config{
		Pool: d.db.Pool, Errands: d, Extensions: extensions, ChargeWorkers: 4, InquiryWorkers: 2,
		Poll: 50 * time.Millisecond, JobTime: 10 * time.Second, Log: slog.New(slog.NewTextHandler(d.t.Output(), nil)),
	})
	if err != nil {
		d.t.Fatal(err)
	}
	return j
}

func (d *desk) start(j *Jobs) {
	d.t.Helper()
	if err := j.Start(d.t.Context()); err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := j.Stop(ctx); err != nil {
			d.t.Errorf("stop: %v", err)
		}
	})
}

func (d *desk) await(what string, met func() bool) {
	d.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if met() {
			return
		}
	}
	d.t.Fatalf("it does not come: %s; errands that ran: %v", what, d.haveRun())
}

const countJobs = `select count(*) from river.river_job`

// notes is a Consumer that writes down what it is told and may refuse some of it.
type notes struct {
	mu     sync.Mutex
	took   []string
	refuse func(payment.OutboxEvent) error
}

func (*notes) Name() string { return "notes" }

func (n *notes) Take(_ context.Context, _ merchant.ID, events []payment.OutboxEvent) ([]river.InsertManyParams, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, e := range events {
		if n.refuse != nil {
			if err := n.refuse(e); err != nil {
				return nil, err
			}
		}
	}
	for _, e := range events {
		n.took = append(n.took, e.ID)
	}
	return nil, nil
}

func (n *notes) taken() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	took := slices.Clone(n.took)
	slices.Sort(took)
	return took
}

func TestSchemaIsTheOneRiverWants(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ctx, owner := t.Context(), db.Owner()
	pool, err := pgxpool.New(ctx, db.OwnerURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	migrator := func(schema string) *rivermigrate.Migrator[pgx.Tx] {
		m, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Schema: schema, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	result, err := migrator(Schema).Validate(ctx, nil)
	if err != nil || !result.OK {
		t.Fatalf("river does not accept the schema: %+v, %v", result, err)
	}
	if _, err := owner.Exec(ctx, `create schema rivers_own`); err != nil {
		t.Fatal(err)
	}
	if _, err := migrator("rivers_own").Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		t.Fatal(err)
	}
	describe := func(schema string) []string {
		rows, err := owner.Query(ctx, `
			select replace(x.line, $1 || '.', '') from (
			  select 'column ' || c.table_name || '.' || c.column_name || ' ' || c.udt_name || ' ' || c.is_nullable || ' ' || coalesce(c.column_default, '') as line
			    from information_schema.columns c where c.table_schema = $1
			  union all select 'constraint ' || k.conname || ' ' || pg_get_constraintdef(k.oid) from pg_constraint k where k.connamespace = $1::regnamespace
			  union all select i.indexdef from pg_indexes i where i.schemaname = $1
			  union all select pg_get_functiondef(p.oid) from pg_proc p where p.pronamespace = $1::regnamespace
			  union all select 'type ' || y.typname || ' ' || string_agg(e.enumlabel, ',' order by e.enumsortorder)
			    from pg_type y join pg_enum e on e.enumtypid = y.oid where y.typnamespace = $1::regnamespace group by y.typname
			) x order by 1`, schema)
		if err != nil {
			t.Fatal(err)
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		return lines
	}
	ours, theirs := describe(Schema), describe("rivers_own")
	if len(ours) < 20 || !slices.Equal(ours, theirs) {
		t.Errorf("ours and river's own schema differ:\n%q\n%q", ours, theirs)
	}
}

var errSour = errors.New("this event cannot be taken")

package reconcile

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"paymentsd/payment"
	"paymentsd/settlement"
)

// story makes charges of many kinds, and the files that end or contradict them.
func story(t *testing.T, s *shop) Request {
	t.Helper()
	captured, unknown := s.charge(spec{status: payment.Captured}), s.charge(spec{status: payment.Unknown, amount: "100.00"})
	lost, declined := s.charge(spec{status: payment.Unknown}), s.charge(spec{status: payment.Declined})
	twice := s.charge(spec{status: payment.Unknown, tried: []string{"south", "north"}})
	s.charge(spec{status: payment.Captured}) // without a line
	feeds := week(t, "north", toCutoff, line("1", captured, fee(t, "1.00")), line("2", unknown, fee(t, "2.00")), denied(t, "3", lost),
		line("4", declined), line("5", twice, capture("x")), line("6", twice, capture("y")), line("7", captured, reference("ODD")))
	again := header("north", 1)
	again.Replaces = 1
	feeds = append(feeds, feed("again.csv", bytesOf(t, again, line("1", captured, fee(t, "1.50")), line("2", unknown, fee(t, "2.00")),
		denied(t, "3", lost), line("4", declined), line("5", twice, capture("x")), line("6", twice, capture("y")))))
	return request("north", late, feeds...)
}

// state is everything that runs write, but clocks and the runs themselves.
func (s *shop) state() string {
	s.t.Helper()
	var b strings.Builder
	for _, sql := range []string{
		`select charge_id, status, acquirer, capture_id, evidence, reason from charges order by 1`,
		`select key, state, charge_id from idempotency_keys order by 1`,
		`select charge_id, resolution_id, outcome, applied, file_id, line_no from resolutions order by 1, 2`,
		`select transfer_id, charge_id, kind, debit_account, credit_account, amount::text, currency from ledger_transfers order by 1`,
		`select event_id from outbox order by 1`,
		`select file_id, name, status, lines, counted, repeated, bad, added, removed, changed, claimed from settlement_files order by 1`,
		`select file_id, line_no, state, revision, problem from settlement_lines order by 1, 2`,
		`select file_id, line_no, state, revision, charge_id, resolved, posted, reversed from settlement_claims order by 1, 2`,
		`select exception_id, class, state, at_risk::text, ours, theirs, detail, since::text, closed_by from recon_exceptions order by 1`,
	} {
		rows, err := s.pool.Query(s.t.Context(), sql)
		if err != nil {
			s.t.Fatal(err)
		}
		for rows.Next() {
			values, err := rows.Values()
			if err != nil {
				s.t.Fatal(err)
			}
			fmt.Fprintln(&b, values...)
		}
		if err := rows.Err(); err != nil {
			s.t.Fatal(err)
		}
	}
	return b.String()
}

// faulty is a reconciler of which hook is told each step, those of the resolver, too.
func (s *shop) faulty(hook func(step string)) *Reconciler {
	return s.another(func(c *Config) {
		c.Fault = hook
		c.Resolver = payment.NewResolver(payment.ResolverConfig{Pool: s.pool, Render: render, Now: c.Now, Log: c.Log, Fault: hook})
	})
}

type killed struct{}

// A run that is killed after any step, and run again, ends where an undisturbed one does, and says the
// same, byte for byte.
func TestKilledRunsEndTheSame(t *testing.T) {
	t.Parallel()
	calm := newShop(t)
	var steps []string
	report, err := calm.faulty(func(step string) { steps = append(steps, step) }).Run(t.Context(), story(t, calm))
	if err != nil {
		t.Fatal(err)
	}
	calm.sound()
	wantState, wantReport := calm.state(), text(t, report)
	seen := map[string]int{}
	for _, step := range steps {
		seen[step]++
		nth := seen[step]
		if nth > 1 && nth != 3 { // the first of each kind, and one in the middle
			continue
		}
		t.Run(fmt.Sprintf("killed at %s %d", step, nth), func(t *testing.T) {
			t.Parallel()
			for _, kill := range []string{"panic", "cancel"} {
				s := newShop(t)
				q := story(t, s)
				s.interrupt(q, kill, step, nth)
				got, err := s.Run(t.Context(), q)
				if err != nil {
					t.Fatal(err)
				}
				s.sound()
				if diff := cmp.Diff(wantReport, text(t, got)); diff != "" {
					t.Errorf("after a %s the report differs:\n%s", kill, diff)
				}
				if diff := cmp.Diff(wantState, s.state()); diff != "" {
					t.Errorf("after a %s the tables differ:\n%s", kill, diff)
				}
			}
		})
	}
}

// interrupt runs q up to the nth time of a step.
func (s *shop) interrupt(q Request, kill, step string, nth int) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	defer cancel()
	defer func() {
		if r := recover(); r != nil {
			if _, ours := r.(killed); !ours {
				panic(r)
			}
		}
	}()
	count, reached := 0, false
	r := s.faulty(func(at string) {
		if at == step {
			count++
		}
		if at != step || count != nth || reached {
			return
		}
		reached = true
		if kill == "panic" {
			panic(killed{})
		}
		cancel()
	})
	_, _ = r.Run(ctx, q)
	if !reached {
		s.t.Errorf("the run never came to %s %d", step, nth)
	}
}

func TestTheSameRunAgainSaysTheSame(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	q := story(t, s)
	first := text(t, s.run(q))
	state := s.state()
	if second := text(t, s.run(q)); second != first {
		t.Errorf("the second report differs:\n%s", cmp.Diff(first, second))
	}
	if diff := cmp.Diff(state, s.state()); diff != "" {
		t.Errorf("the tables differ:\n%s", diff)
	}
	latest, err := s.Latest(t.Context(), "north")
	if err != nil || text(t, latest) != first {
		t.Errorf("the report read later differs: %v\n%s", err, cmp.Diff(first, text(t, latest)))
	}
}

// peers case 20: runs at once are independent, and end as one after the other would.
func TestRunsAtOnce(t *testing.T) {
	t.Parallel()
	calm := newShop(t)
	calm.run(story(t, calm))
	calm.run(request("south", late, week(t, "south", 2)...))
	want := calm.state()

	s := newShop(t)
	q := story(t, s)
	var wait sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		wait.Go(func() {
			mine := q
			if i == 3 {
				mine = request("south", late, week(t, "south", 2)...)
			}
			_, errs[i] = s.another(func(*Config) {}).Run(t.Context(), mine)
		})
	}
	wait.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	s.sound()
	if diff := cmp.Diff(want, s.state()); diff != "" {
		t.Errorf("the tables differ:\n%s", diff)
	}
}

func TestARunThatCannotGetItsTurnSaysSo(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	holding, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	slow := s.faulty(func(string) { once.Do(func() { close(holding); <-release }) })
	done := make(chan error, 1)
	go func() { _, err := slow.Run(t.Context(), request("north", friday, daily(t, 1))); done <- err }()
	<-holding
	hasty := s.another(func(c *Config) { c.LockWait = 50 * time.Millisecond })
	_, err := hasty.Run(t.Context(), request("north", friday, daily(t, 1)))
	if !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), "north") {
		t.Errorf("the second run says %v", err)
	}
	if _, err := hasty.Run(t.Context(), request("south", friday, feed("s", bytesOf(t, header("south", 1))))); err != nil {
		t.Errorf("another acquirer's run: %v", err)
	}
	close(release)
	if err := <-done; err != nil {
		t.Errorf("the first run: %v", err)
	}
}

// peers case 31: a database error fails the run, which says so, calls nothing unmatched that nobody
// looked at, and can be taken up again.
func TestADatabaseErrorFailsTheRun(t *testing.T) {
	t.Parallel()
	calm := newShop(t)
	want := text(t, calm.run(story(t, calm)))
	for _, at := range []string{"file_imported", "lines_claimed", "charge_examined", "exceptions_recorded"} {
		t.Run("at "+at, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			q := story(t, s)
			owner := s.db.Owner()
			var once sync.Once
			r := s.faulty(func(step string) {
				if step == at {
					once.Do(func() { cutConnections(t, owner) })
				}
			})
			if _, err := r.Run(t.Context(), q); err == nil {
				t.Fatal("the run did not notice that its connections were cut")
			}
			runs, _, err := s.Runs(t.Context(), RunFilter{Limit: 1})
			if err != nil || len(runs) != 1 || runs[0].Status != RunFailed || runs[0].Error == "" {
				t.Fatalf("the run on record: %+v, %v", runs, err)
			}
			latest, err := s.Latest(t.Context(), "north")
			if err != nil || !strings.Contains(text(t, latest), "NOT FINISHED") || latest.Lines.Unmatched != 0 {
				t.Errorf("the report of the failed run: %v\n%s", err, text(t, latest))
			}
			if at == "lines_claimed" && (latest.Lines.NotExamined != 6 || latest.Lines.Matched != 0) {
				t.Errorf("lines that nobody looked at: %+v", latest.Lines)
			}
			got, err := s.Run(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			s.sound()
			if diff := cmp.Diff(want, text(t, got)); diff != "" {
				t.Errorf("the report differs:\n%s", diff)
			}
		})
	}
}

// cutConnections ends every connection of the database but its own.
func cutConnections(t *testing.T, owner *pgx.Conn) {
	_, err := owner.Exec(t.Context(), `select pg_terminate_backend(pid) from pg_stat_activity
		where datname = current_database() and pid <> pg_backend_pid()`)
	if err != nil {
		t.Errorf("cut the connections: %v", err)
	}
}

// peers case 15: ops and a run resolve the same charge at once. One wins, and what the lines say is
// compared with that.
func TestOpsAndARunResolveAtOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		outcome string
		status  payment.Status
		want    []Class
	}{
		{payment.OutcomeCaptured, payment.Captured, nil},
		{payment.OutcomeFailed, payment.Failed, []Class{ContradictedLater}},
	} {
		t.Run("ops say "+c.outcome, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			charge := s.charge(spec{status: payment.Unknown})
			var once sync.Once
			r := s.faulty(func(step string) {
				if step == "charge_examined" {
					once.Do(func() {
						_, err := s.resolver.Resolve(t.Context(), s.merchant.ID, charge.ID, payment.Resolution{
							ID: "op-1", Evidence: payment.Operator, Outcome: c.outcome, Acquirer: "north", CaptureID: "cap_1", Actor: "J. Doe", Reason: "faster",
						})
						if err != nil {
							t.Error(err)
						}
					})
				}
			})
			if _, err := r.Run(t.Context(), request("north", friday, daily(t, 1, line("1", charge, capture("cap_1"))))); err != nil {
				t.Fatal(err)
			}
			s.sound()
			s.wantStatus(charge, c.status)
			s.wantClasses(c.want...)
			evidence, err := s.resolver.Resolutions(t.Context(), s.merchant.ID, charge.ID)
			applied := 0
			for _, e := range evidence {
				if e.Applied {
					applied++
				}
			}
			if err != nil || applied != 1 {
				t.Errorf("applied evidence: %d of %+v, %v", applied, evidence, err)
			}
		})
	}
}

// A claim on a charge is the database's to refuse, too.
func TestOneLineOfAKindStandsForACharge(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	c := s.charge(spec{status: payment.Captured})
	s.reconcile(daily(t, 1, line("1", c), line("2", c, kind(settlement.Refund), gross(t, "-1.00", "USD")), line("3", c, capture("b"))))
	_, err := s.pool.Exec(t.Context(), `update settlement_claims set state = 'matched' where merchant_id = $1 and state = 'duplicate'`, s.merchant.ID)
	if err == nil {
		t.Error("two captures stand for one charge")
	}
}

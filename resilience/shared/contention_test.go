package shared

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"paymentsd/internal/pgtest"
	"paymentsd/resilience"
)

// childURL turns the test's binary into one replica with contenders, which can be killed.
const childURL = "SHARED_TEST_CHILD_URL"

func TestMain(m *testing.M) {
	if url := os.Getenv(childURL); url != "" {
		if err := child(url); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// contended opens for a moment only, so that probes follow each other.
func contended() resilience.BreakerConfig {
	c := quick()
	c.OpenFor, c.OpenMax = 10*time.Millisecond, 10*time.Millisecond
	c.ProbeLease, c.ProbeMargin = 800*time.Millisecond, 400*time.Millisecond
	return c
}

// The probes' own record, on the database's clock: begun before the call is sent, ended after it is over.
const (
	recordTable = `create table probe_record (epoch bigint primary key, who text, began timestamptz not null, ended timestamptz)`
	recordBegin = `insert into probe_record (epoch, who, began) values ($1, $2, clock_timestamp())`
	recordEnd   = `update probe_record set ended = clock_timestamp() where epoch = $1`
	// Who was killed has ended by now.
	recordKill = `update probe_record set ended = clock_timestamp() where who = $1 and ended is null`
	// The most probes at any moment: each beginning, with those that had begun and not ended.
	recordMost = `select coalesce(max(n), 0) from (
	  select (select count(*) from probe_record b where b.began <= a.began and coalesce(b.ended, 'infinity') > a.began) as n from probe_record a) s`
)

// fates is what became of the probes whose result did not arrive in time.
type fates struct {
	raw, chained atomic.Int64 // probes so far

	mu      sync.Mutex
	unheard map[uint64]string // by epoch: lost, late or killed
	wrong   []string          // results that did not reach their caller as they were
}

func (f *fates) note(epoch uint64, fate string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unheard[epoch] = fate
}

func (f *fates) count(fate string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, other := range f.unheard {
		if other == fate {
			n++
		}
	}
	return n
}

// contender is a caller of one replica who records each probe that it is given.
type contender struct {
	who     string
	breaker *Breaker
	record  *pgxpool.Pool
	chain   *resilience.Chain // nil: it takes permits by hand
	fates   *fates            // nil: it does no harm
	errs    atomic.Pointer[error]
}

// run contends until the context ends. Calls fail, so that the breaker opens again and again; one probe in
// ten succeeds.
func (c *contender) run(ctx context.Context) {
	for ctx.Err() == nil {
		var refused *resilience.Rejection
		var err error
		if c.chain != nil {
			refused, err = c.charge()
		} else {
			refused, err = c.byHand()
		}
		if err != nil {
			c.errs.Store(&err)
			return
		}
		if refused != nil {
			time.Sleep(time.Duration(rand.IntN(int(2 * time.Millisecond)))) // the pace of the calls
		}
	}
}

// charge makes one call through the chain, and looks whether its result comes back as it was, whatever the
// breaker makes of it.
func (c *contender) charge() (refused *resilience.Rejection, err error) {
	want := resilience.Verdict{Outcome: resilience.Failure}
	report := c.chain.Do(context.Background(), resilience.Critical, func(ctx context.Context, _ int) resilience.Verdict {
		if _, probe := ctx.Deadline(); !probe {
			return want
		}
		ph := c.breaker.phase.Load()
		if !ph.mine {
			return want // its lease ended since it was admitted: it would not be sent
		}
		if err = c.probe(ctx, ph.epoch); err != nil {
			return want
		}
		if c.fates != nil && c.fates.chained.Add(1)%16 == 1 {
			time.Sleep(contended().ProbeLease + 50*time.Millisecond) // reported past the lease
			c.fates.note(ph.epoch, "late")
			want.Outcome = resilience.Success
		} else if rand.IntN(10) == 0 {
			want.Outcome = resilience.Success
		}
		return want
	})
	if c.fates != nil && report.Calls > 0 && (report.Last != want || report.Refused != nil || report.Panic != nil) {
		c.fates.mu.Lock()
		c.fates.wrong = append(c.fates.wrong, fmt.Sprintf("%+v, the call's own is %+v", report, want))
		c.fates.mu.Unlock()
	}
	return report.Refused, err
}

// byHand makes one call without the chain, and never reports one probe in four.
func (c *contender) byHand() (*resilience.Rejection, error) {
	p, refused := c.breaker.Acquire(context.Background())
	if refused != nil {
		return refused, nil
	}
	if !p.Probe {
		c.breaker.Done(p, resilience.Failure)
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), p.ProbeTimeout)
	defer cancel()
	if !c.breaker.Valid(p) { // as the chain asks just before sending
		return nil, nil
	}
	if err := c.probe(ctx, p.Epoch); err != nil {
		return nil, err
	}
	if c.fates.raw.Add(1)%4 == 1 {
		c.fates.note(p.Epoch, "lost")
		return nil, nil
	}
	c.breaker.Done(p, resilience.Failure)
	return nil, nil
}

// probe is the call of a probe: a few milliseconds at the acquirer, on record.
func (c *contender) probe(ctx context.Context, epoch uint64) error {
	if _, err := c.record.Exec(ctx, recordBegin, int64(epoch), c.who); err != nil {
		if ctx.Err() == nil {
			return err
		}
		_, err = c.record.Exec(context.Background(), recordEnd, int64(epoch)) // no time was left to send it
		return err
	}
	select {
	case <-time.After(time.Duration(rand.IntN(int(5 * time.Millisecond)))):
	case <-ctx.Done():
	}
	_, err := c.record.Exec(context.Background(), recordEnd, int64(epoch))
	return err
}

// child is the process: it joins, says who it is, and contends until it is killed or its parent goes.
func child(url string) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // ends with the parent
		cancel()
	}()
	to, err := pgxpool.ParseConfig(url)
	if err != nil {
		return err
	}
	to.ConnConfig.RuntimeParams["application_name"] = fmt.Sprint("record of ", os.Getpid())
	record, err := pgxpool.NewWithConfig(ctx, to)
	if err != nil {
		return err
	}
	defer record.Close()
	s, err := Open(ctx, config(url, contended()))
	if err != nil {
		return err
	}
	defer s.Close()
	chain, err := newChain(s)
	if err != nil {
		return err
	}
	fmt.Println(s.Replica())
	var each sync.WaitGroup
	for range 4 {
		each.Go(func() { (&contender{who: s.Replica(), breaker: north(s), record: record, chain: chain}).run(ctx) })
	}
	each.Wait()
	return nil
}

// process is a child, and who it is.
type process struct {
	command *exec.Cmd
	stdin   io.Closer
	who     string
}

func startChild(tb testing.TB, url string) *process {
	tb.Helper()
	p := &process{command: exec.Command(os.Args[0])}
	p.command.Env = append(os.Environ(), childURL+"="+url)
	p.command.Stderr = os.Stderr
	stdin, err := p.command.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	stdout, err := p.command.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := p.command.Start(); err != nil {
		tb.Fatal(err)
	}
	p.stdin = stdin
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		p.kill()
		tb.Fatalf("the child did not join: %v", err)
	}
	p.who = strings.TrimSpace(line)
	return p
}

// kill is kill -9, and waits until the process is gone.
func (p *process) kill() {
	_ = p.command.Process.Kill()
	_ = p.command.Wait()
	_ = p.stdin.Close()
}

// TestContention is 48 contenders over 12 replicas for ten seconds: ten replicas in this process, whose
// contenders forget probes and report late, and two processes that are killed with what they hold. On a
// machine that is busy it goes on until everything has happened.
func TestContention(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	owner := db.Owner()
	for _, ddl := range []string{recordTable, "grant all on probe_record to public"} {
		if _, err := owner.Exec(t.Context(), ddl); err != nil {
			t.Fatal(err)
		}
	}
	f := &fates{unheard: map[uint64]string{}}
	var contenders []*contender
	for range 10 {
		s := open(t, config(db.ServiceURL(), contended()))
		chain := chainOf(t, s)
		for range 3 {
			contenders = append(contenders, &contender{who: s.Replica(), breaker: north(s), record: db.Pool, chain: chain, fates: f})
		}
		contenders = append(contenders, &contender{who: s.Replica(), breaker: north(s), record: db.Pool, fates: f})
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var each sync.WaitGroup
	for _, c := range contenders {
		each.Go(func() { c.run(ctx) })
	}
	children := []*process{startChild(t, db.ServiceURL()), startChild(t, db.ServiceURL())}
	enough := func() bool {
		return f.count("lost") > 1 && f.count("late") > 1 && f.count("killed") > 1 && transitions(t, db, resilience.HalfOpen, resilience.Closed) > 0
	}
	for began := time.Now(); time.Since(began) < 10*time.Second || time.Since(began) < 2*patience && !enough(); {
		time.Sleep(time.Second) // a kill costs the cluster a lease
		i := rand.IntN(len(children))
		if epoch, held := killWithProbe(owner, children[i]); held {
			f.note(epoch, "killed")
		}
		children[i] = startChild(t, db.ServiceURL())
	}
	cancel()
	for _, c := range children {
		c.kill()
	}
	each.Wait()
	for _, c := range contenders {
		if err := c.errs.Load(); err != nil {
			t.Fatal(*err)
		}
	}
	if !enough() {
		t.Error("too little happened to show anything")
	}
	var most int
	if err := owner.QueryRow(context.Background(), recordMost).Scan(&most); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d probes, at most %d in flight; %d never reported, %d late, %d killed with their process",
		query[int](t, db, `select count(*) from probe_record`), most, f.count("lost"), f.count("late"), f.count("killed"))
	if most != 1 {
		t.Errorf("%d probes in flight at once", most)
	}
	for _, wrong := range f.wrong {
		t.Errorf("a call's result: %s", wrong)
	}
	for epoch, fate := range f.unheard {
		afterUnheard(t, db, epoch, fate)
	}
}

// afterUnheard looks at what ended the epoch of a probe whose result did not arrive in time: another probe,
// after the lease, and nothing else.
func afterUnheard(t *testing.T, db *pgtest.DB, epoch uint64, fate string) {
	t.Helper()
	const next = `select coalesce((select n.from_state || ' to ' || n.to_state || case when n.at - e.at >= $2 then ' after' else ' before' end
	  from breaker_events e join breaker_events n on n.epoch = e.epoch + 1 where e.epoch = $1), 'nothing yet')`
	got := query[string](t, db, next, int64(epoch), contended().ProbeLease)
	last := query[bool](t, db, `select epoch = $1 from breakers`, int64(epoch))
	if got != "half_open to half_open after" && !(last && got == "nothing yet") {
		t.Errorf("the probe of epoch %d was %s; then came: %s its lease's end", epoch, fate, got)
	}
}

// killWithProbe kills a child, with the probe that it holds if it comes to hold one soon, and notes that the
// probe is over once the last of its statements is.
func killWithProbe(conn *pgx.Conn, c *process) (epoch uint64, held bool) {
	ctx := context.Background()
	holds := func() bool {
		const holds = `select b.epoch from breakers b where b.probe_owner = $1 and b.probe_until > clock_timestamp()`
		return conn.QueryRow(ctx, holds, c.who).Scan(&epoch) == nil
	}
	for began := time.Now(); time.Since(began) < 3*time.Second; time.Sleep(time.Millisecond) {
		if !holds() {
			continue
		}
		_ = c.command.Process.Signal(syscall.SIGSTOP) // so that it cannot finish before it is killed
		if holds() {
			break
		}
		_ = c.command.Process.Signal(syscall.SIGCONT)
	}
	c.kill()
	const alive = `select exists (select 1 from pg_stat_activity a where a.application_name = $1)`
	name := fmt.Sprint("record of ", c.command.Process.Pid)
	for began := time.Now(); time.Since(began) < patience; time.Sleep(time.Millisecond) {
		var there bool
		if err := conn.QueryRow(ctx, alive, name).Scan(&there); err == nil && !there {
			break
		}
	}
	_, _ = conn.Exec(ctx, recordKill, c.who)
	return epoch, holds() // what it had sent before may have ended it
}

func TestKilledProbe(t *testing.T) {
	t.Parallel()
	t.Run("resilience case 3: a probe's owner is killed -9: another replica probes after the lease, not never", func(t *testing.T) {
		t.Parallel()
		db := pgtest.New(t)
		owner := db.Owner()
		for _, ddl := range []string{recordTable, "grant all on probe_record to public"} {
			if _, err := owner.Exec(t.Context(), ddl); err != nil {
				t.Fatal(err)
			}
		}
		// The only caller is in the child, so the probe is its.
		c := startChild(t, db.ServiceURL())
		const holds = `select exists (select 1 from breakers b where b.probe_owner = $1)`
		for held := false; !held; {
			eventually(t, "the child has a probe", func() bool { return query[bool](t, db, holds, c.who) })
			if err := c.command.Process.Signal(syscall.SIGSTOP); err != nil { // so that it cannot finish before it is killed
				t.Fatal(err)
			}
			if held = query[bool](t, db, holds, c.who); !held {
				_ = c.command.Process.Signal(syscall.SIGCONT)
			}
		}
		c.kill()
		epoch := query[int64](t, db, `select epoch from breakers`)
		s := open(t, config(db.ServiceURL(), contended()))
		p := takeProbe(t, s)
		if p.Epoch != uint64(epoch)+1 {
			t.Errorf("probe of epoch %d after the one of %d", p.Epoch, epoch)
		}
		reason := query[string](t, db, `select reason from breakers`)
		if want := fmt.Sprintf("the probe of epoch %d by %s was not heard of for 800 ms, another goes out", epoch, c.who); reason != want {
			t.Errorf("reason %q, want %q", reason, want)
		}
		north(s).Done(p, resilience.Success)
		eventually(t, "a probe closes it", func() bool { // another one, if the machine was too busy for the first
			if p, refused := north(s).Acquire(t.Context()); refused == nil {
				north(s).Done(p, resilience.Success)
			}
			return north(s).Snapshot().State == resilience.Closed
		})
	})
}

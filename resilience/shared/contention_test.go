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

// contender is a caller of one replica who records each probe that it is given.
type contender struct {
	who     string
	breaker *Breaker
	record  *pgxpool.Pool
	crash   float64 // part of the probes that nobody ever reports
	late    float64 // part that is reported after the lease
	probes  atomic.Int64
	lost    atomic.Int64
	errs    atomic.Pointer[error]
}

// run contends until the context ends. Calls fail, so that the breaker opens again and again; one probe in
// ten succeeds.
func (c *contender) run(ctx context.Context) {
	for ctx.Err() == nil {
		p, refused := c.breaker.Acquire(ctx)
		switch {
		case refused != nil:
			time.Sleep(time.Duration(rand.IntN(int(2 * time.Millisecond)))) // the pace of the calls
		case !p.Probe:
			c.breaker.Done(p, resilience.Failure)
		default:
			if err := c.probe(p); err != nil {
				c.errs.Store(&err)
				return
			}
		}
	}
}

func (c *contender) probe(p resilience.Permit) error {
	c.probes.Add(1)
	ctx, cancel := context.WithTimeout(context.Background(), p.ProbeTimeout)
	defer cancel()
	if _, err := c.record.Exec(ctx, recordBegin, int64(p.Epoch), c.who); err != nil {
		if ctx.Err() == nil {
			return err
		}
		return nil // no time was left to send it
	}
	if !c.breaker.Valid(p) { // as the chain asks just before sending
		_, err := c.record.Exec(context.Background(), recordEnd, int64(p.Epoch))
		return err
	}
	fate := rand.Float64()
	select { // the call
	case <-time.After(time.Duration(rand.IntN(int(5 * time.Millisecond)))):
	case <-ctx.Done():
	}
	if _, err := c.record.Exec(context.Background(), recordEnd, int64(p.Epoch)); err != nil {
		return err
	}
	switch {
	case fate < c.crash:
		c.lost.Add(1)
	case fate < c.crash+c.late:
		time.Sleep(contended().ProbeLease + 50*time.Millisecond) // past the lease
		c.breaker.Done(p, resilience.Success)
	case fate > 0.9:
		c.breaker.Done(p, resilience.Success)
	default:
		c.breaker.Done(p, resilience.Failure)
	}
	return nil
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
	fmt.Println(s.Replica())
	var each sync.WaitGroup
	for range 4 {
		each.Go(func() { (&contender{who: s.Replica(), breaker: north(s), record: record}).run(ctx) })
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
// contenders forget probes and report late, and two processes that are killed with what they hold.
func TestContention(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	owner := db.Owner()
	for _, ddl := range []string{recordTable, "grant all on probe_record to public"} {
		if _, err := owner.Exec(t.Context(), ddl); err != nil {
			t.Fatal(err)
		}
	}
	var contenders []*contender
	for range 10 {
		s := open(t, config(db.ServiceURL(), contended()))
		for range 4 {
			contenders = append(contenders, &contender{who: s.Replica(), breaker: north(s), record: db.Pool, crash: 0.03, late: 0.02})
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var each sync.WaitGroup
	for _, c := range contenders {
		each.Go(func() { c.run(ctx) })
	}
	kills := 0
	children := []*process{startChild(t, db.ServiceURL()), startChild(t, db.ServiceURL())}
	for pause := time.NewTicker(1500 * time.Millisecond); ctx.Err() == nil; { // a kill costs the cluster a lease
		select {
		case <-pause.C:
		case <-ctx.Done():
			continue
		}
		i := rand.IntN(len(children))
		killWithProbe(ctx, owner, children[i])
		kills++
		children[i] = startChild(t, db.ServiceURL())
	}
	for _, c := range children {
		c.kill()
	}
	each.Wait()
	var probes, lost int64
	for _, c := range contenders {
		if err := c.errs.Load(); err != nil {
			t.Fatal(*err)
		}
		probes, lost = probes+c.probes.Load(), lost+c.lost.Load()
	}
	var most, begun, replaced int
	if err := owner.QueryRow(context.Background(), recordMost).Scan(&most); err != nil {
		t.Fatal(err)
	}
	begun = query[int](t, db, `select count(*) from probe_record`)
	replaced = transitions(t, db, resilience.HalfOpen, resilience.HalfOpen)
	t.Logf("%d probes in ten seconds, %d of them in this process, %d never reported, %d processes killed, %d probes replaced after their lease, at most %d in flight",
		begun, probes, lost, kills, replaced, most)
	if most != 1 {
		t.Errorf("%d probes in flight at once", most)
	}
	if begun < 20 || replaced == 0 || lost == 0 || kills == 0 {
		t.Error("too little happened to show anything")
	}
	if closings := transitions(t, db, resilience.HalfOpen, resilience.Closed); closings == 0 {
		t.Error("no probe ever closed it")
	}
}

// killWithProbe kills a child while it holds a probe, or after a second, and notes that its probe is over
// once the last of its statements is.
func killWithProbe(ctx context.Context, conn *pgx.Conn, c *process) {
	const holds = `select exists (select 1 from breakers b where b.probe_owner = $1 and b.probe_until > clock_timestamp())`
	for began := time.Now(); time.Since(began) < time.Second && ctx.Err() == nil; time.Sleep(time.Millisecond) {
		var held bool
		if err := conn.QueryRow(ctx, holds, c.who).Scan(&held); err == nil && held {
			break
		}
	}
	c.kill()
	const alive = `select exists (select 1 from pg_stat_activity a where a.application_name = $1)`
	name := fmt.Sprint("record of ", c.command.Process.Pid)
	for began := time.Now(); time.Since(began) < patience; time.Sleep(time.Millisecond) {
		var there bool
		if err := conn.QueryRow(context.Background(), alive, name).Scan(&there); err == nil && !there {
			break
		}
	}
	_, _ = conn.Exec(context.Background(), recordKill, c.who)
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
		inState(t, resilience.Closed, s)
	})
}

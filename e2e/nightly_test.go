package e2e

import (
	"errors"
	"net/http"
	"os/exec"
	"sync"
	"testing"
	"time"
)

// nightly is a run of the reconcile command, as a process of its own.
type nightly struct {
	command *exec.Cmd
	output  lockedBuffer
}

// reconcile starts the command on the world's database.
func (w *world) reconcile(args ...string) *nightly {
	w.t.Helper()
	binary, err := reconciler()
	if err != nil {
		w.t.Fatal(err)
	}
	n := &nightly{command: exec.CommandContext(w.t.Context(), binary, args...)}
	n.command.Env = append(n.command.Environ(), "DATABASE_URL="+w.owner)
	n.command.Stdout, n.command.Stderr = &n.output, &n.output
	if err := n.command.Start(); err != nil {
		w.t.Fatal(err)
	}
	return n
}

// run starts the reconciliation of an acquirer's file, as of a day past the cut-off.
func (w *world) run(name string, acquirer *acquirerSim) *nightly {
	w.t.Helper()
	return w.reconcile("run", "--quiet", "--acquirer", name, "--feed", acquirer.settlementURL(), "--as-of", time.Now().Add(pastCutoff).Format(time.DateOnly))
}

// code waits for the end and gives the exit code, -1 if it was killed.
func (n *nightly) code(t *testing.T) int {
	t.Helper()
	err := n.command.Wait()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		t.Fatal(err)
	}
	return n.command.ProcessState.ExitCode()
}

func (n *nightly) want(t *testing.T, code int) {
	t.Helper()
	if got := n.code(t); got != code {
		t.Errorf("%v: exit code %d, want %d\n%s", n.command.Args[1:], got, code, &n.output)
	}
}

const (
	exitClean      = 0
	exitExceptions = 1
)

// unknowns leaves two unknown charges, of which north captured the first.
func (w *world) unknowns() *shop {
	w.t.Helper()
	s := w.shop(w.start())
	s.charge(w.t, "plain", with("tok_ok")).want(w.t, http.StatusCreated, "captured")
	s.charge(w.t, retriedKey, with("tok_error_captured")).want(w.t, http.StatusAccepted, "unknown")
	s.charge(w.t, "lost", with("tok_error_lost")).want(w.t, http.StatusAccepted, "unknown")
	return s
}

func (w *world) closed(s *shop) {
	w.t.Helper()
	s.charge(w.t, retriedKey, with("tok_error_captured")).want(w.t, http.StatusCreated, "captured")
	s.charge(w.t, "lost", with("tok_error_lost")).want(w.t, http.StatusAccepted, "unknown")
	w.reconcile("verify").want(w.t, exitClean)
	w.settle()
}

// The nightly job is a process that may run twice at once, be killed, and run again.
func TestNightlyJob(t *testing.T) {
	t.Parallel()
	t.Run("two runs at once end an unknown once", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, options{})
		s := w.unknowns()
		runs := []*nightly{w.run("north", w.north), w.run("north", w.north)}
		var both sync.WaitGroup
		for _, n := range runs {
			both.Go(func() {
				if code := n.code(t); code != exitExceptions { // the lost one has no evidence, and is past the cut-off
					t.Errorf("exit code %d, want %d\n%s", code, exitExceptions, &n.output)
				}
			})
		}
		both.Wait()
		w.run("south", w.south).want(t, exitClean)
		w.closed(s)
	})
	t.Run("killed inside the resolution, and run again", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, options{})
		s := w.unknowns()
		tx, err := w.ownerConn().Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), lockOutbox); err != nil {
			t.Fatal(err)
		}
		doomed := w.run("north", w.north)
		backend := w.heldUp("%insert into outbox%")
		if err := doomed.command.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		doomed.want(t, -1)
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.backendGone(backend)
		if charge := w.row(retriedKey); charge.Status != "unknown" || charge.Postings != 0 {
			t.Errorf("half of a resolution was kept: %+v", charge)
		}
		w.run("north", w.north).want(t, exitExceptions)
		w.closed(s)
	})
	t.Run("verify finds a posting that is missing", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, options{})
		w.unknowns()
		const lose = `delete from ledger_transfers where merchant_id = $1`
		if _, err := w.ownerConn().Exec(t.Context(), lose, w.merchant.ID); err != nil {
			t.Fatal(err)
		}
		w.reconcile("verify").want(t, exitExceptions)
	})
}

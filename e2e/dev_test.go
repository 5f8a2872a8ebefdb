package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// dev is a running `paymentsd dev`.
type dev struct {
	t              *testing.T
	command        *exec.Cmd
	stdout, stderr *lockedBuffer
	ended          chan struct{}
	env            map[string]string // of dev.env, once it runs
}

// launch starts `paymentsd dev` and does not wait for it.
func launch(t *testing.T, dir string, args ...string) *dev {
	t.Helper()
	binary, err := paymentsd()
	if err != nil {
		t.Fatal(err)
	}
	d := &dev{t: t, stdout: &lockedBuffer{}, stderr: &lockedBuffer{}, ended: make(chan struct{})}
	d.command = exec.Command(binary, append([]string{"dev", "--dir", dir}, args...)...)
	d.command.Stdout, d.command.Stderr = d.stdout, d.stderr
	if err := d.command.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = d.command.Wait() // how it ended is in ProcessState
		close(d.ended)
	}()
	t.Cleanup(func() {
		d.end(os.Interrupt)
		if text := d.stdout.String() + d.stderr.String(); t.Failed() || strings.Contains(text, "DATA RACE") {
			t.Errorf("paymentsd dev wrote:\n%s", text)
		}
	})
	return d
}

// running starts `paymentsd dev` and waits until it says that it runs.
func running(t *testing.T, dir string, args ...string) *dev {
	t.Helper()
	d := launch(t, dir, append([]string{"--addr", "127.0.0.1:0"}, args...)...)
	until(t, "paymentsd dev does not run", func() bool {
		select {
		case <-d.ended:
			t.Fatalf("paymentsd dev ended: %v\n%s", d.command.ProcessState, d.stderr)
		default:
		}
		return strings.Contains(d.stdout.String(), "The gateway runs at")
	})
	d.readEnv(dir)
	return d
}

func (d *dev) readEnv(dir string) {
	d.t.Helper()
	path := filepath.Join(dir, "dev.env")
	info, err := os.Stat(path)
	if err != nil {
		d.t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		d.t.Errorf("dev.env holds keys and has mode %v", info.Mode())
	}
	file, err := os.Open(path)
	if err != nil {
		d.t.Fatal(err)
	}
	defer file.Close()
	d.env = map[string]string{}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), "=")
		d.env[name] = value
	}
	for _, name := range []string{"PAYMENTSD_URL", "PAYMENTSD_API_KEY", "PAYMENTSD_OPS_KEY", "DATABASE_URL", "ACQUIRER_NORTH_URL", "ACQUIRER_SOUTH_URL"} {
		if d.env[name] == "" {
			d.t.Errorf("dev.env has no %s", name)
		}
	}
}

// end sends a signal, if it still runs, and waits for the end.
func (d *dev) end(signal os.Signal) {
	d.t.Helper()
	if err := d.command.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		d.t.Error(err)
	}
	select {
	case <-d.ended:
	case <-time.After(waitMax):
		d.t.Errorf("paymentsd dev does not end after %v", signal)
		_ = d.command.Process.Kill() // the last means; it may have ended just now
		<-d.ended
	}
}

func (d *dev) shop() *shop { return newShop(d.env["PAYMENTSD_URL"], d.env["PAYMENTSD_API_KEY"]) }

const serverProcesses = `
select array_agg(a.pid) || split_part(pg_read_file('postmaster.pid'), E'\n', 1)::int from pg_stat_activity a`

// processes are dev itself and everything of its Postgres.
func (d *dev) processes() []int {
	d.t.Helper()
	conn, err := pgx.Connect(d.t.Context(), d.env["DATABASE_URL"])
	if err != nil {
		d.t.Fatal(err)
	}
	defer conn.Close(d.t.Context())
	pids := []int{}
	if err := conn.QueryRow(d.t.Context(), serverProcesses).Scan(&pids); err != nil {
		d.t.Fatal(err)
	}
	if len(pids) < 3 {
		d.t.Fatalf("processes %v: they cannot be all of a Postgres", pids)
	}
	return append(pids, d.command.Process.Pid)
}

// allGone holds that these processes have ended and that no port of dev's answers.
func (d *dev) allGone(pids []int) {
	d.t.Helper()
	for _, pid := range pids {
		until(d.t, fmt.Sprintf("process %d is still there", pid), func() bool {
			return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
		})
	}
	for name, value := range d.env {
		u, err := url.Parse(value)
		if err != nil || u.Host == "" {
			continue
		}
		if conn, err := net.Dial("tcp", u.Host); err == nil {
			conn.Close()
			d.t.Errorf("%s still answers at %s", name, u.Host)
		}
	}
}

func TestDev(t *testing.T) {
	t.Parallel()
	t.Run("its file opens everything, and what it keeps survives a stop and a kill", func(t *testing.T) {
		t.Parallel()
		dir := openDir(t)
		first := running(t, dir)
		created := first.shop().charge(t, "order-1", with("tok_ok"))
		created.want(t, http.StatusCreated, "captured")
		first.opensEverything()
		pids := first.processes()
		first.end(os.Interrupt)
		if code := first.command.ProcessState.ExitCode(); code != 0 {
			t.Errorf("exit code %d after SIGINT", code)
		}
		first.allGone(pids)

		second := running(t, dir)
		second.remembers(created)
		pids = second.processes()
		second.end(os.Kill)
		second.allGone(pids)

		third := running(t, dir)
		third.remembers(created)
		third.end(syscall.SIGTERM)

		fresh := running(t, dir, "--fresh")
		if r := fresh.shop().charge(t, "order-1", with("tok_ok")); r.status != http.StatusCreated || r.replayed() || r.ID == created.ID {
			t.Errorf("after --fresh: %v, replayed %v; want a new charge", r, r.replayed())
		}
	})
	t.Run("two side by side, and none in a folder that is in use", func(t *testing.T) {
		t.Parallel()
		taken := openDir(t)
		one, two := running(t, taken), running(t, openDir(t))
		launch(t, taken, "--addr", "127.0.0.1:0").refuses(taken)
		a, b := one.shop().charge(t, "order-1", with("tok_ok")), two.shop().charge(t, "order-1", with("tok_ok"))
		if a.status != http.StatusCreated || b.status != http.StatusCreated || b.replayed() || one.env["DATABASE_URL"] == two.env["DATABASE_URL"] {
			t.Errorf("answers %v and %v, from %v and %v; want two charges that know nothing of each other", a, b, one.env, two.env)
		}
	})
	t.Run("an address in use is named, and nothing is started", func(t *testing.T) {
		t.Parallel()
		taken, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer taken.Close()
		dir := openDir(t)
		launch(t, dir, "--addr", taken.Addr().String()).refuses(taken.Addr().String(), "--addr")
		// It looked before it started anything.
		if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
			t.Errorf("it left %v, %v", left, err)
		}
	})
}

// refuses holds that it ends with 1 and an error that holds these words.
func (d *dev) refuses(words ...string) {
	d.t.Helper()
	select {
	case <-d.ended:
	case <-time.After(waitMax):
		d.t.Fatal("paymentsd dev goes on")
	}
	code, text := d.command.ProcessState.ExitCode(), d.stderr.String()
	for _, word := range words {
		if code != 1 || !strings.Contains(text, word) {
			d.t.Errorf("exit code %d, %q; want 1 and %q", code, text, word)
		}
	}
}

// opensEverything uses each line of dev.env.
func (d *dev) opensEverything() {
	t := d.t
	t.Helper()
	ops := newShop(d.env["PAYMENTSD_URL"], d.env["PAYMENTSD_OPS_KEY"])
	if r, err := ops.get(t.Context(), "/v1/acquirers"); err != nil || r.status != http.StatusOK || !strings.Contains(r.text, "south") {
		t.Errorf("the ops key: %v, %v", r, err)
	}
	conn, err := pgx.Connect(t.Context(), d.env["DATABASE_URL"])
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var charges int
	if err := conn.QueryRow(t.Context(), `select count(*) from charges`).Scan(&charges); err != nil || charges != 1 {
		t.Errorf("DATABASE_URL: %d charges, %v; want the one", charges, err)
	}
	for name, captures := range map[string]string{"ACQUIRER_NORTH_URL": `"captures":1`, "ACQUIRER_SOUTH_URL": `"captures":0`} {
		if r, err := newShop(d.env[name], "").get(t.Context(), "/admin/stats"); err != nil || !strings.Contains(r.text, captures) {
			t.Errorf("%s: %v, %v; want %s", name, r, err, captures)
		}
	}
}

// remembers holds that an earlier run's charge is still known to the gateway and to the acquirer.
func (d *dev) remembers(created reply) {
	d.t.Helper()
	r := d.shop().charge(d.t, "order-1", with("tok_ok"))
	if r.status != http.StatusCreated || !r.replayed() || r.text != created.text {
		d.t.Errorf("after a restart: %v, replayed %v; want %v again", r, r.replayed(), created)
	}
	if r, err := newShop(d.env["ACQUIRER_NORTH_URL"], "").get(d.t.Context(), "/admin/captures"); err != nil || strings.Count(r.text, created.AcqRef) != 2 {
		d.t.Errorf("north's book after a restart: %v, %v; want the one capture", r, err)
	}
}

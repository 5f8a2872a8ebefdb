package embeddedpg

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a running postmaster that we started.
type process struct {
	cmd  *exec.Cmd
	data string
	done chan struct{} // closed when it has been reaped; err is set before
	err  error
}

// spawnPostgres starts the server in its own process group, so that a Ctrl-C in the terminal ends
// the service first and Postgres after it.
func spawnPostgres(bin binaries, h *home, port int, settings map[string]string) (*process, error) {
	args := []string{"-D", h.data()}
	defaults := map[string]string{
		"listen_addresses":        "127.0.0.1",
		"port":                    fmt.Sprint(port),
		"unix_socket_directories": "", // a socket's path may be too long, and TCP is enough
		"timezone":                "UTC",
		"log_timezone":            "UTC",
		"logging_collector":       "off",
	}
	for name, value := range settings {
		defaults[name] = value
	}
	for name, value := range defaults {
		args = append(args, "-c", name+"="+value)
	}
	if err := os.Rename(h.logPath(), h.logPath()+".1"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	logFile, err := os.OpenFile(h.logPath(), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer logFile.Close()
	cmd := h.command(exec.Command(filepath.Join(bin.dir, "postgres"), args...))
	cmd.Stdout, cmd.Stderr = logFile, logFile
	cmd.SysProcAttr.Setpgid = true
	dieWithParent(cmd.SysProcAttr)
	return spawn(cmd, h.data())
}

// spawn starts cmd and reaps it, from one goroutine that keeps its thread: the kernel's signal on
// the parent's death is tied to the thread that forked.
func spawn(cmd *exec.Cmd, data string) (*process, error) {
	p := &process{cmd: cmd, data: data, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		p.err = cmd.Wait()
		if p.err == nil {
			p.err = errors.New("exit status 0")
		}
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("run %s: %w", cmd.Path, err)
	}
	return p, nil
}

// stop asks for a fast shutdown and turns to harder ways when ctx ends or that takes too long.
func (p *process) stop(ctx context.Context) error {
	const hardWait = 5 * time.Second
	for _, way := range []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGKILL} {
		if err := p.cmd.Process.Signal(way); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("signal Postgres: %w", err)
		}
		wait, cancel := context.WithTimeout(context.WithoutCancel(ctx), hardWait)
		if way == syscall.SIGINT {
			cancel()
			wait, cancel = context.WithTimeout(ctx, time.Minute)
		}
		select {
		case <-p.done:
			cancel()
			return nil
		case <-wait.Done():
			cancel()
		}
	}
	return fmt.Errorf("the private Postgres (process %d) does not end", p.cmd.Process.Pid)
}

// stopOrphans ends what an earlier run left on this data folder: a postmaster whose owner was
// killed, or one that is still shutting down, or children that have not yet noticed that their
// postmaster is gone.
func stopOrphans(ctx context.Context, data string, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, 45*time.Second)
	defer cancel()
	begun := time.Now()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	signalled := map[int]syscall.Signal{}
	for {
		left := serversOn(data)
		if len(left) == 0 {
			return removeStalePidFile(data)
		}
		way := syscall.SIGINT // to the postmaster a fast shutdown, to a backend a cancel
		if time.Since(begun) > 20*time.Second {
			way = syscall.SIGQUIT
		}
		for _, s := range left {
			if (s.postmaster || way != syscall.SIGINT) && signalled[s.pid] != way {
				log.Info("ending a Postgres that an earlier run left", "pid", s.pid, "data", data)
				if err := syscall.Kill(s.pid, way); err != nil && !errors.Is(err, syscall.ESRCH) {
					return fmt.Errorf("end the Postgres of an earlier run (process %d): %w", s.pid, err)
				}
				signalled[s.pid] = way
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("process %d, a Postgres of an earlier run, still runs on %s: end it", left[0].pid, data)
		}
	}
}

// removeStalePidFile is for a pid that by now belongs to some other program (after a reboot, say):
// Postgres would refuse to start. A dead one is left to Postgres, which looks at its shared memory
// before it believes it. Called only when nothing of Postgres runs on data.
func removeStalePidFile(data string) error {
	pid := pidFile(data)
	if pid == 0 || errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return nil
	}
	return os.Remove(filepath.Join(data, "postmaster.pid"))
}

// server is a Postgres process working on a data folder.
type server struct {
	pid        int
	postmaster bool
}

// command prepares a Postgres program: Postgres' user, a folder that user can be in, and an
// environment without the caller's own Postgres and locale settings.
func (h *home) command(cmd *exec.Cmd) *exec.Cmd {
	cmd.Dir = h.path
	cmd.SysProcAttr = h.user.attr()
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "PG") && !strings.HasPrefix(kv, "LC_") && !strings.HasPrefix(kv, "LANG") {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	cmd.Env = append(cmd.Env, "LC_ALL=C", "TZ=UTC")
	return cmd
}

// initdb makes the cluster beside its final place and moves it there when it is complete, so that a
// kill in between leaves nothing that looks like a cluster.
func initdb(ctx context.Context, bin binaries, h *home, password string, unsafe bool) error {
	pwfile := filepath.Join(h.path, "pwfile")
	if err := os.WriteFile(pwfile, []byte(password+"\n"), 0o600); err != nil {
		return err
	}
	defer os.Remove(pwfile)
	if h.user != nil {
		if err := os.Chown(pwfile, int(h.user.uid), int(h.user.gid)); err != nil {
			return err
		}
	}
	half := h.data() + ".new"
	var out []byte
	var err error
	// C.UTF-8 sorts by code point and knows case; not every libc has it.
	for _, locale := range []string{"C.UTF-8", "C"} {
		if err := os.RemoveAll(half); err != nil {
			return err
		}
		args := []string{"-D", half, "-U", superuser, "--auth=scram-sha-256", "--pwfile=" + pwfile, "--encoding=UTF8", "--locale=" + locale}
		if unsafe {
			args = append(args, "--no-sync")
		}
		out, err = h.command(exec.CommandContext(ctx, filepath.Join(bin.dir, "initdb"), args...)).CombinedOutput()
		if err == nil {
			return os.Rename(half, h.data())
		}
		if !strings.Contains(string(out), "locale") {
			break
		}
	}
	return fmt.Errorf("initdb: %w:\n%s", err, strings.TrimSpace(string(out)))
}

// pidFile is the pid that the postmaster of data wrote down, 0 if there is none.
func pidFile(data string) int {
	b, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(b), "\n")
	pid, _ := strconv.Atoi(first)
	return pid
}

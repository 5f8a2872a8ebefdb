package embeddedpg

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// config is a cluster that may lose data in a crash of the machine, which no test here causes.
func config(dir string) Config {
	return Config{Dir: dir, Settings: map[string]string{"fsync": "off"}}
}

func mustStart(t *testing.T, cfg Config) *Server {
	t.Helper()
	s, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mustStop(t, s) })
	return s
}

func mustStop(t *testing.T, s *Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		t.Errorf("stop: %v", err)
	}
	if left := serversOn(s.home.data()); len(left) != 0 {
		t.Errorf("processes left: %v", left)
	}
}

// tempDir is a folder for one cluster, removed with what Start keeps elsewhere.
func tempDir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "pg")
	t.Cleanup(func() {
		if err := Remove(context.Background(), dir); err != nil {
			t.Errorf("remove: %v", err)
		}
	})
	return dir
}

func exec1(t *testing.T, s *Server, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}

func text(t *testing.T, s *Server, sql string) (value string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if err := conn.QueryRow(t.Context(), sql).Scan(&value); err != nil {
		t.Fatal(err)
	}
	return value
}

func TestServerKeepsDataOverARestart(t *testing.T) {
	t.Parallel()
	cfg := config(tempDir(t))
	cfg.Database = "paymentsd"
	s := mustStart(t, cfg)
	exec1(t, s, `create table kept (n int); insert into kept values (42)`)
	mustStop(t, s)
	mustStop(t, s) // twice is harmless
	again := mustStart(t, cfg)
	if got := text(t, again, `select n::text from kept`); got != "42" {
		t.Errorf("kept %q", got)
	}
	if got := text(t, again, `select current_database()`); got != "paymentsd" {
		t.Errorf("database %q", got)
	}
	if s.URL() != again.URL() {
		t.Errorf("the address changed from %s to %s", s.URL(), again.URL())
	}
}

func TestServerSettings(t *testing.T) {
	t.Parallel()
	s := mustStart(t, Config{Dir: tempDir(t), Settings: map[string]string{"max_connections": "33"}})
	for setting, want := range map[string]string{
		"max_connections": "33", "fsync": "on", "synchronous_commit": "on", "timezone": "UTC", "server_encoding": "UTF8",
		"listen_addresses": "127.0.0.1", "unix_socket_directories": "",
	} {
		if got := text(t, s, "show "+setting); got != want {
			t.Errorf("%s is %q, want %q", setting, got, want)
		}
	}
	// A password is needed, also on loopback.
	if conn, err := pgx.Connect(t.Context(), strings.Replace(s.URL(), "@", "x@", 1)); err == nil {
		conn.Close(context.Background())
		t.Error("a wrong password was let in")
	}
	if pgid, err := syscall.Getpgid(s.proc.cmd.Process.Pid); err != nil || pgid == syscall.Getpgrp() {
		t.Errorf("Postgres is in our process group (%d, %v): a Ctrl-C would end it before the service", pgid, err)
	}
}

func TestServersSideBySide(t *testing.T) {
	t.Parallel()
	a, b := mustStart(t, config(tempDir(t))), mustStart(t, config(tempDir(t)))
	exec1(t, a, `create table only_here ()`)
	if got := text(t, b, `select count(*)::text from pg_tables where tablename = 'only_here'`); got != "0" || a.URL() == b.URL() {
		t.Errorf("two folders share a server: %s %s", a.URL(), b.URL())
	}
}

func TestServerRefusesAFolderInUse(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	mustStart(t, config(dir))
	_, err := Start(t.Context(), config(dir))
	if inUse, ok := errors.AsType[*InUseError](err); !ok || inUse.PID == "" {
		t.Errorf("second start: %v; want InUseError with the process", err)
	}
	if err := Remove(t.Context(), dir); err == nil {
		t.Error("the data of a running server was removed")
	}
	// A copied folder points at the same data where that lies elsewhere.
	if _, err := os.Stat(pointerOf(dir)); err == nil {
		other := filepath.Join(t.TempDir(), "copy")
		if err := os.CopyFS(other, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		if _, err := Start(t.Context(), config(other)); err == nil {
			t.Error("a copied folder started a second server on the same data")
		}
	}
}

func TestServerStartsWhateverTheLastRunLeft(t *testing.T) {
	t.Parallel()
	dir := tempDir(t) // one after the other on one folder: what is left over piles up
	s := mustStart(t, config(dir))
	exec1(t, s, `create table kept ()`)
	for name, leave := range map[string]func(t *testing.T, s *Server){
		"a postmaster whose owner let go of it": func(t *testing.T, s *Server) {
			s.home.close()
		},
		"a postmaster killed hard, its children not yet gone": func(t *testing.T, s *Server) {
			if err := s.proc.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			<-s.Done()
			s.home.close()
		},
		"a pid file that names a live process of another program": func(t *testing.T, s *Server) {
			mustStop(t, s)
			pid := filepath.Join(s.home.data(), "postmaster.pid")
			if err := os.WriteFile(pid, []byte("1\n"+s.home.data()+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"an initdb cut off half-way": func(t *testing.T, s *Server) {
			mustStop(t, s)
			if err := os.CopyFS(s.home.data()+".new", os.DirFS(filepath.Join(s.home.data(), "base"))); err != nil {
				t.Fatal(err)
			}
		},
		"a port that another program has taken": func(t *testing.T, s *Server) {
			mustStop(t, s)
			if err := s.home.rememberPort(1); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			leave(t, s)
			again, err := Start(t.Context(), config(dir))
			if err != nil {
				t.Fatal(err)
			}
			s = again
			exec1(t, s, `select from kept`)
			if n := postmasters(s.home.data()); n != 1 {
				t.Errorf("%d postmasters on the data", n)
			}
		})
	}
	mustStop(t, s)
}

func postmasters(data string) (n int) {
	for _, s := range serversOn(data) {
		if s.postmaster {
			n++
		}
	}
	return n
}

func TestServerInAnOddFolder(t *testing.T) {
	t.Parallel()
	// A socket's path would not fit, and the shell would trip over the rest.
	dir := filepath.Join(tempDir(t), strings.Repeat("long/", 30)+`a b'c"d $x`)
	t.Cleanup(func() { _ = Remove(context.Background(), dir) })
	mustStart(t, config(dir))
}

func TestServerDoneWhenPostgresEnds(t *testing.T) {
	t.Parallel()
	s := mustStart(t, config(tempDir(t)))
	if err := s.proc.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	select {
	case <-s.Done():
	case <-time.After(30 * time.Second):
		t.Error("Done stays open after Postgres has ended")
	}
}

func TestServerStopUnderADeadContext(t *testing.T) {
	t.Parallel()
	s := mustStart(t, config(tempDir(t)))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Stop(ctx); err != nil {
		t.Error(err)
	}
	if left := serversOn(s.home.data()); len(left) != 0 {
		t.Errorf("processes left: %v", left)
	}
}

func TestServerStartFails(t *testing.T) {
	t.Parallel()
	t.Run("with the server's own words", func(t *testing.T) {
		t.Parallel()
		_, err := Start(t.Context(), Config{Dir: tempDir(t), Settings: map[string]string{"no_such_setting": "1"}})
		if err == nil || !strings.Contains(err.Error(), `unrecognized configuration parameter "no_such_setting"`) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("without a folder", func(t *testing.T) {
		t.Parallel()
		if _, err := Start(t.Context(), Config{}); err == nil {
			t.Error("started in no folder")
		}
	})
	t.Run("when the caller gives up", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := Start(ctx, config(tempDir(t))); err == nil {
			t.Error("started under a dead context")
		}
	})
	t.Run("when the password is lost", func(t *testing.T) {
		t.Parallel()
		dir := tempDir(t)
		mustStop(t, mustStart(t, config(dir)))
		if err := os.Remove(filepath.Join(dir, "postgres.password")); err != nil {
			t.Fatal(err)
		}
		if _, err := Start(t.Context(), config(dir)); err == nil || !strings.Contains(err.Error(), "start over") {
			t.Errorf("got %v", err)
		}
	})
}

// Command testdb runs a throw-away Postgres for the tests: for one command (`testdb go test ./...`),
// or, with none, until Ctrl-C (`make db`), leaving its address where pgtest looks for it. It leaves
// no process and no file behind.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"paymentsd/internal/embeddedpg"
	"paymentsd/internal/pgtest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() > 0 {
		os.Exit(exit.ExitCode())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "testdb:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) (err error) {
	if u := os.Getenv("TEST_DATABASE_URL"); u != "" && len(args) > 0 {
		return command(ctx, args, u, stdin, stdout, stderr)
	}
	dir, err := os.MkdirTemp("", "paymentsd-testdb-")
	if err != nil {
		return err
	}
	// Under root the server's user must get in.
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	defer func() {
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		err = errors.Join(err, embeddedpg.Remove(cleanup, dir), os.RemoveAll(dir))
	}()
	server, err := embeddedpg.Start(ctx, embeddedpg.Config{
		Dir:    dir,
		Logger: slog.New(slog.NewTextHandler(stderr, nil)),
		// What a crash of the machine would lose is of no interest here; the tests kill our own
		// processes, never Postgres.
		Settings: map[string]string{
			"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "max_connections": "300",
			"autovacuum_naptime": "1h", "checkpoint_timeout": "30min", "max_wal_size": "4GB",
		},
	})
	if err != nil {
		return err
	}
	defer func() {
		stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
		defer cancel()
		err = errors.Join(err, server.Stop(stopCtx))
	}()
	if len(args) > 0 {
		return command(ctx, args, server.URL(), stdin, stdout, stderr)
	}
	return serve(ctx, server, stdout)
}

// command runs the tests. On Ctrl-C they get the terminal's own signal; on SIGTERM we pass it on and
// give them a while.
func command(ctx context.Context, args []string, databaseURL string, stdin io.Reader, stdout, stderr io.Writer) error {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "TEST_DATABASE_URL="+databaseURL)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 20 * time.Second
	return cmd.Run()
}

// serve keeps the server until ctx ends.
func serve(ctx context.Context, server *embeddedpg.Server, stdout io.Writer) error {
	path, err := filepath.Abs(pgtest.URLFile)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, []byte(server.URL()+"\n"), 0o600); err != nil {
		return err
	}
	defer os.Remove(path)
	fmt.Fprintf(stdout, "Postgres for the tests runs until Ctrl-C:\n  %s\n`go test ./...` finds it by %s.\n", server.URL(), pgtest.URLFile)
	select {
	case <-ctx.Done():
		return nil
	case <-server.Done():
		return errors.New("the private Postgres has ended by itself")
	}
}

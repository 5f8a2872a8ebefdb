// Command reconcile is the nightly job: it takes in acquirers' settlement files, ends what was unknown,
// and reports what differs. docs/reconciliation.md says how to run it.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
)

// The exit codes.
const (
	exitClean      = 0
	exitExceptions = 1 // or verify found a fault
	exitRefused    = 2 // no usable file, a file failed a control, or the command line is wrong
	exitInternal   = 3
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Getenv, os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is the command with the operating system as values.
func run(ctx context.Context, args []string, getenv func(string) string, stdin io.Reader, stdout, stderr io.Writer) int {
	command, code, ok := parse(args, getenv, stdout, stderr)
	if !ok {
		return code
	}
	code, err := command.execute(ctx, &process{stdin: stdin, stdout: stdout, stderr: stderr})
	if err != nil {
		fmt.Fprintf(stderr, "reconcile: %v\n", err)
	}
	return code
}

// codeOf is the exit code of an error that ended a command.
func codeOf(err error) int {
	if refused := (*refusedError)(nil); errors.As(err, &refused) || errors.As(err, new(*kong.ParseError)) {
		return exitRefused
	}
	return exitInternal
}

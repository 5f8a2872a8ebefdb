// Command paymentsd is the payment-capture gateway: the service, its schema, its keys, and a whole
// gateway on one machine for trying out (dev, demo).
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/alecthomas/kong"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	go func() { // a second signal ends the process at once
		<-ctx.Done()
		stop()
	}()
	os.Exit(run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
}

// run is main without the operating system. It gives the exit code: 0 done, 1 failed, 2 used wrongly,
// unless the command has codes of its own.
func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	var commands cli
	exited := -1
	parser, err := kong.New(&commands,
		kong.Name("paymentsd"), kong.Description(description), kong.UsageOnError(),
		kong.Writers(stdout, stderr), kong.Exit(func(code int) { exited = code }),
		kong.Resolvers(environment(getenv)), kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.Vars{"version": version(debug.ReadBuildInfo)},
	)
	if err != nil {
		fmt.Fprintln(stderr, "paymentsd:", err)
		return 1
	}
	parsed, err := parser.Parse(args)
	if exited >= 0 {
		return exited
	}
	if err != nil {
		fmt.Fprintf(stderr, "paymentsd: %v\nRun paymentsd --help for what there is.\n", err)
		return 2
	}
	parsed.BindTo(ctx, (*context.Context)(nil))
	err = parsed.Run(&process{getenv: getenv, stdout: stdout, stderr: stderr})
	if e, ok := errors.AsType[*exitError](err); ok {
		if e.cause != nil {
			fmt.Fprintln(stderr, "paymentsd:", e.cause)
		}
		return e.code
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(stderr, "paymentsd:", err)
		return 1
	}
	return 0
}

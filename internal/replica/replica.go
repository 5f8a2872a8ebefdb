// Package replica runs `paymentsd serve` as a process of its own, so that the demo, the benchmark
// and the tests of crashes can kill it.
package replica

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// Config says what to run.
type Config struct {
	Binary         string // of paymentsd
	ConfigFile     string
	Addr           string // 127.0.0.1 and any port if empty
	DatabaseURL    string
	FingerprintKey []byte
	Env            []string  // more of the environment, NAME=value
	Stderr         io.Writer // gets what is no log line, and errors
}

// Replica is a running service.
type Replica struct {
	URL     string
	command *exec.Cmd
	ended   chan struct{}
	err     error // of the process, once ended is closed
}

// How long a replica may take to listen, and to stop.
const (
	startTimeMax = 30 * time.Second
	stopTimeMax  = 40 * time.Second
)

// Start runs a service and returns once it listens.
func Start(ctx context.Context, c Config) (*Replica, error) {
	if c.Addr == "" {
		c.Addr = "127.0.0.1:0"
	}
	command := exec.Command(c.Binary, "serve", "--config", c.ConfigFile, "--addr", c.Addr)
	command.Env = append(os.Environ(), "DATABASE_URL="+c.DatabaseURL,
		"PAYMENTSD_FINGERPRINT_KEY="+base64.StdEncoding.EncodeToString(c.FingerprintKey))
	command.Env = append(command.Env, c.Env...)
	log, err := command.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("start the service: %w", err)
	}
	r := &Replica{command: command, ended: make(chan struct{})}
	listening := make(chan string, 1)
	go r.follow(log, listening, c.Stderr)
	select {
	case r.URL = <-listening:
		return r, nil
	case <-r.ended:
		return nil, fmt.Errorf("the service ended before it listened: %w", r.err)
	case <-time.After(startTimeMax):
		return nil, errors.Join(fmt.Errorf("the service did not listen within %v", startTimeMax), r.Kill())
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), r.Kill())
	}
}

// follow reads the log to its end: where the service listens, and what a person should see.
func (r *Replica) follow(log io.Reader, listening chan<- string, stderr io.Writer) {
	for lines := bufio.NewScanner(log); lines.Scan(); {
		var line struct{ Level, Msg, URL string }
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil || line.Level == "ERROR" {
			fmt.Fprintln(stderr, lines.Text())
		}
		if line.Msg == "listening" {
			listening <- line.URL
		}
	}
	_, _ = io.Copy(io.Discard, log) // a line too long for the scanner must not block the service
	r.err = r.command.Wait()
	close(r.ended)
}

// Kill ends the process as a power cut would.
func (r *Replica) Kill() error {
	err := r.command.Process.Kill()
	<-r.ended
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// Stop ends the process as a deployment would, and gives its error if it did not exit with 0.
func (r *Replica) Stop() error {
	if err := r.command.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-r.ended:
		return r.err
	case <-time.After(stopTimeMax):
		return errors.Join(fmt.Errorf("the service did not stop within %v", stopTimeMax), r.Kill())
	}
}

// Ended is closed when the process is gone.
func (r *Replica) Ended() <-chan struct{} { return r.ended }

// PID is the process's number.
func (r *Replica) PID() int { return r.command.Process.Pid }

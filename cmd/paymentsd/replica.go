package main

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
	"path/filepath"
	"syscall"
	"time"

	"github.com/goccy/go-yaml"
)

// replica is the service as a process of its own, so that it can be killed.
type replica struct {
	command *exec.Cmd
	url     string
	ended   chan struct{}
}

// startTime bounds how long a replica may take to listen.
const startTime = 20 * time.Second

// startReplica runs paymentsd serve against the plant and waits until it listens.
func startReplica(ctx context.Context, p *plant, stderr io.Writer) (*replica, error) {
	settings := p.config()
	text, err := yaml.Marshal(settings)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(p.dir, "serve.yaml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	command := exec.Command(self, "serve", "--config", path, "--addr", "127.0.0.1:0")
	command.Env = append(os.Environ(), "DATABASE_URL="+p.databaseURL(),
		"PAYMENTSD_FINGERPRINT_KEY="+base64.StdEncoding.EncodeToString(p.fingerprintKey))
	log, err := command.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("start the service: %w", err)
	}
	r := &replica{command: command, ended: make(chan struct{})}
	listening := make(chan string, 1)
	go r.follow(log, listening, stderr)
	select {
	case r.url = <-listening:
		return r, nil
	case <-r.ended:
		return nil, errors.New("the service ended before it listened: its log is above")
	case <-time.After(startTime):
	case <-ctx.Done():
	}
	return nil, errors.Join(errors.New("the service did not come to listen in time"), r.kill())
}

// follow reads the log to its end: where the service listens, and what a person should see.
func (r *replica) follow(log io.Reader, listening chan<- string, stderr io.Writer) {
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		var line struct{ Level, Msg, URL string }
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil || line.Level == "ERROR" {
			fmt.Fprintln(stderr, lines.Text())
		}
		if line.Msg == "listening" {
			listening <- line.URL
		}
	}
	_ = r.command.Wait()
	close(r.ended)
}

// kill ends the process as a power cut would.
func (r *replica) kill() error {
	err := r.command.Process.Kill()
	<-r.ended
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// stop ends the process as a deployment would.
func (r *replica) stop() error {
	if err := r.command.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-r.ended:
		return nil
	case <-time.After(startTime):
		return r.kill()
	}
}

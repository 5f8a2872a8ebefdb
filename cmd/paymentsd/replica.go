package main

import (
	"context"
	"io"
	"os"
	"path/filepath"

	"github.com/goccy/go-yaml"

	"paymentsd/internal/replica"
)

// startReplica runs this very program as the service of the plant, in a process of its own.
func startReplica(ctx context.Context, p *plant, stderr io.Writer) (*replica.Replica, error) {
	text, err := yaml.Marshal(p.config())
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
	return replica.Start(ctx, replica.Config{
		Binary: self, ConfigFile: path, DatabaseURL: p.databaseURL(), FingerprintKey: p.fingerprintKey, Stderr: stderr,
	})
}

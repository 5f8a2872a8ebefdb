// Package bed is a whole service to be measured from outside. It stands apart from benchkit, whose other
// users need no more than Postgres.
package bed

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"paymentsd/acquirer/sim"
	"paymentsd/internal/benchkit"
	"paymentsd/internal/postgres"
	"paymentsd/internal/replica"
	"paymentsd/merchant"
)

// Bed is a whole service to be measured from outside: a Postgres, the acquirer "fast", a merchant with a key
// for charges, and paymentsd serve as a process of its own.
type Bed struct {
	*benchkit.Postgres
	Pool     *pgxpool.Pool // the benchmark's own two connections
	Merchant merchant.ID
	Key      string
	Service  *replica.Replica // nil before Serve

	acquirer *sim.Server
	binary   string
	stderr   io.Writer
}

// Acquirer is the name of a bed's acquirer.
const Acquirer = "fast"

// settings of Postgres: durable, and with room for both sides.
var settings = map[string]string{"max_connections": "200", "shared_buffers": "256MB", "max_wal_size": "4GB"}

// Start starts everything but the service, whose program it builds. The acquirer takes latency for a capture.
func Start(ctx context.Context, latency time.Duration, stderr io.Writer) (_ *Bed, err error) {
	b := &Bed{stderr: stderr}
	defer func() {
		if err != nil {
			b.Stop()
		}
	}()
	if b.Postgres, err = benchkit.StartPostgres(ctx, settings); err != nil {
		return nil, err
	}
	if b.Pool, err = postgres.Open(ctx, postgres.Config{URL: b.URL(), MaxConns: 2, Name: "bench"}); err != nil {
		return nil, err
	}
	if err = b.addMerchant(ctx); err != nil {
		return nil, err
	}
	s, err := sim.New(sim.Config{Name: Acquirer, Latency: latency, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	if b.acquirer, err = sim.Serve(s, "127.0.0.1:0"); err != nil {
		return nil, err
	}
	b.binary = filepath.Join(b.Dir, "paymentsd")
	build := exec.CommandContext(ctx, "go", "build", "-o", b.binary, "paymentsd/cmd/paymentsd")
	build.Stderr = stderr
	if err = build.Run(); err != nil {
		return nil, fmt.Errorf("build the service: %w", err)
	}
	return b, nil
}

func (b *Bed) addMerchant(ctx context.Context) error {
	store := merchant.NewStore(b.Pool, time.Now)
	m, err := store.Create(ctx, "Bench", []string{Acquirer})
	if err != nil {
		return err
	}
	b.Merchant = m.ID
	_, b.Key, err = store.CreateKey(ctx, merchant.NewKey{Merchant: &m.ID, Role: merchant.RoleCharges, Name: "bench"})
	return err
}

// Serve runs the service until the next Serve or Stop, and returns once it listens. Lines are those of
// its configuration before the acquirers, in YAML.
func (b *Bed) Serve(ctx context.Context, lines string) error {
	if err := b.stopService(); err != nil {
		return fmt.Errorf("stop the service: %w", err)
	}
	config := filepath.Join(b.Dir, "serve.yaml")
	text := fmt.Sprintf("%s\nacquirers:\n- {name: %s, url: %q, bulkhead: {slots: 1000}}\n", lines, Acquirer, b.acquirer.URL())
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return err
	}
	var err error
	b.Service, err = replica.Start(ctx, replica.Config{
		Binary: b.binary, ConfigFile: config, DatabaseURL: b.URL(), FingerprintKey: make([]byte, 32), Stderr: b.stderr,
	})
	return err
}

func (b *Bed) stopService() error {
	if b.Service == nil {
		return nil
	}
	service := b.Service
	b.Service = nil
	return service.Stop()
}

// Stop ends what was started, last first, and deletes the data.
func (b *Bed) Stop() {
	_ = b.stopService()
	if b.acquirer != nil {
		_ = b.acquirer.Close()
	}
	if b.Pool != nil {
		b.Pool.Close()
	}
	if b.Postgres != nil {
		b.Postgres.Stop()
	}
}

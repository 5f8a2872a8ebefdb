package main

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

// bed is what is measured: a Postgres, an instant acquirer and a service process.
type bed struct {
	options
	postgres *benchkit.Postgres
	acquirer *sim.Server
	service  *replica.Replica
	pool     *pgxpool.Pool
	key      string
	merchant merchant.ID
	serial   int
	stderr   io.Writer
}

// settings of Postgres: durable, and with room for both sides.
var settings = map[string]string{"max_connections": "200", "shared_buffers": "256MB", "max_wal_size": "4GB"}

func startBed(ctx context.Context, o options, stderr io.Writer) (_ *bed, err error) {
	b := &bed{options: o, stderr: stderr}
	defer func() {
		if err != nil {
			b.stop()
		}
	}()
	if b.postgres, err = benchkit.StartPostgres(ctx, settings); err != nil {
		return nil, err
	}
	if b.pool, err = postgres.Open(ctx, postgres.Config{URL: b.postgres.URL(), MaxConns: 2, Name: "bench"}); err != nil {
		return nil, err
	}
	if err = b.addMerchant(ctx); err != nil {
		return nil, err
	}
	s, err := sim.New(sim.Config{Name: "fast", Latency: o.latency, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	if b.acquirer, err = sim.Serve(s, "127.0.0.1:0"); err != nil {
		return nil, err
	}
	return b, b.startService(ctx)
}

func (b *bed) addMerchant(ctx context.Context) error {
	store := merchant.NewStore(b.pool, time.Now)
	m, err := store.Create(ctx, "Bench", []string{"fast"})
	if err != nil {
		return err
	}
	b.merchant = m.ID
	_, b.key, err = store.CreateKey(ctx, merchant.NewKey{Merchant: &m.ID, Role: merchant.RoleCharges, Name: "bench"})
	return err
}

// startService builds and runs paymentsd serve, and waits until it listens.
func (b *bed) startService(ctx context.Context) error {
	binary, config := filepath.Join(b.postgres.Dir, "paymentsd"), filepath.Join(b.postgres.Dir, "serve.yaml")
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, "paymentsd/cmd/paymentsd")
	build.Stderr = b.stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("build the service: %w", err)
	}
	text := fmt.Sprintf("server: {database_conns: %d}\nacquirers:\n- {name: fast, url: %q, bulkhead: {slots: 1000}}\n", b.conns, b.acquirer.URL())
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return err
	}
	var err error
	b.service, err = replica.Start(ctx, replica.Config{
		Binary: binary, ConfigFile: config, DatabaseURL: b.postgres.URL(), FingerprintKey: make([]byte, 32), Stderr: b.stderr,
	})
	return err
}

// stop ends what was started, last first, and deletes the data.
func (b *bed) stop() {
	if b.service != nil {
		_ = b.service.Stop()
	}
	if b.acquirer != nil {
		_ = b.acquirer.Close()
	}
	if b.pool != nil {
		b.pool.Close()
	}
	if b.postgres != nil {
		b.postgres.Stop()
	}
}

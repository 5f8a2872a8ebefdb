package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"paymentsd/payment"
)

type devCommand struct {
	Addr  string `default:"127.0.0.1:8080" help:"Address of the API."`
	Dir   string `default:".paymentsd" help:"Folder for the data; it survives a restart."`
	Fresh bool   `help:"Begin anew: delete the data of earlier runs."`
}

// Run runs everything until Ctrl-C and leaves no process behind.
func (c *devCommand) Run(ctx context.Context, p *process) (err error) {
	log := p.logger(true, slog.LevelInfo)
	listener, err := listen(c.Addr) // before anything is started that a person would have to wait for
	if err != nil {
		return err
	}
	defer listener.Close()
	plant, err := startPlant(ctx, plantConfig{dir: c.Dir, fresh: c.Fresh, log: p.logger(true, slog.LevelWarn), stdout: p.stdout})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, plant.stop()) }()
	settings := plant.config()
	gateway, err := newGateway(ctx, gatewayConfig{
		config: settings, databaseURL: plant.databaseURL(), fingerprintKey: plant.fingerprintKey, getenv: p.getenv, log: log,
		listener: listener,
	})
	if err != nil {
		return err
	}
	if err := plant.writeEnv(gateway.url()); err != nil {
		gateway.close()
		return err
	}
	if err := plant.tell(gateway.url()); err != nil {
		return err
	}
	fmt.Fprint(p.stdout, plant.welcome(gateway.url()))
	ctx, stop := plant.whole(ctx)
	defer stop()
	return errors.Join(gateway.serve(ctx), lost(ctx))
}

// errPostgresEnded says that the private Postgres is gone, which nobody asked for.
var errPostgresEnded = errors.New("the private Postgres has ended by itself: its log, postgres.log in the data folder, says why")

// whole ends with ctx, and when Postgres does: a gateway without it would only refuse.
func (p *plant) whole(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-p.postgres.Done():
			cancel(errPostgresEnded)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// lost is errPostgresEnded if that is why ctx ended.
func lost(ctx context.Context) error {
	if errors.Is(context.Cause(ctx), errPostgresEnded) {
		return errPostgresEnded
	}
	return nil
}

// devCharge is quick where production is patient, so that a timeout can be watched.
var devCharge = chargeConfig{
	Budget: 7 * time.Second, StoreTime: 2 * time.Second, Lease: 12 * time.Second, Sweep: time.Second,
	Writers: payment.WritersDefault, GroupMax: payment.RowsMaxDefault, QueueMax: payment.QueueMaxDefault,
}

const (
	devAttempt = 2500 * time.Millisecond
	// devTrust is longer than the simulated acquirers work on a request, so that an inquiry can be watched, too.
	devTrust = 5 * time.Second
)

// config is the configuration of a gateway on the plant: north, then south.
func (p *plant) config() config {
	c := defaultConfig()
	c.Charge = devCharge
	c.Server.RequestTimeMax = 20 * time.Second // Prefer: wait=10 fits inside
	for _, a := range p.acquirers {
		c.Acquirers = append(c.Acquirers, acquirerConfig{
			Name: a.name, Adapter: "rest", URL: a.server.URL(), Timeout: devAttempt,
			Settings: map[string]string{"trust_delay": devTrust.String()},
			Events:   eventsConfig{Secrets: []secretSource{{File: a.secretFile}}},
		})
	}
	return c
}

func (p *plant) welcome(url string) string {
	env := filepath.Join(p.dir, envFile)
	return fmt.Sprintf(`
The gateway runs at %s. Ctrl-C stops all of it; the data stays in %s.

Charge a card (in another terminal):

  set -a; . %s; set +a
  curl -i $PAYMENTSD_URL/v1/charges \
    -H "Authorization: Bearer $PAYMENTSD_API_KEY" -H "Idempotency-Key: order-1" \
    -H "Content-Type: application/json" \
    -d '{"amount": "49.99", "currency": "USD", "reference": "order-1", "payment_method": "tok_ok"}'

Send it again: the same answer, and no second capture. Try tok_declined, tok_timeout_captured and the
others of docs/simulator.md. A charge that becomes unknown (tok_timeout_captured) is closed by the acquirer's own
event, %v after the capture. The acquirers are at %s and %s.

`, url, p.dir, env, eventsDelay, p.acquirers[0].server.URL(), p.acquirers[1].server.URL())
}

const (
	envFile = "dev.env"
	keyFile = "fingerprint.key"
	// eventsSecretSuffix follows an acquirer's name.
	eventsSecretSuffix = ".events-secret"
)

// loadEventsSecret keeps the secret with which a simulated acquirer signs its events.
func loadEventsSecret(path string) (string, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		key := make([]byte, 32)
		_, _ = rand.Read(key) // never fails
		secret := "whsec_" + base64.StdEncoding.EncodeToString(key)
		return secret, os.WriteFile(path, []byte(secret+"\n"), 0o600)
	}
	if err != nil {
		return "", fmt.Errorf("read the secret of an acquirer's events: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// loadFingerprintKey keeps one secret for the data of dir: with another, open keys would look as if they
// were used with other requests.
func loadFingerprintKey(dir string) ([]byte, error) {
	path := filepath.Join(dir, keyFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		key := make([]byte, 32)
		_, _ = rand.Read(key) // never fails
		return key, os.WriteFile(path, []byte(base64.StdEncoding.EncodeToString(key)+"\n"), 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("read the fingerprint key: %w", err)
	}
	return fingerprintKey(strings.TrimSpace(string(text)))
}

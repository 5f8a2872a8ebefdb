package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"paymentsd/acquirer/sim"
	"paymentsd/internal/embeddedpg"
	"paymentsd/internal/postgres"
	"paymentsd/merchant"
	"paymentsd/migrations"
)

// plant is everything that a gateway needs around it, on this machine: a private Postgres with the
// schema, two simulated acquirers, and a demo merchant with keys.
type plant struct {
	dir            string
	stdout         io.Writer
	log            *slog.Logger
	postgres       *embeddedpg.Server
	acquirers      []simulated
	merchant       merchant.Merchant
	fingerprintKey []byte
	chargesKey     string
	opsKey         string
}

type simulated struct {
	name         string
	sim          *sim.Sim
	server       *sim.Server
	eventsSecret string // signs its events
	secretFile   string // where that is kept
}

type plantConfig struct {
	dir    string
	fresh  bool
	log    *slog.Logger
	stdout io.Writer
}

// stopTime bounds the stopping of Postgres.
const stopTime = 20 * time.Second

// startPlant starts everything, or nothing.
func startPlant(ctx context.Context, c plantConfig) (_ *plant, err error) {
	dir, err := filepath.Abs(c.dir)
	if err != nil {
		return nil, err
	}
	p := &plant{dir: dir, stdout: c.stdout, log: c.log}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.stop())
		}
	}()
	if c.fresh {
		if err := removeData(ctx, dir); err != nil {
			return nil, err
		}
	}
	fmt.Fprintf(c.stdout, "Starting a private Postgres in %s ...\n", dir)
	if p.postgres, err = embeddedpg.Start(ctx, embeddedpg.Config{Dir: dir, Database: "paymentsd", Logger: c.log}); err != nil {
		return nil, err
	}
	fmt.Fprint(c.stdout, placed(dir, p.postgres.DataDir()))
	if err = migrations.Up(ctx, p.postgres.URL()); err != nil {
		return nil, err
	}
	for _, name := range []string{"north", "south"} {
		if err = p.startAcquirer(name); err != nil {
			return nil, err
		}
	}
	if p.fingerprintKey, err = loadFingerprintKey(dir); err != nil {
		return nil, err
	}
	return p, p.settleMerchant(ctx)
}

// placed says where the database is if it is not where the rest is: Postgres does not run as root, and the
// user that it runs as instead cannot get into every folder.
func placed(dir, data string) string {
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	if strings.HasPrefix(data, dir+string(filepath.Separator)) {
		return ""
	}
	return fmt.Sprintf("Its data is in %s: Postgres does not run as root, and the user that it runs as cannot enter %s. --fresh deletes both.\n", data, dir)
}

func removeData(ctx context.Context, dir string) error {
	if err := embeddedpg.Remove(ctx, dir); err != nil {
		return err
	}
	for _, name := range []string{envFile, keyFile, "north.book", "south.book", "north" + eventsSecretSuffix, "south" + eventsSecretSuffix} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("delete the data of earlier runs: %w", err)
		}
	}
	return nil
}

func (p *plant) startAcquirer(name string) error {
	s, err := sim.New(sim.Config{
		Name: name, BookFile: filepath.Join(p.dir, name+".book"), Logger: p.log,
		FeeBasisPoints: 140, FeeFixedMinor: 25, ReportsLost: true,
	})
	if err != nil {
		return err
	}
	file := filepath.Join(p.dir, name+eventsSecretSuffix)
	secret, err := loadEventsSecret(file)
	if err != nil {
		return errors.Join(err, s.Close())
	}
	server, err := sim.Serve(s, "127.0.0.1:0")
	if err != nil {
		return errors.Join(err, s.Close())
	}
	p.acquirers = append(p.acquirers, simulated{name: name, sim: s, server: server, eventsSecret: secret, secretFile: file})
	return nil
}

// eventsDelay leaves time to look at a charge while it is unknown.
const eventsDelay = 9 * time.Second

// tell has both acquirers send events to a gateway.
func (p *plant) tell(url string) error {
	for _, a := range p.acquirers {
		if err := a.sim.SetEvents(sim.Events{
			URL: url + "/v1/acquirers/" + a.name + "/events", Secret: a.eventsSecret, Delay: eventsDelay,
		}); err != nil {
			return err
		}
	}
	return nil
}

func (p *plant) databaseURL() string { return p.postgres.URL() }

// stop ends what was started, last first.
func (p *plant) stop() error {
	var problems []error
	for _, a := range p.acquirers {
		problems = append(problems, a.server.Close(), a.sim.Close())
	}
	if p.postgres != nil {
		ctx, cancel := context.WithTimeout(context.Background(), stopTime)
		defer cancel()
		problems = append(problems, p.postgres.Stop(ctx))
	}
	return errors.Join(problems...)
}

// settleMerchant takes the keys of an earlier run where they still open the database, and makes new ones
// otherwise: only their hashes are kept there.
func (p *plant) settleMerchant(ctx context.Context) error {
	pool, err := postgres.Open(ctx, postgres.Config{URL: p.databaseURL(), Role: postgres.ServiceRole, MaxConns: 2, Name: "paymentsd dev"})
	if err != nil {
		return err
	}
	defer pool.Close()
	store := merchant.NewStore(pool, time.Now)
	earlier := readEnv(filepath.Join(p.dir, envFile))
	charges, err := store.Authenticate(ctx, earlier["PAYMENTSD_API_KEY"])
	_, opsErr := store.Authenticate(ctx, earlier["PAYMENTSD_OPS_KEY"])
	if err == nil && opsErr == nil && charges.Merchant != nil {
		p.merchant, p.chargesKey, p.opsKey = *charges.Merchant, earlier["PAYMENTSD_API_KEY"], earlier["PAYMENTSD_OPS_KEY"]
		return nil
	}
	if p.merchant, err = store.Create(ctx, "Demo Shop", []string{"north", "south"}); err != nil {
		return err
	}
	if _, p.chargesKey, err = store.CreateKey(ctx, merchant.NewKey{Merchant: &p.merchant.ID, Role: merchant.RoleCharges, Name: "demo checkout"}); err != nil {
		return err
	}
	_, p.opsKey, err = store.CreateKey(ctx, merchant.NewKey{Role: merchant.RoleOps, Name: "demo ops"})
	return err
}

// writeEnv leaves addresses and keys where a shell can read them (set -a; . dev.env). None of the values
// needs quotes.
func (p *plant) writeEnv(url string) error {
	var text strings.Builder
	for _, line := range [][2]string{
		{"PAYMENTSD_URL", url},
		{"PAYMENTSD_API_KEY", p.chargesKey},
		{"PAYMENTSD_OPS_KEY", p.opsKey},
		{"DATABASE_URL", p.databaseURL()},
		{"ACQUIRER_NORTH_URL", p.acquirers[0].server.URL()},
		{"ACQUIRER_SOUTH_URL", p.acquirers[1].server.URL()},
		{"ACQUIRER_NORTH_EVENTS_SECRET", p.acquirers[0].eventsSecret},
		{"ACQUIRER_SOUTH_EVENTS_SECRET", p.acquirers[1].eventsSecret},
	} {
		fmt.Fprintf(&text, "%s=%s\n", line[0], line[1])
	}
	path := filepath.Join(p.dir, envFile)
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// readEnv reads what writeEnv wrote; a file that is not there is empty.
func readEnv(path string) map[string]string {
	values := map[string]string{}
	file, err := os.Open(path)
	if err != nil {
		return values
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), "=")
		values[name] = value
	}
	return values
}

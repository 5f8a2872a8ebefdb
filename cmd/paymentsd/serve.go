package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"paymentsd/internal/postgres"
	"paymentsd/migrations"
)

type serveCommand struct {
	database
	Config         string `env:"PAYMENTSD_CONFIG" help:"YAML file with acquirers and limits." placeholder:"FILE"`
	Addr           string `env:"PAYMENTSD_ADDR" help:"Address to listen on; wins over the file's server.addr." placeholder:"HOST:PORT"`
	Replica        string `env:"PAYMENTSD_REPLICA" help:"What this process is called, in logs and GET /v1/acquirers; wins over the file's server.replica. Default: the host's name." placeholder:"NAME"`
	FingerprintKey string `env:"PAYMENTSD_FINGERPRINT_KEY" help:"Base64 of 32 random bytes, the same on all replicas." placeholder:"BASE64"`
}

func (c *serveCommand) Run(ctx context.Context, p *process) error {
	settings, key, err := c.settings()
	if err := errors.Join(c.check(), err); err != nil {
		return err
	}
	log := p.logger(false, slog.LevelInfo)
	gateway, err := newGateway(ctx, gatewayConfig{
		config: settings, databaseURL: c.DatabaseURL, fingerprintKey: key, getenv: p.getenv, log: log,
	})
	if err != nil {
		return err
	}
	return gateway.serve(ctx)
}

// settings reads everything that can be wrong before anything is started.
func (c *serveCommand) settings() (config, []byte, error) {
	key, keyErr := fingerprintKey(c.FingerprintKey)
	settings, err := c.file()
	settings.Server.Addr = orElse(c.Addr, settings.Server.Addr)
	settings.Server.Replica = orElse(c.Replica, settings.Server.Replica)
	return settings, key, errors.Join(keyErr, err, checkAddr(settings.Server.Addr), checkReplica(c.Replica))
}

func (c *serveCommand) file() (config, error) {
	if c.Config == "" {
		return defaultConfig(), errors.New("PAYMENTSD_CONFIG (or --config) is not set: name the YAML file with the acquirers")
	}
	return readConfig(c.Config)
}

// checkAddr refuses what could not be listened on, before anything is started.
func checkAddr(addr string) error {
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return fmt.Errorf("server.addr (PAYMENTSD_ADDR, --addr) is %q: it must be HOST:PORT, such as 127.0.0.1:8080", addr)
	}
	return nil
}

// checkReplica refuses a name that could not be shown.
func checkReplica(name string) error {
	if name != "" && !replicaName.MatchString(name) {
		return fmt.Errorf("server.replica (PAYMENTSD_REPLICA, --replica) is %q: it must be 1 to 80 visible ASCII characters", name)
	}
	return nil
}

type checkConfigCommand struct {
	serveCommand
	Offline bool `help:"Leave the database out."`
}

// Run reads the configuration as serve would, and starts nothing.
func (c *checkConfigCommand) Run(ctx context.Context, p *process) error {
	settings, _, err := c.settings()
	if !c.Offline {
		err = errors.Join(c.check(), err)
	}
	if _, routesErr := planRoutes(settings, p.getenv); err != nil || routesErr != nil {
		return errors.Join(err, routesErr)
	}
	if !c.Offline {
		pool, err := postgres.Open(ctx, postgres.Config{URL: c.DatabaseURL, Role: postgres.ServiceRole, MaxConns: 1, Name: "paymentsd check-config"})
		if err != nil {
			return fmt.Errorf("DATABASE_URL: %w", err)
		}
		defer pool.Close()
		if err := migrations.Check(ctx, pool); err != nil {
			return err
		}
	}
	fmt.Fprintf(p.stdout, "The configuration can be used: acquirers %v, listening on %s.\n", settings.names(), settings.Server.Addr)
	return nil
}

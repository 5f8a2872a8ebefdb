package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/alecthomas/kong"

	"paymentsd/internal/postgres"
	"paymentsd/merchant"
	"paymentsd/migrations"
)

const description = "An idempotent payment-capture gateway: a charge is captured once, and what is not known is called unknown."

// cli is the command line. Each command is a struct with a Run method.
type cli struct {
	Version     kong.VersionFlag   `help:"Print what this was built from, and exit."`
	Serve       serveCommand       `cmd:"" help:"Serve the API until SIGTERM."`
	Migrate     migrateCommand     `cmd:"" help:"Bring the schema up or down."`
	Dev         devCommand         `cmd:"" help:"Run everything on this machine: a private Postgres, two simulated acquirers, a demo merchant, the API."`
	Demo        demoCommand        `cmd:"" help:"Play the life of payments on a throw-away gateway, failures included; exit 0 only if every step held."`
	Merchant    merchantCommand    `cmd:"" help:"Add or list merchants."`
	Apikey      apikeyCommand      `cmd:"" name:"apikey" help:"Make, list or revoke API keys."`
	CheckConfig checkConfigCommand `cmd:"" help:"Read the configuration and report every problem in it."`
	Advise      adviseCommand      `cmd:"" help:"Hold breaker, bulkhead, timeouts and budgets against the traffic of the last days; exit 1 if a number is out of line, 2 if nothing can be said."`
}

// process is what a command needs of the process it runs in.
type process struct {
	getenv         func(string) string
	stdout, stderr io.Writer
}

// exitError ends a command with a code of its own.
type exitError struct {
	code  int
	cause error // nil: all was said
}

func (e *exitError) Error() string { return fmt.Sprintf("exit %d: %v", e.code, e.cause) }
func (e *exitError) Unwrap() error { return e.cause }

// logger writes one JSON object a line, or text where a person reads along.
func (p *process) logger(text bool, level slog.Level) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	if text {
		return slog.New(slog.NewTextHandler(p.stderr, options))
	}
	return slog.New(slog.NewJSONHandler(p.stderr, options))
}

// environment lets flags with an env tag be read through getenv, so that tests need no process
// environment.
func environment(getenv func(string) string) kong.Resolver {
	return kong.ResolverFunc(func(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
		for _, name := range flag.Envs {
			if value := getenv(name); value != "" {
				return value, nil
			}
		}
		return nil, nil
	})
}

// database is the one flag that most commands share.
type database struct {
	DatabaseURL string `env:"DATABASE_URL" help:"postgres://user@host:port/name." placeholder:"URL"`
}

func (d database) check() error {
	if d.DatabaseURL == "" {
		return errors.New("DATABASE_URL (or --database-url) is not set: give the address of Postgres, such as postgres://user@host:5432/name")
	}
	return nil
}

// merchants opens the store of merchants and keys; close it when done.
func (d database) merchants(ctx context.Context) (*merchant.Store, func(), error) {
	if err := d.check(); err != nil {
		return nil, nil, err
	}
	pool, err := postgres.Open(ctx, postgres.Config{URL: d.DatabaseURL, Role: postgres.ServiceRole, MaxConns: 2, Name: "paymentsd cli"})
	if err != nil {
		return nil, nil, fmt.Errorf("DATABASE_URL: %w", err)
	}
	if err := migrations.Check(ctx, pool); err != nil {
		pool.Close()
		return nil, nil, err
	}
	return merchant.NewStore(pool, time.Now), pool.Close, nil
}

type migrateCommand struct {
	database
	Direction string `arg:"" enum:"up,down,version" default:"up" help:"up, down (destroys all data) or version."`
	Yes       bool   `help:"Really take the schema down."`
}

func (c *migrateCommand) Run(ctx context.Context, p *process) error {
	if err := c.check(); err != nil {
		return err
	}
	switch {
	case c.Direction == "down" && !c.Yes:
		return errors.New("migrate down destroys every charge and the ledger; add --yes if that is what you want")
	case c.Direction == "down":
		return migrations.Down(ctx, c.DatabaseURL)
	case c.Direction == "up":
		if err := migrations.Up(ctx, c.DatabaseURL); err != nil {
			return err
		}
	}
	version, dirty, err := migrations.Version(ctx, c.DatabaseURL)
	if err != nil {
		return err
	}
	if dirty {
		return fmt.Errorf("migration %d failed half-way: mend the database by hand", version)
	}
	fmt.Fprintf(p.stdout, "The schema is at migration %d.\n", version)
	return nil
}

type merchantCommand struct {
	Create merchantCreate `cmd:"" help:"Add a merchant."`
	List   merchantList   `cmd:"" help:"List merchants."`
}

type merchantCreate struct {
	database
	Name      string   `required:"" help:"The merchant's name."`
	Acquirers []string `required:"" help:"Where its charges go, in this order, such as north,south."`
}

func (c *merchantCreate) Run(ctx context.Context, p *process) error {
	for _, name := range c.Acquirers {
		if !acquirerName.MatchString(name) {
			return fmt.Errorf("--acquirers: %q cannot be the name of an acquirer: use the names of the configuration, such as north,south", name)
		}
	}
	store, done, err := c.merchants(ctx)
	if err != nil {
		return err
	}
	defer done()
	m, err := store.Create(ctx, c.Name, c.Acquirers)
	if err != nil {
		return err
	}
	fmt.Fprintln(p.stdout, m.ID.Code())
	return nil
}

type merchantList struct{ database }

func (c *merchantList) Run(ctx context.Context, p *process) error {
	store, done, err := c.merchants(ctx)
	if err != nil {
		return err
	}
	defer done()
	all, err := store.List(ctx)
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "MERCHANT\tNAME\tACQUIRERS\tCREATED")
	for _, m := range all {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", m.ID.Code(), m.Name, strings.Join(m.Acquirers, ","), m.CreatedAt.Format(time.RFC3339))
	}
	return table.Flush()
}

type apikeyCommand struct {
	Create apikeyCreate `cmd:"" help:"Make a key; it is shown this once."`
	List   apikeyList   `cmd:"" help:"List keys, without their secrets."`
	Revoke apikeyRevoke `cmd:"" help:"End a key."`
}

type apikeyCreate struct {
	database
	Merchant string `help:"The merchant's code, as merchant list shows it; leave it out for a platform key (ops)."`
	Role     string `required:"" enum:"charges,read,ops" help:"charges, read or ops."`
	Name     string `required:"" help:"What the key is for; it stands in the audit log."`
}

func (c *apikeyCreate) Run(ctx context.Context, p *process) error {
	store, done, err := c.merchants(ctx)
	if err != nil {
		return err
	}
	defer done()
	key := merchant.NewKey{Role: merchant.Role(c.Role), Name: c.Name}
	if c.Merchant != "" {
		id, err := merchant.ParseCode(c.Merchant)
		if err != nil {
			return fmt.Errorf("--merchant: %w: use a code that merchant list shows", err)
		}
		key.Merchant = &id
	}
	_, secret, err := store.CreateKey(ctx, key)
	if err != nil {
		return err
	}
	fmt.Fprintln(p.stdout, secret)
	fmt.Fprintln(p.stderr, "Keep it: it cannot be shown again.")
	return nil
}

type apikeyList struct{ database }

func (c *apikeyList) Run(ctx context.Context, p *process) error {
	store, done, err := c.merchants(ctx)
	if err != nil {
		return err
	}
	defer done()
	keys, err := store.ListKeys(ctx)
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "KEY\tROLE\tMERCHANT\tNAME\tCREATED\tREVOKED")
	for _, k := range keys {
		m, revoked := "platform", "-"
		if k.Merchant != nil {
			m = k.Merchant.Code()
		}
		if k.RevokedAt != nil {
			revoked = k.RevokedAt.UTC().Format(time.RFC3339)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", k.ID, k.Role, m, k.Name, k.CreatedAt.UTC().Format(time.RFC3339), revoked)
	}
	return table.Flush()
}

type apikeyRevoke struct {
	database
	Key string `arg:"" help:"The key's id, as list shows it."`
}

func (c *apikeyRevoke) Run(ctx context.Context, p *process) error {
	store, done, err := c.merchants(ctx)
	if err != nil {
		return err
	}
	defer done()
	if err := store.RevokeKey(ctx, c.Key); err != nil {
		return err
	}
	fmt.Fprintf(p.stdout, "Key %s is revoked; every replica refuses it within %v.\n", c.Key, merchant.CacheTime)
	return nil
}

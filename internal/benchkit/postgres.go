// Package benchkit is what the bench programs share: a private Postgres with our schema, and how
// figures are summed up and printed.
package benchkit

import (
	"context"
	"fmt"
	"os"
	"time"

	"paymentsd/internal/embeddedpg"
	"paymentsd/migrations"
)

// Postgres is a private, migrated Postgres in a temporary folder, for one run.
type Postgres struct {
	// Dir is the folder. What else a run keeps may lie there; Stop deletes it.
	Dir    string
	server *embeddedpg.Server
}

// stopTimeMax bounds Stop.
const stopTimeMax = 20 * time.Second

// StartPostgres starts one with the given server settings over the defaults, which keep a commit durable.
func StartPostgres(ctx context.Context, settings map[string]string) (_ *Postgres, err error) {
	p := &Postgres{}
	if p.Dir, err = os.MkdirTemp("", "paymentsd-bench-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			p.Stop()
		}
	}()
	if p.server, err = embeddedpg.Start(ctx, embeddedpg.Config{Dir: p.Dir, Database: "paymentsd", Settings: settings}); err != nil {
		return nil, err
	}
	if err = migrations.Up(ctx, p.URL()); err != nil {
		return nil, fmt.Errorf("migrate: %w", err)
	}
	return p, nil
}

// URL connects as the superuser.
func (p *Postgres) URL() string { return p.server.URL() }

// Stop ends Postgres and deletes the folder.
func (p *Postgres) Stop() {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeMax)
	defer cancel()
	if p.server != nil {
		_ = p.server.Stop(ctx)
	}
	_ = embeddedpg.Remove(ctx, p.Dir)
	_ = os.RemoveAll(p.Dir)
}

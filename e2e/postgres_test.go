package e2e

import (
	"context"
	"net/http"
	"os"
	"testing"
	"time"

	"paymentsd/acquirer/sim"
	"paymentsd/internal/embeddedpg"
	"paymentsd/migrations"
)

// private is a Postgres of one test, which may be stopped.
type private struct {
	t      *testing.T
	dir    string
	server *embeddedpg.Server
}

func newPrivate(t *testing.T) *private {
	t.Helper()
	p := &private{t: t, dir: openDir(t)}
	p.start()
	t.Cleanup(p.stop)
	if err := migrations.Up(t.Context(), p.server.URL()); err != nil {
		t.Fatal(err)
	}
	return p
}

// openDir is a folder that an unprivileged Postgres can be in, also when the tests run as root. A
// cluster in it is removed with it.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "paymentsd-e2e-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), waitMax)
		defer cancel()
		if err := embeddedpg.Remove(ctx, dir); err != nil {
			t.Error(err)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func (p *private) start() {
	p.t.Helper()
	var err error
	p.server, err = embeddedpg.Start(p.t.Context(), embeddedpg.Config{Dir: p.dir, Database: "paymentsd"})
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *private) stop() {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitMax)
	defer cancel()
	if err := p.server.Stop(ctx); err != nil {
		p.t.Error(err)
	}
}

// Postgres goes away in the middle of everything and comes back.
func TestPostgresRestartsUnderLoad(t *testing.T) {
	t.Parallel()
	t.Run("peers case 10: Postgres restarted mid-load, same count, readiness off, no duplicate", func(t *testing.T) {
		t.Parallel()
		postgres := newPrivate(t)
		w := newWorld(t, options{limits: quick(), owner: postgres.server.URL(), sim: sim.Config{Latency: 20 * time.Millisecond, SlowLatency: 700 * time.Millisecond}})
		services := []*service{w.start(), w.start()}
		shops := []*shop{w.shop(services[0]), w.shop(services[1])}
		l := &till{got: map[string]reply{}}
		over := load(func(client int, key string) bool { return insistAnywhere(t.Context(), l, shops, client, key) })
		until(t, "the load is not under way", func() bool { return l.count() > 60 })
		slow := shops[0].background(t.Context(), "slow", with("tok_slow"))
		until(t, "the slow charge is not at the acquirer", func() bool { return w.pending("slow") })

		address := postgres.server.URL()
		postgres.stop()
		for _, s := range services {
			until(t, "a service without its database calls itself ready", func() bool {
				return readiness(t.Context(), s) == http.StatusServiceUnavailable
			})
		}
		if r := <-slow; r.status != http.StatusAccepted || r.Reason != "store_unavailable" {
			t.Errorf("idempotency case 18: the final write could not be made, and the answer is %v; want 202 unknown", r)
		}
		postgres.start()
		if postgres.server.URL() != address {
			t.Fatalf("Postgres came back as %s, not as %s", postgres.server.URL(), address)
		}
		w.pool.Reset()
		over.Wait()
		if n := l.count(); n != loadClients*loadCharges {
			t.Errorf("%d charges of %d got an answer in the end", n, loadClients*loadCharges)
		}
		shops[1].insist(t, "slow", with("tok_slow")).want(t, http.StatusAccepted, "unknown")
		for _, s := range services {
			until(t, "a service with its database back does not call itself ready", func() bool {
				return readiness(t.Context(), s) == http.StatusOK
			})
		}
		w.kept(l)
		w.nothingInFlight()
		w.consistent()
		w.settle()
		shops[0].charge(t, "slow", with("tok_slow")).want(t, http.StatusCreated, "captured")
	})
}

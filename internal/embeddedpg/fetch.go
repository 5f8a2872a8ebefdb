package embeddedpg

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
)

// What is fetched where the machine has no Postgres: the newest that Citus 12, too, runs on.
const (
	fetchedVersion = embeddedpostgres.V16
	fetchedMajor   = 16
)

// fetch returns cached binaries, or downloads them. The library downloads, checks the sum and
// unpacks, but only on the way to starting a server of its own, which it cannot do as root. So it
// is handed a data folder that is none: it stops right after unpacking, and nothing has run.
func fetch(ctx context.Context, cfg Config, as *account) (binaries, error) {
	cache, err := cacheDir(cfg)
	if err != nil {
		return binaries{}, err
	}
	final := filepath.Join(cache, "postgres-"+string(fetchedVersion))
	if b, err := probe(ctx, filepath.Join(final, "bin"), as); err == nil {
		return b, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return binaries{}, err
	}
	tmp, err := os.MkdirTemp(cache, "fetching-")
	if err != nil {
		return binaries{}, err
	}
	defer os.RemoveAll(tmp)
	cfg.Logger.Info("no Postgres on this machine, fetching one", "version", string(fetchedVersion), "into", final)
	unpacked := filepath.Join(tmp, "unpacked")
	if err := unpack(cfg, cache, tmp, unpacked); err != nil {
		return binaries{}, err
	}
	// Postgres' user has to read what root has fetched.
	if err := os.Chmod(unpacked, 0o755); err != nil {
		return binaries{}, err
	}
	// Complete or not there at all: another process may be doing the same.
	if err := os.RemoveAll(final); err != nil {
		return binaries{}, err
	}
	if err := os.Rename(unpacked, final); err != nil {
		return binaries{}, err
	}
	return probe(ctx, filepath.Join(final, "bin"), as)
}

func unpack(cfg Config, cache, tmp, unpacked string) error {
	noData := filepath.Join(tmp, "no-data")
	if err := os.MkdirAll(noData, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(noData, "PG_VERSION"), fmt.Appendf(nil, "%d\n", fetchedMajor), 0o600); err != nil {
		return err
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	c := embeddedpostgres.DefaultConfig().Version(fetchedVersion).Port(port).
		CachePath(cache).RuntimePath(filepath.Join(tmp, "runtime")).BinariesPath(unpacked).DataPath(noData).Logger(io.Discard)
	if cfg.Repository != "" {
		c = c.BinaryRepositoryURL(cfg.Repository)
	}
	err = embeddedpostgres.NewDatabase(c).Start()
	if _, statErr := os.Stat(filepath.Join(unpacked, "bin", "postgres")); statErr != nil {
		return fmt.Errorf("%w (%w)", err, statErr)
	}
	return nil
}

func freePort() (uint32, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return uint32(l.Addr().(*net.TCPAddr).Port), l.Close()
}

func cacheDir(cfg Config) (string, error) {
	if cfg.CacheDir != "" {
		return filepath.Abs(cfg.CacheDir)
	}
	if os.Geteuid() == 0 {
		return "/var/cache/paymentsd", nil // root's own cache is closed to Postgres' user
	}
	dir, err := os.UserCacheDir()
	return filepath.Join(dir, "paymentsd"), err
}

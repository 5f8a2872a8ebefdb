package embeddedpg

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// fakePostgres is a folder of programs that say they are that version.
func fakePostgres(t *testing.T, version string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"initdb", "postgres"} {
		script := fmt.Sprintf("#!/bin/sh\necho '%s (PostgreSQL) %s'\n", name, version)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func searching(dirs ...string) Config {
	return Config{search: func(context.Context) []string { return dirs }, Logger: slog.New(slog.DiscardHandler)}
}

func TestFindBinaries(t *testing.T) {
	t.Parallel()
	old, p14, p15 := fakePostgres(t, "9.6.24"), fakePostgres(t, "14.18"), fakePostgres(t, "15.18 (Debian 15.18-0+deb12u1)")
	for _, c := range []struct {
		name string
		dirs []string
		want int
		dir  string
	}{
		{"the first that is new enough", []string{old, p14, p15}, 0, p14},
		{"the one that the data was made with", []string{p14, p15}, 15, p15},
		{"a broken one is passed over", []string{t.TempDir(), p15}, 0, p15},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := findBinaries(t.Context(), searching(c.dirs...), nil, c.want)
			if err != nil || got.dir != c.dir {
				t.Errorf("got %v, %v; want %s", got, err, c.dir)
			}
		})
	}
	t.Run("data of a version that is not here says which to install", func(t *testing.T) {
		t.Parallel()
		_, err := findBinaries(t.Context(), searching(p14, p15), nil, 13)
		if !errors.Is(err, ErrNoPostgres) || !strings.Contains(err.Error(), "Postgres 13 is needed") || !strings.Contains(err.Error(), "version 15, but the data is of version 13") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("BinDir is used alone", func(t *testing.T) {
		t.Parallel()
		cfg := searching(p15)
		cfg.BinDir = old
		if _, err := findBinaries(t.Context(), cfg, nil, 0); !errors.Is(err, ErrNoPostgres) {
			t.Errorf("got %v", err)
		}
	})
}

func TestFolderVersionOrdersInstallations(t *testing.T) {
	t.Parallel()
	for dir, want := range map[string]int{
		"/usr/lib/postgresql/15/bin": 15, "/usr/lib/postgresql/9.6/bin": 9, "/opt/homebrew/opt/postgresql@17/bin": 17, "/usr/local/pgsql/bin": 0,
	} {
		if got := folderVersion(dir); got != want {
			t.Errorf("%s: %d, want %d", dir, got, want)
		}
	}
}

// repository serves one archive of binaries the way the library's repository does.
func repository(t *testing.T, damage bool) (base string, hits *atomic.Int32) {
	t.Helper()
	txz, err := os.ReadFile("testdata/postgres.txz") // bin/: initdb and postgres print version 16.9, pg_ctl fails
	if err != nil {
		t.Fatal(err)
	}
	var jar bytes.Buffer
	z := zip.NewWriter(&jar)
	w, err := z.Create("postgres.txz")
	if err == nil {
		_, err = w.Write(txz)
	}
	if err := errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(jar.Bytes())
	if damage {
		sum[0] ^= 1
	}
	hits = new(atomic.Int32)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hits.Add(1)
		if strings.HasSuffix(r.URL.Path, ".sha256") {
			_, _ = w.Write([]byte(hex.EncodeToString(sum[:])))
			return
		}
		_, _ = w.Write(jar.Bytes())
	}))
	t.Cleanup(s.Close)
	return s.URL, hits
}

func TestFetch(t *testing.T) {
	t.Parallel()
	t.Run("downloads once, then uses the cache", func(t *testing.T) {
		t.Parallel()
		cfg := searching()
		var hits *atomic.Int32
		cfg.Repository, hits = repository(t, false)
		cfg.CacheDir = t.TempDir()
		for range 2 {
			b, err := findBinaries(t.Context(), cfg, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			if b.major != fetchedMajor || !strings.HasPrefix(b.dir, cfg.CacheDir) {
				t.Errorf("got %v", b)
			}
		}
		if n := hits.Load(); n != 2 { // the archive and its sum
			t.Errorf("%d requests, want 2", n)
		}
	})
	t.Run("a damaged download is refused", func(t *testing.T) {
		t.Parallel()
		cfg := searching()
		cfg.Repository, _ = repository(t, true)
		cfg.CacheDir = t.TempDir()
		_, err := findBinaries(t.Context(), cfg, nil, 0)
		if err == nil || !strings.Contains(err.Error(), "checksums do not match") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("nothing here and nothing to fetch: says what to install", func(t *testing.T) {
		t.Parallel()
		gone := httptest.NewServer(http.NotFoundHandler())
		gone.Close()
		cfg := searching()
		cfg.Dir, cfg.Repository, cfg.CacheDir = tempDir(t), gone.URL, t.TempDir()
		_, err := Start(t.Context(), cfg)
		if !errors.Is(err, ErrNoPostgres) || !strings.Contains(err.Error(), "apt-get install postgresql") || !strings.Contains(err.Error(), "unable to connect") {
			t.Errorf("got %v", err)
		}
	})
}

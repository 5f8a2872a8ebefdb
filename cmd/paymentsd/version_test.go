package main

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime/debug"
	"strings"
	"testing"

	"paymentsd/internal/pgtest"
)

func TestVersion(t *testing.T) {
	t.Parallel()
	built := func(module string, settings ...debug.BuildSetting) func() (*debug.BuildInfo, bool) {
		return func() (*debug.BuildInfo, bool) {
			return &debug.BuildInfo{Main: debug.Module{Version: module}, Settings: settings}, true
		}
	}
	commit := debug.BuildSetting{Key: "vcs.revision", Value: "0123456789abcdef0123456789abcdef01234567"}
	for want, read := range map[string]func() (*debug.BuildInfo, bool){
		"v1.2.3":               built("v1.2.3", commit),
		"0123456789ab":         built("(devel)", commit, debug.BuildSetting{Key: "vcs.modified", Value: "false"}),
		"0123456789ab+changes": built("", commit, debug.BuildSetting{Key: "vcs.modified", Value: "true"}),
		"devel":                built("(devel)"),
		"unknown":              func() (*debug.BuildInfo, bool) { return nil, false },
	} {
		if got := version(read); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Regression: the service did not say which version it is.
func TestHealthSaysTheVersion(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	newTestGateway(t).handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/healthz", nil))
	var health struct{ Version string }
	if err := json.NewDecoder(w.Body).Decode(&health); err != nil || health.Version == "" || health.Version != version(debug.ReadBuildInfo) {
		t.Errorf("version %q, %v", health.Version, err)
	}
}

// Regression: as root the data is elsewhere, and nobody said where.
func TestDevSaysWhereTheDataIs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if told := placed(dir, dir+"/postgres/data"); told != "" {
		t.Errorf("in its own folder: %q", told)
	}
	for _, elsewhere := range []string{"/var/lib/paymentsd-0123/data", dir + "-not/data"} {
		if told := placed(dir, elsewhere); !strings.Contains(told, "Its data is in "+elsewhere) || !strings.Contains(told, "root") || !strings.Contains(told, dir) {
			t.Errorf("elsewhere: %q", told)
		}
	}
}

// newTestGateway is a replica that serves nothing yet.
func newTestGateway(t *testing.T) *gateway {
	t.Helper()
	settings, err := readConfig(writeConfig(t, "acquirers:\n- {name: north, url: 'http://127.0.0.1:1'}\n"))
	if err != nil {
		t.Fatal(err)
	}
	settings.Server.Addr = "127.0.0.1:0"
	g, err := newGateway(t.Context(), gatewayConfig{
		config: settings, databaseURL: pgtest.New(t).OwnerURL(), fingerprintKey: make([]byte, 32),
		getenv: func(string) string { return "" }, log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.listener.Close(); g.pool.Close() })
	return g
}

package main

import (
	"bytes"
	"context"
	"os"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"

	"paymentsd/internal/pgtest"
)

// command runs paymentsd with args and an environment of its own.
func command(t *testing.T, env map[string]string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), args, func(name string) string { return env[name] }, &out, &errs)
	return code, out.String(), errs.String()
}

func TestCommandLine(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args []string
		code int
		says string
	}{
		"version":                 {[]string{"--version"}, 0, version(debug.ReadBuildInfo)},
		"help":                    {[]string{"--help"}, 0, "Usage: paymentsd"},
		"nothing":                 {nil, 2, "paymentsd --help"},
		"unknown command":         {[]string{"sevre"}, 2, "sevre"},
		"unknown flag":            {[]string{"dev", "--port", "1"}, 2, "--port"},
		"no database":             {[]string{"merchant", "list"}, 1, "DATABASE_URL"},
		"a database that is away": {[]string{"merchant", "list", "--database-url", "postgres://nobody@127.0.0.1:1/x"}, 1, "DATABASE_URL"},
		"no database URL at all":  {[]string{"migrate", "up", "--database-url", "mysql://x"}, 1, "postgres://"},
		"down without yes":        {[]string{"migrate", "down", "--database-url", "postgres://nobody@127.0.0.1:1/x"}, 1, "--yes"},
		"bad role":                {[]string{"apikey", "create", "--role", "root", "--name", "x"}, 2, "root"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr := command(t, nil, test.args...)
			if code != test.code || !strings.Contains(stdout+stderr, test.says) {
				t.Errorf("code %d, want %d and %q in\n%s%s", code, test.code, test.says, stdout, stderr)
			}
		})
	}
}

func TestMerchantsAndKeysFromTheCommandLine(t *testing.T) {
	t.Parallel()
	env := map[string]string{"DATABASE_URL": pgtest.New(t).OwnerURL()}
	must := func(args ...string) string {
		t.Helper()
		code, stdout, stderr := command(t, env, args...)
		if code != 0 {
			t.Fatalf("%v: code %d: %s", args, code, stderr)
		}
		return strings.TrimSpace(stdout)
	}
	if got := must("migrate", "version"); !strings.Contains(got, "migration") {
		t.Errorf("version says %q", got)
	}
	code := must("merchant", "create", "--name", "My Shop", "--acquirers", "north,south")
	if list := must("merchant", "list"); !strings.Contains(list, code) || !strings.Contains(list, "north,south") {
		t.Errorf("the list lacks the merchant:\n%s", list)
	}
	secret := must("apikey", "create", "--merchant", code, "--role", "charges", "--name", "checkout")
	id := strings.Split(secret, "_")[1]
	list := must("apikey", "list")
	if !strings.Contains(list, id) || strings.Contains(list, strings.Split(secret, "_")[2]) {
		t.Errorf("the list lacks the key, or shows its secret:\n%s", list)
	}
	must("apikey", "revoke", id)
	if code, _, stderr := command(t, env, "apikey", "revoke", id); code != 1 || !strings.Contains(stderr, id) {
		t.Errorf("revoked twice: code %d: %s", code, stderr)
	}
	if code, _, stderr := command(t, env, "apikey", "create", "--merchant", "me", "--role", "charges", "--name", "x"); code != 1 || !strings.Contains(stderr, "--merchant") {
		t.Errorf("no merchant's code: code %d: %s", code, stderr)
	}
	if code, _, stderr := command(t, env, "apikey", "create", "--role", "charges", "--name", "x"); code != 1 || !strings.Contains(stderr, "merchant") {
		t.Errorf("a charges key without merchant: code %d: %s", code, stderr)
	}
	if code, _, stderr := command(t, env, "merchant", "create", "--name", "x", "--acquirers", "north,NO RTH"); code != 1 || !strings.Contains(stderr, `"NO RTH"`) {
		t.Errorf("what is no acquirer's name: code %d: %s", code, stderr)
	}
}

func TestCheckConfig(t *testing.T) {
	t.Parallel()
	path := writeConfig(t, "acquirers:\n- {name: north, url: 'http://127.0.0.1:1'}\n")
	env := map[string]string{
		"DATABASE_URL": pgtest.New(t).OwnerURL(), "PAYMENTSD_CONFIG": path,
		"PAYMENTSD_FINGERPRINT_KEY": "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
	}
	if code, stdout, stderr := command(t, env, "check-config"); code != 0 || !strings.Contains(stdout, "north") {
		t.Errorf("code %d: %s%s", code, stdout, stderr)
	}
	env["PAYMENTSD_CONFIG"] = writeConfig(t, "acquirers:\n- {name: north, url: 'http://127.0.0.1:1', settings: {trust: 1s}}\n")
	if code, _, stderr := command(t, env, "check-config"); code != 1 || !strings.Contains(stderr, "acquirers[0] (north)") || !strings.Contains(stderr, `"trust"`) {
		t.Errorf("a wrong setting of an adapter: code %d: %s", code, stderr)
	}
	// Regression: the name stood there twice, and a URL that is missing had a scheme "".
	env["PAYMENTSD_CONFIG"] = writeConfig(t, "acquirers:\n- {name: north}\n")
	if _, _, stderr := command(t, env, "check-config"); !strings.Contains(stderr, "acquirers[0] (north): url is missing: write http") || strings.Count(stderr, "(north)") != 1 || strings.Contains(stderr, "acquirer north") {
		t.Errorf("a missing URL: %s", stderr)
	}
	wrong := map[string]string{"PAYMENTSD_ADDR": "8080", "PAYMENTSD_CONFIG": writeConfig(t,
		"acquirers:\n- {name: north, url: 'htps://x', secret: {env: NORTH_SECRET}, breaker: {fail_percent: 500}}\n- {name: south, url: 'http://127.0.0.1:1', timeout: 50s}\n")}
	code, _, stderr := command(t, wrong, "check-config")
	for _, part := range []string{"DATABASE_URL", "PAYMENTSD_FINGERPRINT_KEY", `is "8080"`, `"htps"`, "no NORTH_SECRET", "[Bb]reaker|500", "timeout is 50s"} {
		if code != 1 || !regexp.MustCompile(part).MatchString(stderr) {
			t.Errorf("all at once, code %d: %q is missing in\n%s", code, part, stderr)
		}
	}
	if _, _, stderr := command(t, wrong, "check-config", "--offline"); strings.Contains(stderr, "DATABASE_URL") {
		t.Errorf("offline: %s", stderr)
	}
}

// Regression: a demo that could not start left its folder behind.
func TestDemoLeavesNothingBehind(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out bytes.Buffer
	if err := (&demoCommand{}).Run(ctx, &process{getenv: os.Getenv, stdout: &out, stderr: &out}); err == nil {
		t.Error("it ran although it was told to stop")
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v (%v)", left, err)
	}
}

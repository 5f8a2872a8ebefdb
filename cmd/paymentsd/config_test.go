package main

import (
	"bytes"

	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
)

func writeConfig(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "paymentsd.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestReadConfig(t *testing.T) {
	t.Parallel()
	const north = "acquirers:\n- {name: north, url: 'http://127.0.0.1:1'}\n"
	tests := map[string]struct {
		text string
		want []string // parts of the error; none: it is accepted
		not  string   // what the error must not speak of
	}{
		"least":                      {text: north},
		"unknown name with its line": {text: north + "chrage: {budget: 3s}\n", want: []string{"chrage", "[3:1]"}},
		"unknown nested name":        {text: "acquirers:\n- {name: north, url: 'http://127.0.0.1:1', timeuot: 1s}\n", want: []string{"timeuot"}},
		"not a duration":             {text: north + "retention: soon\n", want: []string{"soon"}},
		// Regression: the error was about Go's types, and named neither field nor line.
		"a duration without its unit": {text: north + "retention: 720\n", want: []string{"line 3: retention is 720: write it with a unit, as 720h"}, not: "unmarshal"},
		"durations without units at any depth, all at once": {
			text: "acquirers:\n- name: north\n  timeout: 8\n  breaker: {open_for: \"5\", slow_call: 5 s}\ncharge: {budget: 20, lease: 1m}\n",
			want: []string{"line 3: acquirers[0].timeout is 8: write it with a unit", "line 4: acquirers[0].breaker.open_for is 5: write it with a unit",
				`line 4: acquirers[0].breaker.slow_call is "5 s": write a duration`, "line 5: charge.budget is 20: write it with a unit"},
		},
		"no acquirer": {text: "server: {addr: ':1'}\n", want: []string{"acquirers is empty"}},
		"empty file":  {text: "", want: []string{"acquirers is empty"}},
		// Regression: it put every default to zero, and was blamed for times that it did not name.
		"comments alone":  {text: "# nothing yet\n", want: []string{"acquirers is empty"}, not: "charge."},
		"name twice":      {text: north + "- {name: north, url: 'http://127.0.0.1:2'}\n", want: []string{"acquirers[1] (north): name is used twice"}},
		"bad name":        {text: "acquirers:\n- {name: North Bank, url: 'http://127.0.0.1:1'}\n", want: []string{`name is "North Bank"`}},
		"unknown adapter": {text: "acquirers:\n- {name: north, adapter: telex, url: 'http://127.0.0.1:1'}\n", want: []string{`adapter is "telex"`}},
		"every rung of the ladder at once": {
			text: "server: {request_time_max: 5s}\ncharge: {budget: 6s, store_time: 9s, lease: 7s}\nacquirers:\n- {name: north, url: 'http://127.0.0.1:1', timeout: 8s}\n",
			want: []string{"server.request_time_max is 5s", "charge.lease is 7s", "timeout is 8s: it must leave room inside charge.budget (6s)", "charge.store_time (9s) must be shorter"},
		},
		"events":                 {text: "acquirers:\n- {name: north, url: 'http://127.0.0.1:1', events: {secrets: [{env: NEW}, {file: old}], tolerance: 1m}}\n"},
		"events that never tire": {text: "acquirers:\n- {name: north, url: 'http://127.0.0.1:1', events: {tolerance: 24h}}\n", want: []string{"(north): events.tolerance is 24h0m0s"}},
		"shedding off, the rest of it by default": {text: north + "shedding: {enabled: false}\n"},
		"every setting of shedding at once": {
			text: north + "shedding: {limit_min: 0, limit_max: -1, normal_percent: 101, low_percent: 200, slowdown_percent: 100}\n",
			want: []string{"shedding.limit_min is 0: it must be 1 to 100000", "shedding.limit_max is -1", "shedding.normal_percent is 101",
				"shedding.low_percent is 200: it must be 0 to 100", "shedding.slowdown_percent is 100: it must be 110"},
		},
		"batch before reads":           {text: north + "shedding: {low_percent: 60}\n", want: []string{"shedding.low_percent is 60: it must be at most normal_percent (25)"}},
		"least above most":             {text: north + "shedding: {limit_min: 20, limit_max: 10}\n", want: []string{"shedding.limit_min is 20: it must be at most limit_max (10)"}},
		"unknown name within shedding": {text: north + "shedding: {limit: 10}\n", want: []string{"limit"}},
		"retention too short":          {text: north + "retention: 1h\n", want: []string{"retention is 1h"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := readConfig(writeConfig(t, test.text))
			if len(test.want) == 0 && err != nil {
				t.Fatal(err)
			}
			for _, part := range test.want {
				if err == nil || !strings.Contains(err.Error(), part) {
					t.Errorf("error %v does not say %q", err, part)
				}
			}
			if test.not != "" && err != nil && strings.Contains(err.Error(), test.not) {
				t.Errorf("error %v speaks of %q", err, test.not)
			}
		})
	}
}

func TestConfigSurvivesWritingAndReading(t *testing.T) {
	t.Parallel()
	c := defaultConfig()
	c.Charge = devCharge
	c.Acquirers = []acquirerConfig{{Name: "north", Adapter: "rest", URL: "http://127.0.0.1:1", Timeout: devAttempt}}
	text, err := yaml.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	read, err := readConfig(writeConfig(t, string(text)))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	again, err := yaml.Marshal(read)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(text, again) {
		t.Errorf("written\n%s\nread back\n%s", text, again)
	}
}

func TestFingerprintKey(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{"missing": "", "not base64": "%%%", "short": "YWJj"} {
		if _, err := fingerprintKey(text); err == nil || !strings.Contains(err.Error(), "PAYMENTSD_FINGERPRINT_KEY") || !strings.Contains(err.Error(), "urandom") {
			t.Errorf("%s: the error does not name the setting and the way out: %v", name, err)
		}
	}
	if key, err := fingerprintKey("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="); err != nil || len(key) != 32 {
		t.Errorf("32 bytes: %d, %v", len(key), err)
	}
}

func TestSecretsDoNotStandInTheFile(t *testing.T) {
	t.Parallel()
	file := writeConfig(t, "from-file\n")
	env := func(name string) string { return map[string]string{"NORTH_SECRET": "from-env"}[name] }
	for name, test := range map[string]struct {
		source secretSource
		want   string
		err    string
	}{
		"from the environment": {source: secretSource{Env: "NORTH_SECRET"}, want: "from-env"},
		"from a file":          {source: secretSource{File: file}, want: "from-file"},
		"none":                 {},
		"not there":            {source: secretSource{Env: "SOUTH_SECRET"}, err: "SOUTH_SECRET"},
		"both":                 {source: secretSource{Env: "A", File: "b"}, err: "use one"},
	} {
		got, err := test.source.read(env)
		if (err == nil) != (test.err == "") || (err != nil && !strings.Contains(err.Error(), test.err)) || got.Reveal() != test.want {
			t.Errorf("%s: %q, %v", name, got.Reveal(), err)
		}
	}
}

func TestEventSecrets(t *testing.T) {
	t.Parallel()
	const secret = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
	environment := map[string]string{"NEW": secret, "OLD": secret, "BAD": "hunter2"}
	getenv := func(name string) string { return environment[name] }
	for name, c := range map[string]struct {
		sources []secretSource
		want    string
	}{
		"none":                   {nil, ""},
		"two":                    {[]secretSource{{Env: "NEW"}, {Env: "OLD"}}, ""},
		"one that is not there":  {[]secretSource{{Env: "NEW"}, {Env: "GONE"}}, "events.secrets[1]: secret: the environment has no GONE"},
		"a place without a name": {[]secretSource{{}}, "events.secrets[0]: name env or file"},
		"malformed":              {[]secretSource{{Env: "BAD"}}, "events: secret 1 is not whsec_"},
	} {
		_, err := newPlan(acquirerConfig{Name: "north", Adapter: "rest", URL: "http://127.0.0.1:1", Timeout: 8 * time.Second, Events: eventsConfig{Secrets: c.sources}}, getenv)
		if (err == nil) != (c.want == "") || (err != nil && (!strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hunter2"))) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

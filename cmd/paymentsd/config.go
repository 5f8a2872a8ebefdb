package main

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"paymentsd/acquirer"
	"paymentsd/acquirer/builtin"
	"paymentsd/payment"
)

// config is everything that can be set. It is read once at start and never changed after.
type config struct {
	Server    serverConfig     `yaml:"server"`
	Charge    chargeConfig     `yaml:"charge"`
	Shedding  sheddingConfig   `yaml:"shedding"`
	Jobs      jobsConfig       `yaml:"jobs"`
	Retention time.Duration    `yaml:"retention"` // of frozen answers; keys stay for good
	Acquirers []acquirerConfig `yaml:"acquirers"`
}

type serverConfig struct {
	Addr           string        `yaml:"addr"`
	RequestTimeMax time.Duration `yaml:"request_time_max"` // one request, all in all
	DatabaseConns  int           `yaml:"database_conns"`
	Replica        string        `yaml:"replica"` // what this process is called; the host's name if empty
}

type chargeConfig struct {
	Budget    time.Duration `yaml:"budget"`     // one charge, at all acquirers together
	StoreTime time.Duration `yaml:"store_time"` // one write
	Lease     time.Duration `yaml:"lease"`      // after which a sweep takes a charge for lost
	Sweep     time.Duration `yaml:"sweep"`      // how often
	Writers   int           `yaml:"writers"`    // commits under way at once, before and after the call each
	GroupMax  int           `yaml:"group_max"`  // charges that share one commit at most
	QueueMax  int           `yaml:"queue_max"`  // charges that may wait for it
}

// jobsConfig is what is done beside charges, on each replica.
type jobsConfig struct {
	DatabaseConns  int             `yaml:"database_conns"` // of their own, beside server.database_conns
	Poll           time.Duration   `yaml:"poll"`           // how often the outbox is looked at without news
	InquiryWorkers int             `yaml:"inquiry_workers"`
	Inquiries      []time.Duration `yaml:"inquiries"` // the waits after each inquiry that settled nothing
	ChargeWorkers  int             `yaml:"charge_workers"`
}

type acquirerConfig struct {
	Name     string            `yaml:"name"`
	Adapter  string            `yaml:"adapter"`
	URL      string            `yaml:"url"`
	Account  string            `yaml:"account"`
	Timeout  time.Duration     `yaml:"timeout"` // one attempt
	Secret   secretSource      `yaml:"secret"`
	Settings map[string]string `yaml:"settings"`
	Breaker  breakerConfig     `yaml:"breaker"`
	Retry    retryConfig       `yaml:"retry"`
	Budget   budgetConfig      `yaml:"budget"`
	Bulkhead bulkheadConfig    `yaml:"bulkhead"`
	Events   eventsConfig      `yaml:"events"`
}

// eventsConfig is about what the acquirer sends us of its own accord; without secrets nothing is taken.
type eventsConfig struct {
	Secrets   []secretSource `yaml:"secrets"`   // each may have signed; the newest first
	Tolerance time.Duration  `yaml:"tolerance"` // of its clock against ours
}

// eventToleranceMax bounds how long a signed event may be replayed by whoever saw it.
const eventToleranceMax = time.Hour

// secretSource says where a secret is; it never stands in the file itself.
type secretSource struct {
	Env  string `yaml:"env"`
	File string `yaml:"file"`
}

func defaultConfig() config {
	return config{
		Server: serverConfig{Addr: "127.0.0.1:8080", RequestTimeMax: 25 * time.Second, DatabaseConns: 16},
		Charge: chargeConfig{
			Budget: 20 * time.Second, StoreTime: 5 * time.Second, Lease: 60 * time.Second, Sweep: 5 * time.Second,
			Writers: payment.WritersDefault, GroupMax: payment.RowsMaxDefault, QueueMax: payment.QueueMaxDefault,
		},
		Shedding: defaultShedding(),
		Jobs: jobsConfig{
			DatabaseConns: 6, Poll: time.Second, InquiryWorkers: 8, Inquiries: payment.DefaultInquiries(), ChargeWorkers: 16,
		},
		Retention: 30 * 24 * time.Hour,
	}
}

// groupMaxMax bounds a commit: the longer it is, the longer each of its charges waits.
const groupMaxMax = 1000

// configMax bounds the configuration file.
const configMax = 1 << 20

// readConfig reads a YAML file over the defaults. An unknown name is an error with its line.
func readConfig(path string) (config, error) {
	c := defaultConfig()
	file, err := os.Open(path)
	if err != nil {
		return c, fmt.Errorf("PAYMENTSD_CONFIG (or --config): %w", err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, configMax))
	if err != nil {
		return c, fmt.Errorf("read %s: %w", path, err)
	}
	if err := checkDurations(text); err != nil {
		return c, fmt.Errorf("%s: %w", path, err)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text), yaml.Strict())
	if err := decoder.Decode(&c); err != nil && !errors.Is(err, io.EOF) {
		return c, fmt.Errorf("%s: %s", path, strings.TrimSpace(yaml.FormatError(err, false, true)))
	}
	if c.Server == (serverConfig{}) && c.Charge == (chargeConfig{}) {
		// A document without content, such as comments alone, is decoded as null: it would put every
		// default to zero, and be blamed for times that it does not name.
		c = defaultConfig()
	}
	for i := range c.Acquirers {
		a := &c.Acquirers[i]
		a.Adapter = orElse(a.Adapter, "rest")
		a.Timeout = orElse(a.Timeout, 8*time.Second)
	}
	return c, c.check()
}

func orElse[T comparable](value, fallback T) T {
	var zero T
	if value == zero {
		return fallback
	}
	return value
}

var acquirerName = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,39}$`)

// replicaName is visible to people in logs, metrics and the API.
var replicaName = regexp.MustCompile(`^[!-~]{1,80}$`)

// check reports every problem at once: each with field and value.
func (c config) check() error {
	var problems []error
	want := func(ok bool, format string, args ...any) {
		if !ok {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	// The ladder: each inner time leaves room inside the outer one, or there is none left to answer in.
	want(c.Server.RequestTimeMax > c.Charge.Budget,
		"server.request_time_max is %v: it must be longer than charge.budget (%v)", c.Server.RequestTimeMax, c.Charge.Budget)
	want(c.Charge.StoreTime > 0, "charge.store_time is %v: it must be more than 0", c.Charge.StoreTime)
	want(c.Charge.Lease > c.Charge.Budget+2*c.Charge.StoreTime,
		"charge.lease is %v: it must be longer than charge.budget (%v) and two writes of charge.store_time (%v)", c.Charge.Lease, c.Charge.Budget, c.Charge.StoreTime)
	want(c.Charge.Sweep > 0, "charge.sweep is %v: it must be more than 0", c.Charge.Sweep)
	want(c.Charge.Writers >= 1 && c.Charge.Writers <= c.Server.DatabaseConns,
		"charge.writers is %d: it must be 1 to server.database_conns (%d)", c.Charge.Writers, c.Server.DatabaseConns)
	want(c.Charge.GroupMax >= 1 && c.Charge.GroupMax <= groupMaxMax, "charge.group_max is %d: it must be 1 to %d", c.Charge.GroupMax, groupMaxMax)
	want(c.Charge.QueueMax >= c.Charge.GroupMax, "charge.queue_max is %d: it must be at least charge.group_max (%d)", c.Charge.QueueMax, c.Charge.GroupMax)
	want(c.Retention >= 24*time.Hour, "retention is %v: it must be at least 24h", c.Retention)
	want(c.Server.DatabaseConns >= 2, "server.database_conns is %d: it must be at least 2", c.Server.DatabaseConns)
	if err := checkReplica(c.Server.Replica); err != nil {
		problems = append(problems, err)
	}
	problems = append(problems, c.Shedding.problems()...)
	c.Jobs.check(want)
	want(len(c.Acquirers) > 0, "acquirers is empty: name at least one")
	names := map[string]bool{}
	for i, a := range c.Acquirers {
		at := fmt.Sprintf("acquirers[%d] (%s)", i, a.Name)
		want(acquirerName.MatchString(a.Name), "%s: name is %q: it must be lower-case letters, digits, - and _, at most 40", at, a.Name)
		want(!names[a.Name], "%s: name is used twice", at)
		names[a.Name] = true
		want(a.Timeout > 0 && a.Timeout < c.Charge.Budget,
			"%s: timeout is %v: it must leave room inside charge.budget (%v)", at, a.Timeout, c.Charge.Budget)
		want(c.Charge.StoreTime < a.Timeout || a.Timeout == 0,
			"%s: timeout is %v: charge.store_time (%v) must be shorter", at, a.Timeout, c.Charge.StoreTime)
		want(a.Events.Tolerance >= 0 && a.Events.Tolerance <= eventToleranceMax,
			"%s: events.tolerance is %v: it must be at most %v", at, a.Events.Tolerance, eventToleranceMax)
		_, known := builtin.Factories()[a.Adapter]
		want(known, "%s: adapter is %q: it is not known", at, a.Adapter)
		a.Breaker.check(at, want)
	}
	return errors.Join(problems...)
}

func (j jobsConfig) check(want func(ok bool, format string, args ...any)) {
	want(j.DatabaseConns >= 4, "jobs.database_conns is %d: it must be at least 4", j.DatabaseConns)
	want(j.Poll > 0, "jobs.poll is %v: it must be more than 0", j.Poll)
	want(j.InquiryWorkers >= 1, "jobs.inquiry_workers is %d: it must be at least 1", j.InquiryWorkers)
	want(j.ChargeWorkers >= 1, "jobs.charge_workers is %d: it must be at least 1", j.ChargeWorkers)
	want(len(j.Inquiries) > 0 && len(j.Inquiries) <= inquiriesMax, "jobs.inquiries has %d waits: it must have 1 to %d", len(j.Inquiries), inquiriesMax)
	for i, wait := range j.Inquiries {
		want(wait > 0, "jobs.inquiries[%d] is %v: it must be more than 0", i, wait)
	}
}

// inquiriesMax bounds how often an acquirer is asked about one charge.
const inquiriesMax = 50

// read gives the secret, and says where it was looked for if it is not there.
func (s secretSource) read(getenv func(string) string) (acquirer.Secret, error) {
	switch {
	case s.Env != "" && s.File != "":
		return "", errors.New("secret names both env and file: use one")
	case s.Env != "":
		if value := getenv(s.Env); value != "" {
			return acquirer.Secret(value), nil
		}
		return "", fmt.Errorf("secret: the environment has no %s", s.Env)
	case s.File != "":
		text, err := os.ReadFile(s.File)
		if err != nil {
			return "", fmt.Errorf("secret: %w", err)
		}
		return acquirer.Secret(strings.TrimSpace(string(text))), nil
	}
	return "", nil
}

// fingerprintKey reads the secret of the fingerprints: base64 of at least 32 bytes.
func fingerprintKey(text string) ([]byte, error) {
	const how = "make one with: head -c 32 /dev/urandom | base64"
	if text == "" {
		return nil, errors.New("PAYMENTSD_FINGERPRINT_KEY is not set: all replicas need the same one; " + how)
	}
	key, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, errors.New("PAYMENTSD_FINGERPRINT_KEY is not base64: " + how)
	}
	if len(key) < 32 {
		return nil, fmt.Errorf("PAYMENTSD_FINGERPRINT_KEY has %d bytes, it needs 32: %s", len(key), how)
	}
	return key, nil
}

// names lists the acquirers, in order.
func (c config) names() []string {
	var names []string
	for _, a := range c.Acquirers {
		names = append(names, a.Name)
	}
	return slices.Clip(names)
}

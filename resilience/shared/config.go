package shared

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"paymentsd/resilience"
)

// Bounds of this package's own traffic. It has its own connections: it never waits in the pool of the
// charges, nor they for it.
const (
	poolConns        = 2 // and one that listens
	connectTimeMax   = time.Second
	statementTimeMax = 250 * time.Millisecond // by the server
	lockTimeMax      = 100 * time.Millisecond // by the server
	storeTimeMax     = 350 * time.Millisecond // by us, the way there and back included
	claimTimeMax     = 100 * time.Millisecond
	takeTimeMax      = 250 * time.Millisecond

	// WindowMax is the longest window that replicas share; outcomes are kept a little longer.
	WindowMax = 5 * time.Minute
)

// Config says where the shared state is and whose it is.
type Config struct {
	// URL is a database that migrations have prepared. A transaction pooler in between swallows
	// notifications: then replicas learn of each other within a second instead of milliseconds.
	URL string
	// Role is taken on every connection; empty keeps the login role.
	Role string
	// Replica names this process to people, as its host does. It is made unique by a suffix.
	Replica string
	// Acquirers are those whose state is shared.
	Acquirers []Acquirer
	Log       *slog.Logger
	// Tracer sees every statement, if set.
	Tracer pgx.QueryTracer
}

// Acquirer is the policy for one acquirer. Now is not used: windows and leases run on the database's clock.
type Acquirer struct {
	Name    string
	Breaker resilience.BreakerConfig
	Budget  resilience.BudgetConfig
}

var acquirerName = regexp.MustCompile(`^[a-z0-9_-]{1,40}$`)

func (c Config) validate() error {
	var problems []error
	want := func(ok bool, format string, args ...any) {
		if !ok {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	names := map[string]bool{}
	want(len(c.Acquirers) > 0, "no acquirer: name at least one")
	want(c.Log != nil, "no Log: slog.New(slog.DiscardHandler) is silent")
	for _, a := range c.Acquirers {
		want(acquirerName.MatchString(a.Name), "acquirer name %q: use 1 to 40 of a-z, 0-9, - and _", a.Name)
		want(!names[a.Name], "acquirer %q is named twice", a.Name)
		names[a.Name] = true
		if err := errors.Join(a.Breaker.Validate(), a.Budget.Validate()); err != nil {
			want(false, "acquirer %q: %w", a.Name, err)
		}
		want(a.Breaker.Window <= WindowMax, "acquirer %q: breaker.window is %v: want at most %v where replicas share it",
			a.Name, a.Breaker.Window, WindowMax)
	}
	return errors.Join(problems...)
}

// identity is this process and no other, not even its own next start.
func (c Config) identity() string {
	name := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return -1
		}
		return r
	}, c.Replica)
	return name[:min(len(name), 80)] + "/" + strings.ToLower(rand.Text()[:6])
}

// connections reads how to connect, for the pool and for the connection that listens.
func (c Config) connections() (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(c.URL)
	if err != nil {
		return nil, fmt.Errorf("the database URL cannot be used: %w", err)
	}
	config.MaxConns, config.MinConns = poolConns, 1
	conn := config.ConnConfig
	conn.ConnectTimeout = connectTimeMax
	conn.Tracer = c.Tracer
	for name, value := range map[string]string{
		"timezone":                            "UTC",
		"application_name":                    "paymentsd resilience",
		"statement_timeout":                   fmt.Sprint(statementTimeMax.Milliseconds()),
		"lock_timeout":                        fmt.Sprint(lockTimeMax.Milliseconds()),
		"idle_in_transaction_session_timeout": fmt.Sprint(2 * storeTimeMax.Milliseconds()),
	} {
		conn.RuntimeParams[name] = value
	}
	if c.Role != "" {
		conn.RuntimeParams["role"] = c.Role
	}
	return config, nil
}

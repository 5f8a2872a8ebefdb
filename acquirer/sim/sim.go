// Package sim is a small acquirer that really keeps its promises, and breaks them on demand: an
// HTTP server with its own idempotency keys, its own book, injectable faults and settlement files.
// docs/acquirer-protocol.md is its API, docs/simulator.md its switches.
package sim

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"paymentsd/money"
	"paymentsd/settlement/feedtest"
)

// Config says what kind of acquirer to be. The zero value is a well-behaved one in memory.
type Config struct {
	Name    string // "sim" if empty; stands in capture ids and settlement files
	Account string // the merchant's account, "main" if empty
	Secret  string // the bearer token to ask for; empty accepts anybody

	// BookFile, if set, is the file that keeps the book: a capture is in it, synced, before it is
	// answered.
	BookFile string
	BookMax  int // records at most, 2,000,000 if 0; a full book refuses unprocessed

	CapacityPerSecond int           // captures and lookups accepted in a second, 0 for no limit
	Latency           time.Duration // before every capture is processed
	SlowLatency       time.Duration // instead of Latency for "slow", 3 s if 0
	HoldMax           time.Duration // how long a "timeout" holds its connection, 60 s if 0
	LookupLag         time.Duration // how long a capture stays hidden from inquiries
	PendingFor        time.Duration // how long a 202 stays pending, 2 s if 0

	Variant   Variant
	Exponents map[money.Currency]int // decimals on this wire where they differ from ISO 4217

	FeeBasisPoints int  // of each capture, in 1/100 %
	FeeFixedMinor  int  // on each capture, in minor units of its currency
	ReportsLost    bool // settlement files name lost requests in capture_failed lines, if their format can

	Format string // of settlement files for which none is asked, "canonical" if empty

	Events Events // whom to tell of captures

	Seed   uint64 // of the dice for faults by percentage
	Now    func() time.Time
	Logger *slog.Logger
}

// Variant is how this acquirer differs from one that stores every outcome under its key.
type Variant struct {
	ForgetsFailures     bool          // only complete successes are stored: a same-key retry charges again
	ReplaysServerErrors bool          // a 500 is stored and replayed for the life of the key
	NoKeys              bool          // keys are ignored: every request charges
	NoLookup            bool          // inquiries by reference are not offered
	KeyTTL              time.Duration // keys are forgotten after this, 0 for never
}

func (c Config) withDefaults() Config {
	c.Name = or(c.Name, "sim")
	c.Account = or(c.Account, "main")
	c.Format = or(c.Format, "canonical")
	c.BookMax = or(c.BookMax, 2_000_000)
	c.SlowLatency = or(c.SlowLatency, 3*time.Second)
	c.HoldMax = or(c.HoldMax, time.Minute)
	c.PendingFor = or(c.PendingFor, 2*time.Second)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	return c
}

func or[T comparable](value, fallback T) T {
	var zero T
	if value == zero {
		return fallback
	}
	return value
}

// Validate names every setting that cannot be.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	for name, negative := range map[string]bool{
		"BookMax":           c.BookMax < 0,
		"CapacityPerSecond": c.CapacityPerSecond < 0,
		"Latency":           c.Latency < 0,
		"SlowLatency":       c.SlowLatency < 0,
		"HoldMax":           c.HoldMax < 0,
		"LookupLag":         c.LookupLag < 0,
		"PendingFor":        c.PendingFor < 0,
		"KeyTTL":            c.Variant.KeyTTL < 0,
		"FeeFixedMinor":     c.FeeFixedMinor < 0,
		"FeeBasisPoints":    c.FeeBasisPoints < 0 || c.FeeBasisPoints > 10_000,
	} {
		if negative {
			errs = append(errs, fmt.Errorf("simulator: %s is out of range", name))
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	if _, err := c.Events.validate(); err != nil {
		errs = append(errs, err)
	}
	for name, value := range map[string]string{"Name": c.Name, "Account": c.Account} {
		if !plainName(value) {
			errs = append(errs, fmt.Errorf("simulator: %s %q: use 1 to 32 letters, digits, - and _", name, value))
		}
	}
	if !slices.Contains(feedtest.Formats(), c.Format) {
		errs = append(errs, fmt.Errorf("simulator: Format %q: use one of %s", c.Format, strings.Join(feedtest.Formats(), ", ")))
	}
	return errors.Join(errs...)
}

func plainName(s string) bool {
	if s == "" || len(s) > 32 {
		return false
	}
	for i := range len(s) {
		b := s[i]
		letter := b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z'
		if !letter && (b < '0' || b > '9') && b != '-' && b != '_' {
			return false
		}
	}
	return true
}

// Sim is one running acquirer. Its methods are safe for concurrent use.
type Sim struct {
	cfg    Config
	log    *slog.Logger
	closed chan struct{}
	stop   func() // closes closed, once
	events *http.Client

	telling sync.WaitGroup // events under way; one is added under mu, before closed is

	issuing sync.Mutex // one settlement file at a time; taken before mu

	mu       sync.Mutex // guards what follows
	book     *book
	faults   []activeFault
	onceSeen map[string]bool // keys that a "_once" token has troubled
	stats    counters
	dice     *rand.Rand
	port     *Server // nil under somebody else's server
	eventKey []byte  // of cfg.Events, which is guarded as well
}

// New opens the book and starts an acquirer.
func New(cfg Config) (*Sim, error) {
	cfg = cfg.withDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	b, err := openBook(cfg)
	if err != nil {
		return nil, err
	}
	if b.torn > 0 {
		cfg.Logger.Warn("the book ended in a torn record, which was cut off: it was never answered",
			"file", cfg.BookFile, "bytes", b.torn)
	}
	closed := make(chan struct{})
	key, _ := cfg.Events.validate() // it was, with the rest
	return &Sim{
		eventKey: key,
		events:   &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		cfg:      cfg,
		log:      cfg.Logger,
		closed:   closed,
		stop:     sync.OnceFunc(func() { close(closed) }),
		book:     b,
		onceSeen: map[string]bool{},
		stats:    newCounters(),
		dice:     rand.New(rand.NewPCG(cfg.Seed, 0x9e3779b97f4a7c15)),
	}, nil
}

// Close ends held connections, gives up the events under way and closes the book. It may be called twice.
func (s *Sim) Close() error {
	s.stop()
	s.mu.Lock()
	err := s.book.close()
	s.mu.Unlock()
	s.telling.Wait()
	s.events.CloseIdleConnections()
	return err
}

// Handler is the acquirer's HTTP surface.
func (s *Sim) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/captures", s.capture)
	mux.HandleFunc("GET /v1/captures", s.lookup)
	mux.HandleFunc("/v1/captures", wrongMethod("GET, POST"))
	mux.HandleFunc("GET /settlement", s.settlement)
	mux.HandleFunc("GET /settlement/{day}", s.settlementDay)
	mux.HandleFunc("GET /admin/faults", s.getFaults)
	mux.HandleFunc("PUT /admin/faults", s.putFaults)
	mux.HandleFunc("DELETE /admin/faults", s.deleteFaults)
	mux.HandleFunc("/admin/faults", wrongMethod("GET, PUT, DELETE"))
	mux.HandleFunc("GET /admin/stats", s.getStats)
	mux.HandleFunc("GET /admin/captures", s.getCaptures)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"status": "ok", "name": s.cfg.Name})
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		writeProblem(w, problem{status: http.StatusNotFound, Code: "no_such_route", Message: "there is nothing at this address"})
	})
	return mux
}

func wrongMethod(allow string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Allow", allow)
		writeProblem(w, problem{status: http.StatusMethodNotAllowed, Code: "method_not_allowed", Message: "allowed here: " + allow})
	}
}

// wait sleeps unless the simulator is closed first. It does not end with the client: an acquirer
// that was asked goes on working.
func (s *Sim) wait(d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.closed:
	}
}

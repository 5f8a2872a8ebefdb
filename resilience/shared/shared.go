package shared

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"paymentsd/internal/postgres"
)

// Shared is this replica's part in the state that all replicas share. It is safe for concurrent use.
type Shared struct {
	replica      string
	log          *slog.Logger
	start        time.Time
	pool         *pgxpool.Pool
	store        store
	listenConfig *pgx.ConnConfig
	sockets      sockets
	accounts     []*account // by name; fixed
	events       *events
	kick         chan struct{}
	listening    atomic.Bool
	health       atomic.Pointer[health]
	clock        atomic.Int64 // the time, at most clockLag ago

	ctx    context.Context // until Close
	cancel context.CancelFunc
	mu     sync.Mutex // closed, and adding to work
	closed bool
	work   sync.WaitGroup
}

// health is how the store answered last.
type health struct {
	err   error
	since time.Duration // the first of the answers that were alike
	heard time.Duration // the last good one
}

const (
	// pruneEvery is how often each replica has old windows deleted.
	pruneEvery = time.Minute
	// joinTimeMax is how long Open may take.
	joinTimeMax = 20 * time.Second
	// The coarse clock ticks often enough that only a process which stood still is behind by its lag.
	clockEvery = 100 * time.Millisecond
	clockLag   = time.Second
)

// Open joins the replicas. It returns once it listens and has read where every breaker stands, or gives
// an error: nobody should call an acquirer before knowing that.
func Open(ctx context.Context, c Config) (*Shared, error) {
	if err := c.validate(); err != nil {
		return nil, fmt.Errorf("shared resilience: %w", err)
	}
	config, err := c.connections()
	if err != nil {
		return nil, err
	}
	s := &Shared{replica: c.identity(), log: c.Log, start: time.Now(), events: newEvents(), kick: make(chan struct{}, 1)}
	config.ConnConfig.DialFunc = s.sockets.dialler(config.ConnConfig.DialFunc)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open the pool of the shared breaker: %w", err)
	}
	s.pool, s.listenConfig = pool, config.ConnConfig.Copy()
	s.store = store{db: pool, replica: s.replica}
	s.listenConfig.RuntimeParams["application_name"] += " listener"
	s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	for _, a := range c.Acquirers {
		s.accounts = append(s.accounts, s.newAccount(a))
	}
	slices.SortFunc(s.accounts, func(a, b *account) int { return strings.Compare(a.breaker.acquirer, b.breaker.acquirer) })
	if err := s.join(ctx); err != nil {
		s.Close()
		return nil, fmt.Errorf("join the shared breaker: %w", err)
	}
	return s, nil
}

func (s *Shared) newAccount(a Acquirer) *account {
	cfg := a.Breaker
	cfg.Ramp, cfg.Listeners = slices.Clone(cfg.Ramp), slices.Clone(cfg.Listeners)
	return &account{
		seq:     1,
		breaker: &Breaker{acquirer: a.Name, cfg: cfg, shared: s, start: s.start},
		budget:  &Budget{acquirer: a.Name, cfg: a.Budget, shared: s},
	}
}

// join listens first and reads then.
func (s *Shared) join(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, joinTimeMax)
	defer cancel()
	// To connect and to plan can take longer than is given to what comes later: try again.
	if err := s.insist(ctx, s.listenFirst); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if err := s.insist(ctx, s.flush); err != nil {
		return err
	}
	for _, a := range s.accounts {
		if a.breaker.phase.Load() == nil {
			return fmt.Errorf("the store said nothing of %s", a.breaker.acquirer)
		}
	}
	s.spawn(s.flushLoop)
	s.spawn(s.clockLoop)
	s.spawn(s.pruneLoop)
	s.spawn(func() { s.events.run(s.ctx.Done()) })
	return nil
}

// insist tries again until ctx ends, unless the server understood and refused.
func (s *Shared) insist(ctx context.Context, try func(context.Context) error) error {
	for {
		err := try(ctx)
		if err == nil || ctx.Err() != nil || postgres.Rejected(err) || !s.pause(reportPause) {
			return err
		}
	}
}

// listenFirst starts the listener, and gives an error if it cannot listen yet.
func (s *Shared) listenFirst(ctx context.Context) error {
	first := make(chan error, 1)
	s.spawn(func() { s.listenLoop(first) })
	select {
	case err := <-first:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close sends what was counted last and ends every goroutine and connection of this replica, within
// about a second. Breakers keep their last state; a probe that is out is left to its lease.
func (s *Shared) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	hurry := time.AfterFunc(storeTimeMax+closeTimeMax, s.sockets.end)
	defer hurry.Stop()
	s.work.Wait()
	s.pool.Close()
}

// Replica is this process's own name among all that share.
func (s *Shared) Replica() string { return s.replica }

// Breaker is the breaker of an acquirer; nil if it was not configured.
func (s *Shared) Breaker(acquirer string) *Breaker {
	if a := s.account(acquirer); a != nil {
		return a.breaker
	}
	return nil
}

// Budget is the retry budget of an acquirer; nil if it was not configured.
func (s *Shared) Budget(acquirer string) *Budget {
	if a := s.account(acquirer); a != nil {
		return a.budget
	}
	return nil
}

func (s *Shared) account(acquirer string) *account {
	for _, a := range s.accounts {
		if a.breaker.acquirer == acquirer {
			return a
		}
	}
	return nil
}

func (s *Shared) now() time.Duration { return time.Since(s.start) }

// spawn runs f beside the caller, to be awaited by Close; false if it is too late for that.
func (s *Shared) spawn(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.work.Go(f)
	return true
}

// pause waits; false if Close came first.
func (s *Shared) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.ctx.Done():
		return false
	}
}

func (s *Shared) clockLoop() {
	for s.pause(clockEvery) {
		s.clock.Store(int64(s.now()))
	}
}

func (s *Shared) pruneLoop() {
	for s.pause(spread(pruneEvery)) {
		ctx, cancel := context.WithTimeout(s.ctx, storeTimeMax)
		if err := s.store.prune(ctx); err != nil && s.ctx.Err() == nil {
			s.log.Warn("old windows were not deleted", "error", err)
		}
		cancel()
	}
}

// flushed notes how the store answered a flush, and says so when that has changed.
func (s *Shared) flushed(err error) {
	now, last := s.now(), s.health.Load()
	next := &health{err: err, since: now, heard: now}
	if last != nil {
		if err != nil {
			next.heard = last.heard
		}
		if (err == nil) == (last.err == nil) {
			next.since = last.since
		} else if err == nil {
			s.log.Info("the store of the shared breaker answers again", "after", now-last.since)
		}
	}
	if err != nil && (last == nil || last.err == nil) && s.ctx.Err() == nil {
		s.log.Warn("the store of the shared breaker does not answer: the last state stands", "error", err)
	}
	s.health.Store(next)
}

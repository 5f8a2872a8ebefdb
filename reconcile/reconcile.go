// Package reconcile compares what we believe with what acquirers say they paid: it imports their
// settlement files, ends every unknown for which a file is proof, posts the ledger line by line, and
// names each difference for a person.
//
// One merchant at a time is the restartable unit. Everything it writes is keyed by what it is about,
// so that a run may be killed anywhere, or run twice at once, and the end is the same.
package reconcile

import (
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"paymentsd/merchant"
	"paymentsd/payment"
	"paymentsd/settlement"
)

// The reasons why a run or a request is refused.
var (
	ErrBusy           = errors.New("another reconciliation of this acquirer is running")
	ErrAcquirer       = errors.New("not the name of an acquirer")
	ErrNoException    = errors.New("no such exception")
	ErrClosed         = errors.New("the exception is closed already")
	ErrNoRun          = errors.New("no run of this acquirer yet")
	ErrInvalidCursor  = errors.New("the cursor is not one of ours")
	ErrInvalidRequest = errors.New("the request cannot be used")
	ErrTooLarge       = errors.New("the settlement file is too large")
)

// The settings that apply where a Config has zero.
const (
	DefaultCutoff   = 5                // business days
	DefaultLookback = 30               // days
	DefaultLockWait = 30 * time.Second // for a run of the same acquirer to end
	DefaultSizeMax  = 1 << 30          // bytes of one file
)

// Config is what a Reconciler needs.
type Config struct {
	Pool      *pgxpool.Pool
	Resolver  *payment.Resolver
	Merchants *merchant.Store
	Now       func() time.Time
	Log       *slog.Logger

	// Formats are settlement formats of profiles of our own, beside those of the package settlement.
	Formats []settlement.Format
	// Cutoff is how many business days after a capture its line may still come.
	Cutoff int
	// Cutoffs overrides Cutoff for single acquirers.
	Cutoffs map[string]int
	// Lookback is how many days before the cut-off captured charges are still looked at: a job that
	// did not run for longer than that would pass over some.
	Lookback int
	// LockWait is how long to wait for another run of the same acquirer.
	LockWait time.Duration
	// SizeMax bounds one settlement file, in bytes.
	SizeMax int64
	// Fault is called after each step of a run. Only tests of crashes set it.
	Fault func(step string)
	// Progress is told what is going on, for a person to read.
	Progress func(Progress)
}

// Progress is one step of a run.
type Progress struct {
	Stage string // "import" or "match"
	Text  string // a sentence, or empty if only the counts moved
	Done  int
	Total int // 0 if not known
}

// Reconciler runs reconciliations. It is safe for concurrent use.
type Reconciler struct {
	Config
	turns chan struct{} // see turn
}

// New makes a Reconciler; zero settings take their defaults.
func New(c Config) *Reconciler {
	if c.Cutoff == 0 {
		c.Cutoff = DefaultCutoff
	}
	if c.Lookback == 0 {
		c.Lookback = DefaultLookback
	}
	if c.LockWait == 0 {
		c.LockWait = DefaultLockWait
	}
	if c.SizeMax == 0 {
		c.SizeMax = DefaultSizeMax
	}
	if c.Fault == nil {
		c.Fault = func(string) {}
	}
	if c.Progress == nil {
		c.Progress = func(Progress) {}
	}
	return &Reconciler{Config: c, turns: make(chan struct{}, 1)}
}

func (r *Reconciler) cutoff(acquirer string) int {
	if days, ok := r.Cutoffs[acquirer]; ok {
		return days
	}
	return r.Cutoff
}

// now is the clock of bookkeeping; nothing that a report shows depends on it.
func (r *Reconciler) now() time.Time { return r.Now().UTC().Truncate(time.Microsecond) }

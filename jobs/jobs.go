// Package jobs does beside charges what need not be done inside one: it relays the outbox to those who
// want it, wakes errands when they are due, and runs the workers, on river (docs/jobs.md).
//
// A merchant's rows are the truth: outbox and errands. A job of river is a wake-up on the control side: it
// may be lost, since what is not done is woken again, and it may come twice, since whoever acts on it claims
// the row first. No job is made inside a charge's transaction.
//
// To follow the outbox with another consumer, hand an [Extension] to New.
package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"paymentsd/merchant"
	"paymentsd/payment"
)

// Schema is where river's tables are (migrations: 000010_jobs).
const Schema = "river"

// Consumer is told of every event of the outbox, at least once and in no order.
type Consumer interface {
	// Name stands in the log.
	Name() string
	// Take does whatever makes sure that the consumer will act on these events of one merchant: it writes
	// that merchant's rows, or returns jobs to be made, or both, in this order. The same events may come
	// again, so rows need keys made of the event, and jobs UniqueOpts. An error brings the events
	// again later, one by one, for all consumers; it delays no other event.
	Take(ctx context.Context, m merchant.ID, events []payment.OutboxEvent) ([]river.InsertManyParams, error)
}

// Extension is what another part of the program adds: who follows the outbox, the workers of its jobs and
// the queues of their own in which they run. Each may be left out.
type Extension struct {
	Consumer Consumer
	Workers  func(*river.Workers)
	Queues   map[string]river.QueueConfig
}

// Errands is where the truth is: payment.Service.
type Errands interface {
	OutboxMerchants(ctx context.Context, limit int) ([]merchant.ID, error)
	ClaimEvents(ctx context.Context, m merchant.ID, limit int, lease time.Duration) ([]payment.OutboxEvent, error)
	MarkRelayed(ctx context.Context, m merchant.ID, events []string) error
	PostponeEvent(ctx context.Context, m merchant.ID, event string, wait time.Duration) error

	ErrandsToWake(ctx context.Context, limit int) ([]payment.Errand, error)
	ClaimErrands(ctx context.Context, m merchant.ID, charges []string, lease time.Duration) ([]payment.Errand, error)
	// RunErrand does what is due about a charge, once, or finds that nothing is.
	RunErrand(ctx context.Context, m merchant.ID, chargeID string, kind payment.ErrandKind) error
	// Follow makes the errand of an event, if it asks for one.
	Follow(ctx context.Context, e payment.OutboxEvent) error
}

// Config is what Jobs need.
type Config struct {
	// Pool is river's own: it never takes connections from charges. It needs at least 3.
	Pool    *pgxpool.Pool
	Errands Errands
	// Extensions follow the outbox, too.
	Extensions []Extension
	// ChargeWorkers and InquiryWorkers are how many jobs of a kind run at once on this replica. Inquiries that
	// were made before have as many workers of their own, so that they never keep fresh ones waiting.
	ChargeWorkers, InquiryWorkers int
	// Poll is how often the outbox and the errands are looked at when nobody says that there is news.
	Poll time.Duration
	// JobTime bounds one job; longer than a charge may take.
	JobTime time.Duration
	Log     *slog.Logger
}

// Jobs is the part of a replica that works beside charges.
type Jobs struct {
	Config
	client    *river.Client[pgx.Tx]
	consumers []Consumer
	news      chan struct{}
	stop      context.CancelFunc
	relaying  sync.WaitGroup
}

const (
	queueCharges        = "charges"
	queueInquiries      = "inquiries"
	queueInquiriesAgain = "inquiries_again"
	// rescueAfter is how long after its time a job counts as lost with its process.
	rescueAfter = 10 * time.Second
	// How long rows of jobs that have ended are kept, for a look at what went on.
	keepDone   = time.Hour
	keepFailed = 7 * 24 * time.Hour
)

// New makes Jobs that do nothing yet, or says what is wrong with c.
func New(c Config) (*Jobs, error) {
	if c.ChargeWorkers < 1 || c.InquiryWorkers < 1 || c.Poll <= 0 || c.JobTime <= 0 {
		return nil, errors.New("jobs: at least one worker of each kind is needed, and times above zero")
	}
	j := &Jobs{Config: c, news: make(chan struct{}, 1)}
	j.consumers = []Consumer{errandConsumer{c.Errands}}
	workers := river.NewWorkers()
	river.AddWorker(workers, &errandWorker{errands: c.Errands})
	queues := map[string]river.QueueConfig{
		queueCharges:        {MaxWorkers: c.ChargeWorkers},
		queueInquiries:      {MaxWorkers: c.InquiryWorkers},
		queueInquiriesAgain: {MaxWorkers: c.InquiryWorkers},
	}
	for _, x := range c.Extensions {
		if x.Consumer != nil {
			j.consumers = append(j.consumers, x.Consumer)
		}
		if x.Workers != nil {
			x.Workers(workers)
		}
		maps.Copy(queues, x.Queues)
	}
	client, err := river.NewClient(riverpgxv5.New(c.Pool), &river.Config{
		Schema: Schema, Workers: workers, Queues: queues, Logger: quietly(c.Log),
		JobTimeout: c.JobTime, RescueStuckJobsAfter: c.JobTime + rescueAfter,
		CompletedJobRetentionPeriod: keepDone, CancelledJobRetentionPeriod: keepFailed, DiscardedJobRetentionPeriod: keepFailed,
		// The service does not own the tables, so it cannot reindex them (docs/operations.md).
		ReindexerSchedule: river.NeverSchedule(),
	})
	if err != nil {
		return nil, fmt.Errorf("jobs: %w", err)
	}
	j.client = client
	return j, nil
}

// Start begins to relay and to work, until Stop.
func (j *Jobs) Start(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	if err := j.client.Start(ctx); err != nil {
		return fmt.Errorf("start the workers: %w", err)
	}
	ctx, j.stop = context.WithCancel(ctx)
	j.relaying.Go(func() { j.loop(ctx) })
	return nil
}

// Stop ends the relay, lets jobs that run end until ctx does, and then cancels them. What is not done is
// woken again, here or on another replica.
func (j *Jobs) Stop(ctx context.Context) error {
	if j.stop == nil {
		return nil
	}
	j.stop()
	j.relaying.Wait()
	if err := j.client.Stop(ctx); err == nil {
		return nil
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), rescueAfter)
	defer cancel()
	return j.client.StopAndCancel(last)
}

// News says that there is something in the outbox or among the errands. It never blocks.
func (j *Jobs) News() {
	select {
	case j.news <- struct{}{}:
	default: // somebody has said so already
	}
}

// calmly is the least time between two passes, however much news there is: a pass takes many rows at once.
const calmly = 50 * time.Millisecond

func (j *Jobs) loop(ctx context.Context) {
	for {
		j.pass(ctx)
		if !sleep(ctx, calmly) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-j.news:
		case <-time.After(j.Poll):
		}
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// passTimeMax bounds one pass over the outbox and the errands.
const passTimeMax = 30 * time.Second

func (j *Jobs) pass(ctx context.Context) {
	once, cancel := context.WithTimeout(ctx, passTimeMax)
	defer cancel()
	if err := errors.Join(j.Relay(once), j.Wake(once)); err != nil && ctx.Err() == nil {
		j.Log.Error("not all events and errands could be passed on; they come again", "error", err)
	}
}

// quietly keeps river's news of itself out of our log, but not its warnings.
func quietly(log *slog.Logger) *slog.Logger { return slog.New(warnings{log.Handler()}) }

type warnings struct{ slog.Handler }

func (w warnings) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && w.Handler.Enabled(ctx, level)
}
func (w warnings) WithAttrs(attrs []slog.Attr) slog.Handler {
	return warnings{w.Handler.WithAttrs(attrs)}
}
func (w warnings) WithGroup(name string) slog.Handler { return warnings{w.Handler.WithGroup(name)} }

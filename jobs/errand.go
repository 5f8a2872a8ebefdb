package jobs

import (
	"context"
	"errors"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"paymentsd/merchant"
	"paymentsd/payment"
)

// errandArgs name an errand; what has to be done stands in its row.
type errandArgs struct {
	Merchant merchant.ID        `json:"merchant"`
	ChargeID string             `json:"charge"`
	What     payment.ErrandKind `json:"what"`
}

// Kind is river's name of the job.
func (errandArgs) Kind() string { return "errand" }

// InsertOpts has one job for an errand at a time. It is tried once: if it fails, the row wakes it again.
func (errandArgs) InsertOpts() river.InsertOpts {
	return river.InsertOpts{MaxAttempts: 1, UniqueOpts: OneAtATime()}
}

// OneAtATime lets a job of the same kind and arguments be made again as soon as the one before has ended.
func OneAtATime() river.UniqueOpts {
	return river.UniqueOpts{ByArgs: true, ByState: []rivertype.JobState{
		rivertype.JobStateAvailable, rivertype.JobStatePending, rivertype.JobStateRetryable,
		rivertype.JobStateRunning, rivertype.JobStateScheduled,
	}}
}

// jobOf is the wake-up of an errand. Of charges, those that failed before come after the others.
func jobOf(e payment.Errand) river.InsertManyParams {
	opts := &river.InsertOpts{Queue: queueCharges, Priority: 1}
	again := e.Tries+e.Deferrals > 0
	switch {
	case e.Kind == payment.ErrandInquiry && again:
		opts.Queue = queueInquiriesAgain
	case e.Kind == payment.ErrandInquiry:
		opts.Queue = queueInquiries
	case again:
		opts.Priority = 2
	}
	return river.InsertManyParams{Args: errandArgs{e.Merchant, e.ChargeID, e.Kind}, InsertOpts: opts}
}

type errandWorker struct {
	river.WorkerDefaults[errandArgs]
	errands Errands
}

// Work does what is due. An error ends the job; the errand's row says when it is woken again.
func (w *errandWorker) Work(ctx context.Context, job *river.Job[errandArgs]) error {
	return w.errands.RunErrand(ctx, job.Args.Merchant, job.Args.ChargeID, job.Args.What)
}

// errandConsumer makes the errands of unknown charges, and wakes those of queued ones at once.
type errandConsumer struct{ errands Errands }

func (errandConsumer) Name() string { return "errands" }

func (c errandConsumer) Take(ctx context.Context, m merchant.ID, events []payment.OutboxEvent) ([]river.InsertManyParams, error) {
	var jobs []river.InsertManyParams
	for _, e := range events {
		if err := c.errands.Follow(ctx, e); err != nil {
			return nil, err
		}
		if e.Kind == payment.EventQueued {
			jobs = append(jobs, jobOf(payment.Errand{Merchant: m, ChargeID: e.ChargeID, Kind: payment.ErrandCharge}))
		}
	}
	return jobs, nil
}

const (
	// wakeBatch bounds how many errands one look takes in.
	wakeBatch = 500
	// wakeRounds bounds one pass; the next goes on.
	wakeRounds = 20
	// wakeLease is when a wake-up counts as lost.
	wakeLease = time.Minute
)

// Wake makes a job for every errand that is due, fresh ones first.
func (j *Jobs) Wake(ctx context.Context) error {
	var problems []error
	for range wakeRounds {
		due, err := j.Errands.ErrandsToWake(ctx, wakeBatch)
		if err != nil {
			return errors.Join(append(problems, err)...)
		}
		woken := 0
		for _, group := range byMerchant(due) {
			n, err := j.wake(ctx, group)
			woken += n
			problems = append(problems, err)
		}
		if len(due) < wakeBatch || woken == 0 {
			break
		}
	}
	return errors.Join(problems...)
}

// wake claims errands of one merchant and makes their jobs. The lease stands first: if the jobs cannot be
// made, the errands are woken again when it has passed.
func (j *Jobs) wake(ctx context.Context, due []payment.Errand) (int, error) {
	ids := make([]string, len(due))
	for i, e := range due {
		ids[i] = e.ChargeID
	}
	claimed, err := j.Errands.ClaimErrands(ctx, due[0].Merchant, ids, wakeLease)
	if err != nil {
		return 0, err
	}
	jobs := make([]river.InsertManyParams, len(claimed))
	for i, e := range claimed {
		jobs[i] = jobOf(e)
	}
	return len(claimed), j.insert(ctx, jobs)
}

// byMerchant groups errands, merchants in the order in which they come first.
func byMerchant(due []payment.Errand) (groups [][]payment.Errand) {
	place := map[merchant.ID]int{}
	for _, e := range due {
		at, ok := place[e.Merchant]
		if !ok {
			at = len(groups)
			place[e.Merchant] = at
			groups = append(groups, nil)
		}
		groups[at] = append(groups[at], e)
	}
	return groups
}

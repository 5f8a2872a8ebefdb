package events

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"paymentsd/acquirer"
	"paymentsd/payment"
	"paymentsd/resilience"
)

// Verified is an event that its acquirer sent.
type Verified struct {
	acquirer string
	receipt  acquirer.EventReceipt
	body     []byte
}

// ID is the acquirer's id of the event.
func (v Verified) ID() string { return v.receipt.ID }

// Verify says which event a request is, or that the acquirer did not send it (ErrUnverified). An acquirer
// from which no events are taken is payment.ErrUnknownAcquirer. Nothing is written.
func (s *Service) Verify(name string, h http.Header, body []byte) (Verified, error) {
	source, ok := s.Sources[name]
	if !ok {
		return Verified{}, fmt.Errorf("%w: no events are taken from %.40q", payment.ErrUnknownAcquirer, name)
	}
	receipt, err := source.VerifyEvent(h, body, s.Now())
	if err != nil {
		s.Observe(name, "refused")
		return Verified{}, fmt.Errorf("%w: %w", ErrUnverified, err)
	}
	return Verified{acquirer: name, receipt: receipt, body: body}, nil
}

// The receiver handles the event itself; another replica does if it has not by then.
const insertEvent = `
insert into acquirer_events (acquirer, event_id, sha256, body, sent_at, received_at, state, tries, next_try_at)
values (@acquirer, @event, @sha256, @body, @sent, @now, 'received', 1, now() + @lease::interval)
on conflict (acquirer, event_id) do nothing`

const selectSum = `select e.sha256 from acquirer_events e where e.acquirer = @acquirer and e.event_id = @event`

// Receive keeps an event and then handles it. When it returns without an error the event is durable, and
// whatever is left to do about it will be done; it reports whether we had the event already.
// The same id with another body is ErrIDReused.
func (s *Service) Receive(ctx context.Context, v Verified) (replayed bool, err error) {
	sum := sha256.Sum256(v.body)
	row := row{Acquirer: v.acquirer, ID: v.receipt.ID, Body: v.body, Tries: 1}
	args := row.key()
	args["sha256"], args["body"], args["sent"] = sum[:], v.body, v.receipt.SentAt.UTC()
	args["now"], args["lease"] = s.moment(), s.Lease
	tag, err := s.Pool.Exec(ctx, insertEvent, args)
	if err != nil {
		return false, fmt.Errorf("keep event %s of %s: %w", row.ID, row.Acquirer, err)
	}
	if tag.RowsAffected() == 0 {
		return true, s.replay(ctx, row, sum[:])
	}
	s.Observe(row.Acquirer, "received")
	s.fault(faultReceived)
	s.handle(ctx, row)
	return false, nil
}

// replay compares an event with the one that we have under its id.
func (s *Service) replay(ctx context.Context, row row, sum []byte) error {
	var known []byte
	if err := s.Pool.QueryRow(ctx, selectSum, row.key()).Scan(&known); err != nil {
		return fmt.Errorf("read event %s of %s: %w", row.ID, row.Acquirer, err)
	}
	if !bytes.Equal(known, sum) {
		s.Observe(row.Acquirer, "refused")
		return fmt.Errorf("%w: event %s of %s", ErrIDReused, row.ID, row.Acquirer)
	}
	s.Observe(row.Acquirer, "replayed")
	return nil
}

// row is an event that has to be handled.
type row struct {
	Acquirer string
	ID       string
	Body     []byte
	Tries    int // this one included
}

func (r row) key() pgx.NamedArgs { return pgx.NamedArgs{"acquirer": r.Acquirer, "event": r.ID} }

// evidenceID is the same for the same event, however often it is handled.
func (r row) evidenceID() string { return "event:" + r.Acquirer + ":" + r.ID }

// The first claim on an event that lies about is a lease, too.
const claimDue = `
with due as materialized (
  select d.acquirer, d.event_id from acquirer_events d
   where d.state = 'received' and d.next_try_at <= now()
   order by d.next_try_at, d.acquirer, d.event_id limit @limit for update skip locked
)
update acquirer_events e set tries = e.tries + 1, next_try_at = now() + @lease::interval
  from due where e.acquirer = due.acquirer and e.event_id = due.event_id
returning e.acquirer, e.event_id, e.body, e.tries`

// dueBatch bounds one look for events that wait.
const dueBatch = 100

// HandleDue handles events that wait: those that failed, those whose charge had no outcome yet, those
// whose receiver was lost. It reports whether there may be more. Any number of replicas may do so at once.
func (s *Service) HandleDue(ctx context.Context) (more bool, err error) {
	rows, err := s.Pool.Query(ctx, claimDue, pgx.NamedArgs{"limit": dueBatch, "lease": s.Lease})
	if err != nil {
		return false, fmt.Errorf("find events to handle: %w", err)
	}
	due, err := pgx.CollectRows(rows, pgx.RowToStructByPos[row])
	if err != nil {
		return false, fmt.Errorf("find events to handle: %w", err)
	}
	began := s.Now()
	for _, row := range due {
		if ctx.Err() != nil || s.Now().Sub(began) > s.Lease/2 {
			return true, ctx.Err() // the rest comes back when its lease is over
		}
		s.handle(ctx, row)
	}
	return len(due) == dueBatch, nil
}

const finishEvent = `
update acquirer_events e
   set state = 'handled', outcome = @outcome, type = @type, merchant_id = @merchant, charge_id = nullif(@charge, ''),
       next_try_at = null, last_error = '', handled_at = @now
 where e.acquirer = @acquirer and e.event_id = @event and e.state = 'received'`

const postponeEvent = `
update acquirer_events e set next_try_at = now() + @wait::interval, last_error = left(@error, 1000)
 where e.acquirer = @acquirer and e.event_id = @event and e.state = 'received'`

// retryDelay is how long an event waits after a try: a second or two at first, at most ten minutes.
func retryDelay(tries int) time.Duration {
	return resilience.Backoff{Jitter: resilience.JitterEqual, Base: 2 * time.Second, Cap: 10 * time.Minute}.Delay(tries, 0, nil)
}

// writeTime bounds the note on what became of a handling, also when its own time is over.
const writeTime = 3 * time.Second

// handle does what an event asks for and writes down that it did, or when to try again. Its failures are
// not the acquirer's affair.
func (s *Service) handle(ctx context.Context, row row) {
	done, err := s.apply(ctx, row)
	log := s.Log.With("acquirer", row.Acquirer, "event_id", row.ID, "try", row.Tries)
	sql, args := finishEvent, row.key()
	switch {
	case err != nil:
		sql = postponeEvent
		args["wait"], args["error"] = retryDelay(row.Tries), printable(err.Error())
		log.Error("an event could not be handled; it is tried again", "error", err)
		s.Observe(row.Acquirer, "failed")
	case done.outcome == "":
		sql = postponeEvent
		args["wait"], args["error"] = retryDelay(row.Tries), "its charge has no outcome yet"
		s.Observe(row.Acquirer, "postponed")
	default:
		args["outcome"], args["type"], args["charge"], args["now"] = done.outcome, done.event.Type, done.charge, s.moment()
		args["merchant"] = done.merchant
		s.Observe(row.Acquirer, string(done.outcome))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTime)
	defer cancel()
	if _, err := s.Pool.Exec(ctx, sql, args); err != nil {
		log.Error("what became of an event could not be written down; it is handled again", "error", err)
	}
}

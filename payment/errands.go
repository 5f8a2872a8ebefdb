package payment

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/jackc/pgx/v5"

	"paymentsd/merchant"
)

// RunErrand does what is due about a charge, once, and writes down when it is due next. Nothing happens if the
// errand is done, has ended or is not due: wake-ups may come late or twice. An error, or a panic, is put off
// with a growing wait, so that it never keeps others waiting.
func (s *Service) RunErrand(ctx context.Context, m merchant.ID, chargeID string, kind ErrandKind) error {
	e, err := s.Errand(ctx, m, chargeID, kind)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil || e.Ended() || !e.Due {
		return err
	}
	if err = s.attend(ctx, e); err == nil {
		return nil
	}
	s.observer.ErrandEnded(kind, ErrandError)
	e.Deferrals++
	e.Note = "could not be carried out: see the log"
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.storeMax)
	defer cancel()
	return errors.Join(fmt.Errorf("%s of charge %s: %w", kind, chargeID, err), s.again(last, e, troubleWait(e.Deferrals)))
}

// attend carries an errand out, and turns a panic into an error.
func (s *Service) attend(ctx context.Context, e Errand) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("panic: %v\n%s", value, debug.Stack())
		}
	}()
	switch e.Kind {
	case ErrandInquiry:
		return s.inquire(ctx, e)
	default:
		return fmt.Errorf("no such errand: %q", e.Kind)
	}
}

// troubleWait grows with the number of times that an errand was put off, from seconds to ten minutes.
func troubleWait(deferrals int) time.Duration {
	return spread(min(4*time.Second<<min(deferrals, 16), 10*time.Minute))
}

// listForgotten finds candidates: unknown charges about which nobody means to ask.
const listForgotten = `
select c.merchant_id, c.charge_id
  from charges c left join errands e on e.merchant_id = c.merchant_id and e.charge_id = c.charge_id and e.kind = 'inquiry'
 where c.status = 'unknown' and e.charge_id is null and c.updated_at < now() - @older::interval
 order by c.created_at, c.merchant_id, c.charge_id limit @limit`

const (
	forgottenBatch = 500
	// forgottenAfter gives the relay time to be first.
	forgottenAfter = time.Minute
)

// PlanForgotten makes the inquiries of unknown charges whose event was lost, and says how many.
func (s *Service) PlanForgotten(ctx context.Context) (int, error) {
	type forgotten struct {
		Merchant merchant.ID
		ChargeID string
	}
	rows, err := s.pool.Query(ctx, listForgotten, pgx.NamedArgs{"older": forgottenAfter, "limit": forgottenBatch})
	if err != nil {
		return 0, fmt.Errorf("look for unknown charges without an inquiry: %w", err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[forgotten])
	if err != nil {
		return 0, fmt.Errorf("look for unknown charges without an inquiry: %w", err)
	}
	var problems []error
	for _, f := range all {
		problems = append(problems, s.planInquiry(ctx, f.Merchant, f.ChargeID))
	}
	return len(all), errors.Join(problems...)
}

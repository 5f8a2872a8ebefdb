package payment

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/shopspring/decimal"

	"paymentsd/idempotency"
	"paymentsd/internal/postgres"
	"paymentsd/ledger"
	"paymentsd/merchant"
)

// Resolver reads charges and closes unknown ones. It needs no acquirer, so the nightly run has one too.
type Resolver struct {
	pool   *pgxpool.Pool
	render Render
	now    func() time.Time
	log    *slog.Logger
	fault  Fault
}

// ResolverConfig is what a Resolver needs. Fault may be nil.
type ResolverConfig struct {
	Pool   *pgxpool.Pool
	Render Render
	Now    func() time.Time
	Log    *slog.Logger
	Fault  Fault
}

// NewResolver makes a Resolver.
func NewResolver(c ResolverConfig) *Resolver {
	if c.Fault == nil {
		c.Fault = func(string) {}
	}
	return &Resolver{pool: c.Pool, render: c.Render, now: c.Now, log: c.Log, fault: c.Fault}
}

// moment is the one "now" of a transaction, as Postgres will give it back.
func (r *Resolver) moment() time.Time { return r.now().UTC().Truncate(time.Microsecond) }

// The outcomes of a Resolution.
const (
	OutcomeCaptured = "captured"
	OutcomeFailed   = "failed"
	OutcomeNone     = "none"
)

// ReasonNotCaptured is the Reason of a charge that was unknown and turned out not captured.
const ReasonNotCaptured = "not_captured"

// Resolve applies one piece of evidence to a charge: state, key with its frozen answer, evidence row, ledger
// and event in one transaction, or none of them.
//
//   - The charge is unknown and Outcome is captured or failed: it is closed. Of two resolvers
//     at once one wins.
//   - It is not unknown (any more): *ResolvedError says who closed it. Evidence other than an
//     operator's is kept, not applied, so that a contradiction can be seen.
//   - Outcome none: the evidence is kept and changes nothing.
//   - Evidence with an ID that is there already: nothing is written; the charge is returned.
//   - Evidence that would close the charge and does not fit it (another amount, an acquirer that was not
//     asked): ErrEvidenceConflict.
func (r *Resolver) Resolve(ctx context.Context, m merchant.ID, chargeID string, evidence Resolution) (Charge, error) {
	var charge Charge
	var resolved *ResolvedError
	evidence.CreatedAt = r.moment()
	err := postgres.InTx(ctx, r.pool, func(tx pgx.Tx) error {
		resolved = nil
		before, err := get(ctx, tx, lockCharge, m, chargeID)
		if err != nil {
			return err
		}
		charge = before
		all, err := resolutions(ctx, tx, m, chargeID)
		if err != nil {
			return err
		}
		if find(all, func(known Resolution) bool { return known.ID == evidence.ID }) != nil {
			return nil
		}
		if err := r.check(ctx, tx, before, evidence); err != nil {
			return err
		}
		if evidence.Outcome == OutcomeNone {
			return insertEvidence(ctx, tx, before, evidence)
		}
		if before.Status != Unknown {
			resolved = &ResolvedError{Charge: before, By: find(all, func(known Resolution) bool { return known.Applied })}
			return noteContradiction(ctx, tx, before, evidence)
		}
		charge, err = r.apply(ctx, tx, before, evidence)
		return err
	})
	if err != nil {
		return Charge{}, err
	}
	r.fault(faultResolved)
	if resolved != nil {
		return charge, resolved
	}
	if evidence.Evidence == Operator {
		if err := r.auditDecision(ctx, chargeID, evidence); err != nil {
			// The decision stands; CompleteAudit writes the row later.
			r.log.Warn("the audit log could not be written yet", "charge_id", chargeID, "error", err)
		}
	}
	return charge, nil
}

func find(all []Resolution, is func(Resolution) bool) *Resolution {
	for i := range all {
		if is(all[i]) {
			return &all[i]
		}
	}
	return nil
}

// check refuses evidence that cannot be about this charge.
func (r *Resolver) check(ctx context.Context, tx pgx.Tx, c Charge, e Resolution) error {
	if e.Outcome != OutcomeNone && e.Amount.Currency() != "" && !e.Amount.Equal(c.Amount) {
		return fmt.Errorf("%w: it says %s %s, the charge is %s %s", ErrEvidenceConflict,
			e.Amount, e.Amount.Currency(), c.Amount, c.Amount.Currency())
	}
	if e.Outcome != OutcomeCaptured {
		return nil
	}
	if e.CaptureID == "" || e.Acquirer == "" {
		return fmt.Errorf("%w: a capture needs its acquirer and the acquirer's id of it", ErrEvidenceConflict)
	}
	tried, err := attempts(ctx, tx, c.Merchant, c.ID)
	if err != nil {
		return err
	}
	for _, attempt := range tried {
		if attempt.Acquirer == e.Acquirer {
			return nil
		}
	}
	return fmt.Errorf("%w: acquirer %q was never asked for this charge", ErrEvidenceConflict, e.Acquirer)
}

// noteContradiction keeps evidence that came too late. An operator is told instead, and may decide
// anew; a pending charge has no contradiction yet.
func noteContradiction(ctx context.Context, tx pgx.Tx, c Charge, e Resolution) error {
	if e.Evidence == Operator || !c.Status.Terminal() {
		return nil
	}
	return insertEvidence(ctx, tx, c, e)
}

const lockCharge = `select` + chargeColumns + `
  from charges c where c.merchant_id = @merchant and c.charge_id = @charge for update`

const closeUnknown = `
update charges c
   set status = @status, acquirer = @acquirer, capture_id = @capture_id, reason = @reason, detail = @detail,
       evidence = @evidence, updated_at = @now
 where c.merchant_id = @merchant and c.charge_id = @charge and c.status = 'unknown'`

// apply closes an unknown charge, whose row is locked.
func (r *Resolver) apply(ctx context.Context, tx pgx.Tx, c Charge, e Resolution) (Charge, error) {
	c.Evidence, c.UpdatedAt, c.Detail = e.Evidence, e.CreatedAt, e.Reason
	if e.Outcome == OutcomeCaptured {
		c.Status, c.Acquirer, c.CaptureID, c.Reason = Captured, e.Acquirer, e.CaptureID, ""
	} else {
		c.Status, c.Reason = Failed, ReasonNotCaptured
	}
	tag, err := tx.Exec(ctx, closeUnknown, pgx.NamedArgs{
		"merchant": c.Merchant, "charge": c.ID, "status": c.Status, "acquirer": c.Acquirer, "capture_id": optional(c.CaptureID),
		"reason": optional(c.Reason), "detail": optional(c.Detail), "evidence": c.Evidence, "now": c.UpdatedAt,
	})
	if err != nil {
		return Charge{}, fmt.Errorf("close charge %s: %w", c.ID, err)
	}
	if tag.RowsAffected() != 1 {
		return Charge{}, fmt.Errorf("close charge %s: it is not unknown though its row is locked", c.ID)
	}
	r.fault(faultResolveCharge)
	e.Applied = true
	if err := insertEvidence(ctx, tx, c, e); err != nil {
		return Charge{}, err
	}
	if c.Status == Captured {
		if _, err := ledger.Post(ctx, tx, c.Merchant, ledger.Capture(c.ID, c.Acquirer, c.Amount)); err != nil {
			return Charge{}, err
		}
	}
	frozen, err := idempotency.Freeze(ctx, tx, c.Merchant, c.IdempotencyKey, c.ID, r.render(c), c.UpdatedAt)
	if err != nil {
		return Charge{}, err
	}
	if !frozen {
		return Charge{}, fmt.Errorf("charge %s is unknown but its key is not: run reconcile verify", c.ID)
	}
	r.fault(faultResolveKey)
	if err := r.done(ctx, tx, c.Merchant, c.ID, ErrandInquiry); err != nil {
		return Charge{}, err
	}
	return c, addEvent(ctx, tx, c.Merchant, c.ID, "resolved", c.UpdatedAt)
}

const insertResolution = `
insert into resolutions (merchant_id, charge_id, resolution_id, evidence, outcome, applied, acquirer, capture_id,
  amount, currency, actor, reason, file_id, line_no, finding, created_at)
values (@merchant, @charge, @id, @evidence, @outcome, @applied, @acquirer, @capture_id,
  @amount, @currency, @actor, @reason, @file, @line, @finding, @now)`

func insertEvidence(ctx context.Context, tx pgx.Tx, c Charge, e Resolution) error {
	_, err := tx.Exec(ctx, insertResolution, pgx.NamedArgs{
		"merchant": c.Merchant, "charge": c.ID, "id": e.ID, "evidence": e.Evidence, "outcome": e.Outcome, "applied": e.Applied,
		"acquirer": optional(e.Acquirer), "capture_id": optional(e.CaptureID),
		"amount":   decimal.NullDecimal{Decimal: e.Amount.Decimal(), Valid: e.Amount.Currency() != ""},
		"currency": optional(string(e.Amount.Currency())), "actor": e.Actor, "reason": e.Reason,
		"file": optional(e.FileID), "line": optionalInt(e.LineNo), "finding": optional(string(e.Finding)), "now": e.CreatedAt,
	})
	if err != nil {
		return fmt.Errorf("keep the evidence about %s: %w", c.ID, err)
	}
	return nil
}

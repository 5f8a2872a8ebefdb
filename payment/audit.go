package payment

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"paymentsd/internal/postgres"
	"paymentsd/merchant"
)

const appendAudit = `select audit_append_v1(@at, @actor, @action, @subject, @detail, @act)`

// AuditAppend writes an act of a person or key into the audit log, after the act. The same actID again
// is harmless.
func (r *Resolver) AuditAppend(ctx context.Context, actor, action, subject, detail, actID string) error {
	return appendAct(ctx, r.pool, r.moment(), actor, action, subject, detail, actID)
}

func appendAct(ctx context.Context, db postgres.DB, at time.Time, actor, action, subject, detail, actID string) error {
	_, err := db.Exec(ctx, appendAudit, pgx.NamedArgs{
		"at": at, "actor": actor, "action": action, "subject": subject, "detail": detail, "act": actID,
	})
	if err != nil {
		return fmt.Errorf("write the audit log: %w", err)
	}
	return nil
}

// recentDecisions is a report over all merchants.
const recentDecisions = `
select r.merchant_id, r.charge_id, r.resolution_id, r.outcome, r.actor, r.reason, r.created_at
  from resolutions r
 where r.evidence = 'operator' and r.created_at >= @since
   and (r.created_at, r.merchant_id, r.charge_id, r.resolution_id) > (@since, @merchant, @charge, @resolution)
 order by r.created_at, r.merchant_id, r.charge_id, r.resolution_id limit @limit`

// decisionsBatch bounds what is read at once.
const decisionsBatch = 500

// actionResolve is an operator's resolution in the audit log.
const actionResolve = "charge.resolve"

// auditDecision writes the audit row of an operator's resolution.
func (r *Resolver) auditDecision(ctx context.Context, chargeID string, e Resolution) error {
	return appendAct(ctx, r.pool, e.CreatedAt, e.Actor, actionResolve, chargeID, e.Outcome+": "+e.Reason, chargeID+":"+e.ID)
}

// decision is an operator's resolution and where it stands.
type decision struct {
	Merchant merchant.ID
	ChargeID string
	Resolution
}

// CompleteAudit writes the audit rows that a crash kept from being written after the act, for acts
// since then.
func (r *Resolver) CompleteAudit(ctx context.Context, since time.Time) error {
	last := decision{Merchant: -1, Resolution: Resolution{CreatedAt: since.UTC()}}
	for {
		decisions, err := r.decisionsAfter(ctx, last)
		if err != nil {
			return fmt.Errorf("read recent decisions: %w", err)
		}
		for _, d := range decisions {
			if err := r.auditDecision(ctx, d.ChargeID, d.Resolution); err != nil {
				return err
			}
		}
		if len(decisions) < decisionsBatch {
			return nil
		}
		last = decisions[len(decisions)-1]
	}
}

func (r *Resolver) decisionsAfter(ctx context.Context, last decision) ([]decision, error) {
	rows, err := r.pool.Query(ctx, recentDecisions, pgx.NamedArgs{
		"since": last.CreatedAt, "merchant": last.Merchant, "charge": last.ChargeID, "resolution": last.ID, "limit": decisionsBatch,
	})
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (d decision, err error) {
		err = row.Scan(&d.Merchant, &d.ChargeID, &d.ID, &d.Outcome, &d.Actor, &d.Reason, &d.CreatedAt)
		return d, err
	})
}

package reconcile

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"paymentsd/payment"
	"paymentsd/settlement"
)

// withoutLine is an exception of the charge as a whole.
func (x *examination) withoutLine(class Class, theirs, detail string) Exception {
	c := x.charge
	return Exception{
		Acquirer: c.Acquirer, Class: class, Merchant: &x.merchant, ChargeID: c.ID, AcqRef: x.ref, AtRisk: c.Amount,
		Ours: x.ours(), Theirs: theirs, Detail: detail, Since: c.CreatedAt,
	}.identify(x.scope())
}

// lastAttempt is when an acquirer may last have been asked.
func (x *examination) lastAttempt() time.Time {
	last := x.charge.CreatedAt
	for _, a := range x.attempts {
		if a.StartedAt.After(last) {
			last = a.StartedAt
		}
	}
	return last
}

// refusedButPaid is about a charge that turned out captured at an acquirer whose attempt we took as
// proof that nothing was executed: the proof was none, and the next one may have captured, too.
func (x *examination) refusedButPaid() {
	c := x.claims[x.principal(x.settled)]
	for _, a := range x.attempts {
		if a.Acquirer == c.Acquirer && a.ProvesNotExecuted() {
			x.add(CapturedThoughFailed, c, c.gross(), fmt.Sprintf("attempt %d at %s is %s", a.N, a.Acquirer, a.State),
				"We went on to another acquirer because of that answer: see whether it captured as well.")
			return
		}
	}
}

// takenBack is about a charge that a line resolved which a re-issued file took back.
func (x *examination) takenBack() bool {
	for _, c := range x.claims {
		if c.State == stateWithdrawn && c.Resolved {
			x.add(ContradictedLater, c, c.gross(), x.ours(), "A file issued again no longer has the line that was its proof.")
			return true
		}
	}
	return false
}

// pastCutoff is about an unknown for which no line came in time. Only an acquirer's own word that it
// did not capture, with files that leave no room for another, ends it; else a person must. The word may stand
// in a file, or be the answer to an inquiry after the trust delay.
func (x *examination) pastCutoff() error {
	proven, why, err := x.absence(x.subject)
	if err != nil {
		return err
	}
	denied := slices.IndexFunc(x.claims, func(c claim) bool {
		return c.Kind == settlement.CaptureFailed && c.State != stateWithdrawn && x.tried(c.Acquirer)
	})
	inquiry, byInquiry := x.denial()
	switch {
	case x.odd:
		why = "there are lines about it that do not fit"
	case x.foundElsewise():
		why = "an inquiry found a capture that does not fit"
	case denied < 0 && !byInquiry:
		why = "no acquirer says that it did not capture"
	case proven && denied >= 0:
		c := x.claims[denied]
		x.verdict.cites = denied
		x.verdict.resolve = &payment.Resolution{
			ID: "settlement:" + c.key() + ":absent", Evidence: payment.Settlement, Outcome: payment.OutcomeFailed, Acquirer: c.Acquirer,
			Actor: "reconcile", FileID: c.FileID, LineNo: c.LineNo,
			Reason: short(fmt.Sprintf("%s says that the capture failed, and the files of every acquirer that was asked have no capture up to the cut-off.", c.Acquirer), 1000),
		}
		return nil
	case proven:
		x.verdict.resolve = &payment.Resolution{
			ID: inquiry.ID + ":absent", Evidence: payment.Inquiry, Outcome: payment.OutcomeFailed, Finding: inquiry.Finding,
			Acquirer: inquiry.Acquirer, Actor: "reconcile",
			Reason: short(fmt.Sprintf("%s, asked on %s after its trust delay, knows of no capture, and the files of every acquirer that was asked have none up to the cut-off.",
				inquiry.Acquirer, inquiry.CreatedAt.Format(time.DateTime)), 1000),
		}
		return nil
	}
	x.verdict.found = append(x.verdict.found, x.withoutLine(UnknownPastCutoff,
		fmt.Sprintf("no capture within %d business days", x.cutoff(x.charge.Acquirer)), "It stays unknown: "+why+"."))
	return nil
}

// denial is the latest inquiry's word that there is no capture, if every acquirer that may have captured says
// so and none has said otherwise since. Inquiries are made after the trust delay only.
func (x *examination) denial() (latest payment.Resolution, ok bool) {
	said := map[string]payment.Resolution{}
	for _, e := range x.evidence { // oldest first
		if e.Evidence == payment.Inquiry && e.Finding != "" && e.Finding != payment.FindingUnclear {
			said[e.Acquirer] = e
		}
	}
	for _, a := range x.attempts {
		if a.ProvesNotExecuted() {
			continue
		}
		e := said[a.Acquirer]
		if e.Finding != payment.FindingNotFound && e.Finding != payment.FindingDeclined {
			return payment.Resolution{}, false
		}
		latest, ok = e, true
	}
	return latest, ok
}

// foundElsewise reports that an inquiry has seen a capture under our reference that is not the charge's.
func (x *examination) foundElsewise() bool {
	return slices.ContainsFunc(x.evidence, func(e payment.Resolution) bool {
		return e.Evidence == payment.Inquiry && e.Finding == payment.FindingCaptured
	})
}

// Lines that may be the charge's although their reference does not say so: nobody's captures of the
// same sum, and lines that cannot be read.
const countRivalLines = `
select count(*) from settlement_lines l
 where l.acquirer = any(@acquirers) and l.merchant_id is null
   and ((l.state = 'counted' and l.kind = 'capture' and l.currency = @currency and l.gross = @amount
         and l.occurred_at >= @from and l.occurred_at < @to)
     or (l.state = 'bad' and l.reference in ('', @ref) and l.problem not in ('duplicate_line', 'unknown_kind')
         and exists (select 1 from settlement_files f where f.file_id = l.file_id and f.status = 'accepted'
                        and coalesce(f.period_from < @to and f.period_to > @from, true))))`

// Lines of the merchant that nobody has examined yet count, too: when all are, the charge is looked at
// once more.
const countRivalClaims = `
select count(*) from settlement_claims c
 where c.merchant_id = @merchant and c.acquirer = any(@acquirers) and c.state in ('new', 'unmatched') and c.kind = 'capture'
   and c.currency = @currency and c.gross = @amount and c.occurred_at >= @from and c.occurred_at < @to and c.acq_ref <> @ref`

// absence reports whether the files of every acquirer that was tried are there, without a hole from the
// first attempt to the cut-off, and leave no line that may be the charge's; if not, why.
func (r *Reconciler) absence(ctx context.Context, s subject) (bool, string, error) {
	acquirers, from, to := []string{}, s.charge.CreatedAt, time.Time{}
	for _, a := range s.attempts {
		if !slices.Contains(acquirers, a.Acquirer) {
			acquirers = append(acquirers, a.Acquirer)
		}
		if end := cutoffEnd(a.StartedAt, r.cutoff(a.Acquirer)); end.After(to) {
			to = end
		}
	}
	if len(acquirers) == 0 {
		return false, "no attempt is known", nil
	}
	for _, name := range acquirers {
		files, err := r.coverage(ctx, r.Pool, name)
		if err != nil {
			return false, "", err
		}
		if whole, why := files.covers(from, to); !whole {
			return false, why, nil
		}
	}
	args := pgx.NamedArgs{
		"merchant": s.merchant, "acquirers": acquirers, "ref": s.ref, "currency": s.charge.Amount.Currency(),
		"amount": s.charge.Amount.Decimal(), "from": from.Add(-clockSkew), "to": to,
	}
	var lines, claims int
	if err := r.Pool.QueryRow(ctx, countRivalLines, args).Scan(&lines); err != nil {
		return false, "", fmt.Errorf("look for lines that may be the charge's: %w", err)
	}
	if err := r.Pool.QueryRow(ctx, countRivalClaims, args).Scan(&claims); err != nil {
		return false, "", fmt.Errorf("look for lines that may be the charge's: %w", err)
	}
	if n := lines + claims; n > 0 {
		return false, fmt.Sprintf("%d line(s) without a charge may be its capture (same sum and time, or not readable)", n), nil
	}
	return true, "", nil
}

package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"paymentsd/internal/postgres"
	"paymentsd/merchant"
	"paymentsd/payment"
	"paymentsd/settlement"
)

// refsAtOnce is how many references are examined between two commits.
const refsAtOnce = 500

// matching is the part of a run that compares charges with lines.
type matching struct {
	*Reconciler
	acquirer string
	asOf     time.Time
	locks    *locks
	examined int
	captured int // unknowns that this run ended
	failed   int
}

func (m *matching) view(ctx context.Context) view {
	return view{
		asOf: m.asOf, cutoff: m.cutoff,
		absence: func(s subject) (bool, string, error) { return m.absence(ctx, s) },
	}
}

// nextClaimant is a report over all merchants: one probe of an index.
const nextClaimant = `select coalesce(min(c.merchant_id), -1) from settlement_claims c where c.merchant_id > @after`

// next is the merchant with the next greater number that has a charge or a line.
func (m *matching) next(ctx context.Context, after merchant.ID) (merchant.ID, bool, error) {
	next, ok, err := m.Resolver.NextMerchant(ctx, after)
	if err != nil {
		return 0, false, err
	}
	var claimant merchant.ID
	if err := m.Pool.QueryRow(ctx, nextClaimant, pgx.NamedArgs{"after": after}).Scan(&claimant); err != nil {
		return 0, false, fmt.Errorf("find the next merchant: %w", err)
	}
	if claimant >= 0 && (!ok || claimant < next) {
		return claimant, true, nil
	}
	return next, ok, nil
}

// all examines every merchant, one after the other.
func (m *matching) all(ctx context.Context) error {
	for after := merchant.ID(-1); ; {
		id, ok, err := m.next(ctx, after)
		if err != nil || !ok {
			return err
		}
		if err := m.locks.withMerchant(ctx, id, func() error { return m.one(ctx, id) }); err != nil {
			return fmt.Errorf("reconcile merchant %d: %w", id, err)
		}
		m.Fault("merchant_done")
		after = id
	}
}

// one examines a merchant: what is new, what was odd, what is unknown and what should have come. A
// reference that comes by twice costs time and changes nothing.
func (m *matching) one(ctx context.Context, id merchant.ID) error {
	for _, source := range []func(context.Context, merchant.ID) error{m.newLines, m.openExceptions, m.unknowns, m.unconfirmed} {
		if err := source(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

func (m *matching) newLines(ctx context.Context, id merchant.ID) error {
	return m.byRef(ctx, id, refsToExamine)
}

const refsOfExceptions = `
select distinct x.acq_ref from recon_exceptions x
 where x.merchant_id = @merchant and x.acquirer = @acquirer and x.state = 'open' and x.acq_ref > @after
 order by x.acq_ref limit @limit`

func (m *matching) openExceptions(ctx context.Context, id merchant.ID) error {
	return m.byRef(ctx, id, refsOfExceptions)
}

// byRef examines the references that a statement gives, in pages by reference.
func (m *matching) byRef(ctx context.Context, id merchant.ID, sql string) error {
	for after := ""; ; {
		rows, err := m.Pool.Query(ctx, sql, pgx.NamedArgs{"merchant": id, "acquirer": m.acquirer, "after": after, "limit": refsAtOnce})
		if err != nil {
			return fmt.Errorf("find what to examine: %w", err)
		}
		refs, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return fmt.Errorf("find what to examine: %w", err)
		}
		if err := m.examine(ctx, id, refs); err != nil {
			return err
		}
		if len(refs) < refsAtOnce {
			return nil
		}
		after = refs[len(refs)-1]
	}
}

func (m *matching) unknowns(ctx context.Context, id merchant.ID) error {
	return m.byCharge(ctx, id, func(after string) ([]payment.Charge, error) {
		return m.Resolver.OpenUnknowns(ctx, id, after, refsAtOnce)
	}, func(c payment.Charge, _ []claim) bool {
		return c.Acquirer == m.acquirer && pastCutoff(c.CreatedAt, m.asOf, m.cutoff(m.acquirer))
	})
}

// unconfirmed examines captured charges past their cut-off that no line is about.
func (m *matching) unconfirmed(ctx context.Context, id merchant.ID) error {
	to := lastDayPastCutoff(m.asOf, m.cutoff(m.acquirer)).AddDate(0, 0, 1)
	from := to.AddDate(0, 0, -m.Lookback)
	return m.byCharge(ctx, id, func(after string) ([]payment.Charge, error) {
		return m.Resolver.CapturedBefore(ctx, id, m.acquirer, from, to, after, refsAtOnce)
	}, func(_ payment.Charge, lines []claim) bool {
		return !slices.ContainsFunc(lines, func(c claim) bool {
			return c.State != stateWithdrawn && c.Acquirer == m.acquirer && c.Kind == settlement.Capture
		})
	})
}

// byCharge examines those of the charges that wanted picks, in pages by charge id.
func (m *matching) byCharge(ctx context.Context, id merchant.ID, page func(after string) ([]payment.Charge, error),
	wanted func(payment.Charge, []claim) bool) error {
	for after := ""; ; {
		charges, err := page(after)
		if err != nil || len(charges) == 0 {
			return err
		}
		refs := make([]string, len(charges))
		for i, c := range charges {
			refs[i] = c.AcqRef
		}
		lines, err := m.claims(ctx, id, refs)
		if err != nil {
			return err
		}
		refs = refs[:0]
		for _, c := range charges {
			if wanted(c, lines[c.AcqRef]) {
				refs = append(refs, c.AcqRef)
			}
		}
		if err := m.examine(ctx, id, refs); err != nil {
			return err
		}
		after = charges[len(charges)-1].ID
	}
}

// examine compares a batch of references with their lines and writes what it shows: first the charges'
// outcomes, each in its own transaction; then the exceptions; last the postings and what became of
// the lines. A line is marked as examined last of all, so that a kill in between only means that
// the batch is examined again, with the same result.
func (m *matching) examine(ctx context.Context, id merchant.ID, refs []string) error {
	if len(refs) == 0 {
		return nil
	}
	charges, err := m.Resolver.ByAcqRefs(ctx, id, refs)
	if err != nil {
		return err
	}
	lines, err := m.claims(ctx, id, refs)
	if err != nil {
		return err
	}
	var scopes []string
	var found []Exception
	var claims []claim
	for _, ref := range refs {
		s := subject{merchant: id, ref: ref, claims: lines[ref]}
		if c, ok := charges[ref]; ok {
			s.charge = &c
		}
		v, err := m.conclude(ctx, s)
		if err != nil {
			return fmt.Errorf("reference %s: %w", ref, err)
		}
		scopes, found, claims = append(scopes, s.scope()), append(found, v.found...), append(claims, v.claims...)
	}
	if err := m.record(ctx, scopes, found, "later evidence settled it"); err != nil {
		return err
	}
	m.Fault("exceptions_recorded")
	err = postgres.InTx(ctx, m.Pool, func(tx pgx.Tx) error { return apply(ctx, tx, id, slices.Clone(claims)) })
	if err != nil {
		return err
	}
	m.Fault("batch_applied")
	m.examined += len(refs)
	m.Progress(Progress{Stage: "match", Done: m.examined})
	return nil
}

// conclusionsMax bounds how often a charge is looked at again because somebody else closed it.
const conclusionsMax = 3

// conclude examines one reference, ends the charge if the lines prove how, and says what remains.
func (m *matching) conclude(ctx context.Context, s subject) (verdict, error) {
	if err := m.loadHistory(ctx, &s); err != nil {
		return verdict{}, err
	}
	for range conclusionsMax {
		v, err := examine(s, m.view(ctx))
		if err != nil {
			return verdict{}, err
		}
		if err := m.note(ctx, s, v.notes); err != nil {
			return verdict{}, err
		}
		if v.resolve == nil {
			return v, nil
		}
		m.Fault("charge_examined")
		after, err := m.resolve(ctx, s, *v.resolve)
		if err != nil {
			return verdict{}, err
		}
		s.charge = &after
	}
	return verdict{}, fmt.Errorf("charge %s is still %s after its evidence was applied", s.charge.ID, s.charge.Status)
}

// resolve applies evidence; whoever was faster decides, and the lines are compared with that.
func (m *matching) resolve(ctx context.Context, s subject, e payment.Resolution) (payment.Charge, error) {
	after, err := m.Resolver.Resolve(ctx, s.merchant, s.charge.ID, e)
	if faster, ok := errors.AsType[*payment.ResolvedError](err); ok {
		m.Log.Info("a charge was resolved by somebody else first", "charge_id", s.charge.ID, "error", err)
		return faster.Charge, nil
	}
	if err != nil {
		return payment.Charge{}, fmt.Errorf("resolve charge %s as %s: %w", s.charge.ID, e.Outcome, err)
	}
	m.Fault("charge_resolved")
	switch after.Status {
	case payment.Captured:
		m.captured++
	case payment.Failed:
		m.failed++
	}
	m.Log.Info("a settlement line resolved a charge", "charge_id", after.ID, "status", string(after.Status),
		"acquirer", e.Acquirer, "file_id", e.FileID, "line", e.LineNo)
	return after, nil
}

// note keeps evidence that decides nothing, or comes too late to.
func (m *matching) note(ctx context.Context, s subject, notes []payment.Resolution) error {
	for _, e := range notes {
		_, err := m.Resolver.Resolve(ctx, s.merchant, s.charge.ID, e)
		if err != nil && !errors.Is(err, payment.ErrNotUnknown) {
			return fmt.Errorf("note evidence about charge %s: %w", s.charge.ID, err)
		}
	}
	return nil
}

// loadHistory reads attempts and evidence where they can matter: most captured charges need none.
func (m *matching) loadHistory(ctx context.Context, s *subject) (err error) {
	c := s.charge
	if c == nil {
		return nil
	}
	other := slices.ContainsFunc(s.claims, func(l claim) bool { return l.Acquirer != c.Acquirer })
	if c.Status == payment.Unknown || c.Evidence != "" || other {
		if s.attempts, err = m.Resolver.Attempts(ctx, s.merchant, c.ID); err != nil {
			return err
		}
	}
	if c.Status == payment.Unknown {
		s.evidence, err = m.Resolver.Resolutions(ctx, s.merchant, c.ID)
	}
	return err
}

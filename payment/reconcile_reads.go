package payment

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"paymentsd/idempotency"
	"paymentsd/internal/postgres"
	"paymentsd/merchant"
)

// What the nightly run and its verification read.

const byAcqRefs = `select` + chargeColumns + `
  from charges c where c.merchant_id = @merchant and c.acq_ref = any(@refs)`

// ByAcqRefs finds charges of a merchant by what acquirers call them, up to 1,000 at a time. References
// without a charge are not in the answer.
func (r *Resolver) ByAcqRefs(ctx context.Context, m merchant.ID, refs []string) (map[string]Charge, error) {
	charges, err := collectCharges(r.pool.Query(ctx, byAcqRefs, pgx.NamedArgs{"merchant": m, "refs": refs}))
	if err != nil {
		return nil, fmt.Errorf("find charges by reference: %w", err)
	}
	found := make(map[string]Charge, len(charges))
	for _, c := range charges {
		found[c.AcqRef] = c
	}
	return found, nil
}

const capturedBefore = `select` + chargeColumns + `
  from charges c
 where c.merchant_id = @merchant and c.acquirer = @acquirer and c.status = 'captured'
   and c.created_at >= @from and c.created_at < @to and c.charge_id > @after
 order by c.charge_id limit @limit`

// CapturedBefore reads charges that an acquirer captured, created in [from, to), by charge id: those
// that its settlement files should have by now.
func (r *Resolver) CapturedBefore(ctx context.Context, m merchant.ID, acquirer string, from, to time.Time, after string, limit int) ([]Charge, error) {
	// Within a merchant charge ids sort by time, so the primary key serves the lower bound, too. The
	// id's own clock is a replica's: a day is more than clocks differ.
	if lowest := lowestChargeID(m, from.Add(-24*time.Hour)); after < lowest {
		after = lowest
	}
	charges, err := collectCharges(r.pool.Query(ctx, capturedBefore, pgx.NamedArgs{
		"merchant": m, "acquirer": acquirer, "from": from, "to": to, "after": after, "limit": limit,
	}))
	if err != nil {
		return nil, fmt.Errorf("read captured charges: %w", err)
	}
	return charges, nil
}

// lowestChargeID sorts before every id that NewChargeID makes at t or later.
func lowestChargeID(m merchant.ID, t time.Time) string {
	id := append([]byte(chargePrefix), m.Code()...)
	return string(appendCrockford(id, uint64(max(t.UnixMilli(), 0))<<2, 10))
}

const openUnknowns = `select` + chargeColumns + `
  from charges c
 where c.merchant_id = @merchant and c.status = 'unknown' and c.charge_id > @after
 order by c.charge_id limit @limit`

// OpenUnknowns reads a merchant's unknown charges by charge id, that is, oldest first.
func (r *Resolver) OpenUnknowns(ctx context.Context, m merchant.ID, after string, limit int) ([]Charge, error) {
	charges, err := collectCharges(r.pool.Query(ctx, openUnknowns, pgx.NamedArgs{"merchant": m, "after": after, "limit": limit}))
	if err != nil {
		return nil, fmt.Errorf("read unknown charges: %w", err)
	}
	return charges, nil
}

// selectNextMerchant is a report over all merchants: one probe of an index.
const selectNextMerchant = `select coalesce(min(c.merchant_id), -1) from charges c where c.merchant_id > @after`

// NextMerchant is the merchant with the next greater number that has a charge; ok is false at the end.
func (r *Resolver) NextMerchant(ctx context.Context, after merchant.ID) (next merchant.ID, ok bool, err error) {
	return nextMerchant(ctx, r.pool, after)
}

func nextMerchant(ctx context.Context, db postgres.DB, after merchant.ID) (next merchant.ID, ok bool, err error) {
	if err := db.QueryRow(ctx, selectNextMerchant, pgx.NamedArgs{"after": after}).Scan(&next); err != nil {
		return 0, false, fmt.Errorf("find the next merchant: %w", err)
	}
	return next, next >= 0, nil
}

const listCaptured = `
select c.charge_id, c.acquirer, c.amount::text, c.currency
  from charges c
 where c.merchant_id = @merchant and c.status = 'captured' and c.charge_id > @after
 order by c.charge_id limit @limit`

// CapturedCharge is what the books must have of a captured charge.
type CapturedCharge struct {
	ID       string
	Acquirer string
	Amount   string // plain decimal
	Currency string
}

// CapturedCharges reads all captured charges of a merchant by charge id, to verify the books.
func (r *Resolver) CapturedCharges(ctx context.Context, m merchant.ID, after string, limit int) ([]CapturedCharge, error) {
	rows, err := r.pool.Query(ctx, listCaptured, pgx.NamedArgs{"merchant": m, "after": after, "limit": limit})
	if err != nil {
		return nil, fmt.Errorf("read captured charges: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[CapturedCharge])
}

const chargesToVerify = `
select c.charge_id, c.idempotency_key, c.status, c.evidence is not null
  from charges c
 where c.merchant_id = @merchant and c.charge_id > @after order by c.charge_id limit @limit`

const chargesNamed = `
select c.charge_id, c.idempotency_key, c.status, c.evidence is not null
  from charges c where c.merchant_id = @merchant and c.charge_id = any(@charges)`

// keyedCharge is a charge as its key has to fit it.
type keyedCharge struct {
	ID       string
	Key      string
	Status   Status
	Resolved bool // it was unknown once
}

// keyState is the state that the key of the charge must have; free if it must not be the charge's.
//
// A captured charge has a key that is done, and so has one that was unknown and is closed as failed; an
// unknown's is unknown, a running one's in flight. The key of a charge that was declined or failed
// for certain is free again, or a newer charge's.
func (c keyedCharge) keyState() (state idempotency.State, free bool) {
	switch {
	case c.Status == Captured, c.Status == Failed && c.Resolved:
		return idempotency.Done, false
	case c.Status == Unknown:
		return idempotency.Unknown, false
	case c.Status == Pending, c.Status == Queued:
		return idempotency.InFlight, false
	}
	return "", true
}

// KeyFault is a key and a charge that do not fit together.
type KeyFault struct{ ChargeID, What string }

// verifyAtOnce is how many keys or charges are held at a time.
const verifyAtOnce = 1000

// VerifyKeys finds keys and charges of a merchant that contradict each other; none in sound tables. It
// reads pages, not one moment: what changed in between is looked at again before it is called a fault.
func (r *Resolver) VerifyKeys(ctx context.Context, m merchant.ID) (looked int64, faults []KeyFault, err error) {
	for after := ""; ; {
		charges, err := r.keyedCharges(ctx, chargesToVerify, pgx.NamedArgs{"merchant": m, "after": after, "limit": verifyAtOnce})
		if err != nil {
			return 0, nil, err
		}
		if len(charges) == 0 {
			break
		}
		looked += int64(len(charges))
		found, err := r.unfit(ctx, m, charges)
		if err != nil {
			return 0, nil, err
		}
		faults, after = append(faults, found...), charges[len(charges)-1].ID
	}
	orphans, err := r.orphanedKeys(ctx, m)
	return looked, append(faults, orphans...), err
}

func (r *Resolver) keyedCharges(ctx context.Context, sql string, args pgx.NamedArgs) ([]keyedCharge, error) {
	rows, err := r.pool.Query(ctx, sql, args)
	if err != nil {
		return nil, fmt.Errorf("verify the keys: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[keyedCharge])
}

// unfit holds charges against their keys, and those that do not fit once more by themselves.
func (r *Resolver) unfit(ctx context.Context, m merchant.ID, charges []keyedCharge) ([]KeyFault, error) {
	faults, err := r.compareKeys(ctx, m, charges)
	if err != nil || len(faults) == 0 {
		return nil, err
	}
	ids := make([]string, len(faults))
	for i, f := range faults {
		ids[i] = f.ChargeID
	}
	again, err := r.keyedCharges(ctx, chargesNamed, pgx.NamedArgs{"merchant": m, "charges": ids})
	if err != nil {
		return nil, err
	}
	return r.compareKeys(ctx, m, again)
}

func (r *Resolver) compareKeys(ctx context.Context, m merchant.ID, charges []keyedCharge) (faults []KeyFault, err error) {
	names := make([]string, len(charges))
	for i, c := range charges {
		names[i] = c.Key
	}
	held, err := idempotency.Named(ctx, r.pool, m, names)
	if err != nil {
		return nil, err
	}
	states := map[string]idempotency.State{} // by charge
	for _, k := range held {
		states[k.ChargeID] = k.State
	}
	for _, c := range charges {
		state, has := states[c.ID]
		want, free := c.keyState()
		if has == free || state != want {
			faults = append(faults, KeyFault{c.ID, fmt.Sprintf("charge %s with key %s", c.Status, cmp.Or(string(state), "missing"))})
		}
	}
	return faults, nil
}

// orphanedKeys finds keys that name no charge of theirs.
func (r *Resolver) orphanedKeys(ctx context.Context, m merchant.ID) (faults []KeyFault, err error) {
	for after := ""; ; {
		keys, err := idempotency.List(ctx, r.pool, m, after, verifyAtOnce)
		if err != nil || len(keys) == 0 {
			return faults, err
		}
		ids := make([]string, len(keys))
		for i, k := range keys {
			ids[i] = k.ChargeID
		}
		charges, err := r.keyedCharges(ctx, chargesNamed, pgx.NamedArgs{"merchant": m, "charges": ids})
		if err != nil {
			return nil, err
		}
		keyOf := map[string]string{}
		for _, c := range charges {
			keyOf[c.ID] = c.Key
		}
		for _, k := range keys {
			if name, ok := keyOf[k.ChargeID]; !ok || name != k.Key {
				faults = append(faults, KeyFault{k.ChargeID, fmt.Sprintf("a key that is %s names no charge of its own", k.State)})
			}
		}
		after = keys[len(keys)-1].Key
	}
}

// Each row's hash is over the hash before it, and the numbers have no gap.
const brokenAudit = `
select coalesce(min(a.seq), 0), count(*) from (
  select l.seq, l.hash, lag(l.hash, 1, '\x'::bytea) over w as before, lag(l.seq, 1, 0::bigint) over w as seq_before,
         l.at, l.actor, l.action, l.subject, l.detail, l.act_id
    from audit_log l window w as (order by l.seq)) a
 where a.seq <> a.seq_before + 1
    or a.hash <> audit_hash_v1(a.before, a.seq, a.at, a.actor, a.action, a.subject, a.detail, a.act_id)`

// VerifyAudit reads the whole audit log and reports the first row whose hash does not follow from the row
// before it, 0 if there is none. (That rows were cut off at the end, only a copy kept elsewhere shows.)
func VerifyAudit(ctx context.Context, db postgres.DB) (firstBroken int64, err error) {
	var count int64
	if err := db.QueryRow(ctx, brokenAudit).Scan(&firstBroken, &count); err != nil {
		return 0, fmt.Errorf("verify the audit log: %w", err)
	}
	return firstBroken, nil
}

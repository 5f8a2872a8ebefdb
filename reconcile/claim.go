package reconcile

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/shopspring/decimal"

	"paymentsd/internal/postgres"
	"paymentsd/merchant"
	"paymentsd/money"
	"paymentsd/settlement"
)

// claimState is what became of a line at its merchant (migrations: 000006_settlement).
type claimState string

const (
	stateNew       claimState = "new"
	stateMatched   claimState = "matched"
	statePart      claimState = "part"
	stateDuplicate claimState = "duplicate"
	stateUnmatched claimState = "unmatched"
	stateWaiting   claimState = "waiting"
	stateWithdrawn claimState = "withdrawn"
)

// claim is a settlement line whose reference names a charge of one merchant.
type claim struct {
	FileID     string
	LineNo     int
	Acquirer   string
	Account    string
	NaturalKey string
	Revision   int
	Kind       settlement.Kind
	AcqRef     string
	CaptureID  string
	Payout     string
	Currency   money.Currency
	Gross      decimal.Decimal
	Fee        decimal.Decimal
	Net        decimal.Decimal
	OccurredAt time.Time
	State      claimState
	ChargeID   string
	Resolved   bool
	Posted     bool
	Reversed   bool

	// What was paid, if that was in another currency; empty if not.
	SettledCurrency        money.Currency
	SettledFee, SettledNet decimal.Decimal
}

// key names the line for good: by the acquirer's own id of it, in whatever file it comes, and by how
// often the acquirer has changed its mind about it.
func (c claim) key() string {
	hash := sha256.New()
	for _, part := range []string{c.Acquirer, c.Account, c.NaturalKey} {
		fmt.Fprintf(hash, "%d:%s", len(part), part)
	}
	return fmt.Sprintf("%s:%d", hex.EncodeToString(hash.Sum(nil))[:32], c.Revision)
}

func (c claim) gross() money.Amount {
	amount, _ := money.Total(c.Gross, c.Currency) // the currency was checked when the line was read
	return amount
}

// String shows the line as a person would look for it.
func (c claim) String() string {
	return fmt.Sprintf("%s of %s %s at %s on %s, capture %s, line id %s",
		c.Kind, c.gross(), c.Currency, c.Acquirer, c.OccurredAt.Format(time.DateOnly), quoted(c.CaptureID), c.NaturalKey)
}

// unclaimedFiles are those whose lines are not all with their merchants yet.
const unclaimedFiles = `
select f.file_id from settlement_files f
 where f.acquirer = @acquirer and f.status in ('accepted', 'superseded', 'duplicate') and not f.claimed
 order by f.status desc, f.account, f.family, f.sequence, f.file_id`

const merchantsInFile = `
select distinct l.merchant_id from settlement_lines l
 where l.file_id = @file and l.merchant_id > @after order by l.merchant_id limit @limit`

const withdrawClaims = `
update settlement_claims c set state = 'withdrawn'
  from settlement_lines l
 where c.merchant_id = @merchant and c.file_id = @file and c.state <> 'withdrawn'
   and l.file_id = @file and l.merchant_id = @merchant and l.line_no = c.line_no and l.state = 'withdrawn'`

const insertClaims = `
insert into settlement_claims as c (merchant_id, file_id, line_no, acquirer, account, natural_key, revision, kind, acq_ref, capture_id,
  payout, currency, gross, fee, net, occurred_at, state, settled_currency, settled_fee, settled_net)
select l.merchant_id, l.file_id, l.line_no, l.acquirer, l.account, l.natural_key, l.revision, l.kind, l.reference, l.capture_id,
       l.payout, l.currency, l.gross, l.fee, l.net, l.occurred_at, 'new', l.settled_currency, l.settled_fee, l.settled_net
  from settlement_lines l where l.file_id = @file and l.merchant_id = @merchant and l.state = 'counted'
on conflict do nothing`

const fileClaimed = `update settlement_files f set claimed = true where f.file_id = @file`

// merchantsAtOnce is how many merchants' numbers are held at a time.
const merchantsAtOnce = 1000

// claimLines copies counted lines to the merchants that their references name, and takes withdrawn
// ones back: one transaction a merchant and file, and the file is done when all its merchants are.
func (r *Reconciler) claimLines(ctx context.Context, acquirer string) error {
	rows, err := r.Pool.Query(ctx, unclaimedFiles, pgx.NamedArgs{"acquirer": acquirer})
	if err != nil {
		return fmt.Errorf("find files to distribute: %w", err)
	}
	files, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("find files to distribute: %w", err)
	}
	for _, id := range files {
		if err := r.claimFile(ctx, id); err != nil {
			return fmt.Errorf("give the lines of file %s to their merchants: %w", id, err)
		}
	}
	return nil
}

func (r *Reconciler) claimFile(ctx context.Context, id string) error {
	for after := merchant.ID(-1); ; {
		rows, err := r.Pool.Query(ctx, merchantsInFile, pgx.NamedArgs{"file": id, "after": after, "limit": merchantsAtOnce})
		if err != nil {
			return err
		}
		merchants, err := pgx.CollectRows(rows, pgx.RowTo[merchant.ID])
		if err != nil {
			return err
		}
		for _, m := range merchants {
			if err := r.claimFor(ctx, m, id); err != nil {
				return err
			}
			r.Fault("merchant_claimed")
		}
		if len(merchants) < merchantsAtOnce {
			break
		}
		after = merchants[len(merchants)-1]
	}
	_, err := r.Pool.Exec(ctx, fileClaimed, pgx.NamedArgs{"file": id})
	return err
}

func (r *Reconciler) claimFor(ctx context.Context, m merchant.ID, file string) error {
	args := pgx.NamedArgs{"merchant": m, "file": file}
	return postgres.InTx(ctx, r.Pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, importPatience); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, withdrawClaims, args); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, insertClaims, args)
		return err
	})
}

const refsToExamine = `
select distinct c.acq_ref from settlement_claims c
 where c.merchant_id = @merchant and c.acquirer = @acquirer and c.acq_ref > @after
   and (c.state in ('new', 'waiting') or (c.state = 'withdrawn' and c.posted and not c.reversed))
 order by c.acq_ref limit @limit`

const claimsOf = `
select c.file_id, c.line_no, c.acquirer, c.account, c.natural_key, c.revision, c.kind, c.acq_ref, c.capture_id, c.payout, c.currency,
       c.gross, c.fee, c.net, c.occurred_at, c.state, coalesce(c.charge_id, ''), c.resolved, c.posted, c.reversed,
       coalesce(c.settled_currency, ''), coalesce(c.settled_fee, 0), coalesce(c.settled_net, 0)
  from settlement_claims c
 where c.merchant_id = @merchant and c.acq_ref = any(@refs)
 order by c.acq_ref, c.occurred_at, c.acquirer, c.account, c.natural_key, c.revision`

// claims reads all lines about the references, of whatever acquirer, by reference and time.
func (r *Reconciler) claims(ctx context.Context, m merchant.ID, refs []string) (map[string][]claim, error) {
	rows, err := r.Pool.Query(ctx, claimsOf, pgx.NamedArgs{"merchant": m, "refs": refs})
	if err != nil {
		return nil, fmt.Errorf("read the lines of merchant %d: %w", m, err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[claim])
	if err != nil {
		return nil, fmt.Errorf("read the lines of merchant %d: %w", m, err)
	}
	byRef := make(map[string][]claim, len(refs))
	for _, c := range all {
		c.OccurredAt = c.OccurredAt.UTC()
		byRef[c.AcqRef] = append(byRef[c.AcqRef], c)
	}
	return byRef, nil
}

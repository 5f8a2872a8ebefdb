package reconcile

import (
	"context"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5"
	"github.com/shopspring/decimal"

	"paymentsd/ledger"
	"paymentsd/merchant"
	"paymentsd/money"
	"paymentsd/payment"
)

// Check is one thing that Verify proves, or not.
type Check struct {
	Name    string   `json:"check"`
	Looked  int64    `json:"looked_at"`
	Faults  int64    `json:"faults"`
	Samples []string `json:"samples"` // of the faults, the first few
}

// samplesMax bounds the faults that are told one by one.
const samplesMax = 20

func (c *Check) fault(format string, args ...any) {
	c.Faults++
	if len(c.Samples) < samplesMax {
		c.Samples = append(c.Samples, fmt.Sprintf(format, args...))
	}
}

// Verification is what Verify found.
type Verification []Check

// Sound reports whether nothing is wrong.
func (v Verification) Sound() bool {
	for _, c := range v {
		if c.Faults > 0 {
			return false
		}
	}
	return true
}

// Write writes the checks as a table or as JSON.
func (v Verification) Write(w io.Writer, output string) error {
	if output == "json" {
		return writeJSON(w, v)
	}
	for _, c := range v {
		verdict := "ok"
		if c.Faults > 0 {
			verdict = fmt.Sprintf("%d FAULTS", c.Faults)
		}
		fmt.Fprintf(w, "%-58s %8d looked at  %s\n", c.Name, c.Looked, verdict)
		for _, s := range c.Samples {
			fmt.Fprintf(w, "    %s\n", oneLine(s))
		}
	}
	return nil
}

// verifying collects the checks of one Verify.
type verifying struct {
	*Reconciler
	trial, posted, balances, lines, given, keys, audit Check
}

// rowsAtOnce is how many charges or lines are held at a time.
const rowsAtOnce = 1000

// Verify proves that the books are whole: debits and credits are equal in every currency; every captured
// charge is posted once and nothing else is as a capture; every balance is the sum of its
// transfers; every settled line is posted; keys and charges agree; the audit log's chain holds. It
// changes nothing. Faults are in the answer; an error means that it could not look.
func (r *Reconciler) Verify(ctx context.Context) (Verification, error) {
	v := &verifying{
		Reconciler: r,
		trial:      Check{Name: "the trial balance is zero in every currency"},
		posted:     Check{Name: "every captured charge is posted exactly once"},
		balances:   Check{Name: "every balance is the sum of its transfers"},
		lines:      Check{Name: "every settled line is posted"},
		given:      Check{Name: "every line of a charge is with its merchant"},
		keys:       Check{Name: "keys and charges agree"},
		audit:      Check{Name: "the chain of the audit log holds"},
	}
	for _, check := range []func(context.Context) error{v.trialBalance, v.merchants, v.distributed, v.auditLog} {
		if err := check(ctx); err != nil {
			return nil, fmt.Errorf("verify: %w", err)
		}
	}
	checks := Verification{v.trial, v.posted, v.balances, v.lines, v.given, v.keys, v.audit}
	for i := range checks {
		if checks[i].Samples == nil {
			checks[i].Samples = []string{}
		}
	}
	return checks, nil
}

func (v *verifying) trialBalance(ctx context.Context) error {
	sums, err := ledger.TrialBalance(ctx, v.Pool)
	if err != nil {
		return err
	}
	for _, s := range sums {
		v.trial.Looked++
		if !s.Net().IsZero() {
			v.trial.fault("%s: debits %s, credits %s", s.Currency, s.Debits, s.Credits)
		}
	}
	return nil
}

func (v *verifying) merchants(ctx context.Context) error {
	m := &matching{Reconciler: v.Reconciler}
	for after := merchant.ID(-1); ; {
		id, ok, err := m.next(ctx, after)
		if err != nil || !ok {
			return err
		}
		for _, check := range []func(context.Context, merchant.ID) error{v.charges, v.rollups, v.settled, v.keysOf} {
			if err := check(ctx, id); err != nil {
				return fmt.Errorf("merchant %d: %w", id, err)
			}
		}
		after = id
	}
}

// charges holds each captured charge against its one transfer.
func (v *verifying) charges(ctx context.Context, m merchant.ID) error {
	captured, found := int64(0), int64(0)
	for after := ""; ; {
		charges, err := v.Resolver.CapturedCharges(ctx, m, after, rowsAtOnce)
		if err != nil {
			return err
		}
		if len(charges) == 0 {
			break
		}
		ids := make([]string, len(charges))
		for i, c := range charges {
			ids[i] = ledger.CaptureID(c.ID)
		}
		transfers, err := ledger.ByIDs(ctx, v.Pool, m, ids)
		if err != nil {
			return err
		}
		for _, c := range charges {
			captured++
			t, ok := transfers[ledger.CaptureID(c.ID)]
			if !ok {
				v.posted.fault("charge %s is captured and not posted", c.ID)
				continue
			}
			found++
			if !posts(t, c) {
				v.posted.fault("charge %s %s %s at %s is posted as %s %s from %s to %s", c.ID, c.Amount, c.Currency, c.Acquirer,
					t.Amount, t.Amount.Currency(), t.Credit, t.Debit)
			}
		}
		after = charges[len(charges)-1].ID
	}
	v.posted.Looked += captured
	posted, err := ledger.CountKind(ctx, v.Pool, m, ledger.KindCapture)
	if err != nil {
		return err
	}
	// A capture may have been committed since its charge was read; it is there on another look.
	if posted > found {
		if again, err := v.countCaptured(ctx, m); err != nil {
			return err
		} else if posted > again {
			v.posted.fault("merchant %d has %d captures posted and %d captured charges", m, posted, again)
		}
	}
	return nil
}

func posts(t ledger.Transfer, c payment.CapturedCharge) bool {
	amount, err := decimal.NewFromString(c.Amount)
	return err == nil && t.Amount.Decimal().Equal(amount) && t.Amount.Currency() == money.Currency(c.Currency) &&
		t.Debit == ledger.AcquirerReceivable(c.Acquirer) && t.Credit == ledger.MerchantPayable && t.ChargeID == c.ID
}

func (v *verifying) countCaptured(ctx context.Context, m merchant.ID) (n int64, err error) {
	for after := ""; ; {
		charges, err := v.Resolver.CapturedCharges(ctx, m, after, rowsAtOnce)
		if err != nil || len(charges) == 0 {
			return n, err
		}
		n, after = n+int64(len(charges)), charges[len(charges)-1].ID
	}
}

// rollups holds balances against the transfers they are made of, in one snapshot.
func (v *verifying) rollups(ctx context.Context, m merchant.ID) error {
	return pgx.BeginTxFunc(ctx, v.Pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		fast, err := ledger.Balances(ctx, tx, m)
		if err != nil {
			return err
		}
		anew, err := ledger.BalancesAnew(ctx, tx, m)
		if err != nil {
			return err
		}
		v.balances.Looked += int64(len(anew))
		if len(fast) != len(anew) {
			v.balances.fault("merchant %d has %d balances, its transfers make %d", m, len(fast), len(anew))
			return nil
		}
		for i, want := range anew {
			if got := fast[i]; got.Account != want.Account || got.Currency != want.Currency || !got.Debits.Equal(want.Debits) || !got.Credits.Equal(want.Credits) {
				v.balances.fault("merchant %d: %s, its transfers make %s", m, got, want)
			}
		}
		return nil
	})
}

const claimsToVerify = `
select c.file_id, c.line_no, c.acquirer, c.account, c.natural_key, c.revision, c.kind, c.acq_ref, c.capture_id, c.payout, c.currency,
       c.gross, c.fee, c.net, c.occurred_at, c.state, coalesce(c.charge_id, ''), c.resolved, c.posted, c.reversed,
       coalesce(c.settled_currency, ''), coalesce(c.settled_fee, 0), coalesce(c.settled_net, 0)
  from settlement_claims c
 where c.merchant_id = @merchant and (c.file_id, c.line_no) > (@file, @line::int) and c.posted
 order by c.file_id, c.line_no limit @limit`

// settled holds each line against the transfers that it should have been posted as.
func (v *verifying) settled(ctx context.Context, m merchant.ID) error {
	last := claim{}
	for {
		rows, err := v.Pool.Query(ctx, claimsToVerify, pgx.NamedArgs{"merchant": m, "file": last.FileID, "line": last.LineNo, "limit": rowsAtOnce})
		if err != nil {
			return err
		}
		claims, err := pgx.CollectRows(rows, pgx.RowToStructByPos[claim])
		if err != nil || len(claims) == 0 {
			return err
		}
		if err := v.postedLines(ctx, m, claims); err != nil {
			return err
		}
		last = claims[len(claims)-1]
	}
}

func (v *verifying) postedLines(ctx context.Context, m merchant.ID, claims []claim) error {
	var want []ledger.Transfer
	for _, c := range claims {
		v.lines.Looked++
		transfers, err := c.transfers()
		if err != nil {
			return err
		}
		want = append(want, transfers...)
		if c.Reversed {
			back, err := c.reversals()
			if err != nil {
				return err
			}
			want = append(want, back...)
		}
	}
	ids := make([]string, len(want))
	for i, t := range want {
		ids[i] = t.ID
	}
	found, err := ledger.ByIDs(ctx, v.Pool, m, ids)
	if err != nil {
		return err
	}
	for _, t := range want {
		got, ok := found[t.ID]
		switch {
		case !ok:
			v.lines.fault("transfer %s of merchant %d is missing: %s %s from %s to %s", t.ID, m, t.Amount, t.Amount.Currency(), t.Credit, t.Debit)
		case got.Debit != t.Debit || got.Credit != t.Credit || !got.Amount.Equal(t.Amount):
			v.lines.fault("transfer %s of merchant %d is not what its line says", t.ID, m)
		}
	}
	return nil
}

func (v *verifying) keysOf(ctx context.Context, m merchant.ID) error {
	looked, faults, err := v.Resolver.VerifyKeys(ctx, m)
	if err != nil {
		return err
	}
	v.keys.Looked += looked
	for _, f := range faults {
		v.keys.fault("%s: %s", f.ChargeID, f.What)
	}
	return nil
}

const countClaimable = `
select l.file_id, count(*) from settlement_lines l
  join settlement_files f on f.file_id = l.file_id and f.claimed
 where l.state = 'counted' and l.merchant_id is not null group by l.file_id order by l.file_id`

// countClaimed is a report over all merchants.
const countClaimed = `
select c.file_id, count(*) from settlement_claims c where c.state <> 'withdrawn' group by c.file_id`

// distributed holds the lines of each file against what merchants were given of it.
func (v *verifying) distributed(ctx context.Context) error {
	given, err := v.counts(ctx, countClaimed)
	if err != nil {
		return err
	}
	lines, err := v.counts(ctx, countClaimable)
	if err != nil {
		return err
	}
	for id, n := range lines {
		v.given.Looked += n
		if given[id] != n {
			v.given.fault("file %s has %d lines of charges, merchants have %d of them", id, n, given[id])
		}
	}
	return nil
}

func (v *verifying) counts(ctx context.Context, sql string) (map[string]int64, error) {
	rows, err := v.Pool.Query(ctx, sql)
	if err != nil {
		return nil, err
	}
	counts := map[string]int64{}
	var id string
	var n int64
	_, err = pgx.ForEachRow(rows, []any{&id, &n}, func() error { counts[id] = n; return nil })
	return counts, err
}

func (v *verifying) auditLog(ctx context.Context) error {
	broken, err := payment.VerifyAudit(ctx, v.Pool)
	if err != nil {
		return err
	}
	v.audit.Looked = 1
	if broken > 0 {
		v.audit.fault("row %d does not follow from the row before it", broken)
	}
	return nil
}

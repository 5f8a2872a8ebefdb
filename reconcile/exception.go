package reconcile

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/shopspring/decimal"

	"paymentsd/internal/postgres"
	"paymentsd/merchant"
	"paymentsd/money"
)

// Exception is one difference that a person should know of.
type Exception struct {
	ID       string // derived from what differs: the same difference has the same ID
	Acquirer string
	Class    Class
	Severity Severity
	Merchant *merchant.ID // nil if it is nobody's in particular
	ChargeID string       // empty if there is no charge
	AcqRef   string
	FileID   string // empty if no file is at its root
	LineNo   int
	AtRisk   money.Amount // zero value if no sum can be named
	Ours     string       // what we have, side by side with
	Theirs   string       // what they have
	Detail   string
	Since    time.Time // the UTC day from which its age counts
	Closed   *Closing  // nil while it is open
	OpenedAt time.Time

	scope string
}

// Closing says who closed an exception, and why.
type Closing struct {
	By     string
	Reason string
	At     time.Time
}

// Age is how many business days old the exception is on a day.
func (e Exception) Age(asOf time.Time) int { return businessDays(e.Since, asOf) }

// Action is what ops may do about it.
func (e Exception) Action() string {
	info, _ := e.Class.Info()
	return info.Action
}

// closedByRun is who closes an exception that later evidence has settled.
const closedByRun = "reconcile"

// identify gives an exception its ID and severity. What distinguishes two of a class within a scope is
// the caller's to say.
func (e Exception) identify(scope string, distinct ...string) Exception {
	hash := sha256.New()
	for _, part := range append([]string{scope, string(e.Class)}, distinct...) {
		fmt.Fprintf(hash, "%d:%s", len(part), part)
	}
	info, _ := e.Class.Info()
	e.ID, e.scope, e.Severity = "ex_"+hex.EncodeToString(hash.Sum(nil))[:24], scope, info.Severity
	return e
}

// An exception that a person closed stays closed as long as it says the same; one that a run closed
// opens again when it is found again.
const upsertException = `
insert into recon_exceptions as x (exception_id, scope, acquirer, class, severity, state, merchant_id, charge_id, acq_ref,
  file_id, line_no, currency, at_risk, ours, theirs, detail, since, opened_at, updated_at)
values (@id, @scope, @acquirer, @class, @severity, 'open', @merchant, nullif(@charge, ''), nullif(@ref, ''),
  nullif(@file, ''), nullif(@line::int, 0), @currency, @at_risk, @ours, @theirs, @detail, @since, @now, @now)
on conflict (exception_id) do update set
  state = 'open', closed_at = null, closed_by = null, close_reason = null, updated_at = excluded.updated_at,
  charge_id = excluded.charge_id, file_id = excluded.file_id, line_no = excluded.line_no, currency = excluded.currency,
  at_risk = excluded.at_risk, ours = excluded.ours, theirs = excluded.theirs, detail = excluded.detail, since = excluded.since
where (x.state = 'closed' and x.closed_by = 'reconcile')
   or (x.charge_id, x.file_id, x.line_no, x.currency, x.at_risk, x.ours, x.theirs, x.detail, x.since) is distinct from
      (excluded.charge_id, excluded.file_id, excluded.line_no, excluded.currency, excluded.at_risk, excluded.ours,
       excluded.theirs, excluded.detail, excluded.since)`

const closeSettled = `
update recon_exceptions x
   set state = 'closed', closed_at = @now, closed_by = 'reconcile', close_reason = @reason, updated_at = @now
 where x.scope = any(@scopes) and x.state = 'open' and not x.exception_id = any(@found)`

// record makes found the exceptions of scopes: what is new is added, what changed is brought up to
// date, what no longer holds is closed. It writes control tables only and may be repeated.
func (r *Reconciler) record(ctx context.Context, scopes []string, found []Exception, reason string) error {
	if len(scopes) == 0 {
		return nil
	}
	err := postgres.InTx(ctx, r.Pool, func(tx pgx.Tx) error {
		return r.recordIn(ctx, tx, scopes, found, reason)
	})
	if err != nil {
		return fmt.Errorf("record exceptions: %w", err)
	}
	return nil
}

func (r *Reconciler) recordIn(ctx context.Context, tx pgx.Tx, scopes []string, found []Exception, reason string) error {
	now, ids := r.now(), make([]string, 0, len(found))
	batch := &pgx.Batch{}
	for _, e := range found {
		ids = append(ids, e.ID)
		var currency *money.Currency
		var risk *decimal.Decimal
		if c := e.AtRisk.Currency(); c != "" {
			sum := e.AtRisk.Decimal().Abs()
			currency, risk = &c, &sum
		}
		batch.Queue(upsertException, pgx.NamedArgs{
			"id": e.ID, "scope": e.scope, "acquirer": e.Acquirer, "class": e.Class, "severity": e.Severity,
			"merchant": e.Merchant, "charge": e.ChargeID, "ref": e.AcqRef, "file": e.FileID, "line": e.LineNo,
			"currency": currency, "at_risk": risk, "ours": short(e.Ours, 500), "theirs": short(e.Theirs, 500),
			"detail": short(e.Detail, 1000), "since": dayOf(e.Since), "now": now,
		})
	}
	batch.Queue(closeSettled, pgx.NamedArgs{"scopes": scopes, "found": ids, "now": now, "reason": reason})
	return tx.SendBatch(ctx, batch).Close()
}

// short keeps a text within limit characters and fit for Postgres.
func short(s string, limit int) string {
	s = strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", ""), "?")
	if utf8.RuneCountInString(s) <= limit {
		return s
	}
	return string([]rune(s)[:limit-3]) + "..."
}

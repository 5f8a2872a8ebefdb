package payment

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"paymentsd/acquirer"
	"paymentsd/idempotency"
	"paymentsd/internal/postgres"
	"paymentsd/ledger"
	"paymentsd/merchant"
)

// The three writes of the charge path. Each is one round trip and one commit, by functions of the
// schema that take arrays of rows (migrations: 000004_charge_path for one row, 000008_group_commit for many).

// The outcomes of charge_begin_v1.
const (
	beginClaimed       = "claimed"
	beginExists        = "exists"
	beginGeneration    = "generation"
	beginReferenceOpen = "reference_open"
	beginAgain         = "again"
)

// claim is what T1 answered.
type claim struct {
	outcome    string
	chargeID   string
	fence      int64
	generation int
	record     idempotency.Record // when the key exists
}

const beginCharge = `
select 1, b.o_outcome, b.o_charge, coalesce(b.o_fence, 0), coalesce(b.o_state, ''), b.o_fingerprint,
       coalesce(b.o_response_on, 'epoch'::date), coalesce(b.o_generation, 0), coalesce(b.o_created_at, 'epoch'::timestamptz)
  from charge_begin_v1($1, $2, $3, $4, $5, $6, $7, $8, $9::text[]::numeric[], $10, $11, $12, $13, $14, $15) b`

const beginCharges = `
select b.o_ord, b.o_outcome, b.o_charge, coalesce(b.o_fence, 0), coalesce(b.o_state, ''), b.o_fingerprint,
       coalesce(b.o_response_on, 'epoch'::date), coalesce(b.o_generation, 0), coalesce(b.o_created_at, 'epoch'::timestamptz)
  from charge_begin_v2($1, $2, $3, $4, $5, $6, $7, $8, $9, $10::text[]::numeric[], $11, $12, $13, $14, $15, $16) b`

// beginColumns are the rows of a group as columns.
type beginColumns struct {
	now                                                      []time.Time
	keys, ids, refs, amounts, currencies, methods, acquirers []string
	prints                                                   [][]byte
	generations                                              []int
	references, descriptions                                 []*string
	concurrent                                               []bool
}

func (columns *beginColumns) add(b beginning) {
	c := b.charge
	columns.now = append(columns.now, c.CreatedAt)
	columns.keys, columns.ids, columns.refs = append(columns.keys, c.IdempotencyKey), append(columns.ids, c.ID), append(columns.refs, c.AcqRef)
	columns.prints, columns.generations = append(columns.prints, b.fingerprint[:]), append(columns.generations, c.Generation)
	columns.amounts, columns.currencies = append(columns.amounts, c.Amount.Decimal().String()), append(columns.currencies, string(c.Amount.Currency()))
	columns.references, columns.concurrent = append(columns.references, optional(c.Reference)), append(columns.concurrent, c.AllowConcurrent)
	columns.methods, columns.descriptions = append(columns.methods, c.PaymentMethod), append(columns.descriptions, optional(c.Description))
	columns.acquirers = append(columns.acquirers, c.Acquirer)
}

// statement is T1 for one merchant's rows. A single row is cheaper by the function that visits rows one by one,
// but that knows no hurry.
func (columns *beginColumns) statement(m merchant.ID, hurry bool, lease time.Duration, read func(pgx.Rows) error) postgres.Statement {
	rest := []any{
		columns.keys, columns.prints, columns.ids, columns.generations, columns.refs, columns.amounts, columns.currencies,
		columns.references, columns.concurrent, columns.methods, columns.descriptions, columns.acquirers,
	}
	if hurry || len(columns.keys) > 1 {
		return postgres.Statement{SQL: beginCharges, Args: append([]any{m, postgres.Patience.Milliseconds(), lease, columns.now}, rest...), Read: read}
	}
	return postgres.Statement{SQL: beginCharge, Args: append([]any{m, columns.now[0], lease}, rest...), Read: read}
}

// Write is T1 for a group: each claims its key and inserts its charge and first attempt.
func (w beginWriter) Write(ctx context.Context, group []beginning, hurry bool) ([]claim, error) {
	claims := make([]claim, len(group))
	err := writeGroup(ctx, w.s, w.conn.Conn(), "begin", group, hurry, func(b *beginning) *Charge { return &b.charge }, func(m merchant.ID, rows []int, hurry bool) postgres.Statement {
		var columns beginColumns
		for _, i := range rows {
			columns.add(group[i])
		}
		return columns.statement(m, hurry, w.s.lease, readRows(len(rows), func(r pgx.Rows) (place int, err error) {
			var c claim
			place, c, err = scanClaim(r)
			if place >= 1 && place <= len(rows) {
				of := group[rows[place-1]].charge
				c.record.Merchant, c.record.Key = of.Merchant, of.IdempotencyKey
				claims[rows[place-1]] = c
			}
			return place, err
		}))
	})
	return claims, err
}

func scanClaim(r pgx.Rows) (place int, c claim, err error) {
	var print []byte
	err = r.Scan(&place, &c.outcome, &c.chargeID, &c.fence, &c.record.State, &print, &c.record.ResponseOn, &c.generation, &c.record.CreatedAt)
	copy(c.record.Fingerprint[:], print)
	c.record.ChargeID, c.record.Fence = c.chargeID, c.fence
	return place, c, err
}

// ending is what an attempt brought: the row of the attempt.
type ending struct {
	n      int
	class  acquirer.Class
	calls  int
	answer acquirer.Answer
	reason string // why it ended there, if a mechanism of ours had a part in it
	detail string
}

const failoverCharge = `
select charge_failover_v1(@merchant, @now, @key, @charge, @fence, @attempt, @state, @calls, @http_status, @code, @reason, @detail, @next)`

// failOver ends an attempt that proves that nothing was executed, and begins the next one at another
// acquirer. False means that the lease was taken over: nothing may be sent.
func failOver(ctx context.Context, db postgres.DB, c Charge, fence int64, e ending, next string, now time.Time) (bool, error) {
	var ok bool
	err := db.QueryRow(ctx, failoverCharge, pgx.NamedArgs{
		"merchant": c.Merchant, "now": now, "key": c.IdempotencyKey, "charge": c.ID, "fence": fence, "attempt": e.n,
		"state": e.class, "calls": e.calls, "http_status": optionalInt(e.answer.HTTPStatus), "code": optional(e.answer.Code),
		"reason": optional(e.reason), "detail": optional(e.detail), "next": next,
	}).Scan(&ok)
	return ok, err
}

// The outcomes of charge_finish_v1.
const (
	finishApplied = "applied"
	finishAlready = "already"
	finishFenced  = "fenced"
)

const finishCharge = `
select 1, f.o_outcome
  from charge_finish_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22) f`

const finishCharges = `
select f.o_ord, f.o_outcome
  from charge_finish_v2($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23) f`

// finishColumns are the rows of a group as columns.
type finishColumns struct {
	now                                               []time.Time
	keys, ids, states, statuses, types, locations     []string
	fences                                            []int64
	attempts, calls, responses                        []int
	httpStatuses                                      []*int
	codes, reasons, details, captureIDs, declineCodes []*string
	bodies                                            [][]byte
	kinds, debits, credits                            []string
}

func (columns *finishColumns) add(f conclusion) {
	c, e := f.charge, f.last
	columns.now = append(columns.now, c.UpdatedAt)
	columns.keys, columns.ids, columns.fences = append(columns.keys, c.IdempotencyKey), append(columns.ids, c.ID), append(columns.fences, f.fence)
	columns.attempts, columns.states, columns.calls = append(columns.attempts, e.n), append(columns.states, string(e.class)), append(columns.calls, e.calls)
	columns.httpStatuses, columns.codes = append(columns.httpStatuses, optionalInt(e.answer.HTTPStatus)), append(columns.codes, optional(e.answer.Code))
	columns.reasons, columns.details = append(columns.reasons, optional(c.Reason)), append(columns.details, optional(c.Detail))
	columns.statuses, columns.captureIDs = append(columns.statuses, string(c.Status)), append(columns.captureIDs, optional(c.CaptureID))
	columns.declineCodes, columns.responses = append(columns.declineCodes, optional(c.DeclineCode)), append(columns.responses, f.frozen.Status)
	columns.types, columns.locations, columns.bodies = append(columns.types, f.frozen.ContentType), append(columns.locations, f.frozen.Location), append(columns.bodies, f.frozen.Body)
	transfer := ledger.Capture(c.ID, c.Acquirer, c.Amount)
	columns.kinds, columns.debits, columns.credits = append(columns.kinds, transfer.Kind), append(columns.debits, string(transfer.Debit)), append(columns.credits, string(transfer.Credit))
}

// statement is T2 for one merchant's rows.
func (columns *finishColumns) statement(m merchant.ID, hurry bool, read func(pgx.Rows) error) postgres.Statement {
	rest := []any{
		columns.keys, columns.ids, columns.fences, columns.attempts, columns.states, columns.calls, columns.httpStatuses, columns.codes,
		columns.reasons, columns.details, columns.statuses, columns.captureIDs, columns.declineCodes, columns.responses, columns.types,
		columns.locations, columns.bodies, columns.kinds, columns.debits, columns.credits,
	}
	if hurry || len(columns.keys) > 1 {
		return postgres.Statement{SQL: finishCharges, Args: append([]any{m, postgres.Patience.Milliseconds(), columns.now}, rest...), Read: read}
	}
	return postgres.Statement{SQL: finishCharge, Args: append([]any{m, columns.now[0]}, rest...), Read: read}
}

// Write is T2 for a group: attempt, charge, key with its frozen answer, ledger and event of each,
// fenced by its key.
func (w finishWriter) Write(ctx context.Context, group []conclusion, hurry bool) ([]string, error) {
	outcomes := make([]string, len(group))
	err := writeGroup(ctx, w.s, w.conn.Conn(), "finish", group, hurry, func(f *conclusion) *Charge { return &f.charge }, func(m merchant.ID, rows []int, hurry bool) postgres.Statement {
		var columns finishColumns
		for _, i := range rows {
			columns.add(group[i])
		}
		return columns.statement(m, hurry, readRows(len(rows), func(r pgx.Rows) (place int, err error) {
			var outcome string
			err = r.Scan(&place, &outcome)
			if place >= 1 && place <= len(rows) {
				outcomes[rows[place-1]] = outcome
			}
			return place, err
		}))
	})
	return outcomes, err
}

const insertEvent = `
insert into outbox (merchant_id, event_id, kind, charge_id, created_at)
values (@merchant, @event, @kind, @charge, @now) on conflict (merchant_id, event_id) do nothing`

// addEvent puts an event of a charge into the outbox, once of each kind.
func addEvent(ctx context.Context, tx pgx.Tx, m merchant.ID, chargeID, kind string, now time.Time) error {
	_, err := tx.Exec(ctx, insertEvent, pgx.NamedArgs{
		"merchant": m, "event": chargeID + ":" + kind, "kind": "charge." + kind, "charge": chargeID, "now": now,
	})
	if err != nil {
		return fmt.Errorf("add the event: %w", err)
	}
	return nil
}

func optional(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

func optionalInt(n int) *int {
	if n == 0 {
		return nil
	}
	return &n
}

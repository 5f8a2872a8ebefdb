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

// The three writes of the charge path. Each is one round trip and one commit, by a function of the
// schema that takes arrays of rows (migrations: 000004_charge_path).

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
select b.o_outcome, b.o_charge, coalesce(b.o_fence, 0), coalesce(b.o_state, ''), b.o_fingerprint,
       coalesce(b.o_response_on, 'epoch'::date), coalesce(b.o_generation, 0), coalesce(b.o_created_at, 'epoch'::timestamptz)
  from charge_begin_v1($1, $2, $3, $4, $5, $6, $7, $8, $9::text[]::numeric[], $10, $11, $12, $13, $14, $15) b`

// begin is T1: claim the key, insert the charge and its first attempt.
func begin(ctx context.Context, db postgres.DB, c Charge, fingerprint idempotency.Fingerprint, lease time.Duration) (claim, error) {
	answer := claim{record: idempotency.Record{Merchant: c.Merchant, Key: c.IdempotencyKey}}
	r := &answer.record
	var print []byte
	err := db.QueryRow(ctx, beginCharge, c.Merchant, c.CreatedAt, lease,
		[]string{c.IdempotencyKey}, [][]byte{fingerprint[:]}, []string{c.ID}, []int{c.Generation}, []string{c.AcqRef},
		[]string{c.Amount.Decimal().String()}, []string{string(c.Amount.Currency())}, []*string{optional(c.Reference)},
		[]bool{c.AllowConcurrent}, []string{c.PaymentMethod}, []*string{optional(c.Description)}, []string{c.Acquirer},
	).Scan(&answer.outcome, &answer.chargeID, &answer.fence, &r.State, &print, &r.ResponseOn, &answer.generation, &r.CreatedAt)
	if err != nil {
		return claim{}, err
	}
	copy(r.Fingerprint[:], print)
	r.ChargeID, r.Fence = answer.chargeID, answer.fence
	return answer, nil
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
select f.o_outcome
  from charge_finish_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22) f`

// finish is T2: attempt, charge, key with its frozen answer, ledger and event, fenced by the key.
func finish(ctx context.Context, db postgres.DB, c Charge, fence int64, e ending, frozen idempotency.Response, now time.Time) (string, error) {
	transfer := ledger.Capture(c.ID, c.Acquirer, c.Amount)
	var outcome string
	err := db.QueryRow(ctx, finishCharge, c.Merchant, now,
		[]string{c.IdempotencyKey}, []string{c.ID}, []int64{fence}, []int{e.n},
		[]string{string(e.class)}, []int{e.calls}, []*int{optionalInt(e.answer.HTTPStatus)}, []*string{optional(e.answer.Code)},
		[]*string{optional(c.Reason)}, []*string{optional(c.Detail)},
		[]string{string(c.Status)}, []*string{optional(c.CaptureID)}, []*string{optional(c.DeclineCode)},
		[]int{frozen.Status}, []string{frozen.ContentType}, []string{frozen.Location}, [][]byte{frozen.Body},
		[]string{transfer.Kind}, []string{string(transfer.Debit)}, []string{string(transfer.Credit)},
	).Scan(&outcome)
	return outcome, err
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

package reconcile

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"paymentsd/merchant"
	"paymentsd/money"
	"paymentsd/payment"
	"paymentsd/settlement"
)

// lineColumns is the order of a row of lineRows.
func lineColumns() []string {
	return []string{
		"file_id", "line_no", "acquirer", "account", "natural_key", "kind", "source_kind", "reference", "merchant_id",
		"capture_id", "payout", "currency", "gross", "fee", "net", "occurred_at", "state", "problem", "field", "value", "reason",
		"settled_currency", "settled_fee", "settled_net", "fx_rate",
	}
}

// lineRows streams the lines of a file as rows to copy, one in memory at a time. Good lines come as
// 'repeated': accept finds out which of them are news.
type lineRows struct {
	file      File
	next      func() (settlement.Line, error, bool)
	stop      func()
	merchants *knownMerchants
	progress  func(done int)
	row       []any
	done      int
	first     time.Time // the earliest line so far
	refusal   error     // the file is no good, or could not be read
	failed    error
}

func (r *Reconciler) newLineRows(ctx context.Context, f File, lines iter.Seq2[settlement.Line, error]) *lineRows {
	next, stop := iter.Pull2(lines)
	return &lineRows{
		file: f, next: next, stop: stop,
		merchants: &knownMerchants{ctx: ctx, store: r.Merchants, known: map[merchant.ID]bool{}},
		progress:  func(done int) { r.Progress(Progress{Stage: "import", Done: done}) },
	}
}

// progressEvery is how many lines go by between two signs of life.
const progressEvery = 10_000

// Next is for pgx.CopyFromSource.
func (l *lineRows) Next() bool {
	line, err, ok := l.next()
	if !ok {
		return false
	}
	bad, isLine := errors.AsType[*settlement.LineError](err)
	if err != nil && !isLine {
		l.refusal = err
		return false
	}
	l.row, l.failed = l.values(line, bad)
	if l.done++; l.done%progressEvery == 0 {
		l.progress(l.done)
	}
	return l.failed == nil
}

// Values is for pgx.CopyFromSource.
func (l *lineRows) Values() ([]any, error) { return l.row, nil }

// Err is for pgx.CopyFromSource: an error abandons the copy.
func (l *lineRows) Err() error { return errors.Join(l.refusal, l.failed) }

func (l *lineRows) values(line settlement.Line, bad *settlement.LineError) ([]any, error) {
	state, problem, field, value, reason := "repeated", (*string)(nil), "", "", ""
	if bad != nil {
		class := string(bad.Class)
		state, problem, field, value, reason = "bad", &class, short(bad.Field, 80), short(bad.Value, 255), short(bad.Reason, 1000)
	}
	var whose *merchant.ID
	if bad == nil && ofCharge(line.Kind) {
		var err error
		if whose, err = l.merchants.of(line.Reference); err != nil {
			return nil, err
		}
	}
	kind := line.Kind
	if kind == "" {
		kind = settlement.Unknown
	}
	var currency *money.Currency
	var gross, fee, net *pgtype.Numeric
	if c := line.Gross.Currency(); c != "" {
		currency, gross, fee, net = &c, numeric(line.Gross), numeric(line.Fee), numeric(line.Net)
	}
	var occurredAt *time.Time
	if !line.OccurredAt.IsZero() {
		t := line.OccurredAt.UTC().Truncate(time.Microsecond)
		occurredAt = &t
		if l.first.IsZero() || t.Before(l.first) {
			l.first = t
		}
	}
	var settledIn *money.Currency
	var settledFee, settledNet *pgtype.Numeric
	var rate *string
	if s := line.Settled; s != nil && currency != nil {
		c := s.Net.Currency()
		settledIn, settledFee, settledNet = &c, numeric(s.Fee), numeric(s.Net)
		if s.Rate != "" {
			text := short(s.Rate, 40)
			rate = &text
		}
	}
	return []any{
		l.file.ID, int32(line.Number), l.file.Acquirer, l.file.Account, short(line.ID, 255), string(kind), short(line.SourceKind, 4096),
		short(line.Reference, 4096), whose, short(line.CaptureID, 4096), short(line.Payout, 4096), currency, gross, fee, net,
		occurredAt, state, problem, field, value, reason, settledIn, settledFee, settledNet, rate,
	}, nil
}

func numeric(a money.Amount) *pgtype.Numeric {
	d := a.Decimal()
	return &pgtype.Numeric{Int: d.Coefficient(), Exp: d.Exponent(), Valid: true}
}

// ofCharge reports whether a line of the kind may belong to one charge.
func ofCharge(k settlement.Kind) bool {
	switch k {
	case settlement.Capture, settlement.PartialCaptureReversal, settlement.CaptureFailed, settlement.Refund,
		settlement.RefundReversal, settlement.Chargeback, settlement.ChargebackReversal, settlement.Fee:
		return true
	}
	return false
}

// knownMerchants says whose a reference is, and remembers which merchants there are.
type knownMerchants struct {
	ctx   context.Context // of the one import that it lives for
	store *merchant.Store
	known map[merchant.ID]bool
}

// rememberMax bounds what is remembered: another system's references decode to anything.
const rememberMax = 10_000

func (k *knownMerchants) of(reference string) (*merchant.ID, error) {
	m, ok := payment.MerchantOfReference(reference)
	if !ok {
		return nil, nil
	}
	exists, seen := k.known[m]
	if !seen {
		_, err := k.store.Get(k.ctx, m)
		if err != nil && !errors.Is(err, merchant.ErrNotFound) {
			return nil, fmt.Errorf("look up merchant %d: %w", m, err)
		}
		exists = err == nil
		if len(k.known) >= rememberMax {
			clear(k.known)
		}
		k.known[m] = exists
	}
	if !exists {
		return nil, nil
	}
	return &m, nil
}

// quoted shows a value of a file, or says that there is none.
func quoted(s string) string {
	if strings.TrimSpace(s) == "" {
		return "none"
	}
	return fmt.Sprintf("%q", s)
}

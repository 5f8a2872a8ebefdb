package api

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"paymentsd/events"
	"paymentsd/idempotency"
	"paymentsd/ledger"
	"paymentsd/merchant"
	"paymentsd/payment"
	"paymentsd/reconcile"
	"paymentsd/resilience"
)

// sentinels are the exported errors of the packages behind the api, with the code of their row.
func sentinels() map[string]struct {
	err  error
	code string
} {
	type row = struct {
		err  error
		code string
	}
	return map[string]row{
		"payment.ErrNotFound":         {payment.ErrNotFound, "charge_not_found"},
		"payment.ErrInFlight":         {payment.ErrInFlight, "idempotency_key_in_flight"},
		"payment.ErrReferenceOpen":    {payment.ErrReferenceOpen, "reference_has_open_charge"},
		"payment.ErrNotUnknown":       {payment.ErrNotUnknown, "charge_already_resolved"},
		"payment.ErrUnavailable":      {payment.ErrUnavailable, "store_unavailable"},
		"payment.ErrNotExecuted":      {payment.ErrNotExecuted, "charge_not_executed"},
		"payment.ErrAmount":           {payment.ErrAmount, "amount_not_supported"},
		"payment.ErrUnknownAcquirer":  {payment.ErrUnknownAcquirer, "acquirer_not_found"},
		"payment.ErrBreakerMode":      {payment.ErrBreakerMode, "validation_failed"},
		"payment.ErrEvidenceConflict": {payment.ErrEvidenceConflict, "evidence_conflict"},
		"payment.ErrInvalidCursor":    {payment.ErrInvalidCursor, "cursor_invalid"},
		"idempotency.ErrKeyMissing":   {idempotency.ErrKeyMissing, "idempotency_key_missing"},
		"idempotency.ErrKeyMalformed": {idempotency.ErrKeyMalformed, "idempotency_key_malformed"},
		"idempotency.ErrMismatch":     {idempotency.ErrMismatch, "idempotency_key_reused"},
		"idempotency.ErrExpired":      {idempotency.ErrExpired, "idempotency_key_expired"},
		"events.ErrUnverified":        {events.ErrUnverified, "event_unverified"},
		"events.ErrIDReused":          {events.ErrIDReused, "event_id_reused"},
		"ledger.ErrInvalidCursor":     {ledger.ErrInvalidCursor, "cursor_invalid"},
		"merchant.ErrUnknownKey":      {merchant.ErrUnknownKey, "unauthorized"},
		"reconcile.ErrBusy":           {reconcile.ErrBusy, "reconciliation_busy"},
		"reconcile.ErrAcquirer":       {reconcile.ErrAcquirer, "validation_failed"},
		"reconcile.ErrNoException":    {reconcile.ErrNoException, "exception_not_found"},
		"reconcile.ErrClosed":         {reconcile.ErrClosed, "exception_already_closed"},
		"reconcile.ErrInvalidCursor":  {reconcile.ErrInvalidCursor, "cursor_invalid"},
		"reconcile.ErrInvalidRequest": {reconcile.ErrInvalidRequest, "validation_failed"},
		"reconcile.ErrTooLarge":       {reconcile.ErrTooLarge, "body_too_large"},
	}
}

// withoutRow are the exported errors that no request of the api brings about, and why.
func withoutRow() map[string]string {
	return map[string]string{
		"idempotency.ErrNotFound":  "payment looks keys up and says what a free key means",
		"ledger.ErrConflict":       "damage of ours, found while posting: an internal error and an alarm, no answer",
		"ledger.ErrTooRecent":      "balances are rolled up by a loop, never by a request",
		"merchant.ErrNotFound":     "merchants are managed from the command line",
		"merchant.ErrNoSuchKey":    "keys are managed from the command line",
		"merchant.ErrInvalidInput": "merchants and keys are managed from the command line",
		"merchant.ErrInvalidCode":  "the query parser refuses a code that cannot be read, by the parameter's name",
		"reconcile.ErrNoRun":       "reports are read from the command line",
	}
}

func TestEverySentinelHasARow(t *testing.T) {
	t.Parallel()
	rows, absent := sentinels(), withoutRow()
	for _, pkg := range []string{"payment", "idempotency", "ledger", "merchant", "reconcile", "events"} {
		for _, name := range exportedErrors(t, pkg) {
			row, ok := rows[name]
			switch reason, excused := absent[name]; {
			case excused && ok:
				t.Errorf("%s has a row and a reason to have none", name)
			case excused && reason == "":
				t.Errorf("%s has no row and no reason", name)
			case !excused && !ok:
				t.Errorf("%s has no row in the table of problems: add one, or say in withoutRow why none is needed", name)
			case ok && ruleFor(fmt.Errorf("wrapped: %w", row.err)).code != row.code:
				t.Errorf("%s is answered with %s, want %s", name, ruleFor(row.err).code, row.code)
			}
			delete(rows, name)
			delete(absent, name)
		}
	}
	for name := range rows {
		t.Errorf("%s is no exported error any more", name)
	}
	for name := range absent {
		t.Errorf("%s is no exported error any more", name)
	}
}

// exportedErrors lists the Err* variables of a package, as package.Name.
func exportedErrors(t *testing.T, pkg string) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(filepath.Join("..", pkg), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			vars, ok := decl.(*ast.GenDecl)
			if !ok || vars.Tok != token.VAR {
				continue
			}
			for _, spec := range vars.Specs {
				for _, name := range spec.(*ast.ValueSpec).Names {
					if strings.HasPrefix(name.Name, "Err") {
						names = append(names, pkg+"."+name.Name)
					}
				}
			}
		}
		return nil
	})
	if err != nil || len(names) == 0 {
		t.Fatalf("read the errors of %s: %v, %v", pkg, names, err)
	}
	return names
}

func TestRulesAreWellFormed(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, r := range rules() {
		if seen[r.code] || r.title == "" || r.advice == "" || r.status < 400 {
			t.Errorf("the row %q is there twice or incomplete", r.code)
		}
		seen[r.code] = true
		if r.retryable && r.status != http.StatusConflict && r.status < 500 && r.code != codeBodyIncomplete {
			t.Errorf("%s is said to be retryable, and is a mistake of the caller", r.code)
		}
		if r.status >= 500 && !r.retryable {
			t.Errorf("%s: what is our fault may be tried again", r.code)
		}
	}
}

func TestEndings(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]payment.Charge{
		codeDeclined:    {Status: payment.Declined, DeclineCode: "x"},
		codeNotExecuted: {Status: payment.Failed, Reason: "not_sent"},
		codeRejected:    {Status: payment.Failed, Reason: "rejected"},
		codeNotCaptured: {Status: payment.Failed, Reason: payment.ReasonNotCaptured, Evidence: payment.Settlement},
	} {
		if got := ruleFor(&ending{result: payment.Result{Charge: c}}).code; got != want {
			t.Errorf("%+v ends as %s, want %s", c, got, want)
		}
	}
}

type sqlError string

func (e sqlError) Error() string    { return "SQLSTATE " + string(e) }
func (e sqlError) SQLState() string { return string(e) }

func TestStoreTroubleIsNoInternalError(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		&net.OpError{Op: "dial", Err: errors.New("refused")}, io.ErrUnexpectedEOF, context.DeadlineExceeded,
		sqlError("08006"), sqlError("53300"), sqlError("57P01"), sqlError("57014"),
	} {
		if got := ruleFor(fmt.Errorf("list charges: %w", err)).code; got != "store_unavailable" {
			t.Errorf("%v is answered with %s", err, got)
		}
	}
	for _, err := range []error{sqlError("42703"), errors.New("no such thing"), context.Canceled} {
		if got := ruleFor(err).code; got != codeInternal {
			t.Errorf("%v is answered with %s", err, got)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		err  error
		want string
	}{
		"idempotency case 38: never zero":            {&payment.InFlightError{ChargeID: "ch_1"}, "1"},
		"idempotency case 38: never negative":        {&payment.InFlightError{ChargeID: "ch_1", RetryAfter: -30 * time.Second}, "1"},
		"idempotency case 38: rounded up":            {&payment.InFlightError{ChargeID: "ch_1", RetryAfter: 1200 * time.Millisecond}, "2"},
		"a rejection says how long":                  {&payment.NotExecutedError{Rejection: &resilience.Rejection{Reason: resilience.CircuitOpen, RetryAfter: 5 * time.Second}}, "5"},
		"503 always says when":                       {&payment.UnavailableError{Cause: errors.New("gone")}, "1"},
		"a mistake of the caller is not to be timed": {payment.ErrNotFound, ""},
		"nor is a charge that stands in the way":     {&payment.ReferenceOpenError{ChargeID: "ch_1"}, ""},
		"a failed charge passes the wait on":         {&ending{result: payment.Result{Charge: payment.Charge{Status: payment.Failed}, RetryAfter: 7 * time.Second}}, "7"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := serveError(t, tt.err)
			if got := w.Header().Get("Retry-After"); got != tt.want {
				t.Errorf("Retry-After: %q, want %q", got, tt.want)
			}
		})
	}
}

// serveError answers a request with an error, through the real middlewares.
func serveError(t *testing.T, err error) *httptest.ResponseRecorder {
	t.Helper()
	return serveHandler(t, io.Discard, func(http.ResponseWriter, *http.Request) error { return err })
}

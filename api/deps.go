package api

import (
	"context"
	"io"
	"net/http"

	"paymentsd/events"
	"paymentsd/ledger"
	"paymentsd/merchant"
	"paymentsd/payment"
	"paymentsd/reconcile"
)

// Authenticator says whose key was presented. Any error but merchant.ErrUnknownKey means that the
// store could not be asked.
type Authenticator interface {
	Authenticate(ctx context.Context, presented string) (merchant.Principal, error)
}

// Charger carries a charge to an outcome, once.
type Charger interface {
	Charge(ctx context.Context, r payment.Request) (payment.Result, error)
}

// Records reads charges and what belongs to them.
type Records interface {
	Get(ctx context.Context, m merchant.ID, chargeID string) (payment.Charge, error)
	List(ctx context.Context, f payment.Filter) (payment.Page, error)
	Attempts(ctx context.Context, m merchant.ID, chargeID string) ([]payment.Attempt, error)
	Resolutions(ctx context.Context, m merchant.ID, chargeID string) ([]payment.Resolution, error)
}

// Resolver closes an unknown charge by a person's evidence, and keeps the audit log.
type Resolver interface {
	Resolve(ctx context.Context, m merchant.ID, chargeID string, r payment.Resolution) (payment.Charge, error)
	// AuditAppend records an act after it was done; the same actID again is harmless.
	AuditAppend(ctx context.Context, actor, action, subject, detail, actID string) error
}

// Ledger reads one merchant's books.
type Ledger interface {
	Balances(ctx context.Context, m merchant.ID) ([]ledger.Balance, error)
	Transfers(ctx context.Context, m merchant.ID, q ledger.Query) ([]ledger.Transfer, bool, error)
}

// Acquirers shows and steers what stands between us and each acquirer.
type Acquirers interface {
	Acquirers() []payment.AcquirerStatus
	Acquirer(name string) (payment.AcquirerStatus, error)
	// Reports and Transitions ask the store.
	Reports(ctx context.Context) ([]payment.ReplicaReport, error)
	Transitions(ctx context.Context, acquirer string, most int) ([]payment.Transition, error)
	// SetBreaker holds a breaker open or closed, or lets it decide again (mode auto), and writes the audit log.
	SetBreaker(ctx context.Context, name, mode string, act payment.Act) error
}

// Events takes in what acquirers tell of their own accord.
type Events interface {
	// Verify says which event a request is; events.ErrUnverified if the acquirer did not send it.
	Verify(acquirer string, h http.Header, body []byte) (events.Verified, error)
	// Receive keeps the event before it returns, and reports whether we had it already.
	Receive(ctx context.Context, v events.Verified) (replayed bool, err error)
}

// Exposures sums the unknown charges by acquirer and currency, over all merchants.
type Exposures interface {
	Exposures(ctx context.Context) ([]payment.Exposure, error)
}

// Reconciliation takes settlement files in, and shows what they showed.
type Reconciliation interface {
	Files
	Exceptions
	Runs(ctx context.Context, f reconcile.RunFilter) ([]reconcile.Run, bool, error)
}

// Files keeps settlement files.
type Files interface {
	ImportFile(ctx context.Context, acquirer, format, name string, in io.Reader) (reconcile.Imported, error)
	Files(ctx context.Context, f reconcile.FileFilter) ([]reconcile.File, bool, error)
}

// Exceptions keeps the differences that a person should know of.
type Exceptions interface {
	Exceptions(ctx context.Context, f reconcile.ExceptionFilter) ([]reconcile.Exception, bool, error)
	Exception(ctx context.Context, id string) (reconcile.Exception, error)
	Notes(ctx context.Context, id string) ([]reconcile.Note, error)
	// CloseException and AddNote write the audit log themselves.
	CloseException(ctx context.Context, id, actor, reason string) (reconcile.Exception, error)
	AddNote(ctx context.Context, id, actor, text string) (reconcile.Note, error)
}

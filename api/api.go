// Package api is JSON over HTTP, exactly as openapi.yaml says.
//
// Handlers return errors; problem.go turns each into one problem document (RFC 9457) and the
// error is logged there, once. Nothing that a request holds is logged or echoed before it was
// searched for card numbers.
package api

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/prometheus/client_golang/prometheus"

	"paymentsd/idempotency"
	"paymentsd/resilience"
)

// Deps is what the handlers need. Every interface is required unless its comment says otherwise.
type Deps struct {
	Auth           Authenticator
	Charges        Charger
	Records        Records
	Resolver       Resolver
	Ledger         Ledger
	Acquirers      Acquirers
	Reconciliation Reconciliation
	Fingerprinter  *idempotency.Fingerprinter

	// Shedder decides at the door which requests come in, made for ShedKinds; nil lets all in.
	Shedder *resilience.Shedder
	// Events takes acquirers' events in; nil means that no acquirer sends any.
	Events Events
	// Ready says whether this process should get requests; nil means always.
	Ready func(context.Context) error
	// Metrics is where the api's metrics are registered; nil keeps them unseen.
	Metrics prometheus.Registerer
	// Gatherer is what /metrics shows; nil shows nothing.
	Gatherer prometheus.Gatherer
	// Exposures feeds the gauges of unknown charges; nil leaves them out.
	Exposures Exposures

	Log     *slog.Logger
	Now     func() time.Time
	Version string
	Limits  Limits
}

// Limits bound what a request may ask of us. A zero field takes its default.
type Limits struct {
	BodyBytesMax int64         // of a JSON body; 64 KiB
	FileBytesMax int64         // of a settlement file; 64 MiB
	WaitMax      time.Duration // of Prefer: wait=N; 10 s
	// RequestTimeMax is how long a request may have waited for its work still to be begun; 25 s.
	// The caller's Request-Timeout can only shorten it.
	RequestTimeMax time.Duration
	// StoreTime is how long the store may take for anything but a charge and a settlement file, which have
	// limits of their own; 5 s. After it the answer is 503: a store that hangs must not hold requests.
	StoreTime time.Duration
}

func (l Limits) orDefaults() Limits {
	if l.BodyBytesMax == 0 {
		l.BodyBytesMax = 64 << 10
	}
	if l.FileBytesMax == 0 {
		l.FileBytesMax = 64 << 20
	}
	if l.WaitMax == 0 {
		l.WaitMax = 10 * time.Second
	}
	if l.RequestTimeMax == 0 {
		l.RequestTimeMax = 25 * time.Second
	}
	if l.StoreTime == 0 {
		l.StoreTime = 5 * time.Second
	}
	return l
}

// api holds what the handlers share. It is not changed after New.
type api struct {
	Deps
	metrics *metrics
	router  *chi.Mux
	shed    shedLog
}

// New makes the handler of every route. It panics if Deps.Metrics holds the api's metrics already.
func New(d Deps) http.Handler {
	d.Limits = d.Limits.orDefaults()
	if d.Shedder == nil {
		d.Shedder = openDoor()
	}
	a := &api{Deps: d, router: chi.NewRouter()}
	a.metrics = newMetrics(d)
	a.router.Use(a.identify, a.logAccess, a.recoverPanic, middleware.GetHead)
	a.router.NotFound(a.serve(a.routeNotFound))
	a.router.MethodNotAllowed(a.serve(a.methodNotAllowed))
	weights := weights()
	for kind, r := range a.routes() {
		if r.method == http.MethodGet {
			r.handle = a.inTime(r.handle)
		}
		if r.access != nil {
			r.handle = a.authenticated(r.access, r.handle)
		}
		if weight, ok := weights[r.method+" "+r.pattern]; ok {
			r.handle = a.admitted(kind, weight, r.handle)
		}
		a.router.MethodFunc(r.method, r.pattern, a.serve(r.handle))
	}
	return a.router
}

// route is one operation of openapi.yaml.
type route struct {
	method, pattern string
	access          access // nil: no key needed
	handle          handler
}

func (a *api) routes() []route {
	return []route{
		{http.MethodPost, "/v1/charges", mayCharge, a.postCharge},
		{http.MethodGet, "/v1/charges", mayRead, a.listCharges},
		{http.MethodGet, "/v1/charges/{id}", mayRead, a.getCharge},
		{http.MethodGet, "/v1/charges/{id}/attempts", mayRead, a.listAttempts},
		{http.MethodGet, "/v1/charges/{id}/resolutions", mayRead, a.listResolutions},
		{http.MethodPost, "/v1/charges/{id}/resolution", mayOperate, a.inTime(a.postResolution)},
		{http.MethodGet, "/v1/ledger/balances", mayOperate, a.listBalances},
		{http.MethodGet, "/v1/ledger/transfers", mayOperate, a.listTransfers},
		{http.MethodGet, "/v1/acquirers", mayOperate, a.listAcquirers},
		{http.MethodGet, "/v1/acquirers/{name}", mayOperate, a.getAcquirer},
		{http.MethodPost, "/v1/acquirers/{name}/breaker", maySteer, a.inTime(a.postBreaker)},
		{http.MethodPost, "/v1/acquirers/{name}/events", nil, a.inTime(a.postEvent)}, // a signature stands for a key
		{http.MethodGet, "/v1/reconciliation/runs", maySteer, a.listRuns},
		{http.MethodGet, "/v1/reconciliation/exceptions", mayOperate, a.listExceptions},
		{http.MethodGet, "/v1/reconciliation/exceptions/{id}", mayOperate, a.getException},
		{http.MethodPost, "/v1/reconciliation/exceptions/{id}", mayOperate, a.inTime(a.postException)},
		{http.MethodGet, "/v1/settlement-files", maySteer, a.listFiles},
		{http.MethodPost, "/v1/settlement-files", maySteer, a.postFile},
		{http.MethodGet, "/problems/{code}", nil, a.getProblem},
		{http.MethodGet, "/healthz", nil, a.getHealth},
		{http.MethodGet, "/readyz", nil, a.getReady},
		{http.MethodGet, "/metrics", nil, a.getMetrics},
	}
}

// handler answers a request, or returns why it does not.
type handler func(w http.ResponseWriter, r *http.Request) error

// serve answers for a handler's error.
func (a *api) serve(h handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := h(w, r); err != nil {
			a.fail(w, r, err)
		}
	}
}

// inTime bounds how long a handler waits for the store: not longer than its caller will.
func (a *api) inTime(h handler) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		ctx, cancel := context.WithTimeout(r.Context(), min(a.Limits.StoreTime, resilience.Remaining(r.Context())))
		defer cancel()
		return h(w, r.WithContext(ctx))
	}
}

func (a *api) routeNotFound(http.ResponseWriter, *http.Request) error {
	return refuse(codeRouteNotFound, "No route has this path.")
}

func (a *api) methodNotAllowed(w http.ResponseWriter, r *http.Request) error {
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost} {
		asked := method
		if method == http.MethodHead {
			asked = http.MethodGet
		}
		if a.router.Match(chi.NewRouteContext(), asked, r.URL.Path) {
			w.Header().Add("Allow", method)
		}
	}
	return refuse(codeMethodNotAllowed, "The path exists, the method does not: see the Allow header.")
}

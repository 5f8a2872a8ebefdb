package api_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"paymentsd/api"
	"paymentsd/merchant"
	"paymentsd/resilience"
)

// places is the limit of the shedder of a world: more than any test has in progress at once.
const places = 1000

// newShedder makes one whose limit stays, and whose Retry-After does not vary.
func newShedder(t testing.TB, limit int) *resilience.Shedder {
	t.Helper()
	s, err := resilience.NewShedder(resilience.ShedderConfig{
		Min: limit, Max: limit, NormalPercent: 50, LowPercent: 25, Slowdown: 200, Rand: func() float64 { return 0 },
	}, api.ShedKinds())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// crowdTo makes so many requests be in progress.
func (w *world) crowdTo(n string) error {
	want, err := strconv.Atoi(n)
	if err != nil {
		return err
	}
	for len(w.crowd) > want {
		w.crowd[len(w.crowd)-1].Leave(false)
		w.crowd = w.crowd[:len(w.crowd)-1]
	}
	for len(w.crowd) < want {
		v := new(resilience.Visit)
		if refused := w.shedder.Enter(context.Background(), v, 0, resilience.Critical); refused != nil {
			return refused
		}
		w.crowd = append(w.crowd, v)
	}
	return nil
}

// door is an api whose shedder is full up to a number, and whose store is asked for keys only.
type door struct {
	shedder  *resilience.Shedder
	handler  http.Handler
	metrics  *prometheus.Registry
	log      *safeBuffer
	asked    atomic.Int64
	role     merchant.Role
	merchant *merchant.Merchant
}

func (d *door) Authenticate(context.Context, string) (merchant.Principal, error) {
	d.asked.Add(1)
	if d.role == "" {
		return merchant.Principal{}, merchant.ErrUnknownKey
	}
	return merchant.Principal{KeyID: "key", Role: d.role, Merchant: d.merchant}, nil
}

func newDoor(t testing.TB, inProgress int) *door {
	t.Helper()
	d := &door{shedder: newShedder(t, 100), metrics: prometheus.NewRegistry(), log: &safeBuffer{}}
	d.handler = api.New(api.Deps{
		Auth: d, Records: hanging{}, Shedder: d.shedder, Metrics: d.metrics, Gatherer: d.metrics, Now: time.Now,
		Log: slog.New(slog.NewJSONHandler(d.log, nil)), Limits: api.Limits{StoreTime: 10 * time.Second},
	})
	for range inProgress {
		if refused := d.shedder.Enter(t.Context(), new(resilience.Visit), 0, resilience.Critical); refused != nil {
			t.Fatal(refused)
		}
	}
	return d
}

func (d *door) ask(t testing.TB, method, target string, headers ...string) answer {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, target, nil)
	r.Header.Set("Authorization", "Bearer any")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	d.handler.ServeHTTP(w, r)
	return answer{status: w.Code, header: w.Header(), body: w.Body.String()}
}

// Every route that works for somebody is refused when all places are taken; what says how we are never is.
func TestWhatIsRefusedUnderOverload(t *testing.T) {
	t.Parallel()
	d := newDoor(t, 100)
	for _, route := range walk(t, d.handler) {
		method, pattern, _ := strings.Cut(route, " ")
		target := strings.NewReplacer("{id}", "x", "{name}", "x", "{code}", "overloaded").Replace(pattern)
		a := d.ask(t, method, target)
		guarded := strings.HasPrefix(pattern, "/v1/")
		if guarded && (a.status != http.StatusServiceUnavailable || a.field("code") != "overloaded" || a.header.Get("Retry-After") == "") ||
			!guarded && a.status != http.StatusOK {
			t.Errorf("%s: %d %v %s", route, a.status, a.header, a.body)
		}
	}
	if n := d.asked.Load(); n != 0 {
		t.Errorf("%d keys were looked up", n)
	}
}

// The route says how important a request is; the header may say less, never more; and the role counts once it is known.
func TestHowARequestIsWeighed(t *testing.T) {
	t.Parallel()
	const low, normal, critical = "shed_low_priority", "shed_normal_priority", "overloaded"
	for _, c := range []struct {
		method, target, priority string
		role                     merchant.Role
		want                     string
	}{
		{http.MethodPost, "/v1/charges", "", merchant.RoleCharges, critical},
		{http.MethodPost, "/v1/charges", "normal", merchant.RoleCharges, normal},
		{http.MethodPost, "/v1/charges", "low", merchant.RoleCharges, low},
		{http.MethodPost, "/v1/charges", "u=0", merchant.RoleCharges, critical},
		{http.MethodPost, "/v1/charges", "u=5", merchant.RoleCharges, normal},
		{http.MethodPost, "/v1/charges", "u=7, i", merchant.RoleCharges, low},
		{http.MethodPost, "/v1/charges", "urgent", merchant.RoleCharges, critical},
		{http.MethodGet, "/v1/charges", "", merchant.RoleRead, normal},
		{http.MethodGet, "/v1/charges", "critical", merchant.RoleRead, normal},
		{http.MethodGet, "/v1/charges", "low", merchant.RoleRead, low},
		{http.MethodGet, "/v1/charges", "", merchant.RoleOps, low},
		{http.MethodGet, "/v1/charges/x", "", merchant.RoleOps, normal},
		{http.MethodGet, "/v1/ledger/balances", "critical", merchant.RoleOps, low},
		{http.MethodPost, "/v1/settlement-files", "u=0", merchant.RoleOps, low},
		{http.MethodPost, "/v1/charges/x/resolution", "", merchant.RoleOps, normal},
		{http.MethodGet, "/v1/acquirers", "", merchant.RoleOps, critical},
		{http.MethodPost, "/v1/acquirers/x/breaker", "", merchant.RoleOps, critical},
		{http.MethodPost, "/v1/acquirers/x/events", "", "", normal},
	} {
		// The first crowd that refuses it tells its weight.
		for _, at := range []struct {
			inProgress int
			reason     string
		}{{25, low}, {50, normal}, {100, critical}} {
			d := newDoor(t, at.inProgress)
			d.role = c.role
			a := d.ask(t, c.method, c.target, "Priority", c.priority, "Request-Timeout", "0.2")
			if got := a.field("reason"); a.field("code") == "overloaded" && got != "deadline_too_short" {
				if got != c.want {
					t.Errorf("%s %s, Priority: %s, role %s: %s, want %s", c.method, c.target, c.priority, c.role, got, c.want)
				}
				if n := d.shedder.Snapshot().InProgress; n != int64(at.inProgress) {
					t.Errorf("%d in progress after a refusal, %d before", n, at.inProgress)
				}
				break
			}
		}
	}
}

// say opens a connection to a server, sends a text and gives what comes back.
func say(t *testing.T, server *httptest.Server, text string) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	return conn, bufio.NewReader(conn)
}

const chargeHead = "POST /v1/charges HTTP/1.1\r\nHost: api\r\nAuthorization: Bearer any\r\nIdempotency-Key: k\r\nContent-Type: application/json\r\n"

func TestARefusedBodyIsNotRead(t *testing.T) {
	t.Parallel()
	d := newDoor(t, 100)
	server := httptest.NewServer(d.handler)
	t.Cleanup(server.Close)
	expect := func(t *testing.T, in *bufio.Reader) {
		t.Helper()
		response, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		a := answer{status: response.StatusCode, header: response.Header, body: string(body)}
		if err != nil || a.status != http.StatusServiceUnavailable || a.field("reason") != "overloaded" || a.header.Get("Retry-After") != "1" ||
			!strings.Contains(a.field("detail"), "100 requests in progress, critical stops at 100 of 100") {
			t.Errorf("answered %d %v %s (%v)", a.status, a.header, body, err)
		}
	}
	t.Run("one that does not come is not waited for", func(t *testing.T) {
		t.Parallel()
		for _, length := range []string{"Content-Length: 60000", "Transfer-Encoding: chunked"} {
			_, in := say(t, server, chargeHead+length+"\r\n\r\n")
			expect(t, in)
		}
	})
	t.Run("one that is offered is not asked for", func(t *testing.T) {
		t.Parallel()
		_, in := say(t, server, chargeHead+"Content-Length: 60\r\nExpect: 100-continue\r\n\r\n")
		expect(t, in)
	})
	t.Run("one that has come costs the client no connection", func(t *testing.T) {
		t.Parallel()
		whole := chargeHead + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(goodCharge), goodCharge)
		conn, in := say(t, server, whole)
		expect(t, in)
		if _, err := io.WriteString(conn, whole); err != nil {
			t.Fatal(err)
		}
		expect(t, in)
	})
}

// eventually waits for what another goroutine does soon.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for range 1000 {
		if ok() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Errorf("still not: %s", what)
}

func TestWhoeverIsWaitedForHoldsNoPlace(t *testing.T) {
	t.Parallel()
	inProgress := func(s *resilience.Shedder) int64 { return s.Snapshot().InProgress }
	t.Run("a client that sends slowly", func(t *testing.T) {
		t.Parallel()
		d := newDoor(t, 0)
		d.role, d.merchant = merchant.RoleCharges, &merchant.Merchant{ID: 1}
		server := httptest.NewServer(d.handler)
		t.Cleanup(server.Close)
		conn, in := say(t, server, chargeHead+"Content-Length: 60\r\n\r\n{")
		eventually(t, "its key is looked up", func() bool { return d.asked.Load() == 1 })
		eventually(t, "its place is free", func() bool { return inProgress(d.shedder) == 0 })
		_ = conn.(*net.TCPConn).CloseWrite()
		if response, err := http.ReadResponse(in, nil); err != nil || response.StatusCode != http.StatusBadRequest {
			t.Errorf("answered %v, %v", response, err)
		}
		eventually(t, "all is over", func() bool { return inProgress(d.shedder) == 0 })
	})
	t.Run("an acquirer that takes its time, and a duplicate that waits for it", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		slow := strings.Replace(goodCharge, "tok_ok", "tok_slow", 1)
		answers := make(chan answer, 2)
		for range 2 {
			go func() { answers <- w.charge("k", slow, "Prefer", "wait=10") }()
		}
		eventually(t, "the acquirer is asked", func() bool {
			var n int
			err := w.pool.QueryRow(t.Context(), `select count(*) from idempotency_keys where state = 'in_flight'`).Scan(&n)
			return err == nil && n == 1
		})
		eventually(t, "nobody holds a place", func() bool { return inProgress(w.shedder) == 0 })
		if len(answers) != 0 {
			t.Error("they were not looked at while they waited")
		}
		for range 2 {
			w.expect(<-answers, http.StatusCreated, "")
		}
		if n := inProgress(w.shedder); n != 0 {
			t.Errorf("%d in progress after the last answer", n)
		}
	})
	t.Run("a handler that panics", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.broken.Store(true)
		w.expect(w.ask(http.MethodGet, "/v1/ledger/balances", "shop ops key", ""), http.StatusInternalServerError, "internal_error")
		if n := inProgress(w.shedder); n != 0 {
			t.Errorf("%d in progress", n)
		}
	})
}

func TestTheCallersTimeIsUp(t *testing.T) {
	t.Parallel()
	t.Run("while the store hangs", func(t *testing.T) {
		t.Parallel()
		d := newDoor(t, 0)
		d.role = merchant.RoleOps
		a := d.ask(t, http.MethodGet, "/v1/charges", "Request-Timeout", "0.05")
		if a.status != http.StatusServiceUnavailable || a.field("code") != "overloaded" || a.field("reason") != "deadline_too_short" {
			t.Errorf("answered %d %s", a.status, a.body)
		}
	})
	t.Run("while the store hangs over a write, which may be done all the same", func(t *testing.T) {
		t.Parallel()
		handler := api.New(api.Deps{Auth: hanging{}, Acquirers: hangingAcquirers{}, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/acquirers/north/breaker", strings.NewReader(`{"mode":"open","reason":"by request"}`))
		r.Header.Set("Authorization", "Bearer known")
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Request-Timeout", "0.05")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if a := (answer{body: w.Body.String()}); w.Code != http.StatusServiceUnavailable || a.field("code") != "store_unavailable" {
			t.Errorf("answered %d %s", w.Code, w.Body)
		}
	})
	t.Run("without its wish, the server's own limit holds", func(t *testing.T) {
		t.Parallel()
		handler := api.New(api.Deps{
			Auth: hanging{}, Records: hanging{}, Now: time.Now, Log: slog.New(slog.DiscardHandler),
			Limits: api.Limits{RequestTimeMax: 50 * time.Millisecond},
		})
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/charges", nil)
		r.Header.Set("Authorization", "Bearer known")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "deadline_too_short") {
			t.Errorf("answered %d %s", w.Code, w.Body)
		}
	})
}

func TestRefusalsAreCountedAndTheLogIsBounded(t *testing.T) {
	t.Parallel()
	d := newDoor(t, 50)
	const n = 300
	began := time.Now()
	for range n {
		if a := d.ask(t, http.MethodPost, "/v1/charges", "Priority", "low"); a.status != http.StatusServiceUnavailable {
			t.Fatalf("answered %d %s", a.status, a.body)
		}
	}
	most := 1 + int(time.Since(began)/time.Second)
	if lines := strings.Count(d.log.String(), `"level":"WARN"`); lines == 0 || lines > most {
		t.Errorf("%d warnings, want 1 to %d", lines, most)
	}
	if lines := strings.Count(d.log.String(), `"msg":"request"`); lines != n {
		t.Errorf("%d lines of access", lines)
	}
	page := d.ask(t, http.MethodGet, "/metrics").body
	for _, want := range []string{
		fmt.Sprintf(`paymentsd_shed_total{priority="low",reason="shed_low_priority"} %d`, n),
		fmt.Sprintf(`paymentsd_refusals_total{code="overloaded",reason="shed_low_priority"} %d`, n),
		"paymentsd_in_progress 50", "paymentsd_in_progress_limit 100",
	} {
		if !strings.Contains(page, want+"\n") {
			t.Errorf("/metrics lacks %s", want)
		}
	}
}

// BenchmarkRefusal is what a refusal costs, all in all but the network: the middlewares, the door, the
// answer and its line of the log.
func BenchmarkRefusal(b *testing.B) {
	d := newDoor(b, 100)
	d.handler = api.New(api.Deps{
		Auth: d, Shedder: d.shedder, Metrics: prometheus.NewRegistry(), Now: time.Now,
		Log: slog.New(slog.NewJSONHandler(io.Discard, nil)),
	})
	body := bytes.NewReader([]byte(goodCharge))
	r := httptest.NewRequestWithContext(b.Context(), http.MethodPost, "/v1/charges", io.NopCloser(body))
	r.Header.Set("Authorization", "Bearer any")
	r.Header.Set("Priority", "low")
	b.ReportAllocs()
	for b.Loop() {
		w := httptest.NewRecorder()
		d.handler.ServeHTTP(w, r)
		if w.Code != http.StatusServiceUnavailable {
			b.Fatal(w.Code)
		}
	}
	if body.Len() != len(goodCharge) {
		b.Error("the body was read")
	}
}

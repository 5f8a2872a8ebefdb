package reconcile

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"paymentsd/idempotency"
	"paymentsd/internal/pgtest"
	"paymentsd/ledger"
	"paymentsd/merchant"
	"paymentsd/money"
	"paymentsd/payment"
	"paymentsd/settlement"
)

// The story of the tests: charges are of Monday 2 November 2026, files of that week, and the run is of
// Friday the 6th unless a test says otherwise. The cut-off of 5 business days is over on the 10th.
var (
	monday = time.Date(2026, 11, 2, 10, 0, 0, 0, time.UTC)
	friday = time.Date(2026, 11, 6, 0, 0, 0, 0, time.UTC)
	late   = time.Date(2026, 11, 11, 0, 0, 0, 0, time.UTC)
)

// shop is one merchant, its charges, and the reconciler that looks at them.
type shop struct {
	t        *testing.T
	db       *pgtest.DB
	pool     *pgxpool.Pool
	merchant merchant.Merchant
	resolver *payment.Resolver
	*Reconciler
	n int
}

func render(c payment.Charge) idempotency.Response {
	return idempotency.Response{
		Status: 201, ContentType: "application/json", Location: "/v1/charges/" + c.ID,
		Body: fmt.Appendf(nil, `{"id":%q,"status":%q}`, c.ID, c.Status),
	}
}

func newShop(t *testing.T) *shop {
	t.Helper()
	db := pgtest.New(t)
	s := &shop{t: t, db: db, pool: db.Pool}
	// Numbers and ids are the same in every test, so that two databases can be compared.
	s.merchant = merchant.Merchant{ID: 4242, Name: "shop", Acquirers: []string{"north", "south"}, CreatedAt: monday}
	s.exec(`insert into merchants (merchant_id, name, acquirers, created_at) values ($1, $2, $3, $4)`,
		s.merchant.ID, s.merchant.Name, s.merchant.Acquirers, monday)
	store := merchant.NewStore(db.Pool, func() time.Time { return monday })
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	now := func() time.Time { return friday }
	s.resolver = payment.NewResolver(payment.ResolverConfig{Pool: db.Pool, Render: render, Now: now, Log: log})
	s.Reconciler = New(Config{Pool: db.Pool, Resolver: s.resolver, Merchants: store, Now: now, Log: log, LockWait: 20 * time.Second})
	return s
}

// another is the same shop with another reconciler: what a second process is.
func (s *shop) another(change func(*Config)) *Reconciler {
	c := s.Config
	change(&c)
	return New(c)
}

// spec is a charge as a test needs it.
type spec struct {
	amount   string // "49.99"
	currency string // USD
	status   payment.Status
	tried    []string // acquirers, the last one decides; those before refused. north
	capture  string
	at       time.Time // monday
}

func amount(t testing.TB, s, currency string) money.Amount {
	t.Helper()
	a, err := money.Parse(s, money.Currency(currency))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// charge writes a charge through the functions of the charge path.
func (s *shop) charge(c spec) payment.Charge {
	s.t.Helper()
	s.n++
	if c.amount == "" {
		c.amount = "49.99"
	}
	if c.currency == "" {
		c.currency = "USD"
	}
	if len(c.tried) == 0 {
		c.tried = []string{"north"}
	}
	if c.at.IsZero() {
		c.at = monday
	}
	if c.capture == "" && c.status == payment.Captured {
		c.capture = fmt.Sprintf("cap_%d", s.n)
	}
	ctx, m, key := s.t.Context(), s.merchant.ID, "order-"+strconv.Itoa(s.n)
	id, ref := fmt.Sprintf("ch_%s%010d%010d", m.Code(), c.at.Unix(), s.n), payment.AcqRef(m, key, 0)
	s.exec(`select charge_begin_v1($1, $2, '1 minute', array[$3], array[$4::bytea], array[$5], array[0], array[$6], array[$7::text]::numeric[],
		array[$8], array[null]::text[], array[false], array['tok_ok'], array[null]::text[], array[$9])`,
		m, c.at, key, make([]byte, 33), id, ref, c.amount, c.currency, c.tried[0])
	for i, next := range c.tried[1:] {
		s.exec(`select charge_failover_v1($1, $2, $3, $4, 1, $5, 'not_sent', 0, null, null, null, null, $6)`, m, c.at, key, id, i+1, next)
	}
	if c.status != payment.Pending {
		last := c.tried[len(c.tried)-1]
		state := map[payment.Status]string{payment.Captured: "captured", payment.Declined: "declined", payment.Failed: "not_sent", payment.Unknown: "unclear"}[c.status]
		transfer := ledger.Capture(id, last, amount(s.t, c.amount, c.currency))
		answer := render(payment.Charge{ID: id, Status: c.status})
		s.exec(`select charge_finish_v1($1, $2, array[$3], array[$4], array[1::bigint], array[$5::int], array[$6], array[1], array[null]::int[],
			array[null]::text[], array[null]::text[], array[null]::text[], array[$7], array[nullif($8, '')], array[case when $7 = 'declined' then 'no_money' end],
			array[$9::int], array[$10], array[$11], array[$12::bytea], array[$13], array[$14], array[$15])`,
			m, c.at, key, id, len(c.tried), state, string(c.status), c.capture, answer.Status, answer.ContentType, answer.Location, answer.Body,
			transfer.Kind, string(transfer.Debit), string(transfer.Credit))
	}
	got, err := s.resolver.Get(ctx, m, id)
	if err != nil {
		s.t.Fatal(err)
	}
	if got.Status != c.status || got.Acquirer != c.tried[len(c.tried)-1] {
		s.t.Fatalf("the fixture made %+v of %+v", got, c)
	}
	return got
}

func (s *shop) exec(sql string, args ...any) {
	s.t.Helper()
	if _, err := s.pool.Exec(s.t.Context(), sql, args...); err != nil {
		s.t.Fatalf("%v\n%s", err, sql)
	}
}

// line is a settlement line about a charge: its whole amount, a fee of 1.00 for what is captured.
func line(id string, c payment.Charge, change ...func(*settlement.Line)) settlement.Line {
	l := settlement.Line{
		ID: id, Kind: settlement.Capture, Reference: c.AcqRef, CaptureID: c.CaptureID, Gross: c.Amount,
		Fee: money.Zero(c.Amount.Currency()), OccurredAt: c.CreatedAt.Add(time.Hour), Payout: "po_1",
	}
	if l.CaptureID == "" {
		l.CaptureID = "cap_of_" + id
	}
	for _, f := range change {
		f(&l)
	}
	l.Net, _ = l.Gross.Sub(l.Fee)
	return l
}

func kind(k settlement.Kind) func(*settlement.Line) {
	return func(l *settlement.Line) { l.Kind = k }
}

func gross(t testing.TB, s, currency string) func(*settlement.Line) {
	return func(l *settlement.Line) {
		l.Gross = amount(t, s, currency)
		l.Fee = money.Zero(l.Gross.Currency())
	}
}

func fee(t testing.TB, s string) func(*settlement.Line) {
	return func(l *settlement.Line) { l.Fee = amount(t, s, string(l.Gross.Currency())) }
}

func capture(id string) func(*settlement.Line) { return func(l *settlement.Line) { l.CaptureID = id } }

func reference(ref string) func(*settlement.Line) {
	return func(l *settlement.Line) { l.Reference = ref }
}

func at(when time.Time) func(*settlement.Line) {
	return func(l *settlement.Line) { l.OccurredAt = when }
}

// header is that of the n-th daily file of an acquirer: the first is Monday's.
func header(acquirer string, n int) settlement.Header {
	from := dayOf(monday).AddDate(0, 0, n-1)
	return settlement.Header{Acquirer: acquirer, Account: "main", From: from, To: from.AddDate(0, 0, 1), Sequence: n}
}

func bytesOf(t testing.TB, h settlement.Header, lines ...settlement.Line) []byte {
	t.Helper()
	var b bytes.Buffer
	w := settlement.NewWriter(&b, h)
	for _, l := range lines {
		if err := w.Write(l); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func feed(name string, content []byte) Feed {
	return Feed{Name: name, Open: func(context.Context) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }}
}

// daily is the n-th file of north with these lines.
func daily(t testing.TB, n int, lines ...settlement.Line) Feed {
	return feed(fmt.Sprintf("north-%d.csv", n), bytesOf(t, header("north", n), lines...))
}

func request(acquirer string, asOf time.Time, feeds ...Feed) Request {
	return Request{Acquirer: acquirer, Format: "canonical", AsOf: asOf, Feeds: feeds}
}

// reconcile runs north's feeds on Friday, and proves that the books are whole after it.
func (s *shop) reconcile(feeds ...Feed) Report {
	s.t.Helper()
	return s.run(request("north", friday, feeds...))
}

func (s *shop) run(q Request) Report {
	s.t.Helper()
	report, err := s.Run(s.t.Context(), q)
	if err != nil {
		s.t.Fatal(err)
	}
	s.sound()
	return report
}

func (s *shop) sound() {
	s.t.Helper()
	checks, err := s.Verify(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	if !checks.Sound() {
		var b bytes.Buffer
		_ = checks.Write(&b, "table")
		s.t.Fatalf("the books are not whole:\n%s", b.String())
	}
}

func (s *shop) status(c payment.Charge) payment.Status {
	s.t.Helper()
	got, err := s.resolver.Get(s.t.Context(), s.merchant.ID, c.ID)
	if err != nil {
		s.t.Fatal(err)
	}
	return got.Status
}

func (s *shop) wantStatus(c payment.Charge, want payment.Status) {
	s.t.Helper()
	if got := s.status(c); got != want {
		s.t.Errorf("the charge is %s, want %s", got, want)
	}
}

// wantClasses compares the classes of the open exceptions of all acquirers.
func (s *shop) wantClasses(want ...Class) []Exception {
	s.t.Helper()
	open, more, err := s.Exceptions(s.t.Context(), ExceptionFilter{State: "open", Limit: 1000})
	if err != nil || more {
		s.t.Fatalf("list exceptions: more %v, %v", more, err)
	}
	left := append([]Class{}, want...)
	ok := len(open) == len(want)
	for _, e := range open {
		found := false
		for i, c := range left {
			if c == e.Class {
				left, found = append(left[:i], left[i+1:]...), true
				break
			}
		}
		ok = ok && found
	}
	if !ok {
		var b bytes.Buffer
		_ = WriteExceptions(&b, "table", open, friday)
		s.t.Errorf("want exceptions %v, got %d:\n%s", want, len(open), b.String())
	}
	return open
}

// balance is debits less credits of an account of the shop.
func (s *shop) balance(account ledger.Account, currency string) string {
	s.t.Helper()
	balances, err := ledger.Balances(s.t.Context(), s.pool, s.merchant.ID)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, b := range balances {
		if b.Account == account && string(b.Currency) == currency {
			return b.Net().StringFixed(int32(b.Currency.Exponent()))
		}
	}
	return "none"
}

func (s *shop) wantBalance(account ledger.Account, want string) {
	s.t.Helper()
	if got := s.balance(account, "USD"); got != want {
		s.t.Errorf("%s holds %s USD, want %s", account, got, want)
	}
}

func text(t testing.TB, r Report) string {
	t.Helper()
	var b bytes.Buffer
	for _, output := range Outputs() {
		if err := r.Write(&b, output); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

// sealed puts raw lines into a whole file and gives it the sums and the trailer that it then needs: what
// an acquirer with its own ideas of a line would send.
func sealed(t testing.TB, whole []byte, extra string) []byte {
	t.Helper()
	var head, sums []string
	lines := 0
	for row := range strings.Lines(string(whole)) {
		switch {
		case strings.HasPrefix(row, "sum,"):
			sums = append(sums, row)
		case !strings.HasPrefix(row, "trailer,"):
			head = append(head, row)
			if strings.HasPrefix(row, "line,") {
				lines++
			}
		}
	}
	body := strings.Join(head, "") + extra + strings.Join(sums, "")
	return fmt.Appendf(nil, "%strailer,%d,%x\n", body, lines+strings.Count(extra, "line,"), sha256.Sum256([]byte(body)))
}

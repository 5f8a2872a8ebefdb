package reconcile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"paymentsd/internal/pgtest"
	"paymentsd/ledger"
	"paymentsd/merchant"
	"paymentsd/payment"
	"paymentsd/settlement"
)

func (s *shop) importOf(name string, content []byte) Imported {
	s.t.Helper()
	got, err := s.ImportFile(s.t.Context(), "north", "canonical", name, bytes.NewReader(content))
	if err != nil {
		s.t.Fatal(err)
	}
	return got
}

// A sender that is slow, or many files at once, must leave the nightly run its lock and charges their
// connections.
func TestFilesThatArriveHoldNothingThatOthersNeed(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	config := s.pool.Config()
	config.MaxConns = 3
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	r := s.another(func(c *Config) { c.Pool = pool })
	content := bytesOf(t, header("north", 1), line("1", s.charge(spec{status: payment.Captured})))
	type answer struct {
		imported Imported
		err      error
	}
	const files = 8
	var senders []*io.PipeWriter
	answers := make(chan answer, files)
	for range files {
		in, out := io.Pipe()
		senders = append(senders, out)
		go func() {
			i, err := r.ImportFile(t.Context(), "north", "canonical", "1.csv", in)
			answers <- answer{i, err}
		}()
		if _, err := out.Write(content[:1]); err != nil { // returns when the file is being read
			t.Fatal(err)
		}
	}
	if n := pool.Stat().AcquiredConns(); n != 0 {
		t.Errorf("%d connections are held while files arrive, want none", n)
	}
	if _, err := s.Run(t.Context(), request("north", friday)); err != nil {
		t.Errorf("a run while files arrive: %v", err)
	}
	for _, out := range senders {
		go func() {
			_, err := out.Write(content[1:])
			_ = out.CloseWithError(err) // nil ends the file
		}()
	}
	fresh := 0
	for range files {
		a := <-answers
		if a.err != nil || a.imported.File.Status != Accepted {
			t.Errorf("a file of many at once: %+v, %v", a.imported.File, a.err)
		}
		if !a.imported.Known {
			fresh++
		}
	}
	if fresh != 1 {
		t.Errorf("%d of the same files were taken in, want 1", fresh)
	}
}

func TestFilesAreTakenInOnce(t *testing.T) {
	t.Parallel()
	t.Run("settlement case 4: the same bytes under another name change nothing", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		content := bytesOf(t, header("north", 1), line("1", s.charge(spec{status: payment.Unknown})))
		first, again := s.importOf("1129.csv", content), s.importOf("1129-duplicate.csv", content)
		if first.Known || !again.Known || first.File.ID != again.File.ID || again.File.Name != "1129.csv" {
			t.Errorf("first %+v, again %+v", first, again)
		}
		report := s.reconcile(feed("1129.csv", content), feed("1129-duplicate.csv", content))
		if report.ExitCode() != 0 || report.Files[1].Duplicate() != "1129.csv" || report.Lines.Matched != 1 {
			t.Errorf("report: %s", text(t, report))
		}
	})
	t.Run("settlement cases 5 and 45: the same lines in another report are counted once, where they came first", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		a, b := s.charge(spec{status: payment.Captured}), s.charge(spec{status: payment.Captured})
		report := s.reconcile(daily(t, 1, line("1", a)), daily(t, 2, line("1", a), line("2", b)))
		s.wantClasses()
		if f := report.Files[1].File; f.Counted != 1 || f.Repeated != 1 || f.Status != Accepted {
			t.Errorf("the second file: %+v", f)
		}
		s.wantBalance(ledger.Bank("north"), "99.98")
	})
	t.Run("settlement cases 6 and 7: fee rows without a reference that look alike are all kept, and none is added by importing again", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		nobody := payment.Charge{Amount: amount(t, "2.00", "USD"), CreatedAt: monday}
		var fees []settlement.Line
		for i := range 3 {
			fees = append(fees, line(fmt.Sprint(i), nobody, kind(settlement.Fee), gross(t, "0.00", "USD"), fee(t, "2.00"), capture("")))
		}
		for range 2 {
			report := s.reconcile(daily(t, 1, fees...))
			if report.Lines.NoMerchant != 3 || report.Files[0].File.Counted != 3 || report.ExitCode() != 0 {
				t.Errorf("report: %s", text(t, report))
			}
		}
	})
	t.Run("a quiet day is a whole file", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		if report := s.reconcile(daily(t, 1)); report.ExitCode() != 0 || report.Files[0].File.Status != Accepted {
			t.Errorf("report: %s", text(t, report))
		}
	})
	t.Run("a line id again in another report with other content is counted as it stood, and an exception", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		c := s.charge(spec{status: payment.Captured})
		s.reconcile(daily(t, 1, line("1", c)), daily(t, 2, line("1", c, gross(t, "12.00", "USD"))))
		s.wantClasses(SameKeyOtherContent)
		s.wantBalance(ledger.Bank("north"), "49.99")
	})
	t.Run("a line id repeated further apart than a reader remembers", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		const apart = 1<<14 + 10
		nobody := payment.Charge{Amount: amount(t, "0.00", "USD"), CreatedAt: monday}
		var lines []settlement.Line
		for i := range apart {
			lines = append(lines, line(fmt.Sprint(i), nobody, kind(settlement.Fee), fee(t, "1.00"), capture("")))
		}
		lines = append(lines, lines[0], line("1", nobody, kind(settlement.Fee), fee(t, "7.00"), capture("")))
		report := s.reconcile(daily(t, 1, lines...))
		s.wantClasses(DuplicateLine, SameKeyOtherContent)
		if f := report.Files[0].File; f.Counted != apart || f.Bad != 2 {
			t.Errorf("counted %d, bad %d", f.Counted, f.Bad)
		}
	})
}

func TestAFileThatFailsAControlProvesNothing(t *testing.T) {
	t.Parallel()
	damage := []struct {
		name  string
		do    func([]byte) []byte
		class Class
	}{
		{"settlement case 21: a file that is cut short", func(b []byte) []byte { return b[:len(b)-80] }, "empty_or_truncated"},
		{"zero bytes", func([]byte) []byte { return nil }, "empty_or_truncated"},
		{"one line too few", func(b []byte) []byte {
			at := bytes.Index(b, []byte("line,"))
			return append(bytes.Clone(b[:at]), b[at+bytes.IndexByte(b[at:], '\n')+1:]...)
		}, "count_mismatch"},
		{"a sum that is not that of the lines", func(b []byte) []byte { return bytes.Replace(b, []byte("1,49.99"), []byte("1,49.98"), 1) }, "sum_mismatch"},
		{"one byte changed", func(b []byte) []byte { return bytes.Replace(b, []byte("po_1"), []byte("po_2"), 1) }, "hash_mismatch"},
		{"another format", func([]byte) []byte { return []byte("a,b,c\n1,2,3\n") }, "wrong_layout"},
		{"the file of another acquirer", func(b []byte) []byte { return bytes.Replace(b, []byte(",north,"), []byte(",south,"), 1) }, WrongAcquirer},
	}
	for _, d := range damage {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			c := s.charge(spec{status: payment.Unknown})
			whole := bytesOf(t, header("north", 1), line("1", c))
			bad := d.do(whole)
			report := s.reconcile(feed("day.csv", bad))
			if report.ExitCode() != 2 || report.Status() != RunRefused {
				t.Errorf("exit %d, want 2", report.ExitCode())
			}
			open := s.wantClasses(d.class)
			s.wantStatus(c, payment.Unknown)
			if f := report.Files[0].File; f.Status != Quarantined || f.Class != string(d.class) || f.Reason == "" || f.Lines != 0 {
				t.Errorf("the file: %+v", f)
			}
			before := text(t, report)
			if again := text(t, s.reconcile(feed("day.csv", bad))); again != before {
				t.Errorf("again it reads\n%s\nnot\n%s", again, before)
			}
			s.reconcile(feed("day-2.csv", whole))
			s.wantStatus(c, payment.Captured)
			// A header that could be read says which report it is: the whole file settles it.
			named := d.class == "count_mismatch" || d.class == "sum_mismatch" || d.class == "hash_mismatch" || strings.Contains(d.name, "cut short")
			if still, err := s.Exception(t.Context(), open[0].ID); err != nil || (still.Closed != nil) != named {
				t.Errorf("after the whole file came: %+v, %v", still, err)
			}
		})
	}
}

func TestAFileInTheFeedThatIsGoodCountsBesideABadOne(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	a, b := s.charge(spec{status: payment.Unknown}), s.charge(spec{status: payment.Unknown})
	one, two := bytesOf(t, header("north", 1), line("1", a)), bytesOf(t, header("north", 2), line("2", b))
	report := s.reconcile(feed("1.csv", one[:len(one)-1]), feed("2.csv", two))
	s.wantStatus(a, payment.Unknown)
	s.wantStatus(b, payment.Captured)
	s.wantClasses("empty_or_truncated", MissingFile)
	if report.ExitCode() != 2 {
		t.Errorf("exit %d, want 2", report.ExitCode())
	}
}

func TestMissingFiles(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.reconcile(daily(t, 2), daily(t, 5))
	open := s.wantClasses(MissingFile, MissingFile)
	if len(open) == 2 && !strings.Contains(open[0].Ours+open[1].Ours, "3 to 4") {
		t.Errorf("the gaps are %q and %q", open[0].Ours, open[1].Ours)
	}
	s.reconcile(daily(t, 1), daily(t, 3))
	s.wantClasses(MissingFile)
	s.reconcile(daily(t, 4))
	s.wantClasses()
}

// peers case 24: each bad line is named with its number and reason; the good ones go in, nothing
// becomes 0, and the call returns.
func TestBadLines(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	good := s.charge(spec{status: payment.Unknown})
	row := "line,%s,capture," + good.AcqRef + ",cap_x,USD,%s,0.00,%s,%s,po"
	date := "2026-11-02T11:00:00Z"
	var body strings.Builder
	for i, fields := range [][3]string{
		{`"1,234.50"`, "1.00", date}, {"12.5O", "1.00", date}, {"", "1.00", date},
		{"1.00", "1.00", "29/11/2026"}, {"1.00", "1.00", "0001-01-01T00:00:00Z"}, {"1.00", "2.00", date},
	} {
		fmt.Fprintf(&body, row+"\n", fmt.Sprint("bad", i), fields[0], fields[1], fields[2])
	}
	body.WriteString("line,odd,sale,,,USD,1.00,0.00,1.00," + date + ",\n")
	const many = 1000
	for i := range many {
		fmt.Fprintf(&body, row+"\n", fmt.Sprint("many", i), "x", "1.00", date)
	}
	content := sealed(t, bytesOf(t, header("north", 1), line("good", good)), body.String())
	report := s.reconcile(feed("day.csv", content))
	s.wantStatus(good, payment.Captured)
	if f := report.Files[0].File; f.Status != Accepted || f.Counted != 1 || f.Bad != many+7 {
		t.Errorf("the file: %+v", f)
	}
	counts := map[Class]int{}
	for _, e := range report.Exceptions {
		counts[e.Class]++
		if e.FileID == "" || e.LineNo == 0 || e.Detail == "" {
			t.Errorf("the exception does not say where or why: %+v", e)
		}
	}
	if counts["bad_amount"] != many+3 || counts["bad_date"] != 2 || counts["identity_broken"] != 1 || counts[UnknownKind] != 1 {
		t.Errorf("exceptions: %v", counts)
	}
	s.wantBalance(ledger.Bank("north"), "49.99")
}

func TestReissuedFiles(t *testing.T) {
	t.Parallel()
	again := func(n int) settlement.Header { h := header("north", n); h.Replaces = n; return h }

	t.Run("lines added are news, and no exception", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		a, b := s.charge(spec{status: payment.Captured}), s.charge(spec{status: payment.Unknown})
		first := bytesOf(t, header("north", 1), line("1", a))
		second := bytesOf(t, again(1), line("1", a), line("2", b))
		s.reconcile(feed("first.csv", first))
		report := s.reconcile(feed("second.csv", second))
		s.wantClasses()
		s.wantStatus(b, payment.Captured)
		if f := report.Files[0].File; f.Status != Accepted || f.Added != 1 || f.Removed+f.Changed != 0 {
			t.Errorf("the re-issue: %+v", f)
		}
		if first := s.importOf("x", first).File; first.Status != Superseded {
			t.Errorf("the first issue is %s", first.Status)
		}
		s.wantBalance(ledger.Bank("north"), "99.98")
	})
	t.Run("a line removed is taken back in the ledger, and contradicts the unknown that it resolved", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		a := s.charge(spec{status: payment.Unknown})
		s.reconcile(feed("first.csv", bytesOf(t, header("north", 1), line("1", a, fee(t, "2.00")))))
		s.wantStatus(a, payment.Captured)
		second := feed("second.csv", bytesOf(t, again(1)))
		report := s.reconcile(second)
		s.wantClasses(ReissuedFile, ContradictedLater)
		s.wantStatus(a, payment.Captured)
		s.wantBalance(ledger.Bank("north"), "0.00")
		s.wantBalance(ledger.Fees("north"), "0.00")
		s.wantBalance(ledger.AcquirerReceivable("north"), "49.99")
		if again := text(t, s.reconcile(second)); again != text(t, report) {
			t.Errorf("again it reads\n%s", again)
		}
		// The acquirer changes its mind once more.
		s.reconcile(feed("third.csv", bytesOf(t, settlement.Header{Acquirer: "north", Account: "main", From: dayOf(monday),
			To: dayOf(monday).AddDate(0, 0, 1), Sequence: 2, Replaces: 1}, line("1", a, fee(t, "2.00")))))
		s.wantBalance(ledger.Bank("north"), "47.99")
		s.wantBalance(ledger.AcquirerReceivable("north"), "0.00")
		s.wantClasses(ReissuedFile) // for a person to close
	})
	t.Run("a line changed is posted as it is now", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		a := s.charge(spec{status: payment.Captured})
		s.reconcile(feed("first.csv", bytesOf(t, header("north", 1), line("1", a, fee(t, "2.00")))))
		report := s.reconcile(feed("second.csv", bytesOf(t, again(1), line("1", a, fee(t, "1.00")))))
		s.wantClasses(ReissuedFile)
		if f := report.Files[0].File; f.Changed != 1 || f.Added+f.Removed != 0 {
			t.Errorf("the re-issue: %+v", f)
		}
		s.wantBalance(ledger.Bank("north"), "48.99")
		s.wantBalance(ledger.Fees("north"), "1.00")
		s.wantBalance(ledger.AcquirerReceivable("north"), "0.00")
	})
	t.Run("the first issue after its re-issue changes nothing", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		a, b := s.charge(spec{status: payment.Captured}), s.charge(spec{status: payment.Captured})
		report := s.reconcile(feed("second.csv", bytesOf(t, again(1), line("2", b))), feed("first.csv", bytesOf(t, header("north", 1), line("1", a))))
		s.wantClasses()
		if f := report.Files[1].File; f.Status != Superseded || f.Counted != 0 {
			t.Errorf("the first issue: %+v", f)
		}
		s.wantBalance(ledger.Bank("north"), "49.99")
	})
	t.Run("other bytes with the same lines are a duplicate", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		content := bytesOf(t, header("north", 1), line("1", s.charge(spec{status: payment.Captured})))
		report := s.reconcile(feed("unix.csv", content), feed("dos.csv", bytes.ReplaceAll(content, []byte("\n"), []byte("\r\n"))))
		s.wantClasses()
		if f := report.Files[1].File; f.Status != Duplicate || f.Counted != 0 || f.Repeated != 1 {
			t.Errorf("the second file: %+v", f)
		}
	})
	t.Run("the same lines over a longer period replace the file: there was nothing more until then", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		c := s.charge(spec{status: payment.Captured})
		early, whole := header("north", 1), again(1)
		early.To = early.From.Add(12 * time.Hour)
		report := s.reconcile(feed("noon.csv", bytesOf(t, early, line("1", c))), feed("night.csv", bytesOf(t, whole, line("1", c))))
		s.wantClasses()
		if first, second := report.Files[0].File.Status, report.Files[1].File.Status; first != Superseded || second != Accepted {
			t.Errorf("the files are %s and %s", first, second)
		}
		covered, err := s.coverage(t.Context(), s.pool, "north")
		if err != nil {
			t.Fatal(err)
		}
		if ok, why := covered.covers(whole.From, whole.To); !ok {
			t.Error(why)
		}
	})
	t.Run("a line that another report has, too, stands when one of the two takes it back", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		a := s.charge(spec{status: payment.Captured})
		s.reconcile(daily(t, 1, line("1", a)), daily(t, 2, line("1", a)))
		s.reconcile(feed("again.csv", bytesOf(t, again(1))))
		s.wantClasses(ReissuedFile)
		s.wantBalance(ledger.Bank("north"), "49.99")
	})
	t.Run("a bad line is settled by the re-issue that mends it", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		a := s.charge(spec{status: payment.Unknown})
		broken := sealed(t, bytesOf(t, header("north", 1)), "line,1,capture,"+a.AcqRef+",c,USD,49.9O,0.00,49.99,2026-11-02T11:00:00Z,\n")
		s.reconcile(feed("first.csv", broken))
		s.wantClasses("bad_amount")
		s.reconcile(feed("second.csv", bytesOf(t, again(1), line("1", a))))
		s.wantClasses()
		s.wantStatus(a, payment.Captured)
	})
}

func TestFilesThatCannotBeTakenIn(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	broken := errors.New("the connection broke")
	whole := bytesOf(t, header("north", 1))
	import1 := func(acquirer, format string, in io.Reader) error {
		_, err := s.another(func(c *Config) { c.SizeMax = 500 }).ImportFile(t.Context(), acquirer, format, "x", in)
		return err
	}
	for name, c := range map[string]struct{ got, want error }{
		"an acquirer with a slash":  {import1("a/b", "canonical", bytes.NewReader(whole)), ErrAcquirer},
		"a format nobody knows":     {import1("north", "excel", bytes.NewReader(whole)), ErrInvalidRequest},
		"a file that is too large":  {import1("north", "canonical", bytes.NewReader(make([]byte, 501))), ErrTooLarge},
		"a reader that breaks":      {import1("north", "canonical", io.MultiReader(bytes.NewReader(whole[:50]), brokenReader{broken})), broken},
		"a feed that does not open": {s.runError(Feed{Name: "x", Open: func(context.Context) (io.ReadCloser, error) { return nil, broken }}), broken},
	} {
		if !errors.Is(c.got, c.want) {
			t.Errorf("%s: %v", name, c.got)
		}
	}
	files, more, err := s.Files(t.Context(), FileFilter{Limit: 10})
	if len(files) != 0 || more || err != nil {
		t.Errorf("files: %+v %v %v", files, more, err)
	}
}

// Known is what a merchant is routed to, and what files were taken in of: routes may change before the last
// file has come.
func TestAnAcquirerIsKnownByRouteOrFile(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.importFeeds("south", feed("south.csv", bytesOf(t, header("south", 1))))
	if _, err := s.db.Owner().Exec(t.Context(), `update merchants set acquirers = array['north']`); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"north": "", "south": "", "nroth": `not the name of an acquirer that is known: "nroth"; known are north, south`, "a/b": `"a/b" (1 to 40`,
	} {
		err := s.CheckAcquirer(t.Context(), name)
		if (err == nil) != (want == "") || (err != nil && (!errors.Is(err, ErrAcquirer) || !strings.Contains(err.Error(), want))) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	if _, err := newEmpty(t).ImportFile(t.Context(), "north", "canonical", "x", bytes.NewReader(nil)); !errors.Is(err, ErrAcquirer) || !strings.Contains(err.Error(), "no merchant is routed") {
		t.Errorf("without any merchant: %v", err)
	}
}

// newEmpty is a reconciler on a database without a merchant.
func newEmpty(t *testing.T) *Reconciler {
	t.Helper()
	db := pgtest.New(t)
	return New(Config{Pool: db.Pool, Merchants: merchant.NewStore(db.Pool, time.Now), Now: time.Now})
}

func (s *shop) importFeeds(acquirer string, feeds ...Feed) {
	s.t.Helper()
	for _, f := range feeds {
		in, err := f.Open(s.t.Context())
		if err != nil {
			s.t.Fatal(err)
		}
		if imported, err := s.ImportFile(s.t.Context(), acquirer, "canonical", f.Name, in); err != nil || !imported.Usable() {
			s.t.Fatalf("%+v, %v", imported, err)
		}
		_ = in.Close()
	}
}

type brokenReader struct{ err error }

func (r brokenReader) Read([]byte) (int, error) { return 0, r.err }

func (s *shop) runError(feeds ...Feed) error {
	_, err := s.Run(s.t.Context(), request("north", friday, feeds...))
	return err
}

func TestListsAreReadInPages(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	tick := monday
	r := s.another(func(c *Config) { c.Now = func() time.Time { tick = tick.Add(time.Second); return tick } })
	for n := 1; n <= 5; n++ {
		if _, err := r.Run(t.Context(), request("north", friday, daily(t, n*2))); err != nil {
			t.Fatal(err)
		}
	}
	var files, runs, exceptions []string
	for after, more := "", true; more; {
		list, m, err := r.Files(t.Context(), FileFilter{Acquirer: "north", StartingAfter: after, Limit: 2})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range list {
			files, after = append(files, f.Name), f.ID
		}
		more = m
	}
	for after, more := "", true; more; {
		list, m, err := r.Runs(t.Context(), RunFilter{StartingAfter: after, Limit: 2})
		if err != nil {
			t.Fatal(err)
		}
		for _, run := range list {
			runs, after = append(runs, run.FileNames[0]), run.ID
		}
		more = m
	}
	seen := map[string]bool{}
	for after, more := "", true; more; {
		list, m, err := r.Exceptions(t.Context(), ExceptionFilter{State: "open", StartingAfter: after, Limit: 2})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			if seen[e.ID] {
				t.Errorf("exception %s twice", e.ID)
			}
			seen[e.ID], after, exceptions = true, e.ID, append(exceptions, e.ID)
		}
		more = m
	}
	want := "[north-10.csv north-8.csv north-6.csv north-4.csv north-2.csv]"
	if fmt.Sprint(files) != want || fmt.Sprint(runs) != want || len(exceptions) != 5 {
		t.Errorf("files %v, runs %v, %d exceptions", files, runs, len(exceptions))
	}
	_, _, e1 := r.Files(t.Context(), FileFilter{StartingAfter: "sf_none", Limit: 1})
	_, _, e2 := r.Runs(t.Context(), RunFilter{StartingAfter: "rr_none", Limit: 1})
	_, _, e3 := r.Exceptions(t.Context(), ExceptionFilter{StartingAfter: "ex_none", Limit: 1})
	for _, err := range []error{e1, e2, e3} {
		if !errors.Is(err, ErrInvalidCursor) {
			t.Errorf("a cursor that names nothing: %v", err)
		}
	}
	_, _, e1 = r.Files(t.Context(), FileFilter{Limit: 101})
	_, _, e2 = r.Runs(t.Context(), RunFilter{Limit: 0})
	_, _, e3 = r.Exceptions(t.Context(), ExceptionFilter{Limit: 1001})
	for _, err := range []error{e1, e2, e3} {
		if !errors.Is(err, ErrInvalidRequest) {
			t.Errorf("a limit out of bounds: %v", err)
		}
	}
}

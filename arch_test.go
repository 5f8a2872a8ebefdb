package paymentsd_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// room is one package: why it exists, and what it may do. Tests may import what they like.
type room struct {
	why     string   // what it is for, and so why its imports are these
	imports []string // packages of this module that it may import; "*" is wiring, which may import any
	pure    bool     // decides and computes only: no network, no files, no database
	clock   string   // why it may read the clock itself; elsewhere the time is handed in
	floats  string   // why it may use floating point; elsewhere a number may be money
	floatIn string   // the one file that may, where not all of them may
}

// rooms is the plan of the house. A package without a row fails, and so does a row without a package.
func rooms() map[string]room {
	return map[string]room{
		"money":             {why: "an exact amount with its currency: everything may rest on it, it rests on nothing", pure: true},
		"resilience":        {why: "whether, when and how often to call what may fail; knows no acquirer and no database", pure: true, clock: "tested under a fake clock in testing/synctest", floats: "rates and jitter, never money"},
		"resilience/shared": {why: "the same breaker and budget, agreed by every replica through Postgres; knows no charge", imports: []string{"resilience", "internal/postgres"}, clock: "deadlines of this process on its monotonic clock; leases and windows on the database's"},
		"resilience/advice": {why: "holds the configured policies against the traffic there was; decides nothing", imports: []string{"resilience"}, pure: true, floats: "the bounds of a histogram of times", floatIn: "histogram.go"},
		"merchant":          {why: "tenants, their routing and their API keys", imports: []string{"internal/postgres"}},
		"idempotency":       {why: "one key means one effect", imports: []string{"merchant", "internal/postgres"}},
		"ledger":            {why: "balanced transfers and balances; knows charges only by their id", imports: []string{"money", "merchant", "internal/postgres"}},
		"settlement":        {why: "an acquirer's file becomes lines; never asks what we believe", imports: []string{"money"}, pure: true},

		"settlement/feedtest": {why: "writes files as acquirers do and damages them; shares no code with the readers but their types", imports: []string{"money", "settlement"}, pure: true},

		"acquirer":              {why: "the contract that every acquirer meets", imports: []string{"money"}},
		"acquirer/rest":         {why: "one wire protocol; knows no other adapter", imports: []string{"acquirer", "money", "internal/webhook"}},
		"acquirer/builtin":      {why: "the list of adapters", imports: []string{"acquirer", "acquirer/rest"}},
		"acquirer/acquirertest": {why: "the conformance suite; runs on the contract alone", imports: []string{"acquirer", "money"}},
		"acquirer/sim":          {why: "an acquirer of our own, which shares no code with the adapters that call it", imports: []string{"money", "settlement", "settlement/feedtest"}, clock: "the default of its Now, and waiting for a port"},

		"payment":   {why: "a charge from request to a certain outcome; never knows HTTP, its answers are rendered by a function it is handed", imports: []string{"money", "merchant", "acquirer", "idempotency", "ledger", "resilience", "resilience/advice", "internal/postgres", "internal/groupcommit"}},
		"jobs":      {why: "what is done beside charges: relay, wake-ups, workers; the rows that are the truth stay payment's", imports: []string{"merchant", "payment"}},
		"reconcile": {why: "compares what we believe with what they paid, and resolves through payment", imports: []string{"money", "merchant", "settlement", "ledger", "payment", "internal/postgres"}},
		"events":    {why: "what acquirers tell us: kept as received, then evidence for payment or an exception of reconcile", imports: []string{"money", "merchant", "acquirer", "payment", "reconcile", "resilience"}},
		"api":       {why: "JSON over HTTP, and the shedder at its door; no SQL", imports: []string{"money", "merchant", "payment", "idempotency", "ledger", "reconcile", "events", "resilience"}, floats: "the gauges of prometheus; no amount is decided by them", floatIn: "metrics.go"},

		"migrations":             {why: "the schema and nothing else"},
		"internal/postgres":      {why: "pool, transaction, what an error means; knows no table"},
		"internal/webhook":       {why: "Standard Webhooks, for what acquirers send us and what we send merchants"},
		"internal/groupcommit":   {why: "many callers share one write; knows neither database nor charge", clock: "bounds a write, and notices a slow one", pure: true},
		"internal/embeddedpg":    {why: "a private Postgres", clock: "waits for processes of the operating system"},
		"internal/sqllint":       {why: "the rules of the schema, for the tests", imports: []string{"internal/postgres"}},
		"internal/pgtest":        {why: "a migrated database per test", imports: []string{"migrations", "internal/postgres", "internal/sqllint"}},
		"internal/pgtest/testdb": {why: "the server that the tests use", imports: []string{"internal/embeddedpg", "internal/pgtest"}},

		"internal/replica":      {why: "paymentsd serve as a child process, which can be killed"},
		"internal/benchkit":     {why: "what the bench programs share: a private Postgres and how figures are printed", imports: []string{"internal/embeddedpg", "migrations"}, clock: "it measures", floats: "medians and percentiles, never money"},
		"internal/benchkit/bed": {why: "a whole service for the bench programs that measure one", imports: []string{"internal/benchkit", "internal/postgres", "internal/replica", "acquirer/sim", "merchant"}, clock: "it measures"},
		"bench/charge":          {why: "measures the whole service from outside", imports: []string{"*"}, clock: "it measures", floats: "rates and percentiles, never money"},
		"bench/shed":            {why: "measures the whole service under more than it can do, from outside", imports: []string{"internal/benchkit", "internal/benchkit/bed"}, clock: "it measures", floats: "rates and percentiles, never money"},
		"bench/breaker":         {why: "measures what twelve replicas agree on, through the packages that they use", imports: []string{"resilience", "resilience/shared", "internal/benchkit", "internal/postgres"}, clock: "it measures", floats: "percentiles, never money"},

		"e2e": {why: "tests of whole processes, and nothing else"},

		"cmd/paymentsd":   {why: "wiring", imports: []string{"*"}, clock: "main hands the clock to the rest", floats: "what prometheus asks for; no amount is decided by it", floatIn: "metrics.go"},
		"cmd/reconcile":   {why: "wiring", imports: []string{"*"}, clock: "main hands the clock to the rest"},
		"cmd/acquirersim": {why: "wiring", imports: []string{"*"}, clock: "main hands the clock to the rest"},
	}
}

const module = "paymentsd"

// sources are the parsed files of one package, without its tests.
type sources struct {
	path  string
	fset  *token.FileSet
	files []*ast.File
}

func TestArchitecture(t *testing.T) {
	t.Parallel()
	packages, err := readModule(".")
	if err != nil {
		t.Fatal(err)
	}
	plan := rooms()
	for _, p := range packages {
		r, ok := plan[p.path]
		if !ok {
			t.Errorf("package %s has no row in rooms(): say why it exists and what it may import", p.path)
			continue
		}
		delete(plan, p.path)
		for _, problem := range r.check(p) {
			t.Error(problem)
		}
	}
	for path := range plan {
		t.Errorf("rooms() has a row for %s, and there is no such package", path)
	}
}

// readModule parses every package under root. Files of other platforms are read, too.
func readModule(root string) ([]sources, error) {
	byPath := map[string]*sources{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); d.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "bin") {
			return filepath.SkipDir
		}
		if d.IsDir() && path != root {
			if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil {
				return filepath.SkipDir // a module of its own
			}
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		dir := filepath.ToSlash(filepath.Dir(path))
		p := byPath[dir]
		if p == nil {
			p = &sources{path: dir, fset: token.NewFileSet()}
			byPath[dir] = p
		}
		f, err := parser.ParseFile(p.fset, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		p.files = append(p.files, f)
		return err
	})
	var out []sources
	for _, p := range byPath {
		out = append(out, *p)
	}
	slices.SortFunc(out, func(a, b sources) int { return strings.Compare(a.path, b.path) })
	return out, err
}

func (r room) check(p sources) (out []string) {
	docs := 0
	for _, f := range p.files {
		report := func(n ast.Node, format string, args ...any) {
			out = append(out, fmt.Sprintf("%s: %s", p.fset.Position(n.Pos()), fmt.Sprintf(format, args...)))
		}
		if f.Doc != nil {
			docs++
			if text := f.Doc.Text(); !strings.HasPrefix(text, "Package "+f.Name.Name+" ") && !strings.HasPrefix(text, "Command ") {
				report(f.Doc, "a package comment begins with \"Package %s\" or \"Command\"", f.Name.Name)
			}
		}
		r.checkImports(f, p.path, report)
		r.checkCode(f, filepath.Base(p.fset.Position(f.Pos()).Filename), report)
	}
	if docs != 1 {
		out = append(out, fmt.Sprintf("%s: %d package comments, want exactly one", p.path, docs))
	}
	return out
}

type report func(n ast.Node, format string, args ...any)

func (r room) checkImports(f *ast.File, pkg string, report report) {
	for _, i := range f.Imports {
		path, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			continue // the parser has accepted it
		}
		if ours, ok := strings.CutPrefix(path, module+"/"); ok {
			if !slices.Contains(r.imports, ours) && !slices.Contains(r.imports, "*") {
				report(i, "%s may not import %s: its place is: %s", pkg, ours, r.why)
			}
			if strings.HasPrefix(ours, "cmd/") {
				report(i, "nothing imports a command")
			}
		}
		impure := []string{"net", "net/http", "os", "os/exec", "database/sql", "github.com/jackc/pgx/v5", "github.com/jackc/pgx/v5/pgxpool"}
		if r.pure && slices.Contains(impure, path) {
			report(i, "%s is pure and imports %s", pkg, path)
		}
	}
}

func (r room) checkCode(f *ast.File, name string, report report) {
	floats := r.floats != "" && (r.floatIn == "" || r.floatIn == name)
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Name.Name == "init" && n.Recv == nil {
				report(n, "no init(): what registers itself cannot be seen from the list")
			}
		case *ast.Ident:
			if !floats && (n.Name == "float64" || n.Name == "float32") {
				report(n, "%s: money is never floating point", n.Name)
			}
		case *ast.SelectorExpr:
			on, _ := n.X.(*ast.Ident)
			if r.clock == "" && on != nil && on.Name == "time" && slices.Contains([]string{"Now", "Since", "Until"}, n.Sel.Name) {
				report(n, "time.%s: take the time, or a Now func() time.Time, from the caller", n.Sel.Name)
			}
			if !floats && slices.Contains([]string{"ParseFloat", "Float64", "InexactFloat64", "NewFromFloat", "BigFloat"}, n.Sel.Name) {
				report(n, "%s: money is never floating point", n.Sel.Name)
			}
		}
		return true
	})
}

func TestArchitectureChecksFind(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		room room
		code string
		want string // "" for nothing
	}{
		{"a sound file", room{imports: []string{"money"}}, "// Package p is sound.\npackage p\nimport \"paymentsd/money\"\nvar _ money.Amount", ""},
		{"an import off the plan", room{imports: []string{"money"}}, "// Package p.\npackage p\nimport _ \"paymentsd/api\"", "may not import api"},
		{"a command imported by wiring", room{imports: []string{"*"}}, "// Package p is.\npackage p\nimport _ \"paymentsd/cmd/paymentsd\"", "nothing imports a command"},
		{"the network in a pure package", room{pure: true}, "// Package p is.\npackage p\nimport _ \"net/http\"", "is pure and imports net/http"},
		{"no package comment", room{}, "package p", "0 package comments"},
		{"a package comment about something else", room{}, "// Helpers for p.\npackage p", "begins with"},
		{"a float", room{}, "// Package p is.\npackage p\nvar price float64", "never floating point"},
		{"a float by way of a method", room{}, "// Package p is.\npackage p\nfunc f(d interface{ InexactFloat64() }) { d.InexactFloat64() }", "never floating point"},
		{"a float with a reason", room{floats: "rates"}, "// Package p is.\npackage p\nvar rate float64", ""},
		{"a float outside the one file that may", room{floats: "gauges", floatIn: "metrics.go"}, "// Package p is.\npackage p\nvar rate float64", "never floating point"},
		{"a float inside the one file that may", room{floats: "gauges", floatIn: "p.go"}, "// Package p is.\npackage p\nvar rate float64", ""},
		{"the clock", room{}, "// Package p is.\npackage p\nimport \"time\"\nfunc f() time.Time { return time.Now() }", "time.Now"},
		{"the clock as a value", room{}, "// Package p is.\npackage p\nimport \"time\"\nvar now = time.Now", "time.Now"},
		{"the clock by way of Since", room{}, "// Package p is.\npackage p\nimport \"time\"\nfunc f(t time.Time) time.Duration { return time.Since(t) }", "time.Since"},
		{"the clock with a reason", room{clock: "main"}, "// Package p is.\npackage p\nimport \"time\"\nvar now = time.Now", ""},
		{"init", room{}, "// Package p is.\npackage p\nfunc init() {}", "no init()"},
		{"a method called init", room{}, "// Package p is.\npackage p\ntype t struct{}\nfunc (t) init() {}", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			fset := token.NewFileSet()
			f, err := parser.ParseFile(fset, "p.go", c.code, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Join(c.room.check(sources{path: "p", fset: fset, files: []*ast.File{f}}), "\n")
			if c.want == "" && got != "" || !strings.Contains(got, c.want) {
				t.Errorf("found %q, want %q", got, c.want)
			}
		})
	}
	t.Run("two package comments", func(t *testing.T) {
		t.Parallel()
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, "p.go", "// Package p is.\npackage p", parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if got := (room{}).check(sources{path: "p", fset: fset, files: []*ast.File{f, f}}); len(got) != 1 {
			t.Errorf("found %q, want one problem", got)
		}
	})
}

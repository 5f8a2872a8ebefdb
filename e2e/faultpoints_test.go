package e2e

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"paymentsd/events"
	"paymentsd/payment"
)

// Whoever adds a fault point adds a crash.
func TestEveryFaultPointHasACrash(t *testing.T) {
	t.Parallel()
	charges, told := map[string]bool{}, map[string]bool{}
	for _, c := range crashes() {
		step, _, _ := strings.Cut(c.fault, ":")
		charges[step] = true
	}
	for _, c := range eventCrashes() {
		told[c.fault] = true
	}
	for pkg, want := range map[string]struct {
		tested map[string]bool
		points []payment.FaultPoint
	}{"payment": {charges, payment.FaultPoints()}, "events": {told, events.FaultPoints()}} {
		listed := map[string]bool{}
		for _, point := range want.points {
			listed[point.Name] = true
		}
		inCode := faultPointsOf(t, filepath.Join("..", pkg))
		if !maps.Equal(want.tested, inCode) || !maps.Equal(listed, inCode) {
			t.Errorf("the crashes cover %v, %s.FaultPoints lists %v, the code has %v", slices.Sorted(maps.Keys(want.tested)), pkg,
				slices.Sorted(maps.Keys(listed)), slices.Sorted(maps.Keys(inCode)))
		}
	}
}

// faultPointsOf reads the names that a package passes to its fault function, as literals or constants.
func faultPointsOf(t *testing.T, dir string) map[string]bool {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var passed []ast.Expr
	constants, fset := map[string]ast.Expr{}, token.NewFileSet()
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ValueSpec:
				for i := range n.Values {
					constants[n.Names[i].Name] = n.Values[i]
				}
			case *ast.CallExpr:
				if method, ok := n.Fun.(*ast.SelectorExpr); ok && method.Sel.Name == "fault" {
					passed = append(passed, n.Args[0])
				}
			}
			return true
		})
	}
	names := map[string]bool{}
	for _, argument := range passed {
		if constant, ok := argument.(*ast.Ident); ok {
			argument = constants[constant.Name]
		}
		literal, ok := argument.(*ast.BasicLit)
		if !ok {
			t.Errorf("%s: a fault point whose name is neither a literal nor a constant of the package", fset.Position(argument.Pos()))
			continue
		}
		name, err := strconv.Unquote(literal.Value)
		if err != nil {
			t.Fatal(err)
		}
		names[name] = true
	}
	return names
}

package sqllint

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// CheckCalls holds the Go code under root, tests aside, to the rules on how SQL is run: only as
// constants, a batch only on a parameter of type pgx.Tx (its BEGIN and COMMIT) or in batchPackage,
// no SERIALIZABLE.
func CheckCalls(root, batchPackage string) (out []Problem, err error) {
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); d.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "testdata") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		report := func(n ast.Node, what string) {
			out = append(out, Problem{Where: fmt.Sprintf("%s:%d", filepath.ToSlash(rel), fset.Position(n.Pos()).Line), What: what})
		}
		checkFile(f, filepath.ToSlash(filepath.Dir(rel)) == batchPackage, report)
		return nil
	})
	return out, err
}

func checkFile(f *ast.File, mayBatch bool, report func(ast.Node, string)) {
	inTx := batchesInTx(f)
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GenDecl:
			return n.Tok != token.CONST // where SQL belongs
		case *ast.SelectorExpr:
			if n.Sel.Name == "SendBatch" && !mayBatch && !inTx[n] {
				report(n, "SendBatch without its own BEGIN and COMMIT is not atomic on a cluster: take a pgx.Tx as parameter and send it there")
			}
			if slices.Contains([]string{"Serializable", "LevelSerializable"}, n.Sel.Name) {
				report(n, "SERIALIZABLE means less on a cluster than it says: compare and set instead")
			}
		case *ast.BasicLit:
			if s, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING && looksRun(s) {
				report(n, "SQL that is no constant escapes the lint and the PREPARE test: make it a const")
			}
		}
		return true
	})
}

// batchesInTx finds the SendBatch of a function's own pgx.Tx.
func batchesInTx(f *ast.File) map[*ast.SelectorExpr]bool {
	out := map[*ast.SelectorExpr]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		var params *ast.FieldList
		var body *ast.BlockStmt
		switch n := n.(type) {
		case *ast.FuncDecl:
			params, body = n.Type.Params, n.Body
		case *ast.FuncLit:
			params, body = n.Type.Params, n.Body
		}
		if body == nil {
			return true
		}
		for _, p := range params.List {
			sel, ok := p.Type.(*ast.SelectorExpr)
			if !ok || sel.Sel.Name != "Tx" {
				continue
			}
			for _, name := range p.Names {
				ast.Inspect(body, func(n ast.Node) bool {
					if use, ok := n.(*ast.SelectorExpr); ok && use.Sel.Name == "SendBatch" {
						if on, ok := use.X.(*ast.Ident); ok && on.Name == name.Name {
							out[use] = true
						}
					}
					return true
				})
			}
		}
		return true
	})
	return out
}

// fromOrCall tells a statement from an error text that begins with select.
var fromOrCall = regexp.MustCompile(`(?i)\bfrom\s+\w|\w\(|\bset\s|\bvalues\s*\(`)

func looksRun(s string) bool { return IsSQL(s) && fromOrCall.MatchString(s) }

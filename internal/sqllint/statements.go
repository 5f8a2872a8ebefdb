// Package sqllint holds the SQL of this module to the rules of its schema: every statement is a
// constant that names its merchant, every table has one owner, every key leads with the merchant.
package sqllint

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// Statement is one SQL constant of the module.
type Statement struct {
	Package string // folder of the package, from the module's root, with slashes
	Name    string
	Doc     string // doc comment, or the comment at the end of its line
	SQL     string
	Pos     token.Position
}

func (s Statement) String() string {
	return fmt.Sprintf("%s:%d: %s", s.Pos.Filename, s.Pos.Line, s.Name)
}

// sqlStart tells SQL from prose that begins with the same word.
var sqlStart = regexp.MustCompile(`(?is)^\s*(?:--[^\n]*\n\s*)*(?:select\s|insert\s+into\s|update\s+\S+.*\sset\s|delete\s+from\s|merge\s+into\s|with\s+(?:recursive\s+)?\w+\s*(?:\([^)]*\)\s*)?as\s|call\s+\w+\s*\()`)

// IsSQL reports whether a text begins like a statement of ours.
func IsSQL(text string) bool { return sqlStart.MatchString(text) }

// InPackage finds the SQL constants in the files of dir that are not tests. Package names in the
// result are relative to root.
func InPackage(root, dir string) ([]Statement, error) {
	fset := token.NewFileSet()
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	pkg, err := filepath.Rel(root, dir)
	if err != nil {
		return nil, err
	}
	var files []*ast.File
	for _, e := range entries {
		if e.IsDir() || !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, filepath.Join(dir, e.Name()), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	values := constants(files)
	var out []Statement
	for _, f := range files {
		eachConst(f, func(decl *ast.GenDecl, spec *ast.ValueSpec, name *ast.Ident, value ast.Expr) {
			sql, ok := evaluate(value, values)
			if !ok || !IsSQL(sql) {
				return
			}
			out = append(out, Statement{
				Package: filepath.ToSlash(pkg), Name: name.Name, Doc: docOf(decl, spec), SQL: sql, Pos: fset.Position(name.Pos()),
			})
		})
	}
	return out, nil
}

// InModule is InPackage for every package under root.
func InModule(root string) ([]Statement, error) {
	var out []Statement
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if name := d.Name(); path != root && (strings.HasPrefix(name, ".") || name == "testdata") {
			return filepath.SkipDir
		}
		found, err := InPackage(root, path)
		out = append(out, found...)
		return err
	})
	return out, err
}

func docOf(decl *ast.GenDecl, spec *ast.ValueSpec) string {
	doc := spec.Doc.Text() + spec.Comment.Text()
	if !decl.Lparen.IsValid() {
		doc += decl.Doc.Text()
	}
	return doc
}

// eachConst visits every constant with a value, at package level or inside a function.
func eachConst(f *ast.File, visit func(*ast.GenDecl, *ast.ValueSpec, *ast.Ident, ast.Expr)) {
	ast.Inspect(f, func(n ast.Node) bool {
		decl, ok := n.(*ast.GenDecl)
		if !ok || decl.Tok != token.CONST {
			return true
		}
		for _, s := range decl.Specs {
			spec := s.(*ast.ValueSpec)
			for i, name := range spec.Names {
				if i < len(spec.Values) {
					visit(decl, spec, name, spec.Values[i])
				}
			}
		}
		return true
	})
}

// constants maps a name to its expression, so that a statement may be put together from others.
func constants(files []*ast.File) map[string]ast.Expr {
	out := map[string]ast.Expr{}
	for _, f := range files {
		eachConst(f, func(_ *ast.GenDecl, _ *ast.ValueSpec, name *ast.Ident, value ast.Expr) { out[name.Name] = value })
	}
	return out
}

// evaluate knows what SQL constants are made of: literals, other constants and +.
func evaluate(e ast.Expr, values map[string]ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		s, err := strconv.Unquote(e.Value)
		return s, err == nil && e.Kind == token.STRING
	case *ast.ParenExpr:
		return evaluate(e.X, values)
	case *ast.Ident:
		value, ok := values[e.Name]
		if !ok {
			return "", false
		}
		return evaluate(value, values)
	case *ast.BinaryExpr:
		left, okLeft := evaluate(e.X, values)
		right, okRight := evaluate(e.Y, values)
		return left + right, okLeft && okRight && e.Op == token.ADD
	}
	return "", false
}

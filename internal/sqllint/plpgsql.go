package sqllint

import (
	"fmt"
	"io/fs"
	"regexp"
	"strings"
)

// migrationsPackage is where the functions of the charge path are defined; any table may be named there.
const migrationsPackage = "migrations"

var functionHead = regexp.MustCompile(`(?is)create\s+(?:or\s+replace\s+)?function\s+(\w+)`)

// CheckFunctions holds every statement inside the functions of the up migrations to the same rules.
// It fails if it finds none: then it looked in the wrong place.
func (schema Schema) CheckFunctions(files fs.FS) (out []Problem, err error) {
	names, err := fs.Glob(files, "*.up.sql")
	if err != nil {
		return nil, err
	}
	statements := 0
	for _, name := range names {
		b, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		for _, f := range functions(string(b)) {
			for i, s := range splitBody(f.body) {
				statements++
				where := fmt.Sprintf("%s: %s, statement %d", name, f.name, i+1)
				out = append(out, schema.check(migrationsPackage, where, "", s)...)
			}
		}
	}
	if statements == 0 {
		return nil, fmt.Errorf("no function in the migrations")
	}
	return out, nil
}

type function struct{ name, body string }

func functions(sql string) (out []function) {
	for _, at := range functionHead.FindAllStringSubmatchIndex(sql, -1) {
		for _, t := range lex(sql[at[1]:]) {
			if t.kind == text && strings.HasPrefix(t.text, "$") {
				tag := dollarTag(t.text)
				out = append(out, function{name: sql[at[2]:at[3]], body: strings.TrimSuffix(strings.TrimPrefix(t.text, tag), tag)})
				break
			}
		}
	}
	return out
}

// splitBody cuts a PL/pgSQL body into the SQL statements in it. What surrounds one (for x in, if,
// return query) is dropped, and with it everything that is no SQL.
func splitBody(body string) (out [][]tok) {
	depth, cases := 0, 0
	var chunk []tok
	flush := func() {
		for i, t := range chunk {
			if t.is(queryStarts...) || t.is("(") && isQuery(chunk[i+1:]) {
				out = append(out, chunk[i:])
				break
			}
		}
		chunk = nil
	}
	for _, t := range lex(body) {
		switch {
		case t.is("("):
			depth++
		case t.is(")"):
			depth--
		case t.is("case"):
			cases++
		case t.is("end") && cases > 0:
			cases--
		case depth == 0 && (t.is(";", "begin", "loop") || cases == 0 && t.is("then", "else")):
			flush()
			continue
		}
		chunk = append(chunk, t)
	}
	flush()
	return out
}

package sqllint

import "slices"

// scope is one query: a SELECT, INSERT, UPDATE or DELETE without the queries inside it. Each branch
// of a UNION is one of its own.
type scope struct {
	tokens  []tok
	parents []int    // of each group, its outer one
	within  string   // the word before its parenthesis: "materialized", "array", "in", ...; "" at the top
	tables  []table  // what it reads or writes
	nested  []*scope // the queries inside
}

// table is one reference to a table, a view or a common table expression.
type table struct {
	name   string
	alias  string // the name itself if it has no other
	target bool   // what an INSERT writes to
	at     int    // index of its token
}

var queryStarts = []string{"select", "insert", "update", "delete", "with", "merge", "perform"}

// parse returns the scopes of one statement.
func parse(tokens []tok) []*scope { return branches(tokens, "") }

// all lists a scope and everything inside it.
func (s *scope) all() []*scope {
	out := []*scope{s}
	for _, n := range s.nested {
		out = append(out, n.all()...)
	}
	return out
}

func allScopes(tokens []tok) (out []*scope) {
	for _, s := range parse(tokens) {
		out = append(out, s.all()...)
	}
	return out
}

// branches cuts at UNION, EXCEPT and INTERSECT of the outermost level.
func branches(tokens []tok, within string) (out []*scope) {
	depth, from := 0, 0
	for i, t := range tokens {
		switch {
		case t.is("("):
			depth++
		case t.is(")"):
			depth--
		case depth == 0 && t.is("union", "except", "intersect"):
			out = append(out, newScope(tokens[from:i], within))
			from = i + 1
		}
	}
	return append(out, newScope(tokens[from:], within))
}

func newScope(tokens []tok, within string) *scope {
	s := &scope{within: within, parents: []int{0}}
	group, segment := 0, 0
	open := func(t tok) {
		s.parents = append(s.parents, group)
		t.group = group
		s.tokens = append(s.tokens, t)
		group = len(s.parents) - 1
	}
	for i := 0; i < len(tokens); i++ {
		t := tokens[i]
		t.segment = segment
		switch {
		case t.is("(") && isQuery(tokens[i+1:]):
			end := closing(tokens, i)
			before := ""
			if i > 0 {
				before = tokens[i-1].text
			}
			s.nested = append(s.nested, branches(tokens[i+1:end], before)...)
			// What is left of it is a pair of parentheses, so that an alias after it is seen.
			t.group = group
			s.tokens = append(s.tokens, t, tok{kind: symbol, text: ")", group: group, segment: segment})
			i = end
		case t.is("("), t.is("case"):
			open(t)
		case t.is(")"), t.is("end") && group != 0:
			group = s.parents[group]
			t.group = group
			s.tokens = append(s.tokens, t)
		default:
			if group == 0 && t.is("where", "on", "group", "order", "having", "limit", "returning", "set", "for", "join", "from", "window") {
				segment++
			}
			t.group, t.segment = group, segment
			s.tokens = append(s.tokens, t)
		}
	}
	s.findTables()
	return s
}

// isQuery looks at what follows an opening parenthesis.
func isQuery(tokens []tok) bool {
	for _, t := range tokens {
		if !t.is("(") {
			return t.is(queryStarts...)
		}
	}
	return false
}

// closing is the index of the parenthesis that closes the one at open, or the last token.
func closing(tokens []tok, open int) int {
	depth := 0
	for i := open; i < len(tokens); i++ {
		if tokens[i].is("(") {
			depth++
		} else if tokens[i].is(")") {
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return len(tokens) - 1
}

var notAliases = []string{
	"where", "on", "using", "join", "left", "right", "full", "inner", "cross", "natural", "set", "group", "order", "limit", "offset",
	"for", "returning", "values", "select", "with", "having", "window", "default", "overriding", "tablesample", "loop", "into",
}

// findTables walks the FROM lists and the targets. In a parenthesis that stands where a table is
// expected tables are sought, too; in any other it is an expression.
func (s *scope) findTables() {
	inFrom := map[int]bool{} // groups that are inside a FROM list
	expect, list := false, false
	for i := 0; i < len(s.tokens); i++ {
		t := s.tokens[i]
		if t.group != 0 && !inFrom[t.group] {
			continue
		}
		prev := tok{}
		if i > 0 {
			prev = s.tokens[i-1]
		}
		switch {
		case t.is("from") && !prev.is("distinct"):
			expect, list = true, true
		case t.is("join"):
			expect = true
		case t.is("using") && !s.at(i+1).is("("):
			expect, list = true, true
		case t.is("into") && prev.is("insert", "merge"), t.is("update") && !prev.is("for", "do", "key"):
			expect, list = true, false
		case t.is(",") && list:
			expect = true
		case t.is("only", "lateral", "rows") && expect:
		case t.is("(") && expect:
			if i+1 < len(s.tokens) && s.tokens[i+1].group != t.group {
				inFrom[s.tokens[i+1].group] = true
			} else {
				expect = false // a query that stands for a table
			}
		case t.is("where", "group", "order", "limit", "returning", "set", "for", "values", "having", "conflict"):
			expect, list = false, false
		case expect && t.kind == word:
			i = s.addTable(i, s.tokens[max(0, i-1)].is("into"))
			expect = false
		}
	}
}

// addTable reads a name with its schema and alias at i and returns the index of its last token.
func (s *scope) addTable(i int, target bool) int {
	if s.at(i+1).is(".") && s.at(i+2).kind == word {
		i += 2
	}
	if s.at(i+1).is("(") && !target {
		return i // a function
	}
	ref := table{name: s.tokens[i].text, alias: s.tokens[i].text, target: target, at: i}
	next := i + 1
	if s.at(next).is("as") {
		next++
	}
	if t := s.at(next); t.kind == word && !slices.Contains(notAliases, t.text) {
		ref.alias = t.text
		i = next
	}
	s.tables = append(s.tables, ref)
	return i
}

// at is the token at i, or an empty one past the end.
func (s *scope) at(i int) tok {
	if i < 0 || i >= len(s.tokens) {
		return tok{kind: text}
	}
	return s.tokens[i]
}

// has reports whether the words stand in this order, side by side, in the scope itself.
func (s *scope) has(words ...string) bool {
	for i := range s.tokens {
		found := true
		for j, w := range words {
			found = found && s.at(i+j).is(w)
		}
		if found {
			return true
		}
	}
	return false
}

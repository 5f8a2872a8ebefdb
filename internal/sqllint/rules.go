package sqllint

import (
	"fmt"
	"slices"
	"strings"
)

// Schema says whose each table is.
type Schema struct {
	// Owners maps a table to the folder of the one package that names it in SQL.
	Owners map[string]string
	// Tenant lists the tables whose rows belong to a merchant; all others are control tables.
	Tenant []string
	// ChargePath lists the packages whose writes are on the way of a charge.
	ChargePath []string
}

// Marks in the doc comment of a statement that lift the rule of the merchant from its reads.
const (
	MarkReport     = "report over all merchants" // rule 12: a read for people, never a decision about money
	MarkCandidates = "candidates"                // rule 9: a sweep's first step, which locks nothing
)

// Problem is one broken rule.
type Problem struct {
	Where string
	What  string
}

func (p Problem) String() string { return p.Where + ": " + p.What }

// Check holds one statement to every rule.
func (schema Schema) Check(s Statement) []Problem {
	return schema.check(s.Package, s.String(), s.Doc, lex(s.SQL))
}

func (schema Schema) check(pkg, where, doc string, tokens []tok) (out []Problem) {
	report := func(format string, args ...any) {
		out = append(out, Problem{Where: where, What: fmt.Sprintf(format, args...)})
	}
	scopes := allScopes(tokens)
	exempt := strings.Contains(doc, MarkReport) || strings.Contains(doc, MarkCandidates)
	for _, s := range scopes {
		if exempt && s.writes() {
			report("%q is a mark for reads, and this writes", doc)
			exempt = false
		}
	}
	for _, s := range scopes {
		schema.checkMerchant(s, exempt, report)
		schema.checkOwner(s, pkg, report)
		schema.checkWrites(s, pkg, report)
		checkLimit(s, report)
		checkStars(s, report)
	}
	return out
}

type reporter func(format string, args ...any)

func (schema Schema) tenantTables(s *scope) (out []table) {
	for _, t := range s.tables {
		if slices.Contains(schema.Tenant, t.name) {
			out = append(out, t)
		}
	}
	return out
}

// checkMerchant: merchant_id = a parameter or constant for every tenant table of the scope.
func (schema Schema) checkMerchant(s *scope, exempt bool, report reporter) {
	tenant := schema.tenantTables(s)
	for _, t := range tenant {
		switch {
		case t.target:
			if !s.insertsMerchant(t) {
				report("the insert into %s does not name merchant_id among its columns", t.name)
			}
		case s.boundMerchant(t.alias) || (len(tenant) == 1 && s.boundMerchant("")):
		case s.locks():
			report("FOR UPDATE on %s without its merchant: %s.merchant_id = a parameter", t.name, t.alias)
		case !exempt:
			report("%s is read or written without its merchant: %s.merchant_id = a parameter (or the mark %q)", t.name, t.alias, MarkReport)
		}
	}
}

// boundMerchant reports whether the merchant of an alias is bound, after WHERE or ON, and under no OR.
func (s *scope) boundMerchant(alias string) bool {
	where := slices.IndexFunc(s.tokens, func(t tok) bool { return t.is("where", "on") })
	for i := max(where, 0); where >= 0 && i < len(s.tokens); i++ {
		if !s.tokens[i].is("merchant_id") || !s.at(i+1).is("=") || !isConstant(s.at(i+2)) {
			continue
		}
		qualifier := ""
		if s.at(i - 1).is(".") {
			qualifier = s.at(i - 2).text
		}
		if qualifier == alias && !s.underOr(s.tokens[i]) {
			return true
		}
	}
	return false
}

// isConstant takes parameters, numbers, and the parameters of a PL/pgSQL function.
func isConstant(t tok) bool {
	return t.kind == param || t.kind == number || t.kind == word && strings.HasPrefix(t.text, "p_")
}

func (s *scope) underOr(t tok) bool {
	for group := t.group; ; group = s.parents[group] {
		for _, other := range s.tokens {
			if other.is("or") && other.group == group && (group != 0 || other.segment == t.segment) {
				return true
			}
		}
		if group == 0 {
			return false
		}
	}
}

func (s *scope) insertsMerchant(t table) bool {
	open := t.at + 1
	for open < len(s.tokens) && !s.tokens[open].is("(", "values", "select") {
		open++
	}
	if !s.at(open).is("(") {
		return false
	}
	for i := open + 1; i < len(s.tokens) && !s.tokens[i].is(")"); i++ {
		if s.tokens[i].is("merchant_id") {
			return true
		}
	}
	return false
}

func (s *scope) locks() bool {
	return s.has("for", "update") || s.has("for", "share") || s.has("for", "no", "key") || s.has("for", "key", "share")
}

func (s *scope) writes() bool {
	return s.has("insert", "into") || s.has("delete", "from") || s.has("merge", "into") || s.isUpdate()
}

func (s *scope) isUpdate() bool {
	for i, t := range s.tokens {
		if t.is("update") && !s.at(i-1).is("for", "do", "key") {
			return true
		}
	}
	return false
}

// checkLimit: a plain sub-select may be run again, and then LIMIT 1 has taken more than one row.
func checkLimit(s *scope, report reporter) {
	if s.has("limit") && s.has("skip", "locked") && s.within != "" && s.within != "materialized" && s.within != "array" {
		report("LIMIT with SKIP LOCKED only in a materialized CTE or in array(...), not in %q", s.within)
	}
}

func checkStars(s *scope, report reporter) {
	for i, t := range s.tokens {
		if t.is("*") && s.at(i-1).is("select", "distinct", "all", "returning", ".", ",") {
			report("name the columns instead of *")
		}
	}
	if s.has("select", "from") || s.has("select", "where") {
		report("a select without a column: write select 1 from")
	}
	if s.has("merge", "into") {
		report("MERGE is not for us")
	}
}

func (schema Schema) checkOwner(s *scope, pkg string, report reporter) {
	for _, t := range s.tables {
		if owner, ok := schema.Owners[t.name]; ok && pkg != migrationsPackage && owner != pkg {
			report("%s is named in %s, but only %s may", t.name, pkg, owner)
		}
	}
}

var volatiles = []string{"random", "gen_random_uuid", "clock_timestamp", "nextval", "now", "current_timestamp"}

// checkWrites: what a cluster refuses, or does in many steps, in a write to a tenant table.
func (schema Schema) checkWrites(s *scope, pkg string, report reporter) {
	if !s.writes() || len(schema.tenantTables(s)) == 0 {
		return
	}
	if s.within != "" && s.has("insert", "into") && slices.Contains(schema.ChargePath, pkg) {
		report("no INSERT inside WITH on the charge path: a cluster takes it apart into two phases")
	}
	for _, t := range s.tables {
		if t.target && t.name == t.alias && s.has("select") && s.has("returning") {
			report("INSERT ... SELECT ... RETURNING needs an alias on %s", t.name)
		}
	}
	doUpdate := false
	for i, t := range s.tokens {
		doUpdate = doUpdate || t.is("do") && s.at(i+1).is("update")
		call := t.is(volatiles...) && (s.at(i+1).is("(") || t.is("current_timestamp"))
		switch {
		case call && doUpdate:
			report("%s in DO UPDATE: put it in VALUES and use excluded", t.text)
		case call && !t.is("now", "current_timestamp") && !s.has("insert", "into"):
			report("%s in an UPDATE or DELETE: make it a parameter", t.text)
		case t.is("merchant_id") && s.isUpdate() && s.inSet(t):
			report("a row never moves to another merchant")
		case t.is("interval") && s.at(i-1).is("+", "-") && s.at(i-2).kind == word && !s.has("insert", "into"):
			report("an interval is added to the column %s: put the arithmetic on the parameter's side", s.at(i-2).text)
		}
	}
}

// inSet reports whether the token is in the SET clause, on the left or the right.
func (s *scope) inSet(t tok) bool {
	if t.group != 0 {
		return false
	}
	for _, other := range s.tokens {
		if other.is("set") && other.segment == t.segment && other.group == 0 {
			return true
		}
	}
	return false
}

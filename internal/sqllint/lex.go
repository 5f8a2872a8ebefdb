package sqllint

import "strings"

type kind int

const (
	word kind = iota
	quoted
	param
	number
	text
	symbol
)

// tok is one word of SQL. Words are in lower case.
type tok struct {
	kind kind
	text string
	// group is the pair of parentheses, or the case ... end, that the token stands in; 0 is the
	// outermost of its query.
	group int
	// segment counts the clauses of the outermost group: where, group by, ...
	segment int
}

func (t tok) is(texts ...string) bool {
	if t.kind != word && t.kind != symbol {
		return false
	}
	for _, s := range texts {
		if t.text == s {
			return true
		}
	}
	return false
}

// lex splits SQL into tokens without comments. It knows named (@name) and numbered ($1) parameters,
// and takes a dollar-quoted body as one text.
func lex(sql string) []tok {
	var out []tok
	for i := 0; i < len(sql); {
		rest := sql[i:]
		size, k := next(rest)
		switch {
		case k < 0:
		case k == word:
			out = append(out, tok{kind: word, text: strings.ToLower(rest[:size])})
		case k == quoted:
			out = append(out, tok{kind: word, text: strings.ReplaceAll(rest[1:size-1], `""`, `"`)})
		default:
			out = append(out, tok{kind: k, text: rest[:size]})
		}
		i += size
	}
	return out
}

const blank = kind(-1)

// next measures the first token of a non-empty text.
func next(s string) (size int, k kind) {
	c := s[0]
	switch {
	case strings.IndexByte(" \t\r\n", c) >= 0:
		return 1, blank
	case strings.HasPrefix(s, "--"):
		return through(s, 2, "\n"), blank
	case strings.HasPrefix(s, "/*"):
		return through(s, 2, "*/"), blank
	case c == '\'':
		return through(s, 1, "'"), text
	case c == '"' && strings.IndexByte(s[1:], '"') > 0:
		return through(s, 1, `"`), quoted
	case c == '$' && dollarTag(s) != "":
		tag := dollarTag(s)
		return through(s, len(tag), tag), text
	case (c == '@' || c == '$') && len(s) > 1 && isWord(s[1]):
		return 1 + wordLen(s[1:]), param
	case c >= '0' && c <= '9':
		return wordLen(s), number
	case isWord(c):
		return wordLen(s), word
	case strings.HasPrefix(s, "::"):
		return 2, symbol
	}
	return 1, symbol
}

// through is the length up to and with the closing mark, or to the end.
func through(s string, from int, mark string) int {
	if at := strings.Index(s[from:], mark); at >= 0 {
		return from + at + len(mark)
	}
	return len(s)
}

// dollarTag is the $$ or $name$ that s begins with.
func dollarTag(s string) string {
	n := 1
	for n < len(s) && isWord(s[n]) {
		n++
	}
	if n < len(s) && s[n] == '$' && (n == 1 || s[1] < '0' || s[1] > '9') {
		return s[:n+1]
	}
	return ""
}

func isWord(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

func wordLen(s string) int {
	n := 0
	for n < len(s) && isWord(s[n]) {
		n++
	}
	return n
}

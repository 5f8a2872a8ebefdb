package api

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"paymentsd/merchant"
)

// query reads the parameters of a request strictly: each once, none that is not known.
type query struct {
	values url.Values
	errors []fieldError
}

func parseQuery(r *http.Request) (*query, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, refuse(codeParameterInvalid, "The query cannot be read: check its percent-encoding.")
	}
	q := &query{values: values}
	var cards []fieldError
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if holdsCardNumber(name) || slices.ContainsFunc(values[name], holdsCardNumber) {
			cards = append(cards, fieldError{Parameter: memberName(name), Code: "card_number", Detail: "holds a card number"})
		}
	}
	if len(cards) > 0 {
		return nil, refuse(codeCardNumber, "", cards...)
	}
	return q, nil
}

// noQuery is for operations without parameters.
func noQuery(r *http.Request) error {
	q, err := parseQuery(r)
	if err != nil {
		return err
	}
	return q.finish()
}

func (q *query) wrong(name, code, detail string) {
	q.errors = append(q.errors, fieldError{Parameter: name, Code: code, Detail: detail})
}

// text reads a parameter of at most 255 bytes; "" if it is absent or wrong.
func (q *query) text(name string) string {
	values := q.values[name]
	delete(q.values, name)
	switch {
	case len(values) == 0:
		return ""
	case len(values) > 1:
		q.wrong(name, "repeated", "stands twice")
	case values[0] == "":
		q.wrong(name, "empty", "must not be empty")
	case len(values[0]) > 255 || !printable(values[0]):
		q.wrong(name, "invalid", "must have 1 to 255 bytes and no control characters")
	default:
		return values[0]
	}
	return ""
}

// oneOf reads a parameter that must be one of a few words.
func (q *query) oneOf(name string, words ...string) string {
	value := q.text(name)
	if value != "" && !slices.Contains(words, value) {
		q.wrong(name, "invalid", "must be one of "+strings.Join(words, ", "))
		return ""
	}
	return value
}

// The size of a page.
const (
	pageDefault = 10
	pageMax     = 100
)

func (q *query) limit() int {
	text := q.text("limit")
	if text == "" {
		return pageDefault
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > pageMax || text[0] == '+' || text[0] == '0' {
		q.wrong("limit", "invalid", fmt.Sprintf("must be a whole number from 1 to %d", pageMax))
		return pageDefault
	}
	return n
}

// time reads RFC 3339 with an offset.
func (q *query) time(name string) time.Time {
	text := q.text(name)
	if text == "" {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		q.wrong(name, "invalid", "must be a time of RFC 3339, such as 2026-01-31T12:00:00Z")
	}
	return t.UTC()
}

// merchant says whose rows are asked for: a merchant's key sees its own and may not name another; a
// platform key names one, or none (nil) for all.
func (q *query) merchant(p merchant.Principal) *merchant.ID {
	if p.Merchant != nil {
		return &p.Merchant.ID // merchant_id then stays an unknown parameter
	}
	code := q.text("merchant_id")
	if code == "" {
		return nil
	}
	m, err := merchant.ParseCode(code)
	if err != nil {
		q.wrong("merchant_id", "invalid", "must be a merchant's code: the six characters after ch_ in the ids of its charges")
		return nil
	}
	return &m
}

// finish refuses everything that was found wrong, at once, and parameters that nobody asked for.
func (q *query) finish() error {
	for _, name := range slices.Sorted(maps.Keys(q.values)) {
		q.wrong(memberName(name), "unknown", "is not a parameter of this operation")
	}
	if len(q.errors) == 0 {
		return nil
	}
	names := make([]string, len(q.errors))
	for i, e := range q.errors {
		names[i] = e.name() + " " + e.Detail
	}
	return refuse(codeParameterInvalid, "The query cannot be used: "+strings.Join(names, "; ")+".", q.errors...)
}

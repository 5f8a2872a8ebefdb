package api

import (
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"paymentsd/idempotency"
	"paymentsd/payment"
)

const (
	headerKey      = "Idempotency-Key"
	headerPrefer   = "Prefer"
	headerTimeout  = "Request-Timeout"
	headerPriority = "Priority"
)

// wishes is what any request may ask for in its headers.
type wishes struct {
	patience time.Duration    // how long the caller will wait; very long if it does not say
	priority payment.Priority // the most that it claims
}

// readWishes says what of them cannot be read. Such a wish counts as not said.
func readWishes(h http.Header) (w wishes, wrong []fieldError) {
	var ok bool
	if w.patience, ok = parseTimeout(h.Values(headerTimeout)); !ok {
		wrong = append(wrong, fieldError{Header: headerTimeout, Code: "invalid", Detail: "must be one positive decimal number of seconds, such as 2.5"})
	}
	if w.priority, ok = parsePriority(h.Values(headerPriority)); !ok {
		wrong = append(wrong, fieldError{Header: headerPriority, Code: "invalid", Detail: "must be one of critical, normal, low"})
		w.priority = payment.Critical
	}
	if w.patience == 0 {
		w.patience = math.MaxInt64
	}
	return w, wrong
}

// chargeHeaders is what the headers of a POST of a charge say beside its wishes.
type chargeHeaders struct {
	key  string
	wait time.Duration
}

func (a *api) readChargeHeaders(h http.Header) (chargeHeaders, error) {
	var c chargeHeaders
	var err error
	if slices.ContainsFunc(h.Values(headerKey), holdsCardNumber) {
		return c, refuse(codeCardNumber, "", fieldError{Header: headerKey, Code: "card_number", Detail: "holds a card number"})
	}
	if c.key, err = idempotency.ParseKey(h.Values(headerKey)); err != nil {
		return c, err
	}
	var wrong []fieldError
	var ok bool
	if c.wait, ok = parseWait(h.Values(headerPrefer)); !ok {
		wrong = append(wrong, fieldError{Header: headerPrefer, Code: "invalid", Detail: "must be a list of preferences of RFC 7240, with wait in whole seconds, such as wait=5"})
	}
	_, more := readWishes(h)
	if wrong = append(wrong, more...); len(wrong) > 0 {
		return c, refuse(codeHeaderInvalid, "", wrong...)
	}
	c.wait = min(c.wait, a.Limits.WaitMax)
	return c, nil
}

// parseWait reads wait=N out of Prefer. Preferences that we do not know are ignored, and of several
// the first counts (RFC 7240, section 2).
func parseWait(values []string) (wait time.Duration, ok bool) {
	found := false
	for _, preference := range splitUnquoted(strings.Join(values, ","), ',') {
		if preference == "" {
			continue // RFC 9110, 5.6.1.2: empty elements are ignored
		}
		name, value, hasValue, valid := parsePreference(preference)
		if !valid {
			return 0, false
		}
		if !strings.EqualFold(name, "wait") || found {
			continue
		}
		seconds, err := strconv.Atoi(value)
		if !hasValue || err != nil || seconds < 0 || len(value) > 6 || value[0] == '+' || value[0] == '-' {
			return 0, false
		}
		found, wait = true, time.Duration(seconds)*time.Second
	}
	return wait, true
}

// parsePreference reads token [= word], and checks the parameters that may follow.
func parsePreference(preference string) (name, value string, hasValue, ok bool) {
	for i, part := range splitUnquoted(preference, ';') {
		if part == "" && i > 0 {
			continue
		}
		n, v, has := strings.Cut(part, "=")
		n, v = strings.TrimRight(n, " \t"), strings.TrimLeft(v, " \t")
		if !isToken(n) || has && !isWord(v) {
			return "", "", false, false
		}
		if i == 0 {
			name, value, hasValue = n, strings.Trim(v, `"`), has && v != `""`
		}
	}
	return name, value, hasValue, true
}

// splitUnquoted splits at separators outside of quoted strings and trims the parts.
func splitUnquoted(s string, separator byte) []string {
	var parts []string
	quoted, start := false, 0
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '"':
			quoted = !quoted
		case s[i] == '\\' && quoted:
			i++
		case s[i] == separator && !quoted:
			parts = append(parts, strings.Trim(s[start:i], " \t"))
			start = i + 1
		}
	}
	return append(parts, strings.Trim(s[start:], " \t"))
}

// isToken is RFC 9110, 5.6.2.
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return !(r < 0x80 && isWordByte(byte(r))) && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	})
}

// isWord is a token or a quoted string.
func isWord(s string) bool {
	if len(s) >= 2 && s[0] == '"' && s[len(s)-1] == '"' {
		return true
	}
	return isToken(s)
}

// parseTimeout reads a positive decimal number of seconds, exactly.
func parseTimeout(values []string) (time.Duration, bool) {
	if len(values) == 0 {
		return 0, true
	}
	whole, fraction, point := strings.Cut(strings.Trim(values[0], " \t"), ".")
	if len(values) > 1 || whole == "" || len(whole) > 6 || len(fraction) > 9 || point && fraction == "" ||
		digitsLength(whole) != len(whole) || digitsLength(fraction) != len(fraction) {
		return 0, false
	}
	seconds, err := strconv.ParseInt(whole, 10, 64)
	if err != nil {
		return 0, false
	}
	nanos, err := strconv.ParseInt((fraction + "000000000")[:9], 10, 64)
	timeout := time.Duration(seconds)*time.Second + time.Duration(nanos)
	return timeout, err == nil && timeout > 0
}

// parsePriority reads the most that Priority claims: one of our words; or an urgency of RFC 9218, of which
// 4 to 6 is less than normal browsing and so normal, and 7 is for the background and so low. Both
// may stand there; the lower one holds. Other members of RFC 9218, and what it calls an invalid
// urgency, are ignored, as it asks. None of them claims more than nothing does: critical.
func parsePriority(values []string) (payment.Priority, bool) {
	if len(values) == 0 {
		return payment.Critical, true
	}
	word, urgency, found := payment.Critical, payment.Critical, false
	for _, member := range splitUnquoted(strings.Join(values, ","), ',') {
		name, value, _ := strings.Cut(member, "=")
		switch strings.ToLower(member) {
		case "critical", "normal", "low":
			if found {
				return payment.Critical, false
			}
			found, word = true, priorityWords[strings.ToLower(member)]
			continue
		}
		switch name {
		case "u":
			urgency = urgencyOf(value)
		case "", "i":
		default:
			return payment.Critical, false
		}
	}
	return min(word, urgency), true
}

var priorityWords = map[string]payment.Priority{"critical": payment.Critical, "normal": payment.Normal, "low": payment.Low}

func urgencyOf(value string) payment.Priority {
	switch value {
	case "4", "5", "6":
		return payment.Normal
	case "7":
		return payment.Low
	}
	return payment.Critical
}

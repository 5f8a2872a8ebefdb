package api

import (
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

// chargeHeaders is what the headers of a POST of a charge say.
type chargeHeaders struct {
	key      string
	wait     time.Duration
	timeout  time.Duration // 0 if the caller gave none
	priority payment.Priority
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
	check := func(header string, ok bool, detail string) {
		if !ok {
			wrong = append(wrong, fieldError{Header: header, Code: "invalid", Detail: detail})
		}
	}
	var ok bool
	c.wait, ok = parseWait(h.Values(headerPrefer))
	check(headerPrefer, ok, "must be a list of preferences of RFC 7240, with wait in whole seconds, such as wait=5")
	c.timeout, ok = parseTimeout(h.Values(headerTimeout))
	check(headerTimeout, ok, "must be one positive decimal number of seconds, such as 2.5")
	c.priority, ok = parsePriority(h.Values(headerPriority))
	check(headerPriority, ok, "must be one of critical, normal, low")
	if len(wrong) > 0 {
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

// parsePriority reads our words out of Priority. A charge without one is checkout, so critical. Members
// of RFC 9218 (u=3, i) that a client library or a proxy adds do not concern us.
func parsePriority(values []string) (payment.Priority, bool) {
	words := map[string]payment.Priority{
		"critical": payment.Critical, "normal": payment.Normal, "low": payment.Low,
	}
	priority, found := payment.Critical, false
	for _, member := range splitUnquoted(strings.Join(values, ","), ',') {
		if name, _, _ := strings.Cut(member, "="); name == "" || name == "u" || name == "i" {
			continue
		}
		p, ok := words[strings.ToLower(member)]
		if !ok || found {
			return 0, false
		}
		priority, found = p, true
	}
	return priority, true
}

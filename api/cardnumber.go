package api

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// A card number has 12 to 19 digits (ISO/IEC 7812).
const (
	cardDigitsMin = 12
	cardDigitsMax = 19
)

// holdsCardNumber reports whether a text holds what passes as a card number: 12 to 19 digits that a
// card network issues, with a right check digit (Luhn), in one group or with blanks and dashes between
// groups, in the digits of whatever script. UUIDs and hexadecimal digests are passed over: they are no card
// numbers, and one in some thousands of them would look like one.
func holdsCardNumber(s string) bool {
	s = withPlainDigits(s)
	var groups []string // digit groups that only blanks or dashes part
	for rest := s; rest != ""; {
		if n := digestLength(rest, len(s) > len(rest) && isWordByte(s[len(s)-len(rest)-1])); n > 0 {
			groups, rest = nil, rest[n:]
			continue
		}
		if n := digitsLength(rest); n > 0 {
			groups = append(groups, rest[:n])
			if lastGroupsAreCard(groups) {
				return true
			}
			rest = rest[n:]
			continue
		}
		r, n := utf8.DecodeRuneInString(rest)
		if !parts(r) {
			groups = nil
		}
		rest = rest[n:]
	}
	return false
}

// lastGroupsAreCard tries every run of groups that ends with the last one: an expiry date before or
// after a number must not hide it.
func lastGroupsAreCard(groups []string) bool {
	number := ""
	for i := len(groups) - 1; i >= 0; i-- {
		number = groups[i] + number
		if len(number) > cardDigitsMax {
			return false
		}
		if len(number) >= cardDigitsMin && issued(number) && luhn(number) {
			return true
		}
	}
	return false
}

// issued reports whether a network issues numbers that begin so: 3 to 6 (American Express, Diners, JCB,
// Visa, Mastercard, Maestro, Discover, UnionPay, RuPay), 2200-2204 (Mir), 2221-2720 (Mastercard), 81
// and 82 (UnionPay, RuPay), 9792 (Troy). Times in milliseconds and dates (1..., 20...) are none.
func issued(number string) bool {
	switch number[0] {
	case '3', '4', '5', '6':
		return true
	case '2':
		head := number[:4]
		return "2200" <= head && head <= "2204" || "2221" <= head && head <= "2720"
	case '8':
		return number[1] == '1' || number[1] == '2'
	case '9':
		return number[:4] == "9792"
	}
	return false
}

// luhn checks the check digit of ISO/IEC 7812-1, annex B.
func luhn(number string) bool {
	sum := 0
	for i := range len(number) {
		digit := int(number[len(number)-1-i] - '0')
		if i%2 == 1 {
			if digit *= 2; digit > 9 {
				digit -= 9
			}
		}
		sum += digit
	}
	return sum%10 == 0
}

// parts reports whether r may stand between the groups of one number; marks that cannot be seen (Cf) may.
func parts(r rune) bool { return unicode.IsSpace(r) || unicode.In(r, unicode.Pd, unicode.Cf) }

// withPlainDigits writes the decimal digits of all scripts as 0 to 9.
func withPlainDigits(s string) string {
	return strings.Map(func(r rune) rune {
		if r < utf8.RuneSelf || !unicode.IsDigit(r) {
			return r
		}
		zero := r // a script's digits stand together, from 0 to 9, once or several times
		for unicode.IsDigit(zero - 1) {
			zero--
		}
		return '0' + (r-zero)%10
	}, s)
}

func digitsLength(s string) int {
	n := 0
	for n < len(s) && '0' <= s[n] && s[n] <= '9' {
		n++
	}
	return n
}

// digestMin is the least length of a word of hexadecimal digits that is taken for a digest: longer than
// a card number.
const digestMin = 24

// digestLength is the length of the UUID or the hexadecimal digest with which s begins, 0 if none does.
func digestLength(s string, insideWord bool) int {
	if insideWord {
		return 0
	}
	if n := uuidLength(s); n > 0 {
		return n
	}
	n, letters := 0, false
	for n < len(s) && isHex(s[n]) {
		letters = letters || s[n] > '9'
		n++
	}
	if n < digestMin || !letters || n < len(s) && isWordByte(s[n]) {
		return 0
	}
	return n
}

// uuidLength recognises the form 8-4-4-4-12 of RFC 9562.
func uuidLength(s string) int {
	const form = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"
	if len(s) < len(form) {
		return 0
	}
	for i := range len(form) {
		if form[i] == '-' && s[i] != '-' || form[i] == 'x' && !isHex(s[i]) {
			return 0
		}
	}
	if len(s) > len(form) && isWordByte(s[len(form)]) {
		return 0
	}
	return len(form)
}

func isHex(b byte) bool {
	return '0' <= b && b <= '9' || 'a' <= b && b <= 'f' || 'A' <= b && b <= 'F'
}

func isWordByte(b byte) bool {
	return '0' <= b && b <= '9' || 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z'
}

// withoutCardNumbers is the last guard before the log: no text with a card number gets there.
func withoutCardNumbers(s string) string {
	if !holdsCardNumber(s) {
		return s
	}
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		if holdsCardNumber(line) {
			lines[i] = "(a text with a card number)"
		}
	}
	if kept := strings.Join(lines, "\n"); !holdsCardNumber(kept) {
		return kept
	}
	return "(a text with a card number)"
}

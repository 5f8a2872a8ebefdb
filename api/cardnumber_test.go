package api

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
)

// The networks' published test numbers.
func testCards() []string {
	return []string{
		"4111111111111111", "4222222222222", "4000000000000000006", // Visa: 16, 13 and 19 digits
		"5555555555554444", "2223003122003222", "2720990000000007", // Mastercard
		"378282246310005", "371449635398431", // American Express
		"6011111111111117", "3056930009020004", "36227206271667", "3566002020360505",
		"6200000000000005", "6304000000000000", "501800000009", // UnionPay, Maestro 16 and 12
		"2200770239097761", "8171999927660000", "9792030394440796", // Mir, RuPay, Troy
	}
}

// inScript writes digits in the script whose zero is given.
func inScript(digits string, zero rune) string {
	return strings.Map(func(r rune) rune { return zero + r - '0' }, digits)
}

func TestHoldsCardNumber(t *testing.T) {
	t.Parallel()
	for _, card := range testCards() {
		for name, text := range map[string]string{
			"alone":                card,
			"in groups of four":    grouped(card, " "),
			"with dashes":          grouped(card, "-"),
			"with no-break spaces": grouped(card, "\u00a0"),
			"with en dashes":       grouped(card, " – "),
			"in a token":           "tok_" + card,
			"glued to a word":      "card" + card,
			"in a sentence":        "please charge " + card + ", thanks",
			"before its expiry":    card + " 12 29",
			"after a number":       "7 " + card,
			"in a path":            "/v1/cards/" + card + "/charges",
			"beside a UUID":        "550e8400-e29b-41d4-a716-446655440000 " + card,
			"in JSON":              `{"pan":` + card + `}`,
			"in full-width digits": inScript(card, '\uff10'),
			"in Arabic digits":     inScript(card, '\u0660'),
			"in bold digits":       inScript(card, '\U0001d7ce'),
			"in monospace digits":  inScript(card, '\U0001d7f6'),
			"with unseen marks":    grouped(card, "\u200b"),
		} {
			if !holdsCardNumber(text) {
				t.Errorf("%s %s: %q is not recognised", card, name, text)
			}
		}
		wrong := card[:len(card)-1] + string('0'+(card[len(card)-1]-'0'+1)%10)
		if holdsCardNumber(wrong) {
			t.Errorf("%s has a wrong check digit and is taken for a card number", wrong)
		}
	}
	for name, text := range map[string]string{
		"nothing":                      "",
		"our tokens":                   "tok_timeout_captured",
		"eleven digits":                "41111111113",
		"twenty digits":                "41111111111111111116",
		"a time in milliseconds":       "1716500000006",
		"a date with a sequence":       "20240512-000000000",
		"parts with a letter between":  "4111x1111x1111x1111",
		"an amount":                    "411111111111.11",
		"our charge id":                "ch_B4T6M0019F3K1ZV4Q7T2M8XWPR",
		"a UUID that ends like one":    "550e8400-e29b-41d4-a716-501800000009",
		"an upper-case UUID like one":  "550E8400-E29B-41D4-A716-501800000009",
		"a digest that contains one":   "d41d8cd98f" + "4111111111111111" + "ec",
		"a digit alone after a letter": "a4",
	} {
		if holdsCardNumber(text) {
			t.Errorf("%s: %q is taken for a card number", name, text)
		}
	}
}

func grouped(digits, separator string) string {
	var groups []string
	for len(digits) > 4 {
		groups, digits = append(groups, digits[:4]), digits[4:]
	}
	return strings.Join(append(groups, digits), separator)
}

// Keys that merchants really use must never be refused by chance: a refused key cannot be repaired by
// sending it again.
func TestKeysInUseAreNotTakenForCardNumbers(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	const crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
	for i := range 200_000 {
		var b [16]byte
		for j := range b {
			b[j] = byte(random.Uint32())
		}
		b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80 // version 4
		digest := sha256.Sum256(b[:])
		ulid := make([]byte, 26)
		for j := range ulid {
			ulid[j] = crockford[random.IntN(32)]
		}
		for _, key := range []string{
			fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:]),
			fmt.Sprintf("pay_%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:]),
			hex.EncodeToString(digest[:]), hex.EncodeToString(b[:]), string(ulid),
			strconv.Itoa(1_700_000_000_000 + i), "order-" + strconv.Itoa(20240101_000000+i),
		} {
			if holdsCardNumber(key) {
				t.Fatalf("the key %q is taken for a card number", key)
			}
		}
	}
}

func TestWithoutCardNumbersKeepsTheRest(t *testing.T) {
	t.Parallel()
	if got := withoutCardNumbers("no such charge: ch_1"); got != "no such charge: ch_1" {
		t.Errorf("a harmless text became %q", got)
	}
	got := withoutCardNumbers("panic: boom\nvalue 4111 1111 1111 1111\ngoroutine 1")
	if holdsCardNumber(got) || !strings.Contains(got, "panic: boom") {
		t.Errorf("the text became %q", got)
	}
	if got := withoutCardNumbers("4111 1111\n1111 1111"); holdsCardNumber(got) {
		t.Errorf("a number across lines stays: %q", got)
	}
}

func FuzzHoldsCardNumber(f *testing.F) {
	f.Add("tok_", " ")
	f.Add("550e8400-e29b-41d4-a716-501800000009", "-")
	f.Fuzz(func(t *testing.T, before, after string) {
		holdsCardNumber(before + after) // never panics
		// A number that stands alone is found whatever is around it, if what is around it neither
		// continues it nor makes it a digest.
		if strings.ContainsAny(before+after, "0123456789") {
			return
		}
		if text := before + ": 4111111111111111 ;" + after; !holdsCardNumber(text) {
			t.Errorf("%q holds a card number", text)
		}
		if kept := withoutCardNumbers(before + " 4111111111111111 " + after); holdsCardNumber(kept) {
			t.Errorf("%q still holds a card number", kept)
		}
	})
}

// Package merchant keeps the tenants: their numbers, their routing and their API keys.
package merchant

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// ID is a merchant's number. It is allotted at random and is at most MaxID, so that it fits the
// six characters that every acquirer reference begins with.
type ID int64

// MaxID is the greatest merchant number: 22 letters x 32^5 - 1.
const MaxID ID = 22*32*32*32*32*32 - 1

// Merchant is one tenant.
type Merchant struct {
	ID        ID
	Name      string
	Acquirers []string // routing: tried in this order
	CreatedAt time.Time
}

// The reasons why a merchant or key cannot be used.
var (
	ErrNotFound     = errors.New("no such merchant")
	ErrUnknownKey   = errors.New("the API key is not known or was revoked")
	ErrNoSuchKey    = errors.New("no such API key")
	ErrInvalidCode  = errors.New("not a merchant code")
	ErrInvalidInput = errors.New("invalid merchant or key")
)

// Crockford's base32; the first character of a code is a letter, so that spreadsheets and case
// folding leave it alone.
const (
	digits  = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
	letters = "ABCDEFGHJKMNPQRSTVWXYZ"
	// CodeLength is the number of characters of a merchant's code.
	CodeLength = 6
)

// Code is the merchant's number as six Crockford characters, the first a letter.
func (id ID) Code() string {
	var code [CodeLength]byte
	rest := int64(id)
	for i := CodeLength - 1; i > 0; i-- {
		code[i] = digits[rest%32]
		rest /= 32
	}
	code[0] = letters[rest]
	return string(code[:])
}

// ParseCode reads what Code wrote.
func ParseCode(code string) (ID, error) {
	if len(code) != CodeLength {
		return 0, fmt.Errorf("%w: %q", ErrInvalidCode, code)
	}
	value := int64(strings.IndexByte(letters, code[0]))
	if value < 0 {
		return 0, fmt.Errorf("%w: %q", ErrInvalidCode, code)
	}
	for i := 1; i < CodeLength; i++ {
		digit := strings.IndexByte(digits, code[i])
		if digit < 0 {
			return 0, fmt.Errorf("%w: %q", ErrInvalidCode, code)
		}
		value = value*32 + int64(digit)
	}
	return ID(value), nil
}

// NewID draws a number at random: in order, it would tell acquirers how many merchants there are.
func NewID() ID { return ID(rand.Int64N(int64(MaxID) + 1)) }

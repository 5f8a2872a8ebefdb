package merchant

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strings"
	"time"
)

// Role is what a key may do.
type Role string

// The roles of a key.
const (
	RoleCharges Role = "charges" // post charges, and read its merchant's
	RoleRead    Role = "read"    // read its merchant's
	RoleOps     Role = "ops"     // read, resolve unknowns, steer acquirers, reconcile
)

// Valid reports whether r is a role.
func (r Role) Valid() bool { return r == RoleCharges || r == RoleRead || r == RoleOps }

// Key is what is kept of an API key; the secret is not.
type Key struct {
	ID        string
	Merchant  *ID // nil: the platform's own, ops only
	Role      Role
	Name      string
	CreatedAt time.Time
	RevokedAt *time.Time
}

// Principal is who a request comes from.
type Principal struct {
	KeyID    string
	KeyName  string
	Role     Role
	Merchant *Merchant // nil: a platform key, which may act for every merchant
}

// Actor names the principal in evidence and in the audit log.
func (p Principal) Actor() string { return fmt.Sprintf("key %s (%s)", p.KeyID, p.KeyName) }

const (
	keyPrefix    = "pk"
	keyIDLength  = 12
	secretLength = 32
)

const keyCharacters = "0123456789abcdefghjkmnpqrstvwxyz"

var keyAlphabet = base32.NewEncoding(keyCharacters).WithPadding(base32.NoPadding)

// newCredential draws a key id and a secret of 160 bits, and the text that is shown once.
func newCredential() (id, secret, presented string) {
	var raw [28]byte
	if _, err := rand.Read(raw[:]); err != nil {
		panic("the system has no randomness: " + err.Error()) // crypto/rand never fails on supported systems
	}
	id = keyAlphabet.EncodeToString(raw[:8])[:keyIDLength]
	secret = keyAlphabet.EncodeToString(raw[8:])[:secretLength]
	return id, secret, strings.Join([]string{keyPrefix, id, secret}, "_")
}

// splitCredential reads what newCredential wrote; ok is false for anything else.
func splitCredential(presented string) (id, secret string, ok bool) {
	parts := strings.Split(presented, "_")
	if len(parts) != 3 || parts[0] != keyPrefix || len(parts[1]) != keyIDLength || len(parts[2]) != secretLength {
		return "", "", false
	}
	if strings.Trim(parts[1], keyCharacters) != "" { // Postgres would refuse some bytes, as if it were in trouble
		return "", "", false
	}
	return parts[1], parts[2], true
}

// hashSecret needs no salt and no stretching: the secret has 160 random bits.
func hashSecret(secret string) []byte {
	sum := sha256.Sum256([]byte(secret))
	return sum[:]
}

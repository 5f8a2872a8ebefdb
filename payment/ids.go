package payment

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"paymentsd/merchant"
)

// Crockford's base32: upper case only, so that case folding and spreadsheets leave it alone.
const crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

const (
	chargePrefix   = "ch_"
	chargeIDLength = len(chargePrefix) + merchant.CodeLength + 20
	acqRefLength   = 20
	acqRefHash     = acqRefLength - merchant.CodeLength // 14 characters, 70 bits
)

// NewChargeID makes an id that carries its merchant (6 characters), sorts by time (48 bits of
// milliseconds) and is unique by 52 random bits.
func NewChargeID(m merchant.ID, now time.Time) string {
	id := make([]byte, 0, chargeIDLength)
	id = append(id, chargePrefix...)
	id = append(id, m.Code()...)
	random := rand.Uint64()
	milliseconds := uint64(now.UnixMilli()) & (1<<48 - 1)
	id = appendCrockford(id, milliseconds<<2|random>>62, 10)
	return string(appendCrockford(id, random&(1<<50-1), 10))
}

// appendCrockford writes the lowest 5*n bits of v as n characters.
func appendCrockford(to []byte, v uint64, n int) []byte {
	for i := n - 1; i >= 0; i-- {
		to = append(to, crockford[v>>(5*i)&31])
	}
	return to
}

// AcqRef is what every acquirer gets as idempotency key and as merchant reference, and what comes back
// in settlement files. It is derived and not random: the same again after a crash, a failover or
// a restore, so that the acquirer still recognises the duplicate.
func AcqRef(m merchant.ID, key string, generation int) string {
	hash := sha256.New()
	var prefix [16]byte
	binary.BigEndian.PutUint64(prefix[:8], uint64(m))
	binary.BigEndian.PutUint64(prefix[8:], uint64(generation))
	hash.Write(prefix[:]) // both of fixed length, so the key cannot run into them
	hash.Write([]byte(key))
	sum := hash.Sum(nil)
	ref := make([]byte, 0, acqRefLength)
	ref = append(ref, m.Code()...)
	ref = appendCrockford(ref, binary.BigEndian.Uint64(sum[:8])>>29, 7)
	return string(appendCrockford(ref, binary.BigEndian.Uint64(sum[8:16])>>29, 7))
}

// MerchantOf reads whose a charge is from its id, or gives ErrNotFound for what is no id of ours.
func MerchantOf(chargeID string) (merchant.ID, error) {
	rest, ok := strings.CutPrefix(chargeID, chargePrefix)
	if !ok || len(chargeID) != chargeIDLength || !isCrockford(rest) {
		return 0, fmt.Errorf("%w: %.40q is not a charge id", ErrNotFound, chargeID)
	}
	m, err := merchant.ParseCode(rest[:merchant.CodeLength])
	if err != nil {
		return 0, fmt.Errorf("%w: %.40q is not a charge id", ErrNotFound, chargeID)
	}
	return m, nil
}

// MerchantOfReference reads whose an acquirer reference is; false if it is not one of ours. It only
// decodes: whether such a charge exists is for ByAcqRefs to say.
func MerchantOfReference(acqRef string) (merchant.ID, bool) {
	if len(acqRef) != acqRefLength || !isCrockford(acqRef) {
		return 0, false
	}
	m, err := merchant.ParseCode(acqRef[:merchant.CodeLength])
	return m, err == nil
}

func isCrockford(s string) bool {
	for i := range len(s) {
		if strings.IndexByte(crockford, s[i]) < 0 {
			return false
		}
	}
	return true
}

package settlement

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	"paymentsd/money"
)

// sumKey is what sums are declared by.
type sumKey struct{ currency, kind string }

func compareSumKeys(a, b sumKey) int {
	return cmp.Or(cmp.Compare(a.currency, b.currency), cmp.Compare(a.kind, b.kind))
}

// sum adds up the lines of one currency and kind.
type sum struct {
	count           int
	gross, fee, net money.Amount
}

// sums is the control over the amounts of a file, at most maxSums of them.
type sums map[sumKey]*sum

// add counts a line in; false means that the file has more currencies and kinds than a file may.
func (s sums) add(l Line, kind string) bool {
	c := l.Gross.Currency()
	key := sumKey{string(c), kind}
	total := s[key]
	if total == nil {
		if len(s) == maxSums {
			return false
		}
		total = &sum{gross: money.Zero(c), fee: money.Zero(c), net: money.Zero(c)}
		s[key] = total
	}
	// The currencies are equal: the key has the currency, and a line has one.
	total.count++
	total.gross, _ = total.gross.Add(l.Gross)
	total.fee, _ = total.fee.Add(l.Fee)
	total.net, _ = total.net.Add(l.Net)
	return true
}

// keys is in the order in which a Writer declares.
func (s sums) keys() []sumKey { return slices.SortedFunc(maps.Keys(s), compareSumKeys) }

// record is the sum as the file declares it. A reader compares texts, so that there is one way
// to write a sum and no leniency to exploit.
func (s sums) record(k sumKey) []string {
	t := s[k]
	return []string{recordSum, k.currency, k.kind, strconv.Itoa(t.count), t.gross.String(), t.fee.String(), t.net.String()}
}

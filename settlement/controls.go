package settlement

import (
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"paymentsd/money"
)

// sum takes note of a declared sum; it is compared when the file has ended.
func (r *reader) sum(record string) error {
	const width = 7
	fields, err := split(record, ',')
	if err != nil || len(fields) != width {
		return r.wrongLayout("", fmt.Sprintf("a sum has %d fields: %s,currency,kind,count,gross,fee,net", width, recordSum))
	}
	key := sumKey{fields[1], fields[2]}
	if _, again := r.declared[key]; again {
		return r.wrongLayout("", fmt.Sprintf("the sum of %s %s is declared twice", clip(key.currency), clip(key.kind)))
	}
	if len(r.declared) == maxSums {
		return r.wrongLayout("", fmt.Sprintf("more than %d sums", maxSums))
	}
	r.declared[key] = join(fields)
	return nil
}

// trailer checks the whole file. The order is from the plainest finding to the least: a lost line
// shows in all three.
func (r *reader) trailer(record string) error {
	const width = 3
	fields, err := split(record, ',')
	if err != nil || len(fields) != width {
		return r.wrongLayout("", fmt.Sprintf("a trailer has %d fields: %s,lines,sha256", width, recordTrailer))
	}
	end, err := r.atEnd()
	if err != nil {
		return err
	}
	if !end {
		return &ControlError{Control: ControlAfterEnd, Line: r.number + 1, Declared: "the end of the file",
			Computed: "more data", Class: WrongLayout}
	}
	if count := strconv.Itoa(r.lines); fields[1] != count {
		return &ControlError{Control: ControlCount, Line: r.number, Declared: clip(fields[1]), Computed: count, Class: CountMismatch}
	}
	if err := r.checkSums(); err != nil {
		return err
	}
	if digest := hex.EncodeToString(r.hash.Sum(nil)); fields[2] != digest {
		return &ControlError{Control: ControlHash, Line: r.number, Declared: clip(fields[2]), Computed: digest, Class: HashMismatch}
	}
	return nil
}

// checkSums compares the sums, but not those of a currency with a line that could not be added
// up: that line was reported, and its amount is missing from the sum for certain.
func (r *reader) checkSums() error {
	if r.allUnsummed {
		return nil
	}
	keys := slices.Collect(maps.Keys(r.declared))
	for k := range r.sums {
		if _, ok := r.declared[k]; !ok {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, compareSumKeys)
	for _, k := range keys {
		if r.unsummed[money.Currency(k.currency)] {
			continue
		}
		computed := ""
		if r.sums[k] != nil {
			computed = join(r.sums.record(k))
		}
		if r.declared[k] != computed {
			return &ControlError{Control: ControlSum, Line: r.number, Declared: clip(r.declared[k]), Computed: clip(computed), Class: SumMismatch}
		}
	}
	return nil
}

package settlement

import "crypto/sha256"

// recentLines remembers the last lines by id. Its size is fixed: a repetition further back is for
// the importer's unique key to find.
type recentLines struct {
	byID map[string]seenLine
	ring []string
	next int
}

type seenLine struct {
	number  int
	content [sha256.Size]byte
}

const recentLinesMax = 1 << 14

func newRecentLines() *recentLines {
	return &recentLines{byID: make(map[string]seenLine), ring: make([]string, 0, 64)}
}

// repeats reports whether an id was seen before, on which line and with the same content;
// otherwise it remembers it.
func (r *recentLines) repeats(id, record string, number int) (first int, same, repeated bool) {
	content := sha256.Sum256([]byte(record))
	if seen, ok := r.byID[id]; ok {
		return seen.number, seen.content == content, true
	}
	if len(r.ring) < recentLinesMax {
		r.ring = append(r.ring, id)
	} else {
		delete(r.byID, r.ring[r.next])
		r.ring[r.next] = id
		r.next = (r.next + 1) % recentLinesMax
	}
	r.byID[id] = seenLine{number, content}
	return 0, false, false
}

// occurrences counts how often an id has come among the last maxOccurrence different ones. An id that comes
// again after more than those has the same number again: the importer's unique key finds it then.
type occurrences struct {
	count map[string]int
	ring  []string
	next  int
}

const maxOccurrence = 1 << 15

// of is the number of times that the id has come, this time included.
func (o *occurrences) of(id string) int {
	if n, ok := o.count[id]; ok {
		o.count[id] = n + 1
		return n + 1
	}
	if len(o.ring) < maxOccurrence {
		o.ring = append(o.ring, id)
	} else {
		delete(o.count, o.ring[o.next])
		o.ring[o.next] = id
		o.next = (o.next + 1) % maxOccurrence
	}
	o.count[id] = 1
	return 1
}

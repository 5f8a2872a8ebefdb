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

package settlement

import (
	"io"
	"runtime"
	"strconv"
	"testing"
)

// TestMemoryIsConstant streams 200,000 lines through a Writer and a reader. It is not parallel:
// it measures the heap of the whole process.
func TestMemoryIsConstant(t *testing.T) {
	const lines, early = 200_000, 20_000 // by early, the memory of recent lines is full
	in, out := io.Pipe()
	line := testLine(t)
	go func() {
		w := NewWriter(out, testHeader())
		var err error
		for i := 0; i < lines && err == nil; i++ {
			line.ID = "N-" + strconv.Itoa(i)
			err = w.Write(line)
		}
		if err == nil {
			err = w.Close()
		}
		out.CloseWithError(err)
	}()
	defer in.Close()
	_, all, err := canonical{}.Open(in)
	if err != nil {
		t.Fatal(err)
	}
	seen, before := 0, uint64(0)
	for _, err := range all {
		if err != nil {
			t.Fatal(err)
		}
		if seen++; seen == early {
			before = heap()
		}
		if seen == lines {
			if grown := int64(heap()) - int64(before); grown > 2<<20 {
				t.Errorf("the heap grew by %d bytes from line %d to line %d", grown, early, lines)
			}
		}
	}
	if seen != lines {
		t.Errorf("read %d lines of %d", seen, lines)
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestRecentLinesForgetTheOldest states the limit that the document gives.
func TestRecentLinesForgetTheOldest(t *testing.T) {
	t.Parallel()
	r := newRecentLines()
	for i := range recentLinesMax {
		if _, _, repeated := r.repeats(strconv.Itoa(i), "x", i); repeated {
			t.Fatalf("%d is new", i)
		}
	}
	if first, same, repeated := r.repeats("0", "x", -1); !repeated || !same || first != 0 {
		t.Errorf("the oldest of %d: got line %d, same %v, repeated %v", recentLinesMax, first, same, repeated)
	}
	r.repeats("one more", "x", -1)
	if _, _, repeated := r.repeats("0", "x", -1); repeated {
		t.Error("0 should be forgotten")
	}
	if len(r.byID) != recentLinesMax || len(r.ring) != recentLinesMax {
		t.Errorf("holds %d and %d, want %d", len(r.byID), len(r.ring), recentLinesMax)
	}
}

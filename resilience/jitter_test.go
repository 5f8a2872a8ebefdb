package resilience

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var allJitters = []Jitter{JitterNone, JitterEqual, JitterFull, JitterDecorrelated}

func TestBackoffDelay(t *testing.T) {
	t.Parallel()
	t.Run("resilience case 24: no attempt number overflows", func(t *testing.T) {
		t.Parallel()
		for _, cap := range []time.Duration{time.Nanosecond, 5 * time.Second, time.Hour, math.MaxInt64} {
			for _, jitter := range allJitters {
				b := Backoff{Jitter: jitter, Base: min(250*time.Millisecond, cap), Cap: cap}
				for _, attempt := range []int{math.MinInt, -1, 0, 1, 2, 31, 62, 63, 64, 65, 1025, math.MaxInt} {
					for _, u := range []float64{0, 0.5, 1 - 1e-16, 1, math.Inf(1), math.Inf(-1), math.NaN(), -1} {
						d := b.Delay(attempt, cap, func() float64 { return u })
						if d < 0 || d > cap {
							t.Fatalf("%s, cap %v, attempt %d, u %v: %v", jitter, cap, attempt, u, d)
						}
					}
				}
			}
		}
	})
	t.Run("resilience case 24: attempt 0 and less wait like attempt 1, so no hot loop", func(t *testing.T) {
		t.Parallel()
		b := Backoff{Jitter: JitterNone, Base: time.Second, Cap: time.Minute}
		for _, attempt := range []int{0, -5, 1} {
			if got := b.Delay(attempt, 0, nil); got != time.Second {
				t.Errorf("attempt %d waits %v", attempt, got)
			}
		}
	})
	for _, jitter := range []Jitter{JitterEqual, JitterFull, JitterDecorrelated} {
		t.Run("resilience case 25: at the cap delays are still spread: "+string(jitter), func(t *testing.T) {
			t.Parallel()
			b := Backoff{Jitter: jitter, Base: 250 * time.Millisecond, Cap: 5 * time.Second}
			for _, attempt := range []int{6, 62, 63, 64, 1025, math.MaxInt} {
				seen := map[time.Duration]int{}
				for range 1000 {
					seen[b.Delay(attempt, b.Cap, nil)]++
				}
				for d, n := range seen {
					if n > 10 {
						t.Fatalf("attempt %d: %v came %d times in 1000", attempt, d, n)
					}
				}
			}
		})
	}
	t.Run("each variant keeps to its range, 20,000 samples at attempt 4", func(t *testing.T) {
		t.Parallel()
		ranges := map[Jitter][3]time.Duration{ // least, median, most; base 1 s, cap 30 s, ceiling 8 s
			JitterNone:         {8e9, 8e9, 8e9},
			JitterEqual:        {4e9, 6e9, 8e9},
			JitterFull:         {0, 4e9, 8e9},
			JitterDecorrelated: {1e9, 12.5e9, 24e9}, // after a wait of 8 s
		}
		for jitter, want := range ranges {
			b := Backoff{Jitter: jitter, Base: time.Second, Cap: 30 * time.Second}
			samples := make([]time.Duration, 20_000)
			for i := range samples {
				samples[i] = b.Delay(4, 8*time.Second, nil)
			}
			slices.Sort(samples)
			if samples[0] < want[0] || samples[len(samples)-1] > want[2] {
				t.Errorf("%s: %v to %v, want %v to %v", jitter, samples[0], samples[len(samples)-1], want[0], want[2])
			}
			if median := samples[len(samples)/2]; (median - want[1]).Abs() > want[1]/20 {
				t.Errorf("%s: median %v, want about %v", jitter, median, want[1])
			}
		}
	})
	t.Run("10,000 clients: full jitter cuts the peak per 100 ms ninefold", func(t *testing.T) {
		t.Parallel()
		peak := func(jitter Jitter) int {
			counts := map[time.Duration]int{}
			b := Backoff{Jitter: jitter, Base: time.Second, Cap: 30 * time.Second}
			for range 10_000 {
				counts[b.Delay(1, 0, nil)/(100*time.Millisecond)]++
			}
			most := 0
			for _, n := range counts {
				most = max(most, n)
			}
			return most
		}
		if fixed, full := peak(JitterNone), peak(JitterFull); fixed != 10_000 || full < 1000 || full > 1200 {
			t.Errorf("peaks %d and %d, want 10000 and about 1047", fixed, full)
		}
	})
}

func TestBackoffDelayProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		cap := time.Duration(rapid.Int64Range(1, math.MaxInt64).Draw(t, "cap"))
		b := Backoff{
			Jitter: rapid.SampledFrom(allJitters).Draw(t, "jitter"),
			Base:   time.Duration(rapid.Int64Range(1, int64(cap)).Draw(t, "base")),
			Cap:    cap,
		}
		attempt := rapid.Int().Draw(t, "attempt")
		previous := time.Duration(rapid.Int64().Draw(t, "previous"))
		u := rapid.Float64Range(0, 1).Draw(t, "u")
		d := b.Delay(attempt, previous, func() float64 { return u })
		low := time.Duration(0)
		switch b.Jitter {
		case JitterNone:
			low = b.Ceiling(attempt)
		case JitterEqual:
			low = b.Ceiling(attempt) / 2
		case JitterDecorrelated:
			low = b.Base
		}
		if d < low || d > cap {
			t.Fatalf("delay %v, want %v to %v", d, low, cap)
		}
		if attempt < math.MaxInt && b.Ceiling(attempt) > b.Ceiling(attempt+1) {
			t.Fatalf("ceiling falls from %v to %v", b.Ceiling(attempt), b.Ceiling(attempt+1))
		}
	})
}

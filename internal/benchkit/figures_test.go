package benchkit

import (
	"strings"
	"testing"
	"time"
)

func TestFigures(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		values []float64
		want   float64
	}{{[]float64{3}, 3}, {[]float64{3, 1, 2}, 2}, {[]float64{4, 1, 2, 3}, 2.5}} {
		if got := Median(c.values); got != c.want {
			t.Errorf("median of %v: %v, want %v", c.values, got, c.want)
		}
	}
	var hundred []time.Duration
	for i := 100; i > 0; i-- {
		hundred = append(hundred, time.Duration(i)*time.Millisecond)
	}
	for _, c := range []struct {
		times []time.Duration
		p     int
		want  float64
	}{{nil, 99, 0}, {hundred[:1], 50, 100}, {hundred, 0, 1}, {hundred, 50, 50}, {hundred, 99, 99}, {hundred, 100, 100}, {hundred[:10], 99, 100}} {
		if got := PercentileMS(c.times, c.p); got != c.want {
			t.Errorf("percentile %d of %d times: %v ms, want %v", c.p, len(c.times), got, c.want)
		}
	}
	var out strings.Builder
	if err := PrintJSON(&out, map[string]float64{"b_ms": 1.23456, "a": 2}); err != nil {
		t.Fatal(err)
	}
	if want := "{\"a\":2.000,\"b_ms\":1.235}\n"; out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
}

package benchkit

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"
)

// Median of the values; it needs at least one.
func Median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	if n := len(sorted); n%2 == 0 {
		return (sorted[n/2-1] + sorted[n/2]) / 2
	}
	return sorted[len(sorted)/2]
}

// PercentileMS is the time that p percent of the times do not exceed, in milliseconds, by nearest rank; 0
// if there are none.
func PercentileMS(times []time.Duration, p int) float64 {
	if len(times) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(times))
	rank := (len(sorted)*p + 99) / 100
	return float64(sorted[max(rank, 1)-1].Microseconds()) / 1000
}

// PrintJSON prints the figures as one line: the last line of a bench program, for programs to read.
func PrintJSON(w io.Writer, figures map[string]float64) error {
	out := make(map[string]json.Number, len(figures))
	for name, value := range figures {
		out[name] = json.Number(fmt.Sprintf("%.3f", value))
	}
	line, err := json.Marshal(out)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(w, string(line))
	return err
}

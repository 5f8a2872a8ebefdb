package settlement

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// fuzzFormat: whatever the bytes are, a reader does not fall over, never gives a line that breaks the rules of
// lines, and never reads anything after an error about the file.
func fuzzFormat(f *testing.F, name string) {
	f.Helper()
	for _, s := range allSamples(f) {
		if s.format == name {
			f.Add(s.text)
			f.Add(s.text[:len(s.text)/2])
			f.Add(strings.Replace(s.text, "2", "9", 3))
		}
	}
	format, err := FormatNamed(name)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, file string) { readAnything(t, format, file) })
}

// readAnything reads bytes that may be a file of the format.
func readAnything(t interface{ Fatalf(string, ...any) }, format Format, file string) {
	h, lines, err := format.Open(strings.NewReader(file))
	if err != nil {
		if ClassOf(err) == "" {
			t.Fatalf("an error without a class: %v", err)
		}
		return
	}
	if h.Sequence < 0 || h.From.After(h.To) || len(h.Account) > maxFieldBytes {
		t.Fatalf("header %+v", h)
	}
	over, last := false, 0
	for line, err := range lines {
		_, isLine := err.(*LineError)
		switch {
		case over:
			t.Fatalf("something comes after the end")
		case err != nil && !isLine:
			if over = true; ClassOf(err) == "" {
				t.Fatalf("an error without a class: %v", err)
			}
			continue
		case line.Number <= last:
			t.Fatalf("line %d after line %d", line.Number, last)
		}
		if last = line.Number; err != nil {
			continue
		}
		if bad := check(line); bad != nil {
			t.Fatalf("a line that no file may have: %v", bad)
		}
		if s := line.Settled; s != nil && (s.Net.Currency() == line.Gross.Currency() || s.Net.Currency() != s.Fee.Currency()) {
			t.Fatalf("settled as %+v of %s", s, line.Gross.Currency())
		}
	}
}

// TestRandomDamageIsAlwaysAnswered is what the fuzz targets look for, a little of it in every run.
func TestRandomDamageIsAlwaysAnswered(t *testing.T) {
	t.Parallel()
	samples := allSamples(t)
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.SampledFrom(samples).Draw(t, "sample")
		file := []byte(s.text)
		for range rapid.IntRange(1, 8).Draw(t, "wounds") {
			i, j := rapid.IntRange(0, len(file)).Draw(t, "from"), rapid.IntRange(0, 60).Draw(t, "length")
			j = min(len(file), i+j)
			switch rapid.SampledFrom([]string{"lose", "repeat", "put in"}).Draw(t, "harm") {
			case "lose":
				file = slices.Delete(file, i, j)
			case "repeat":
				file = slices.Insert(file, i, slices.Clone(file[i:j])...)
			case "put in":
				file = slices.Insert(file, i, rapid.SampledFrom([]byte("\n\r\",;\t\x00\xff-.0123456789eEZ ")).Draw(t, "byte"))
			}
		}
		f, err := FormatNamed(s.format)
		if err != nil {
			t.Fatal(err)
		}
		readAnything(t, f, string(file))
	})
}

func FuzzStripe(f *testing.F)   { fuzzFormat(f, "stripe") }
func FuzzAdyen(f *testing.F)    { fuzzFormat(f, "adyen") }
func FuzzPayPal(f *testing.F)   { fuzzFormat(f, "paypal") }
func FuzzCheckout(f *testing.F) { fuzzFormat(f, "csv:checkout") }
func FuzzMollie(f *testing.F)   { fuzzFormat(f, "csv:mollie") }
func FuzzWorldpay(f *testing.F) { fuzzFormat(f, "csv:worldpay") }

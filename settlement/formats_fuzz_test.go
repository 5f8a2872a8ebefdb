package settlement

import (
	"strings"
	"testing"
)

// fuzzFormat: whatever the bytes are, a reader does not fall over, never gives a line that breaks the rules of
// lines, and never reads anything after an error about the file.
func fuzzFormat(f *testing.F, name string) {
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
	f.Fuzz(func(t *testing.T, file string) {
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
			if over {
				t.Fatal("something comes after the end")
			}
			if _, isLine := err.(*LineError); err != nil && !isLine {
				over = true
				if ClassOf(err) == "" {
					t.Fatalf("an error without a class: %v", err)
				}
				continue
			}
			if line.Number <= last {
				t.Fatalf("line %d after line %d", line.Number, last)
			}
			last = line.Number
			if err != nil {
				continue
			}
			if bad := check(line); bad != nil {
				t.Fatalf("a line that no file may have: %v", bad)
			}
			if s := line.Settled; s != nil && (s.Net.Currency() == line.Gross.Currency() || s.Net.Currency() != s.Fee.Currency()) {
				t.Fatalf("settled as %+v of %s", s, line.Gross.Currency())
			}
		}
	})
}

func FuzzStripe(f *testing.F)   { fuzzFormat(f, "stripe") }
func FuzzAdyen(f *testing.F)    { fuzzFormat(f, "adyen") }
func FuzzPayPal(f *testing.F)   { fuzzFormat(f, "paypal") }
func FuzzCheckout(f *testing.F) { fuzzFormat(f, "csv:checkout") }
func FuzzMollie(f *testing.F)   { fuzzFormat(f, "csv:mollie") }
func FuzzWorldpay(f *testing.F) { fuzzFormat(f, "csv:worldpay") }

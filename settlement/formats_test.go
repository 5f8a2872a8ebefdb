package settlement

import (
	"slices"
	"strings"
	"testing"
)

// TestNoOtherFormatTakesASample: nothing detects a format, so that each has to refuse what is not its own.
func TestNoOtherFormatTakesASample(t *testing.T) {
	t.Parallel()
	for _, s := range allSamples(t) {
		for _, f := range Formats() {
			if f.Name() == s.format {
				continue
			}
			r := readWith(f, s.text)
			if class := ClassOf(r.file); class != WrongLayout || len(r.lines) > 0 {
				t.Errorf("%s read as %s: %d lines, class %q, error %v", s.file, f.Name(), len(r.lines), class, r.file)
			}
		}
	}
}

func TestFormatsHaveSamplesAndNamesOfTheirOwn(t *testing.T) {
	t.Parallel()
	samples := allSamples(t)
	seen := map[string]bool{}
	for _, f := range Formats() {
		name := f.Name()
		if seen[name] || name == "" || len(name) > 40 {
			t.Errorf("the name %q is taken, empty or too long", name)
		}
		seen[name] = true
		i := slices.IndexFunc(samples, func(s sample) bool { return s.format == name })
		if i < 0 {
			t.Errorf("%s has no sample", name)
			continue
		}
		if r := readAs(t, name, samples[i].text); r.file != nil || len(r.lines) == 0 {
			t.Errorf("%s: %v", name, r.file)
		}
	}
	if _, err := FormatNamed("excel"); err == nil || !strings.Contains(err.Error(), "adyen") {
		t.Errorf("an unknown name: %v", err)
	}
}

// TestTheCarrierOfAFileDoesNotMatter: an editor's byte order mark and line ends say nothing.
func TestTheCarrierOfAFileDoesNotMatter(t *testing.T) {
	t.Parallel()
	for _, s := range allSamples(t) {
		want := describe(readAs(t, s.format, s.text))
		for name, text := range map[string]string{
			"BOM": "\ufeff" + s.text, "CRLF": strings.ReplaceAll(s.text, "\n", "\r\n"),
			"BOM and CRLF": "\ufeff" + strings.ReplaceAll(s.text, "\n", "\r\n"),
		} {
			if got := describe(readAs(t, s.format, text)); got != want {
				t.Errorf("%s with %s:\n%s\nwant:\n%s", s.file, name, got, want)
			}
		}
	}
}

// TestEveryFormatNamesATruncatedFile: cut anywhere inside a line.
func TestEveryFormatNamesATruncatedFile(t *testing.T) {
	t.Parallel()
	for _, s := range allSamples(t) {
		const tail, step = 150, 11
		for n := 0; n < len(s.text); n++ {
			if n < len(s.text)-tail && n%step != 0 && s.text[n] != '\n' {
				continue
			}
			class := ClassOf(readAs(t, s.format, s.text[:n]).file)
			switch {
			case class == EmptyOrTruncated:
			case n > 0 && s.text[n-1] == '\n' && class != "":
			case n > 0 && s.text[n-1] == '\n' && uncontrolled(s.format):
			case n > 0 && s.text[n-1] == '\n' && strings.Count(s.text[:n], "\n") == 1: // column names alone: a quiet day
			case s.format == "canonical" && class != "": // the bad-lines sample is no good to begin with
			default:
				t.Fatalf("%s cut after %d bytes: class %q", s.file, n, class)
			}
		}
	}
}

// uncontrolled formats have nothing in the file that says how long it should be: docs/settlement-formats.md.
func uncontrolled(format string) bool {
	return format == "stripe" || strings.HasPrefix(format, "csv:")
}

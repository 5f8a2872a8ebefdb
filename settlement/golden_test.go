package settlement

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files anew")

// describe prints a reading, one line for each thing that the reader says.
func describe(r result) string {
	var b strings.Builder
	h := r.header
	fmt.Fprintf(&b, "header %s from %s to %s replaces %d ignores %q\n", h.BusinessID(),
		h.From.Format(time.RFC3339), h.To.Format(time.RFC3339), h.Replaces, h.IgnoredColumns)
	for _, l := range r.lines {
		fmt.Fprintf(&b, "line %d %s %s ref=%q capture=%q %s %s-%s=%s at %s payout=%q\n", l.Number, l.ID, l.Kind, l.Reference,
			l.CaptureID, l.Gross.Currency(), l.Gross, l.Fee, l.Net, l.OccurredAt.Format(time.RFC3339Nano), l.Payout)
		if s := l.Settled; s != nil {
			fmt.Fprintf(&b, "  settled as %s %s net, %s fee, rate %q\n", s.Net.Currency(), s.Net, s.Fee, s.Rate)
		}
	}
	for _, bad := range r.bad {
		fmt.Fprintln(&b, "bad", bad)
	}
	fmt.Fprintln(&b, "file error:", r.file)
	return b.String()
}

func TestGoldenFiles(t *testing.T) {
	t.Parallel()
	samples := allSamples(t)
	if len(samples) < 10 {
		t.Fatalf("golden files: %v", samples)
	}
	for _, s := range samples {
		t.Run(s.file, func(t *testing.T) {
			t.Parallel()
			got := describe(readAs(t, s.format, s.text))
			goldenName := strings.TrimSuffix(s.file, filepath.Ext(s.file)) + ".golden"
			if *update {
				if err := os.WriteFile(goldenName, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(goldenName)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// sample is a golden file with the format that it is in.
type sample struct{ format, file, text string }

// allSamples are the golden files of every format: the directory is the format, or the profile's name.
func allSamples(t testing.TB) (samples []sample) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "*", "*.?sv"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Base(filepath.Dir(file))
		format := dir
		if _, err := FormatNamed(format); err != nil {
			format = "csv:" + dir
		}
		samples = append(samples, sample{format, file, string(text)})
	}
	return samples
}

func TestWriterWritesTheGoldenDayByteForByte(t *testing.T) {
	t.Parallel()
	want := golden(t, "day.csv")
	r := mustReadClean(t, want)
	if diff := cmp.Diff(want, write(t, r.header, r.lines)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func write(t interface {
	Helper()
	Fatal(...any)
}, h Header, lines []Line) string {
	t.Helper()
	var b bytes.Buffer
	w := NewWriter(&b, h)
	for _, l := range lines {
		if err := w.Write(l); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestDocumentShowsTheGoldenDay(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile(filepath.Join("..", "docs", "settlement-canonical.md"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(doc), golden(t, "day.csv")) {
		t.Error("docs/settlement-canonical.md does not contain testdata/canonical/day.csv as it is")
	}
	for _, word := range append(canonicalColumns(), allClasses()...) {
		if !strings.Contains(string(doc), "`"+word+"`") {
			t.Errorf("docs/settlement-canonical.md does not explain `%s`", word)
		}
	}
}

func allClasses() []string {
	all := []Class{EmptyOrTruncated, CountMismatch, SumMismatch, HashMismatch, WrongLayout, BadLine, UnknownKind,
		BadAmount, BadDate, IdentityBroken, NoReference, DuplicateLine, SameKeyOtherContent}
	names := make([]string, len(all))
	for i, c := range all {
		names[i] = string(c)
	}
	return names
}

package settlement

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// variants are the ways in which the same good file may arrive.
func variants(t testing.TB) map[string]string {
	day := golden(t, "day.csv")
	crlf := strings.ReplaceAll(day, "\n", "\r\n")
	return map[string]string{"LF": day, "CRLF": crlf, "BOM": "\ufeff" + day, "BOM and CRLF": "\ufeff" + crlf}
}

func TestPeersCase24BOMAndCRLFReadAsTheSameFile(t *testing.T) {
	t.Parallel()
	want := describe(mustReadClean(t, golden(t, "day.csv")))
	for name, file := range variants(t) {
		if got := describe(mustReadClean(t, file)); got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
		}
	}
}

func TestFileCutAtAnyByteIsTruncated(t *testing.T) {
	t.Parallel()
	for name, file := range variants(t) {
		for n := range len(file) {
			if err := read(file[:n]).file; ClassOf(err) != EmptyOrTruncated {
				// Half a byte order mark is not one yet: the file is cut before its header.
				t.Fatalf("%s cut after %d bytes: got %v, want empty_or_truncated", name, n, err)
			}
		}
	}
}

func TestAnyFlippedBitRefusesTheFile(t *testing.T) {
	t.Parallel()
	for name, file := range variants(t) {
		b := []byte(file)
		for i := range b {
			for bit := range 8 {
				b[i] ^= 1 << bit
				if ClassOf(read(string(b)).file) == "" {
					t.Fatalf("%s with bit %d of byte %d flipped (%q) is accepted", name, bit, i, b[i])
				}
				b[i] ^= 1 << bit
			}
		}
	}
}

// TestAnyDamageRefusesTheFile: bytes changed, removed, put in, lines lost, repeated or swapped.
func TestAnyDamageRefusesTheFile(t *testing.T) {
	t.Parallel()
	files := variants(t)
	rapid.Check(t, func(t *rapid.T) {
		file := files[rapid.SampledFrom([]string{"LF", "CRLF", "BOM", "BOM and CRLF"}).Draw(t, "variant")]
		damaged := damage(t, file)
		if sameContent(damaged, file) {
			return
		}
		if ClassOf(read(damaged).file) == "" {
			t.Fatalf("accepted:\n%s", damaged)
		}
	})
}

func damage(t *rapid.T, file string) string {
	lines := strings.SplitAfter(file, "\n")
	lines = lines[:len(lines)-1]
	i := rapid.IntRange(0, len(lines)-1).Draw(t, "line")
	j := rapid.IntRange(0, len(lines)-1).Draw(t, "other line")
	at := rapid.IntRange(0, len(file)-1).Draw(t, "byte")
	c := string(rapid.SampledFrom([]byte("\x00\r\n ,\"-0123456789aZ\xff")).Draw(t, "with"))
	switch rapid.SampledFrom([]string{"change", "remove", "insert", "lose", "repeat", "swap"}).Draw(t, "damage") {
	case "change":
		return file[:at] + c + file[at+1:]
	case "remove":
		return file[:at] + file[at+1:]
	case "insert":
		return file[:at] + c + file[at:]
	case "lose":
		lines = slices.Delete(lines, i, i+1)
	case "repeat":
		lines = slices.Insert(lines, i, lines[j])
	case "swap":
		lines[i], lines[j] = lines[j], lines[i]
	}
	return strings.Join(lines, "")
}

// sameContent: the carrier (byte order mark, line ends) is not part of a file's content.
func sameContent(a, b string) bool {
	plain := func(s string) string { return strings.ReplaceAll(strings.TrimPrefix(s, "\ufeff"), "\r\n", "\n") }
	return plain(a) == plain(b)
}

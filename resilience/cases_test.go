package resilience

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The cases from reports about other breakers, retries and budgets, by the numbers under which docs/resilience.md
// lists them.
var reportedCases = []int{
	1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 13, 15, 16, 17, 18, 20, 21, 22, 23, 24, 25, 27, 28, 29, 30, 31, 32, 33, 34, 36, 37,
}

// Every case is shown by a test whose name says so.
func TestEveryReportedCaseIsNamed(t *testing.T) {
	t.Parallel()
	named := map[string]string{} // case -> a file that names it
	name := regexp.MustCompile(`"resilience case (\d+): `)
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, found := range name.FindAllStringSubmatch(string(text), -1) {
			named[found[1]] = path
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range reportedCases {
		if named[fmt.Sprint(n)] == "" {
			t.Errorf("no test is called \"resilience case %d: ...\"", n)
		}
		delete(named, fmt.Sprint(n))
	}
	for n, path := range named {
		t.Errorf("%s names case %s, which is not on the list", path, n)
	}
}

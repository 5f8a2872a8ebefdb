package reconcile

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// Operators look classes up in docs/reconciliation.md: it has each as the reports word it, and no other.
func TestPageListsEveryClass(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/reconciliation.md")
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	table.WriteString("| class | severity | what differs | what to do |\n|---|---|---|---|\n")
	for _, c := range Classes() {
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s |\n", c.Class, c.Severity, c.Meaning, c.Action)
	}
	if !strings.HasSuffix(string(page), "\n"+table.String()) {
		t.Errorf("docs/reconciliation.md does not end with the table of classes:\n%s", table.String())
	}
}

package builtin_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"paymentsd/acquirer/acquirertest"
	"paymentsd/acquirer/builtin"
)

// Every adapter in the list passes the conformance suite, with the exchanges recorded beside it.
func TestConformance(t *testing.T) {
	t.Parallel()
	if len(builtin.Factories()) == 0 {
		t.Fatal("the list of adapters is empty")
	}
	for name, factory := range builtin.Factories() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			recorded := func(kind string) fs.FS { return os.DirFS(filepath.Join("..", name, "testdata", kind)) }
			acquirertest.Run(t, factory, acquirertest.Options{Exchanges: recorded("exchanges"), Events: recorded("events")})
		})
	}
}

package sqllint_test

import (
	"path/filepath"
	"testing"

	"paymentsd/internal/pgtest"
	"paymentsd/internal/sqllint"
	"paymentsd/migrations"
)

const root = "../.."

func TestEveryStatementOfTheModule(t *testing.T) {
	t.Parallel()
	statements, err := sqllint.InModule(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(statements) < 20 {
		t.Errorf("only %d SQL constants found: the lint looks in the wrong place", len(statements))
	}
	for _, s := range statements {
		for _, p := range sqllint.OurSchema().Check(s) {
			t.Error(p)
		}
	}
}

// TestEveryStatementCanBePrepared has Postgres plan each on the migrated schema.
func TestEveryStatementCanBePrepared(t *testing.T) {
	t.Parallel()
	statements, err := sqllint.InModule(root)
	if err != nil {
		t.Fatal(err)
	}
	packages := map[string]bool{}
	for _, s := range statements {
		packages[s.Package] = true
	}
	for pkg := range packages {
		t.Run(pkg, func(t *testing.T) {
			t.Parallel()
			pgtest.PrepareAll(t, filepath.Join(root, pkg))
		})
	}
}

func TestEveryFunctionOfTheSchema(t *testing.T) {
	t.Parallel()
	problems, err := sqllint.OurSchema().CheckFunctions(migrations.FS)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Error(p)
	}
}

func TestEveryCallOfTheModule(t *testing.T) {
	t.Parallel()
	problems, err := sqllint.CheckCalls(root, "internal/postgres")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Error(p)
	}
}

func TestCatalogueOfTheModule(t *testing.T) {
	t.Parallel()
	problems, err := sqllint.OurSchema().Catalogue(t.Context(), pgtest.New(t).Owner(), sqllint.OurAppendOnly())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Error(p)
	}
}

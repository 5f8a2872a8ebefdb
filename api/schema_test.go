package api_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

// TestBodiesThatBreakTheSchemaAreRefused derives bodies from each request schema of openapi.yaml, and
// sends those that break it: what the spec forbids, the decoder refuses, by name.
func TestBodiesThatBreakTheSchemaAreRefused(t *testing.T) {
	t.Parallel()
	contract, w := loadContract(t), newWorld(t)
	charge := "ch_" + w.shop.ID.Code() + "00000000000000000000"
	for path, key := range map[string]string{
		"/v1/charges":                        "charges key",
		"/v1/charges/{id}/resolution":        "ops key",
		"/v1/acquirers/{name}/breaker":       "ops key",
		"/v1/reconciliation/exceptions/{id}": "ops key",
	} {
		media := contract.doc.Paths.Value(path).Post.RequestBody.Value.Content["application/json"]
		schema := media.Schema.Value
		refused := 0
		for _, example := range media.Examples {
			base := example.Value.Value.(map[string]any)
			if err := schema.VisitJSON(base, openapi3.EnableJSONSchema2020()); err != nil {
				t.Fatalf("%s: its own example does not fit: %v", path, err)
			}
			for _, body := range variants(schema, base) {
				if schema.VisitJSON(body, openapi3.EnableJSONSchema2020()) == nil {
					continue
				}
				text, err := json.Marshal(body)
				if err != nil {
					t.Fatal(err)
				}
				target := strings.NewReplacer("/charges/{id}", "/charges/"+charge, "{id}", "ex_000000000000000000000000", "{name}", "north").Replace(path)
				a := w.ask(http.MethodPost, target, key, string(text), "Idempotency-Key", "k")
				if a.status != http.StatusUnprocessableEntity || a.field("errors") == "" {
					t.Errorf("%s %s breaks the schema, and is answered with %d %s", path, text, a.status, a.body)
				}
				refused++
			}
		}
		if refused < 20 {
			t.Errorf("%s: only %d bodies break the schema", path, refused)
		}
	}
	w.untouched()
}

// variants changes one member of base at a time.
func variants(schema *openapi3.Schema, base map[string]any) []map[string]any {
	var all []map[string]any
	add := func(name string, value any) {
		changed := maps.Clone(base)
		changed[name] = value
		all = append(all, changed)
	}
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		without := maps.Clone(base)
		delete(without, name)
		all = append(all, without)
		for _, value := range []any{nil, 1.0, 49.99, true, "", "~bogus~", map[string]any{}, []any{"x"}, strings.Repeat("x", 300), strings.Repeat("x", 1001)} {
			add(name, value)
		}
		add(strings.ToUpper(name), base[name])
	}
	add("unknown", "x")
	return all
}

package api_test

import (
	"encoding/json"
	"os"
	"testing"
)

// codeOf is the code of a problem document, or nothing.
func codeOf(body []byte) string {
	var p struct {
		Code string `json:"code"`
	}
	if json.Unmarshal(body, &p) != nil {
		return ""
	}
	return p.Code
}

func readGuide(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

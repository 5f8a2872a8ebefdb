package api_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
	"github.com/go-chi/chi/v5"

	"paymentsd/api"
)

const specFile = "../openapi.yaml"

// contract is openapi.yaml, and what of it was shown by a transcript.
type contract struct {
	doc    *openapi3.T
	router routers.Router

	mu    sync.Mutex
	shown map[string]bool // "operationId status" and "code NAME"
}

func loadContract(t *testing.T) *contract {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromFile(specFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(context.Background()); err != nil {
		t.Fatalf("openapi.yaml is not valid: %v", err)
	}
	router, err := gorillamux.NewRouter(doc)
	if err != nil {
		t.Fatal(err)
	}
	return &contract{doc: doc, router: router, shown: map[string]bool{}}
}

// check holds one exchange against the spec. A request that was refused for its form need not fit it;
// every answer must.
func (c *contract) check(t *testing.T, x *exchange) {
	t.Helper()
	request := httptest.NewRequest(x.method, x.target, bytes.NewReader(x.body))
	request.Header = x.header.Clone()
	request.Header.Del("Content-Length")
	route, params, err := c.router.FindRoute(request)
	if err != nil {
		c.checkUnrouted(t, x)
		return
	}
	input := &openapi3filter.RequestValidationInput{
		Request: request, Route: route, PathParams: params,
		Options: &openapi3filter.Options{
			AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true, SkipSettingDefaults: true,
			RejectWhenRequestBodyNotSpecified: true,
			ExcludeRequestBody:                strings.HasPrefix(x.header.Get("Content-Type"), "text/csv"), // its decoder wants equal lines
		},
	}
	status := x.response.StatusCode
	switch {
	case status < 400, status == http.StatusPaymentRequired, status == http.StatusConflict, status == http.StatusServiceUnavailable:
		if err := openapi3filter.ValidateRequest(context.Background(), input); err != nil {
			t.Errorf("%s %s was answered with %d, and does not fit openapi.yaml: %v", x.method, x.target, status, err)
		}
	}
	err = openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input, Status: status, Header: x.response.Header, Body: io.NopCloser(bytes.NewReader(x.answer)), Options: input.Options,
	})
	if err != nil {
		t.Errorf("the answer %d to %s %s does not fit openapi.yaml: %v\n%s", status, x.method, x.target, err, x.answer)
	}
	c.checkHeaders(t, x, route.Operation)
	c.mark(fmt.Sprintf("%s %d", route.Operation.OperationID, status), "code "+codeOf(x.answer))
}

// checkHeaders fails for a header that the spec does not name.
func (c *contract) checkHeaders(t *testing.T, x *exchange, operation *openapi3.Operation) {
	t.Helper()
	response := operation.Responses.Status(x.response.StatusCode)
	if response == nil {
		response = operation.Responses.Default()
	}
	for name := range x.response.Header {
		if slices.Contains([]string{"Date", "Content-Length", "Content-Type", "Connection"}, name) {
			continue
		}
		documented := slices.ContainsFunc(slices.Collect(maps.Keys(response.Value.Headers)), func(h string) bool {
			return http.CanonicalHeaderKey(h) == name
		})
		if !documented {
			t.Errorf("%s %d has the header %s, which openapi.yaml does not name there", operation.OperationID, x.response.StatusCode, name)
		}
	}
}

// checkUnrouted is for paths and methods that the spec does not have: problems all the same.
func (c *contract) checkUnrouted(t *testing.T, x *exchange) {
	t.Helper()
	if s := x.response.StatusCode; s != http.StatusNotFound && s != http.StatusMethodNotAllowed {
		t.Errorf("%s %s is not in openapi.yaml, and was answered with %d", x.method, x.target, s)
	}
	c.mark("code " + codeOf(x.answer))
}

func (c *contract) mark(what ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range what {
		c.shown[w] = true
	}
}

// checkCoverage fails for an operation's status, or a problem's code, that no transcript shows.
func (c *contract) checkCoverage(t *testing.T) {
	t.Helper()
	for _, operation := range c.operations() {
		for status := range operation.Responses.Map() {
			if status != "default" && !c.shown[operation.OperationID+" "+status] {
				t.Errorf("no transcript shows %s %s", operation.OperationID, status)
			}
		}
	}
	for _, code := range api.Codes() {
		if !c.shown["code "+code] {
			t.Errorf("no transcript shows the problem %s", code)
		}
	}
}

func (c *contract) operations() []*openapi3.Operation {
	var all []*openapi3.Operation
	for _, item := range c.doc.Paths.Map() {
		for _, operation := range item.Operations() {
			all = append(all, operation)
		}
	}
	return all
}

// TestRoutesAreTheSpecs holds chi's routes and the spec's operations against each other, both ways.
func TestRoutesAreTheSpecs(t *testing.T) {
	t.Parallel()
	documented := map[string]bool{}
	for path, item := range loadContract(t).doc.Paths.Map() {
		for method := range item.Operations() {
			documented[method+" "+path] = true
		}
	}
	for _, route := range walk(t, api.New(api.Deps{})) {
		if !documented[route] {
			t.Errorf("openapi.yaml lacks %s", route)
		}
		delete(documented, route)
	}
	for route := range documented {
		t.Errorf("openapi.yaml has %s, and no route serves it", route)
	}
}

func walk(t *testing.T, h http.Handler) []string {
	t.Helper()
	var all []string
	err := chi.Walk(h.(chi.Routes), func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		all = append(all, method+" "+route)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestProblemCodesAreTheSpecs holds the table of problems against the spec and the guide.
func TestProblemCodesAreTheSpecs(t *testing.T) {
	t.Parallel()
	spec := map[string]bool{}
	for _, code := range loadContract(t).doc.Components.Schemas["ProblemCode"].Value.Enum {
		spec[fmt.Sprint(code)] = true
	}
	guide := readGuide(t)
	for _, code := range api.Codes() {
		if !spec[code] {
			t.Errorf("openapi.yaml lacks the problem code %s", code)
		}
		delete(spec, code)
		if !strings.Contains(guide, "`"+code+"`") {
			t.Errorf("docs/api.md lacks the problem code %s", code)
		}
	}
	for code := range spec {
		t.Errorf("openapi.yaml has the problem code %s, and the table has no such row", code)
	}
}

// TestEveryOperationMayBeShed: whatever needs a key may be refused under overload, can be told how long its
// caller waits and how important it is, and the spec says so.
func TestEveryOperationMayBeShed(t *testing.T) {
	t.Parallel()
	for path, item := range loadContract(t).doc.Paths.Map() {
		if !strings.HasPrefix(path, "/v1/") {
			continue
		}
		for method, operation := range item.Operations() {
			for _, header := range []string{"Request-Timeout", "Priority"} {
				if item.Parameters.GetByInAndName("header", header) == nil {
					t.Errorf("%s lacks the header %s", path, header)
				}
			}
			response := operation.Responses.Value("503")
			if response == nil {
				t.Errorf("%s %s lacks 503", method, path)
				continue
			}
			schema := response.Value.Content["application/problem+json"].Schema.Value
			codes := schema.AllOf[len(schema.AllOf)-1].Value.Properties["code"].Value.Enum
			if !slices.Contains(codes, any("overloaded")) {
				t.Errorf("%s %s: 503 may be %v, and lacks overloaded", method, path, codes)
			}
		}
	}
}

package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
)

// serveHandler runs one handler behind the real middlewares.
func serveHandler(t *testing.T, log io.Writer, h handler) *httptest.ResponseRecorder {
	t.Helper()
	a := &api{Deps: Deps{Log: slog.New(slog.NewJSONHandler(log, nil)), Now: time.Now}, router: chi.NewRouter()}
	a.metrics = newMetrics(a.Deps)
	a.router.Use(a.identify, a.logAccess, a.recoverPanic)
	a.router.Get("/things/{id}", a.serve(h))
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "/things/4111111111111111?q=4111111111111111", nil)
	r.Header.Set(headerRequestID, "mine")
	a.router.ServeHTTP(w, r)
	return w
}

func lines(t *testing.T, log *bytes.Buffer) []map[string]any {
	t.Helper()
	var all []map[string]any
	for line := range strings.Lines(log.String()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatal(err)
		}
		all = append(all, fields)
	}
	return all
}

func TestEveryAnswerHasAnIDOfOurs(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	w := serveHandler(t, &log, func(w http.ResponseWriter, _ *http.Request) error { w.WriteHeader(http.StatusNoContent); return nil })
	id := w.Header().Get(headerRequestID)
	if !strings.HasPrefix(id, "req_") || len(id) != 30 {
		t.Errorf("Request-Id: %q", id)
	}
	all := lines(t, &log)
	if len(all) != 1 || all[0]["request_id"] != id || all[0]["route"] != "/things/{id}" || all[0]["status"] != float64(204) {
		t.Errorf("the log: %v", all)
	}
}

func TestAnErrorIsLoggedOnceAndWithoutCardNumbers(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	w := serveHandler(t, &log, func(http.ResponseWriter, *http.Request) error {
		return errors.New("the card 4111 1111 1111 1111 does not fit")
	})
	if w.Code != http.StatusInternalServerError || w.Header().Get("Content-Type") != typeProblem {
		t.Errorf("answered %d %s", w.Code, w.Header().Get("Content-Type"))
	}
	if holdsCardNumber(log.String()) || holdsCardNumber(w.Body.String()) {
		t.Errorf("a card number got out:\n%s\n%s", log.String(), w.Body)
	}
	all := lines(t, &log)
	if len(all) != 2 || all[0]["msg"] != "request refused" || all[0]["level"] != "ERROR" || all[1]["msg"] != "request" || all[1]["code"] != codeInternal {
		t.Errorf("the log: %v", all)
	}
}

func TestAPanicIsAnsweredAndLoggedOnce(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	w := serveHandler(t, &log, func(http.ResponseWriter, *http.Request) error { panic("boom") })
	var p problem
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != http.StatusInternalServerError || p.Code != codeInternal {
		t.Errorf("answered %d %s", w.Code, w.Body)
	}
	if strings.Contains(w.Body.String(), "boom") {
		t.Errorf("the answer tells what broke: %s", w.Body)
	}
	if n := strings.Count(log.String(), "boom"); n != 1 {
		t.Errorf("the panic is logged %d times:\n%s", n, log.String())
	}
}

func TestAPanicInAnAnswerBreaksTheConnection(t *testing.T) {
	t.Parallel()
	defer func() {
		if got := recover(); got != http.ErrAbortHandler {
			t.Errorf("the panic is %v, want http.ErrAbortHandler", got)
		}
	}()
	serveHandler(t, io.Discard, func(w http.ResponseWriter, _ *http.Request) error {
		_, _ = io.WriteString(w, `{"object":`)
		panic("boom")
	})
}

func TestBearer(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"Bearer abc": "abc", "bearer abc": "abc", "Bearer  abc ": "abc",
		"": "", "abc": "", "Bearer": "", "Bearer ": "", "Basic abc": "", "Bearer a b": "", "Bearer a,b": "",
	} {
		got, err := bearer([]string{value})
		if got != want || (err == nil) != (want != "") {
			t.Errorf("Authorization: %s: %q, %v", value, got, err)
		}
	}
	if _, err := bearer([]string{"Bearer a", "Bearer b"}); err == nil {
		t.Error("two keys are accepted")
	}
}

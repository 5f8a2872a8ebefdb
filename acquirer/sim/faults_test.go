package sim_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"paymentsd/acquirer"
	"paymentsd/acquirer/sim"
)

func setFaults(t *testing.T, s *sim.Sim, faults ...sim.Fault) {
	t.Helper()
	if err := s.SetFaults(faults...); err != nil {
		t.Fatal(err)
	}
}

func TestFaultsOverHTTP(t *testing.T) {
	t.Parallel()
	s, srv := start(t, sim.Config{})
	url := srv.URL() + "/admin/faults"
	put := do(t, http.MethodPut, url, `{"faults":[{"kind":"error_lost","count":2},{"kind":"slow","on":"lookups","percent":5,"for":"40s"}]}`)
	if put.status != 200 {
		t.Fatalf("put: %d %s", put.status, put.body)
	}
	for n, want := range []int{500, 500, 201} {
		if got := order(t, srv.URL(), "K1", "tok_ok"); got.status != want {
			t.Errorf("request %d: %d, want %d", n+1, got.status, want)
		}
	}
	get := do(t, http.MethodGet, url, "")
	if text := string(get.body); strings.Contains(text, "error_lost") || !strings.Contains(text, `"kind":"slow","on":"lookups","percent":5`) {
		t.Errorf("a spent fault is still listed, or another is not: %s", text)
	}
	if hits := s.Stats().Faults["error_lost"]; hits != 2 {
		t.Errorf("%d hits counted, want 2", hits)
	}
	if got := do(t, http.MethodDelete, url, ""); got.status != 204 {
		t.Errorf("delete: %d", got.status)
	}
	if get := do(t, http.MethodGet, url, ""); strings.TrimSpace(string(get.body)) != `{"faults":[]}` {
		t.Errorf("after delete: %s", get.body)
	}
}

func TestBadFaultsAreRefusedByNameAndChangeNothing(t *testing.T) {
	t.Parallel()
	_, srv := start(t, sim.Config{})
	url := srv.URL() + "/admin/faults"
	if got := do(t, http.MethodPut, url, `{"faults":[{"kind":"slow"}]}`); got.status != 200 {
		t.Fatal(got.status)
	}
	for body, field := range map[string]string{
		`{}`:                                     "faults",
		`{"faults":{}}`:                          "faults",
		`{"faults":[1]}`:                         "faults[0]",
		`{"fault":[]}`:                           "fault",
		`{"faults":[{"kind":"tok_slow"}]}`:       "kind",
		`{"faults":[{"kind":"slow","rate":20}]}`: "faults[0].rate",
		`{"faults":[{"kind":"slow","percent":"20"}]}`:                                "faults[0].percent",
		`{"faults":[{"kind":"slow","percent":0}]}`:                                   "faults[0].percent",
		`{"faults":[{"kind":"slow","percent":101}]}`:                                 "percent",
		`{"faults":[{"kind":"slow","percent":0.2}]}`:                                 "faults[0].percent",
		`{"faults":[{"kind":"slow","for":"40"}]}`:                                    "faults[0].for",
		`{"faults":[{"kind":"slow","for":"-1s"}]}`:                                   "faults[0].for",
		`{"faults":[{"kind":"slow","for":"25h"}]}`:                                   "for",
		`{"faults":[{"kind":"slow"},{"kind":"slow","count":0}]}`:                     "faults[1].count",
		`{"faults":[{"kind":"slow","on":"refunds"}]}`:                                "on",
		`{"faults":[{"kind":"down"}]}`:                                               "for",
		`{"faults":[{"kind":"down","for":"11m"}]}`:                                   "for",
		`{"faults":[` + strings.Repeat(`{"kind":"slow"},`, 32) + `{"kind":"slow"}]}`: "faults",
		`{"faults":[]}x`: "",
	} {
		got := do(t, http.MethodPut, url, body)
		if got.status != 422 && got.status != 400 || got.field(t, "field") != field {
			t.Errorf("%s: %d %s; want field %q", body, got.status, got.body, field)
		}
	}
	if get := do(t, http.MethodGet, url, ""); !strings.Contains(string(get.body), `"kind":"slow"`) {
		t.Errorf("a refused change took effect: %s", get.body)
	}
}

func TestFaultEndsWithItsTime(t *testing.T) {
	t.Parallel()
	now := newClock()
	s, srv := start(t, sim.Config{Now: now.Now})
	setFaults(t, s, sim.Fault{Kind: "error_lost", For: 40 * time.Second})
	now.Advance(40*time.Second - 1)
	if got := order(t, srv.URL(), "K1", "tok_ok"); got.status != 500 {
		t.Errorf("before its end: %d", got.status)
	}
	now.Advance(1)
	if got := order(t, srv.URL(), "K1", "tok_ok"); got.status != 201 {
		t.Errorf("after its end: %d", got.status)
	}
}

func TestFaultByPercentIsRepeatable(t *testing.T) {
	t.Parallel()
	const requests, percent = 400, 25
	play := func(seed uint64) string {
		s, err := sim.New(sim.Config{Seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		setFaults(t, s, sim.Fault{Kind: "error_lost", Percent: percent})
		var story strings.Builder
		for n := range requests {
			r := httptest.NewRequest(http.MethodPost, "/v1/captures",
				strings.NewReader(fmt.Sprintf(`{"reference":"R%d","amount_minor":1,"currency":"USD","payment_method":"x"}`, n)))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Idempotency-Key", fmt.Sprint("K", n))
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, r)
			fmt.Fprint(&story, w.Code, " ")
		}
		return story.String()
	}
	one := play(7)
	if one != play(7) {
		t.Error("the same seed tells another story")
	}
	if one == play(8) {
		t.Error("another seed tells the same story")
	}
	if hit := strings.Count(one, "500"); hit < requests*percent/100/2 || hit > requests*percent/100*2 {
		t.Errorf("%d of %d requests hit, want about %d %%", hit, requests, percent)
	}
}

func TestFaultsOnInquiries(t *testing.T) {
	t.Parallel()
	s, srv := start(t, sim.Config{SlowLatency: 10 * time.Millisecond})
	a := adapterTo(t, srv.URL(), patience)
	capture(t, a, "REF1", "tok_ok")
	for kind, want := range map[string]acquirer.Found{
		"error_lost":       acquirer.FoundUnclear,
		"maintenance_lost": acquirer.FoundUnclear,
		"html_lost":        acquirer.FoundUnclear,
		"reset_captured":   acquirer.FoundUnclear,
		"reset_lost":       acquirer.FoundUnclear,
		"rate_limited":     acquirer.FoundUnclear,
		"garbled_captured": acquirer.FoundUnclear,
		"wrong_reference":  acquirer.FoundUnclear,
		"slow":             acquirer.FoundCaptured,
	} {
		setFaults(t, s, sim.Fault{Kind: kind, On: sim.OnLookups})
		if got := a.Lookup(context.Background(), "REF1"); got.Found != want {
			t.Errorf("%s: found %s, want %s (%s)", kind, got.Found, want, got.Detail)
		}
		if got := capture(t, a, "REF1", "tok_ok"); got.Class != acquirer.Captured {
			t.Errorf("%s on lookups troubles captures: %+v", kind, got)
		}
	}
	setFaults(t, s, sim.Fault{Kind: "wrong_amount", On: sim.OnLookups})
	if got := a.Lookup(context.Background(), "REF1"); got.Amount.String() != "50.00" {
		t.Errorf("the wrong amount is %s", got.Amount)
	}
	if s.CapturesOf("REF1") != 1 {
		t.Error("an inquiry moved money")
	}
}

func TestDownRefusesConnectionsAndComesBackOnTheSamePort(t *testing.T) {
	t.Parallel()
	s, srv := start(t, sim.Config{})
	a := adapterTo(t, srv.URL(), patience)
	if got := capture(t, a, "REF1", "tok_ok"); got.Class != acquirer.Captured {
		t.Fatal(got)
	}
	// Asked for over the port that it closes: the answer still comes, and from then on nobody gets in.
	if got := do(t, http.MethodPut, srv.URL()+"/admin/faults", `{"faults":[{"kind":"down","for":"5m"}]}`); got.status != 200 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	for n := range 20 {
		got := capture(t, a, fmt.Sprintf("DOWN%d", n), "tok_ok")
		if got.Class != acquirer.NotSent || !got.Failure {
			t.Fatalf("while down: %+v", got)
		}
	}
	setFaults(t, s, sim.Fault{Kind: sim.Down, For: 50 * time.Millisecond}) // now it ends sooner
	eventually(t, "it came back by itself", func() bool { return capture(t, a, "REF2", "tok_ok").Class == acquirer.Captured })
	setFaults(t, s, sim.Fault{Kind: sim.Down, For: 5 * time.Minute})
	if got := capture(t, a, "REF3", "tok_ok"); got.Class != acquirer.NotSent {
		t.Errorf("down again: %+v", got)
	}
	if err := s.ClearFaults(); err != nil {
		t.Fatal(err)
	}
	if got := capture(t, a, "REF3", "tok_ok"); got.Class != acquirer.Captured {
		t.Errorf("after clearing: %+v", got)
	}
	if n := s.Stats().Captures; n != 3 {
		t.Errorf("%d captures, want 3", n)
	}
}

// What is under way when the port closes is cut off from its client, and captured all the same.
func TestDownCutsOffWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	s, srv := start(t, sim.Config{SlowLatency: 300 * time.Millisecond})
	a := adapterTo(t, srv.URL(), patience)
	answers := make(chan acquirer.Answer, 1)
	go func() {
		answers <- a.Capture(context.Background(), acquirer.CaptureRequest{Ref: "REF1", Amount: usd(t, "1.00"), PaymentMethod: "tok_slow"})
	}()
	eventually(t, "the request is under way", func() bool { return s.Stats().Requests == 1 })
	setFaults(t, s, sim.Fault{Kind: sim.Down, For: time.Minute})
	if got := <-answers; got.Class != acquirer.Unclear || !got.Failure {
		t.Errorf("%+v, want unclear", got)
	}
	eventually(t, "captured", func() bool { return s.CapturesOf("REF1") == 1 })
}

func TestDownNeedsAPortOfItsOwn(t *testing.T) {
	t.Parallel()
	s, err := sim.New(sim.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SetFaults(sim.Fault{Kind: sim.Down, For: time.Second}); err == nil {
		t.Error("accepted without a server")
	}
}

func TestHeldConnectionEndsWhenTheSimulatorDoes(t *testing.T) {
	t.Parallel()
	s, err := sim.New(sim.Config{HoldMax: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	srv, err := sim.Serve(s, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a := adapterTo(t, srv.URL(), time.Hour)
	answers := make(chan acquirer.Answer, 1)
	go func() {
		answers <- a.Capture(context.Background(), acquirer.CaptureRequest{Ref: "REF1", Amount: usd(t, "1.00"), PaymentMethod: "tok_timeout_captured"})
	}()
	eventually(t, "captured and held", func() bool { return s.CapturesOf("REF1") == 1 })
	if err := srv.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if got := <-answers; got.Class != acquirer.Unclear {
		t.Errorf("%+v, want unclear", got)
	}
}

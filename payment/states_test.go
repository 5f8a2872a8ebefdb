package payment

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"paymentsd/acquirer"
	"paymentsd/idempotency"
)

var update = flag.Bool("update", false, "write docs/states.md anew")

const statesPage = "../docs/states.md"

// TestStatesPage holds docs/states.md to the code; `go test ./payment -run TestStatesPage -update` writes it.
func TestStatesPage(t *testing.T) {
	t.Parallel()
	want := renderStatesPage()
	if *update {
		if err := os.WriteFile(statesPage, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(statesPage)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not what the code says; run: go test ./payment -run TestStatesPage -update", statesPage)
	}
}

var meanings = map[Status]string{
	Queued:   "asynchronous, waits for its turn",
	Pending:  "an acquirer is being asked",
	Unknown:  "it may have happened; only evidence ends it",
	Captured: "certain: money moved",
	Declined: "certain: the acquirer or the issuer refused",
	Failed:   "certain: not executed",
}

var examples = map[acquirer.Class]string{
	acquirer.Captured:   "2xx with our reference, amount and currency echoed equal",
	acquirer.Declined:   "the issuer or the acquirer refuses",
	acquirer.Rejected:   "400, 401, 403, 404, 422: our request or our credentials are wrong",
	acquirer.NotSent:    "breaker open, bulkhead full, dial refused, DNS, TLS before the request",
	acquirer.Refused:    "429, a documented \"not processed\" 503",
	acquirer.InProgress: "409 \"still running\" for our own key",
	acquirer.Unclear:    "timeout or reset after the first byte, other 5xx, garbled body, 202, another amount echoed, anything not known",
}

func renderStatesPage() string {
	var page strings.Builder
	out := func(format string, args ...any) { fmt.Fprintf(&page, format, args...) }
	out("# States and outcomes\n\nWritten by a test from the code (`go test ./payment -run TestStatesPage -update`): change the code, not this page.\n\n")

	out("## A charge\n\n| state | meaning | may become |\n|---|---|---|\n")
	for _, s := range Statuses() {
		next := "nothing: it is never left, news to the contrary is kept as evidence and opens an exception"
		if !s.Terminal() {
			var names []string
			for _, to := range Statuses() {
				if s.CanBecome(to) {
					names = append(names, "`"+string(to)+"`")
				}
			}
			next = strings.Join(names, ", ")
		}
		out("| `%s` | %s | %s |\n", s, meanings[s], next)
	}
	out("\nAn unknown charge is closed by evidence only: `%s`. Age closes nothing.\n\n", strings.Join([]string{
		string(LateAnswer), string(Inquiry), string(Event), string(Settlement), string(Operator)}, "`, `"))

	out("## A key\n\n| state | its charge | the same request again gets |\n|---|---|---|\n")
	out("| (no row) | none, or `declined` or `failed` for certain: the key is free | a new charge, of the next generation |\n")
	out("| `%s` | `pending` | 409, or the result if it waits for it |\n", idempotency.InFlight)
	out("| `%s` | `unknown` | 202 and the charge as it stands; no acquirer is called |\n", idempotency.Unknown)
	out("| `%s` | `captured`, or `failed` after it was unknown | the frozen answer, byte for byte; 409 once retention has dropped it |\n", idempotency.Done)
	out("\nAnother request under a key in use gets 422 in every state.\n\n")

	out("## What an answer proves\n\n| class | for example | the same acquirer again | another acquirer | what the charge becomes if it stays so |\n|---|---|---|---|---|\n")
	for _, class := range everyClass {
		ended := concluded(Charge{Status: Pending}, ending{class: class})
		out("| `%s` | %s | %s | %s | `%s` |\n", class, examples[class], againText(class), yes(class.ProvesNotExecuted()), ended.Status)
	}
	out("\nAmbiguity is sticky: after one `in_progress` or `unclear` no other acquirer is asked, and only a later `captured`, or `declined` where keys\n")
	out("deduplicate, of the same acquirer settles it. Where an acquirer forgets failures it is asked by our reference instead of being called again.\n\n")

	out("## Fault points\n\nTests of crashes kill the process at these steps, by name.\n\n| step | what has happened |\n|---|---|\n")
	for _, p := range FaultPoints() {
		out("| `%s` | %s |\n", p.Name, p.When)
	}
	return page.String()
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func againText(class acquirer.Class) string {
	plain, keyed := verdict(of(class), noKeys).Retry, verdict(of(class), dedupes).Retry
	switch {
	case plain:
		return "yes, within budget and deadline"
	case keyed && !verdict(of(class), forgets).Retry:
		return "only if it deduplicates by key and does not forget failures"
	}
	return yes(keyed)
}

// TestEveryFaultPointIsMet walks the whole path, so that a point which no code reaches fails, and one that is
// not in the list, too.
func TestEveryFaultPointIsMet(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var met []string
	record := func(c *Config) {
		c.Fault = func(step string) {
			mu.Lock()
			defer mu.Unlock()
			if !slices.Contains(met, step) {
				met = append(met, step)
			}
		}
	}
	north := answering(times(3, of(acquirer.NotSent))...)
	s := openBooks(t).shop(t, []named{{"north", north, plainly()}, {"south", answering(), plainly()}}, record)
	s.charge(s.request("k"))
	north.answers = times(3, of(acquirer.Unclear))
	unclear := s.charge(s.request("unclear")).Charge
	s.follow()
	s.trustPasses()
	s.inquireOnce(unclear)
	lost := s.abandon("lost")
	s.sweep()
	s.resolve(lost, settles(lost, "north"))
	var listed []string
	for _, p := range FaultPoints() {
		listed = append(listed, p.Name)
		if p.When == "" {
			t.Errorf("%s does not say when it is reached", p.Name)
		}
	}
	slices.Sort(met)
	slices.Sort(listed)
	if !slices.Equal(met, listed) {
		t.Errorf("met %v, listed %v", met, listed)
	}
}

func TestEachOutcomeTellsTheOutboxOnce(t *testing.T) {
	t.Parallel()
	b := openBooks(t)
	for class, kind := range map[acquirer.Class]string{
		acquirer.Captured: "charge.captured", acquirer.Declined: "charge.declined", acquirer.Rejected: "charge.failed", acquirer.Unclear: "charge.unknown",
	} {
		t.Run("peers case 19: "+kind+" is in the outbox with the outcome, and stays until it is told", func(t *testing.T) {
			t.Parallel()
			s := b.shop(t, []named{{"north", answering(times(3, of(class))...), plainly()}})
			charge := s.charge(s.request("k")).Charge
			s.charge(s.request("other"))
			if n := s.count(`select count(*) from outbox where merchant_id = $1 and charge_id = $2 and kind = $3`, s.merchant.ID, charge.ID, kind); n != 1 {
				t.Errorf("%d events", n)
			}
		})
	}
	t.Run("peers case 18: no key goes while its charge is open, and no charge before its key", func(t *testing.T) {
		t.Parallel()
		s := openBooks(t).shop(t, []named{{"north", answering(times(3, of(acquirer.Unclear))...), plainly()}})
		s.charge(s.request("unknown"))
		s.abandon("running")
		s.exec(`update idempotency_keys set created_at = now() - interval '400 days'`)
		if _, _, err := idempotency.Maintain(t.Context(), s.db.Pool, time.Now().Add(400*24*time.Hour), 24*time.Hour); err != nil {
			t.Fatal(err)
		}
		s.wantRows(2, 2, 2, 0, 1)
		wantStatus(t, s.charge(s.request("unknown")), Unknown)
		if _, err := s.db.Pool.Exec(t.Context(), `delete from charges where merchant_id = $1`, s.merchant.ID); err == nil {
			t.Error("the service may delete charges")
		}
	})
}

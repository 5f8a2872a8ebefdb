package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// evidence is what is on record about a charge.
type evidence struct {
	ID, Evidence, Outcome, Finding string
	Applied                        bool
}

func (w *world) evidence(charge row) []evidence {
	w.t.Helper()
	const all = `
select r.resolution_id, r.evidence, r.outcome, coalesce(r.finding, '') as finding, r.applied
  from resolutions r where r.merchant_id = $1 and r.charge_id = $2 order by r.created_at`
	rows, err := w.pool.Query(w.t.Context(), all, w.merchant.ID, charge.ID)
	if err != nil {
		w.t.Fatal(err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[evidence])
	if err != nil {
		w.t.Fatal(err)
	}
	return found
}

// A timeout closes by itself if the acquirer captured. If it lost the request, "not found" leaves it unknown, and
// only whole settlement files beside it end it.
func TestUnknownsCloseByInquiry(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{limits: quick(), trust: "2s", jobs: "{database_conns: 4, poll: 200ms}"})
	shop := w.shop(w.start())
	shop.charge(t, "captured", with("tok_timeout_captured")).want(t, http.StatusAccepted, "unknown")
	shop.charge(t, "lost", with("tok_timeout_lost")).want(t, http.StatusAccepted, "unknown")
	began := time.Now()
	until(t, "the captured one is not closed by inquiry", func() bool { return w.row("captured").Status == "captured" })
	t.Logf("closed %v after both answers, at a trust delay of 2s", time.Since(began).Round(10*time.Millisecond))
	until(t, "the lost one is not asked about", func() bool { return len(w.evidence(w.row("lost"))) > 0 })

	captured, lost := w.row("captured"), w.row("lost")
	if e := w.evidence(captured); len(e) != 1 || e[0] != (evidence{"inquiry:north:1", "inquiry", "captured", "captured", true}) {
		t.Errorf("the evidence of the captured one: %+v", e)
	}
	if e := w.evidence(lost); len(e) != 1 || e[0] != (evidence{"inquiry:north:1", "inquiry", "none", "not_found", false}) {
		t.Errorf("the evidence of the lost one: %+v", e)
	}
	if r := shop.charge(t, "captured", with("tok_timeout_captured")); r.status != http.StatusCreated || !r.replayed() || !strings.Contains(r.text, `"evidence":"inquiry"`) {
		t.Errorf("the replay: %v", r)
	}
	shop.charge(t, "lost", with("tok_timeout_lost")).want(t, http.StatusAccepted, "unknown")
	if r, err := shop.get(t.Context(), "/v1/charges/"+captured.ID); err != nil || !strings.Contains(r.text, `"evidence":"inquiry"`) {
		t.Errorf("GET: %v, %v", r, err)
	}
	if r, err := shop.get(t.Context(), "/v1/charges/"+lost.ID+"/resolutions"); err != nil || !strings.Contains(r.text, `"finding":"not_found"`) {
		t.Errorf("GET: %v, %v", r, err)
	}
	w.consistent()
	w.settle() // the files here do not reach to the cut-off: it stays unknown
	if lost := w.row("lost"); lost.Status != "unknown" {
		t.Errorf("the lost one is %s without whole files", lost.Status)
	}
}

// A hundred unknowns that no inquiry settles, asked again and again, and ten fresh ones: each fresh one is closed
// by its first inquiry.
func TestPoisonedUnknownsStarveNobody(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{trust: "1ms", jobs: "{database_conns: 4, poll: 200ms, inquiry_workers: 1, inquiries: [" + strings.Repeat("100ms, ", 45) + "1h]}"})
	shop := w.shop(w.start())
	post := func(name, token string, n int) {
		const atOnce = 20 // more would be shed
		for first := 0; first < n; first += atOnce {
			var all sync.WaitGroup
			for i := first; i < min(first+atOnce, n); i++ {
				all.Go(func() {
					shop.charge(t, fmt.Sprintf("%s-%d", name, i), with(token)).want(t, http.StatusAccepted, "unknown")
				})
			}
			all.Wait()
		}
	}
	post("poisoned", "tok_error_lost", 100)
	const again = `select count(*) from errands e where e.merchant_id = $1 and e.tries > 0`
	until(t, "the poisoned ones are not under way", func() bool {
		var n int
		if err := w.pool.QueryRow(t.Context(), again, w.merchant.ID).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n == 100
	})
	post("fresh", "tok_error_captured", 10)
	closed := func() (n int) {
		for _, r := range w.rows() {
			if r.Status == "captured" {
				n++
			}
		}
		return n
	}
	until(t, "not all fresh ones are closed", func() bool { return closed() == 10 })
	for i := range 10 {
		if e := w.evidence(w.row(fmt.Sprintf("fresh-%d", i))); len(e) != 1 || e[0].ID != "inquiry:north:1" || !e[0].Applied {
			t.Errorf("fresh one %d: %+v", i, e)
		}
	}
	w.consistent()
}

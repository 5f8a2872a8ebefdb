package e2e

import (
	"github.com/jackc/pgx/v5"

	"paymentsd/acquirer/sim"
	"paymentsd/ledger"
)

// row is a charge as Postgres has it.
type row struct {
	ID, Key, KeyState, AcqRef, Status, Acquirer, CaptureID, Evidence string
	Postings                                                         int
}

const allCharges = `
select c.charge_id, c.idempotency_key, coalesce(k.state, ''), c.acq_ref, c.status, c.acquirer, coalesce(c.capture_id, ''), coalesce(c.evidence, ''),
       (select count(*) from ledger_transfers l
         where l.merchant_id = $1 and l.charge_id = c.charge_id and l.kind = 'capture')
  from charges c
  left join idempotency_keys k on k.merchant_id = $1 and k.key = c.idempotency_key and k.charge_id = c.charge_id
 where c.merchant_id = $1 order by c.charge_id`

// rows are all charges of the world's merchant, oldest first.
func (w *world) rows() []row {
	w.t.Helper()
	found, err := w.pool.Query(w.t.Context(), allCharges, w.merchant.ID)
	if err != nil {
		w.t.Fatal(err)
	}
	all, err := pgx.CollectRows(found, pgx.RowToStructByPos[row])
	if err != nil {
		w.t.Fatal(err)
	}
	return all
}

// row is the last charge under a key.
func (w *world) row(key string) row {
	w.t.Helper()
	var last row
	for _, r := range w.rows() {
		if r.Key == key {
			last = r
		}
	}
	if last.ID == "" {
		w.t.Fatalf("no charge under key %q", key)
	}
	return last
}

// captures counts what both acquirers hold under a reference.
func (w *world) captures(acqRef string) int {
	return w.north.CapturesOf(acqRef) + w.south.CapturesOf(acqRef)
}

// nothingInFlight waits until the sweep has taken over what lost processes left.
func (w *world) nothingInFlight() {
	w.t.Helper()
	until(w.t, "a charge is still in flight", func() bool {
		for _, r := range w.rows() {
			if r.Status == "pending" || r.KeyState == "in_flight" {
				return false
			}
		}
		return true
	})
}

// consistent holds what is true at any quiet moment, before and after settlement: no charge was captured twice,
// nothing that is captured with us is not with them, no capture of theirs is unheard of, each capture
// is posted once and nothing else is, keys and charges say the same, and the books balance.
func (w *world) consistent() {
	w.t.Helper()
	known := map[string]bool{}
	for _, r := range w.rows() {
		known[r.AcqRef] = true
		w.consistentCharge(r)
	}
	for name, acquirer := range map[string]*acquirerSim{"north": w.north, "south": w.south} {
		for _, theirs := range acquirer.Captures() {
			if theirs.Status == sim.StatusCaptured && !known[theirs.Reference] {
				w.t.Errorf("%s holds a capture under %s, of which we know nothing", name, theirs.Reference)
			}
		}
	}
	w.balanced()
}

func (w *world) consistentCharge(r row) {
	w.t.Helper()
	at := map[string]int{"north": w.north.CapturesOf(r.AcqRef), "south": w.south.CapturesOf(r.AcqRef)}
	theirs, posted, keyState := at["north"]+at["south"], 0, ""
	switch r.Status {
	case "captured":
		posted, keyState = 1, "done"
		if at[r.Acquirer] != 1 || theirs != 1 {
			w.t.Errorf("charge %s is captured at %s, the acquirers hold %v", r.ID, r.Acquirer, at)
		}
	case "unknown":
		keyState = "unknown"
		if theirs > 1 {
			w.t.Errorf("charge %s is unknown, and captured more than once: %v", r.ID, at)
		}
	case "declined", "failed":
		if r.Evidence != "" {
			keyState = "done"
		}
		if theirs != 0 {
			w.t.Errorf("charge %s is %s, and the acquirers hold %v", r.ID, r.Status, at)
		}
	default:
		w.t.Errorf("charge %s is stuck in state %s", r.ID, r.Status)
	}
	if r.Postings != posted {
		w.t.Errorf("charge %s is %s, and posted %d times", r.ID, r.Status, r.Postings)
	}
	if r.KeyState != keyState {
		w.t.Errorf("charge %s is %s, and its key %q; want %q", r.ID, r.Status, r.KeyState, keyState)
	}
}

// balanced is the trial balance.
func (w *world) balanced() {
	w.t.Helper()
	sums, err := ledger.TrialBalance(w.t.Context(), w.pool)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, sum := range sums {
		if !sum.Net().IsZero() {
			w.t.Errorf("the trial balance of %s is %s", sum.Currency, sum.Net())
		}
	}
}

// only is the one charge of a world in which one was asked for.
func (w *world) only() row {
	w.t.Helper()
	all := w.rows()
	if len(all) != 1 {
		w.t.Fatalf("%d charges, want one: %+v", len(all), all)
	}
	return all[0]
}

package payment

import (
	"context"

	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"paymentsd/acquirer"
	"paymentsd/idempotency"
	"paymentsd/internal/pgtest"
	"paymentsd/internal/postgres"
	"paymentsd/ledger"
)

// T1 and T2 take groups of rows, so that many requests can share a statement and a commit.

func TestEverySQLConstantPrepares(t *testing.T) {
	t.Parallel()
	pgtest.PrepareAll(t, ".")
}

// row is one request in a group.
type row struct {
	key, reference string
	fingerprint    byte
	concurrent     bool
	generation     int
}

// answered is what T1 says about one row, in the order of the group.
type answered struct {
	Outcome string
	Of      int // whose charge is named: the index in the group, -1 for one that is not in it
	Fence   int64
}

func (s *shop) chargesOf(rows []row) (charges []Charge) {
	for _, r := range rows {
		req := s.request(r.key)
		req.Reference, req.AllowConcurrent = r.reference, r.concurrent
		c := s.newCharge(req, "north")
		c.Generation, c.AcqRef = r.generation, AcqRef(c.Merchant, c.IdempotencyKey, r.generation)
		charges = append(charges, c)
	}
	return charges
}

// beginGroup runs T1 for a group.
func (s *shop) beginGroup(ctx context.Context, rows []row) (charges []Charge, answers []answered, err error) {
	charges = s.chargesOf(rows)
	columns := struct {
		keys, ids, refs, amounts, currencies, methods, acquirers []string
		prints                                                   [][]byte
		generations                                              []int
		references, descriptions                                 []*string
		concurrent                                               []bool
	}{}
	index := map[string]int{}
	for i, c := range charges {
		index[c.ID] = i
		print := idempotency.Fingerprint{rows[i].fingerprint}
		columns.keys, columns.ids, columns.refs = append(columns.keys, c.IdempotencyKey), append(columns.ids, c.ID), append(columns.refs, c.AcqRef)
		columns.prints, columns.generations = append(columns.prints, print[:]), append(columns.generations, c.Generation)
		columns.amounts, columns.currencies = append(columns.amounts, c.Amount.Decimal().String()), append(columns.currencies, string(c.Amount.Currency()))
		columns.references, columns.concurrent = append(columns.references, optional(c.Reference)), append(columns.concurrent, c.AllowConcurrent)
		columns.methods, columns.descriptions = append(columns.methods, c.PaymentMethod), append(columns.descriptions, nil)
		columns.acquirers = append(columns.acquirers, c.Acquirer)
	}
	result, err := s.db.Pool.Query(ctx, `
		select b.o_ord, b.o_outcome, coalesce(b.o_charge, ''), coalesce(b.o_fence, 0)
		  from charge_begin_v1($1, $2, $3, $4, $5, $6, $7, $8, $9::text[]::numeric[], $10, $11, $12, $13, $14, $15) b`,
		s.merchant.ID, s.moment(), time.Minute, columns.keys, columns.prints, columns.ids, columns.generations, columns.refs,
		columns.amounts, columns.currencies, columns.references, columns.concurrent, columns.methods, columns.descriptions, columns.acquirers)
	if err != nil {
		return nil, nil, err
	}
	answers = make([]answered, len(rows))
	for result.Next() {
		var ord int
		var outcome, charge string
		var fence int64
		if err := result.Scan(&ord, &outcome, &charge, &fence); err != nil {
			return nil, nil, err
		}
		of, inGroup := index[charge]
		if !inGroup {
			of = -1
		}
		answers[ord-1] = answered{outcome, of, fence}
	}
	return charges, answers, result.Err()
}

func TestGroupsOfClaims(t *testing.T) {
	t.Parallel()
	b := openBooks(t)
	for name, tc := range map[string]struct {
		rows []row
		want []answered
		open int // charges that are pending afterwards, each with its key and attempt
	}{
		"one row": {[]row{{key: "a"}}, []answered{{"claimed", 0, 1}}, 1},
		"three keys, not in order": {
			[]row{{key: "c"}, {key: "a"}, {key: "b"}},
			[]answered{{"claimed", 0, 1}, {"claimed", 1, 1}, {"claimed", 2, 1}}, 3},
		"the same key twice: the second finds the first": {
			[]row{{key: "b"}, {key: "a"}, {key: "b"}},
			[]answered{{"claimed", 0, 1}, {"claimed", 1, 1}, {"exists", 0, 1}}, 2},
		"the same key with another body: the second finds the first, too": {
			[]row{{key: "b", fingerprint: 1}, {key: "b", fingerprint: 2}},
			[]answered{{"claimed", 0, 1}, {"exists", 0, 1}}, 1},
		"the same reference twice: the second is told of the first, and its key is free": {
			[]row{{key: "a", reference: "r"}, {key: "b", reference: "r"}},
			[]answered{{"claimed", 0, 1}, {"reference_open", 0, 0}}, 1},
		"the same reference twice, allowed": {
			[]row{{key: "a", reference: "r", concurrent: true}, {key: "b", reference: "r", concurrent: true}},
			[]answered{{"claimed", 0, 1}, {"claimed", 1, 1}}, 2},
		"a reference that is open with permission still holds one without": {
			[]row{{key: "a", reference: "r", concurrent: true}, {key: "b", reference: "r"}},
			[]answered{{"claimed", 0, 1}, {"reference_open", 0, 0}}, 1},
		"a wrong generation is sent back, and so is its duplicate": {
			[]row{{key: "a", generation: 3}, {key: "a", generation: 3}, {key: "b"}},
			[]answered{{"generation", 0, 0}, {"generation", 1, 0}, {"claimed", 2, 1}}, 1},
		"all at once": {
			[]row{{key: "d", reference: "r"}, {key: "b", generation: 1}, {key: "a", reference: "r"}, {key: "c"}, {key: "a", fingerprint: 9}, {key: "c"}},
			[]answered{{"reference_open", 2, 0}, {"generation", 1, 0}, {"claimed", 2, 1}, {"claimed", 3, 1}, {"exists", 2, 1}, {"exists", 3, 1}}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := b.northShop(t)
			_, answers, err := s.beginGroup(t.Context(), tc.rows)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, answers); diff != "" {
				t.Error(diff)
			}
			s.wantRows(tc.open, tc.open, tc.open, 0, 0)
			if n := s.count(`select count(*) from charges where merchant_id = $1 and status = 'pending'`, s.merchant.ID); n != tc.open {
				t.Errorf("%d pending", n)
			}
		})
	}
	t.Run("one bad row writes nothing of the group", func(t *testing.T) {
		t.Parallel()
		s := b.northShop(t)
		_, _, err := s.beginGroup(t.Context(), []row{{key: "a"}, {key: ""}, {key: "c"}})
		if !postgres.Rejected(err) {
			t.Errorf("%v", err)
		}
		s.wantRows(0, 0, 0, 0, 0)
	})
	t.Run("groups that cross over keys and references: all end, each claim is one", func(t *testing.T) {
		t.Parallel()
		s := b.northShop(t)
		groups := [][]row{
			{{key: "1", reference: "x"}, {key: "2", reference: "y"}, {key: "9", reference: "z"}},
			{{key: "0", reference: "y"}, {key: "3", reference: "x"}, {key: "9", reference: "w"}},
			{{key: "2", reference: "w"}, {key: "1", reference: "z"}, {key: "0", reference: "x"}},
		}
		for range 10 {
			var all sync.WaitGroup
			for _, group := range groups {
				all.Go(func() {
					_, _, err := s.beginGroup(t.Context(), group)
					if postgres.IsDeadlock(err) { // it has written nothing: its caller runs it again
						_, _, err = s.beginGroup(t.Context(), group)
					}
					if err != nil && !postgres.IsDeadlock(err) {
						t.Errorf("%v", err)
					}
				})
			}
			all.Wait()
			if n := s.count(`select count(*) from (select 1 from charges where merchant_id = $1 and status = 'pending' group by reference having count(*) > 1) x`, s.merchant.ID); n != 0 {
				t.Errorf("%d references have two open charges", n)
			}
			if n := s.count(`select count(*) from charges c full join idempotency_keys k using (merchant_id, charge_id) where merchant_id = $1 and (c.charge_id is null or (k.key is null and c.status = 'pending'))`, s.merchant.ID); n != 0 {
				t.Errorf("%d keys and charges do not fit", n)
			}
			s.exec(`delete from idempotency_keys where merchant_id = $1`, s.merchant.ID)
			s.exec(`delete from attempts where merchant_id = $1`, s.merchant.ID)
			s.exec(`delete from charges where merchant_id = $1`, s.merchant.ID)
		}
	})
}

// end is one row of a group of T2.
type end struct {
	charge int
	fence  int64
	status Status
}

// finishGroup runs T2 for a group of charges that were claimed.
func (s *shop) finishGroup(charges []Charge, ends []end) (outcomes []string, err error) {
	n := len(ends)
	keys, ids, fences, attempts := make([]string, n), make([]string, n), make([]int64, n), make([]int, n)
	states, calls, statuses := make([]string, n), make([]int, n), make([]string, n)
	captures, declines := make([]*string, n), make([]*string, n)
	codes, types, locations, bodies := make([]int, n), make([]string, n), make([]string, n), make([][]byte, n)
	kinds, debits, credits := make([]string, n), make([]string, n), make([]string, n)
	for i, e := range ends {
		c := charges[e.charge]
		keys[i], ids[i], fences[i], attempts[i] = c.IdempotencyKey, c.ID, e.fence, 1
		states[i], calls[i], statuses[i] = string(acquirer.Unclear), 1, string(e.status)
		captures[i], declines[i] = optional("c-"+c.ID), optional("no")
		codes[i], types[i], locations[i], bodies[i] = 201, "text/plain", "/", []byte(c.ID)
		transfer := ledger.Capture(c.ID, "north", c.Amount)
		kinds[i], debits[i], credits[i] = transfer.Kind, string(transfer.Debit), string(transfer.Credit)
	}
	rows, err := s.db.Pool.Query(s.t.Context(), `
		select f.o_ord, f.o_outcome
		  from charge_finish_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22) f`,
		s.merchant.ID, s.moment(), keys, ids, fences, attempts, states, calls, make([]*int, n), make([]*string, n), make([]*string, n),
		make([]*string, n), statuses, captures, declines, codes, types, locations, bodies, kinds, debits, credits)
	if err != nil {
		return nil, err
	}
	outcomes = make([]string, n)
	_, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (struct{}, error) {
		var ord int
		var outcome string
		err := row.Scan(&ord, &outcome)
		if err == nil {
			outcomes[ord-1] = outcome
		}
		return struct{}{}, err
	})
	return outcomes, err
}

func TestGroupsOfEndings(t *testing.T) {
	t.Parallel()
	b := openBooks(t)
	four := []row{{key: "d"}, {key: "b"}, {key: "a"}, {key: "c"}}
	for name, tc := range map[string]struct {
		ends                    []end
		want                    []string
		keys, transfers, events int
	}{
		"every ending": {
			[]end{{0, 1, Captured}, {1, 1, Declined}, {2, 1, Failed}, {3, 1, Unknown}},
			[]string{"applied", "applied", "applied", "applied"}, 2, 1, 4},
		"the same charge twice in one group": {
			[]end{{0, 1, Captured}, {1, 1, Unknown}, {0, 1, Captured}, {1, 1, Unknown}},
			[]string{"applied", "applied", "already", "already"}, 4, 1, 2},
		"the same charge twice with two outcomes: the first stands": {
			[]end{{0, 1, Captured}, {0, 1, Unknown}},
			[]string{"applied", "fenced"}, 4, 1, 1},
		"a fence that is not ours beside one that is": {
			[]end{{0, 2, Captured}, {1, 1, Captured}},
			[]string{"fenced", "applied"}, 4, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := b.northShop(t)
			charges, _, err := s.beginGroup(t.Context(), four)
			if err != nil {
				t.Fatal(err)
			}
			outcomes, err := s.finishGroup(charges, tc.ends)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, outcomes); diff != "" {
				t.Error(diff)
			}
			s.wantRows(tc.keys, 4, 4, tc.transfers, tc.events)
			if n := s.count(`select count(*) from idempotency_responses where merchant_id = $1`, s.merchant.ID); n != tc.transfers {
				t.Errorf("%d frozen answers", n)
			}
			s.wantBalanced()
			again, err := s.finishGroup(charges, tc.ends)
			if err != nil {
				t.Fatal(err)
			}
			for i, outcome := range again {
				if want := map[string]string{"applied": "already", "already": "already", "fenced": "fenced"}[tc.want[i]]; outcome != want {
					t.Errorf("again, row %d: %s, want %s", i, outcome, want)
				}
			}
		})
	}
	t.Run("one row that cannot be written takes the group with it", func(t *testing.T) {
		t.Parallel()
		s := b.northShop(t)
		charges, _, err := s.beginGroup(t.Context(), four)
		if err != nil {
			t.Fatal(err)
		}
		s.exec(`update attempts set state = 'not_sent', finished_at = now() where merchant_id = $1 and charge_id = $2`, s.merchant.ID, charges[3].ID)
		if _, err := s.finishGroup(charges, []end{{0, 1, Captured}, {3, 1, Captured}}); postgres.SQLState(err) != "PD003" {
			t.Errorf("%v", err)
		}
		if _, err := s.finishGroup(charges, []end{{0, 1, Captured}, {1, 1, Pending}}); postgres.SQLState(err) != "PD002" {
			t.Errorf("%v", err)
		}
		s.wantRows(4, 4, 4, 0, 0)
	})
}

func TestFailoverWrite(t *testing.T) {
	t.Parallel()
	s := openBooks(t).northShop(t)
	charge := s.abandon("k")
	proof := ending{n: 1, class: acquirer.NotSent, calls: 2, detail: "dial refused"}
	now := s.moment()
	if ours, err := failOver(t.Context(), s.db.Pool, charge, 2, proof, "south", now); err != nil || ours {
		t.Errorf("another's fence: %v, %v", ours, err)
	}
	for _, class := range []acquirer.Class{acquirer.Unclear, acquirer.InProgress, acquirer.Captured, acquirer.Declined, acquirer.Rejected} {
		if _, err := failOver(t.Context(), s.db.Pool, charge, 1, ending{n: 1, class: class}, "south", now); postgres.SQLState(err) != "PD002" {
			t.Errorf("after %s: %v", class, err)
		}
	}
	for range 2 { // the second finds what the first wrote
		if ours, err := failOver(t.Context(), s.db.Pool, charge, 1, proof, "south", now); err != nil || !ours {
			t.Errorf("%v, %v", ours, err)
		}
	}
	if ours, err := failOver(t.Context(), s.db.Pool, charge, 1, proof, "east", now); err != nil || ours {
		t.Errorf("to another acquirer than before: %v, %v", ours, err)
	}
	tried, err := s.Attempts(t.Context(), s.merchant.ID, charge.ID)
	if err != nil || len(tried) != 2 || tried[0].State != "not_sent" || tried[0].Calls != 2 || tried[1].State != string(ClassStarted) || tried[1].Acquirer != "south" {
		t.Errorf("%+v, %v", tried, err)
	}
	if now := s.open("k"); now.Acquirer != "south" || now.Status != Pending {
		t.Errorf("%+v", now)
	}
}

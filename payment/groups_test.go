package payment

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"paymentsd/acquirer"
	"paymentsd/idempotency"
	"paymentsd/internal/groupcommit"
	"paymentsd/internal/pgtest"
	"paymentsd/internal/postgres"
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

// writeOnce writes a group past the queue: at once, and without halving it.
func writeOnce[T, A any](ctx context.Context, q *groupcommit.Queue[T, A], group []T) ([]A, error) {
	w, err := q.Open(ctx)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	return w.Write(ctx, group, len(group) > 1)
}

// beginGroup runs T1 for a group.
func (s *shop) beginGroup(ctx context.Context, rows []row) (charges []Charge, answers []answered, err error) {
	charges = s.chargesOf(rows)
	group := make([]beginning, len(rows))
	for i, c := range charges {
		group[i] = beginning{charge: c, fingerprint: idempotency.Fingerprint{rows[i].fingerprint}}
	}
	claims, err := writeOnce(ctx, s.queues.begin, group)
	return charges, answersOf(charges, claims), err
}

// beginInTurn runs T1 for each row alone, in the order in which a group takes them.
func (s *shop) beginInTurn(rows []row) []answered {
	s.t.Helper()
	charges, claims := s.chargesOf(rows), make([]claim, len(rows))
	order := make([]int, len(rows))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(rows[a].key, rows[b].key) })
	for _, i := range order {
		alone, err := writeOnce(s.t.Context(), s.queues.begin, []beginning{{charge: charges[i], fingerprint: idempotency.Fingerprint{rows[i].fingerprint}}})
		if err != nil {
			s.t.Fatal(err)
		}
		claims[i] = alone[0]
	}
	return answersOf(charges, claims)
}

func answersOf(charges []Charge, claims []claim) (answers []answered) {
	index := map[string]int{}
	for i, c := range charges {
		index[c.ID] = i
	}
	for _, c := range claims {
		of, inGroup := index[c.chargeID]
		if !inGroup {
			of = -1
		}
		answers = append(answers, answered{c.outcome, of, c.fence})
	}
	return answers
}

// beginIn runs T1 inside a transaction of the test's.
func (s *shop) beginIn(tx pgx.Tx, c Charge, fingerprint idempotency.Fingerprint) (claimed claim) {
	s.t.Helper()
	var columns beginColumns
	columns.add(beginning{charge: c, fingerprint: fingerprint})
	statement := columns.statement(c.Merchant, false, time.Minute, func(rows pgx.Rows) (err error) {
		rows.Next()
		_, claimed, err = scanClaim(rows)
		return err
	})
	rows, err := tx.Query(s.t.Context(), statement.SQL, statement.Args...)
	if err != nil {
		s.t.Fatal(err)
	}
	defer rows.Close()
	if err := statement.Read(rows); err != nil {
		s.t.Fatal(err)
	}
	return claimed
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
			if diff := gocmp.Diff(tc.want, answers); diff != "" {
				t.Error(diff)
			}
			s.wantRows(tc.open, tc.open, tc.open, 0, 0)
			if n := s.count(`select count(*) from charges where merchant_id = $1 and status = 'pending'`, s.merchant.ID); n != tc.open {
				t.Errorf("%d pending", n)
			}
			inTurn := b.northShop(t)
			if diff := gocmp.Diff(tc.want, inTurn.beginInTurn(tc.rows)); diff != "" {
				t.Errorf("one by one: %s", diff)
			}
			inTurn.wantRows(tc.open, tc.open, tc.open, 0, 0)
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
					if err != nil {
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
	group := make([]conclusion, len(ends))
	for i, e := range ends {
		c := charges[e.charge]
		c.Status, c.CaptureID, c.DeclineCode, c.UpdatedAt, c.Acquirer = e.status, "c-"+c.ID, "no", s.moment(), "north"
		group[i] = conclusion{charge: c, fence: e.fence, last: ending{n: 1, class: acquirer.Unclear, calls: 1}, frozen: frozenAs(c)}
	}
	return writeOnce(s.t.Context(), s.queues.finish, group)
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
			if diff := gocmp.Diff(tc.want, outcomes); diff != "" {
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

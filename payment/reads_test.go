package payment

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"paymentsd/acquirer"
	"paymentsd/merchant"
)

func TestListPages(t *testing.T) {
	t.Parallel()
	b := openBooks(t)
	s := b.shop(t, []named{{"north", answering(), plainly()}, {"south", answering(), plainly()}})
	var want []string
	for i := range 25 {
		want = append(want, s.charge(s.request(fmt.Sprintf("k%d", i))).Charge.ID)
	}
	other := b.northShop(t)
	other.charge(other.request("k0"))
	slices.Sort(want)
	slices.Reverse(want) // newest first; within a millisecond the order is any, but fixed

	for name, m := range map[string]*merchant.ID{"of a merchant": &s.merchant.ID, "of all": nil} {
		var got []string
		for after, more := "", true; more; {
			page, err := s.List(t.Context(), Filter{Merchant: m, Limit: 7, StartingAfter: after})
			if err != nil || len(page.Charges) == 0 {
				t.Fatalf("%s: %v", name, err)
			}
			for _, c := range page.Charges {
				if c.Merchant == s.merchant.ID {
					got = append(got, c.ID)
				}
			}
			after, more = page.Charges[len(page.Charges)-1].ID, page.HasMore
		}
		if m == nil { // by time, so that merchants mix
			slices.Sort(got)
			slices.Reverse(got)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %d of %d, %v", name, len(got), len(want), got)
		}
	}
	for name, f := range map[string]Filter{
		"by reference": {Reference: "order-k3"}, "by key": {IdempotencyKey: "k3"},
	} {
		f.Merchant, f.Limit = &s.merchant.ID, 10
		if page, err := s.List(t.Context(), f); err != nil || len(page.Charges) != 1 || page.Charges[0].IdempotencyKey != "k3" {
			t.Errorf("%s: %+v, %v", name, page, err)
		}
	}
	for name, f := range map[string]Filter{"by state": {Status: Unknown}, "by acquirer": {Acquirer: "south"}, "by time": {CreatedAfter: time.Now().Add(time.Hour)}} {
		f.Merchant, f.Limit = &s.merchant.ID, 10
		if page, err := s.List(t.Context(), f); err != nil || len(page.Charges) != 0 || page.HasMore {
			t.Errorf("%s: %+v, %v", name, page, err)
		}
	}
	for _, cursor := range []string{"x", "ch_", strings.ToLower(want[0]), NewChargeID(other.merchant.ID, time.Now())} {
		if _, err := s.List(t.Context(), Filter{Merchant: &s.merchant.ID, Limit: 10, StartingAfter: cursor}); !errors.Is(err, ErrInvalidCursor) {
			t.Errorf("cursor %q: %v", cursor, err)
		}
	}
	if _, err := s.List(t.Context(), Filter{Limit: 10, StartingAfter: NewChargeID(s.merchant.ID, time.Now())}); !errors.Is(err, ErrInvalidCursor) {
		t.Errorf("a cursor that names no charge: %v", err)
	}
	for _, limit := range []int{0, -1, 101} {
		if _, err := s.List(t.Context(), Filter{Limit: limit}); err == nil {
			t.Errorf("limit %d is accepted", limit)
		}
	}
}

func TestExposures(t *testing.T) {
	t.Parallel()
	s := openBooks(t).shop(t, []named{{"north", answering(times(12, of(acquirer.Unclear))...), plainly()}})
	for i, amount := range []string{"0.10", "0.20", "999999999999.99"} {
		req := s.request(fmt.Sprintf("k%d", i))
		req.Amount = usd(amount)
		wantStatus(t, s.charge(req), Unknown)
	}
	req := s.request("yen")
	req.Amount = yen("80")
	wantStatus(t, s.charge(req), Unknown)
	got, err := s.Exposures(t.Context())
	if err != nil || len(got) != 2 {
		t.Fatalf("%+v, %v", got, err)
	}
	if got[0].Sum.String() != "80" || got[1].Sum.String() != "1000000000000.29" || got[1].Count != 3 || got[1].Acquirer != "north" {
		t.Errorf("%+v", got)
	}
}

func TestIdentifiers(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := merchant.ID(rapid.Int64Range(0, int64(merchant.MaxID)).Draw(t, "merchant"))
		key, generation := rapid.String().Draw(t, "key"), rapid.IntRange(0, 1000).Draw(t, "generation")
		ref := AcqRef(m, key, generation)
		if again := AcqRef(m, key, generation); again != ref || len(ref) != 20 || strings.ToUpper(ref) != ref {
			t.Fatalf("%q, then %q", ref, again)
		}
		if of, ok := MerchantOfReference(ref); !ok || of != m {
			t.Fatalf("reference %s is of %d, %v; want %d", ref, of, ok, m)
		}
		if AcqRef(m, key, generation+1) == ref || AcqRef(m, key+"x", generation) == ref {
			t.Fatal("two charges have one reference")
		}
		id := NewChargeID(m, time.Unix(rapid.Int64Range(0, 4e9).Draw(t, "time"), 0))
		if of, err := MerchantOf(id); err != nil || of != m {
			t.Fatalf("charge %s is of %d, %v; want %d", id, of, err, m)
		}
	})
	now := time.Now()
	if a, b := NewChargeID(7, now), NewChargeID(7, now.Add(time.Millisecond)); a >= b {
		t.Errorf("%s is not before %s", a, b)
	}
	for _, id := range []string{"", "ch_", "ch_" + strings.Repeat("A", 25), "ch_" + strings.Repeat("A", 27), "xx_" + strings.Repeat("A", 26), "ch_0" + strings.Repeat("A", 25), "ch_" + strings.Repeat("a", 26), "ch_A" + strings.Repeat("U", 25)} {
		if m, err := MerchantOf(id); !errors.Is(err, ErrNotFound) {
			t.Errorf("%q is of %d, %v", id, m, err)
		}
	}
	for _, ref := range []string{"", strings.Repeat("A", 19), strings.Repeat("A", 21), "0" + strings.Repeat("A", 19), strings.Repeat("a", 20), "I" + strings.Repeat("A", 19)} {
		if m, ok := MerchantOfReference(ref); ok {
			t.Errorf("%q is of %d", ref, m)
		}
	}
}

// TestIdentifiersFitTheSchema: Go and the CHECKs of Postgres say the same about references and ids.
func TestIdentifiersFitTheSchema(t *testing.T) {
	t.Parallel()
	s := openBooks(t).northShop(t)
	batch := &pgx.Batch{}
	insert := func(m merchant.ID, ref string) {
		batch.Queue(`insert into charges (merchant_id, charge_id, idempotency_key, generation, acq_ref, amount, currency, allow_concurrent, payment_method, status, acquirer, created_at, updated_at)
			values ($1, $2, 'k', 0, $3, 1, 'USD', false, 'tok', 'pending', 'north', now(), now())`, m, NewChargeID(m, time.Now()), ref)
	}
	ids := []merchant.ID{0, 31, 32, 1 << 25, merchant.MaxID - 1, merchant.MaxID}
	for range 1000 {
		ids = append(ids, merchant.NewID())
	}
	for _, m := range ids {
		insert(m, AcqRef(m, "k", 0))
	}
	if err := s.owner.SendBatch(t.Context(), batch).Close(); err != nil {
		t.Fatal(err)
	}
	for _, wrong := range []string{AcqRef(6, "k", 0), strings.ToLower(AcqRef(5, "k", 0)), AcqRef(5, "k", 0)[:19]} {
		batch = &pgx.Batch{}
		insert(5, wrong)
		if err := s.owner.SendBatch(t.Context(), batch).Close(); err == nil {
			t.Errorf("merchant 5 has a charge under %s", wrong)
		}
	}
}

// TestHotLookUpsUseIndexes reads the plans on a merchant's 10,000 charges.
func TestHotLookUpsUseIndexes(t *testing.T) {
	t.Parallel()
	s := openBooks(t).northShop(t)
	conn, err := s.owner.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	// Tables that are small here are not small in use.
	if _, err := conn.Exec(t.Context(), "set enable_seqscan = off"); err != nil {
		t.Fatal(err)
	}
	m := s.merchant.ID
	s.exec(`insert into charges (merchant_id, charge_id, idempotency_key, generation, acq_ref, amount, currency, reference, allow_concurrent,
			payment_method, status, acquirer, capture_id, created_at, updated_at)
		select $1, 'ch_' || $2 || lpad(g::text, 20, '0'), 'key' || g, 0, $2 || lpad(g::text, 14, '0'), 1, 'USD', 'order' || g, false,
			'tok', case when g % 1000 = 0 then 'unknown' else 'captured' end, 'north', 'c', now(), now() from generate_series(1, 10000) g`, m, m.Code())
	s.exec(`analyze charges`)
	after := "ch_" + m.Code() + "00000000000000005000"
	page := func(reference, key, after string) pgx.NamedArgs {
		return pgx.NamedArgs{
			"merchant": m, "reference": reference, "key": key, "status": "", "acquirer": "", "created_after": time.Time{}, "after": after, "limit": 10,
		}
	}
	for name, tc := range map[string]struct {
		sql   string
		args  pgx.NamedArgs
		index string
	}{
		"a charge":             {selectCharge, pgx.NamedArgs{"merchant": m, "charge": after}, "charges_pkey"},
		"its attempts":         {selectAttempts, pgx.NamedArgs{"merchant": m, "charge": after}, "attempts_pkey"},
		"its evidence":         {selectResolutions, pgx.NamedArgs{"merchant": m, "charge": after}, "resolutions_pkey"},
		"by references":        {byAcqRefs, pgx.NamedArgs{"merchant": m, "refs": []string{"a", "b"}}, "charges_one_per_acq_ref"},
		"a page":               {listCharges, page("", "", after), "charges_pkey"},
		"by order reference":   {listCharges, page("order7", "", ""), "charges_by_reference"},
		"by key":               {listCharges, page("", "key7", ""), "charges_one_per_generation"},
		"exposures":            {sumExposures, nil, "charges_unknown"},
		"operators' decisions": {recentDecisions, pgx.NamedArgs{"since": time.Now(), "merchant": 1, "charge": "", "resolution": "", "limit": 10}, "resolutions_by_operator"},
	} {
		t.Run(name, func(t *testing.T) {
			rows, err := conn.Query(t.Context(), "explain "+tc.sql, tc.args)
			if err != nil {
				t.Fatal(err)
			}
			lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil {
				t.Fatal(err)
			}
			if plan := strings.Join(lines, "\n"); !strings.Contains(plan, tc.index) || strings.Contains(plan, "Seq Scan") {
				t.Errorf("want %s:\n%s", tc.index, plan)
			}
		})
	}
}

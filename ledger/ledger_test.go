package ledger

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/shopspring/decimal"
	"pgregory.net/rapid"

	"paymentsd/internal/pgtest"
	"paymentsd/internal/postgres"
	"paymentsd/merchant"
	"paymentsd/money"
)

func TestEverySQLConstantPrepares(t *testing.T) {
	t.Parallel()
	pgtest.PrepareAll(t, ".")
}

// books are those of one merchant.
type books struct {
	*pgtest.DB
	t *testing.T
	m merchant.ID
}

func newBooks(t *testing.T, db *pgtest.DB) books { return books{db, t, merchant.ID(db.Merchant())} }

func amount(text string, c money.Currency) money.Amount {
	a, err := money.Parse(text, c)
	if err != nil {
		panic(err)
	}
	return a
}

func (b books) try(t Transfer) (posted bool, err error) {
	err = postgres.InTx(b.t.Context(), b.Pool, func(tx pgx.Tx) error {
		posted, err = Post(b.t.Context(), tx, b.m, t)
		return err
	})
	return posted, err
}

func (b books) post(transfers ...Transfer) {
	b.t.Helper()
	for _, t := range transfers {
		if posted, err := b.try(t); err != nil || !posted {
			b.t.Fatalf("post %+v: %v, %v", t, posted, err)
		}
	}
}

// backdate moves what was posted so far into the past, where it can be rolled up.
func (b books) backdate(by time.Duration) {
	b.t.Helper()
	if _, err := b.Owner().Exec(b.t.Context(), `update ledger_transfers set posted_at = posted_at - $2::interval where merchant_id = $1`, b.m, by); err != nil {
		b.t.Fatal(err)
	}
}

// wantBalances checks the balances, and that the transfers alone come to the same.
func (b books) wantBalances(want ...string) {
	b.t.Helper()
	for name, read := range map[string]func() ([]Balance, error){
		"with roll-ups": func() ([]Balance, error) { return Balances(b.t.Context(), b.Pool, b.m) },
		"anew":          func() ([]Balance, error) { return BalancesAnew(b.t.Context(), b.Pool, b.m) },
	} {
		balances, err := read()
		if err != nil {
			b.t.Fatal(err)
		}
		got := []string{}
		for _, balance := range balances {
			got = append(got, balance.String())
		}
		if diff := cmp.Diff(append([]string{}, want...), got); diff != "" {
			b.t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestPost(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	capture := Capture("ch_1", "north", amount("49.99", "USD"))
	t.Run("once, and the same again is harmless", func(t *testing.T) {
		t.Parallel()
		b := newBooks(t, db)
		b.post(capture)
		for range 3 {
			if posted, err := b.try(capture); err != nil || posted {
				t.Errorf("%v, %v", posted, err)
			}
		}
		spelt := capture
		spelt.Amount = amount("49.990000"[:5], "USD")
		if posted, err := b.try(spelt); err != nil || posted {
			t.Errorf("%v, %v", posted, err)
		}
		b.wantBalances("acquirer_receivable:north 49.99 USD", "merchant_payable -49.99 USD")
	})
	t.Run("other content under the same id is a conflict", func(t *testing.T) {
		t.Parallel()
		b := newBooks(t, db)
		b.post(capture)
		for name, change := range map[string]func(*Transfer){
			"amount": func(x *Transfer) { x.Amount = amount("49.98", "USD") }, "currency": func(x *Transfer) { x.Amount = amount("49.99", "EUR") },
			"debit": func(x *Transfer) { x.Debit = AcquirerReceivable("south") }, "credit": func(x *Transfer) { x.Credit = Bank("north") },
			"kind": func(x *Transfer) { x.Kind = "fee" },
			// Regression: the charge was not compared.
			"charge": func(x *Transfer) { x.ChargeID = "ch_2" }, "no charge": func(x *Transfer) { x.ChargeID = "" },
		} {
			other := capture
			change(&other)
			if posted, err := b.try(other); !errors.Is(err, ErrConflict) || posted {
				t.Errorf("another %s: %v, %v", name, posted, err)
			}
		}
		b.wantBalances("acquirer_receivable:north 49.99 USD", "merchant_payable -49.99 USD")
	})
	t.Run("two merchants' books are apart", func(t *testing.T) {
		t.Parallel()
		a, b := newBooks(t, db), newBooks(t, db)
		a.post(capture)
		b.post(capture)
		b.wantBalances("acquirer_receivable:north 49.99 USD", "merchant_payable -49.99 USD")
	})
	t.Run("what is no movement is refused", func(t *testing.T) {
		t.Parallel()
		b := newBooks(t, db)
		for name, change := range map[string]func(*Transfer){
			"nothing": func(x *Transfer) { x.Amount = money.Zero("USD") }, "less than nothing": func(x *Transfer) { x.Amount = x.Amount.Neg() },
			"from an account to itself": func(x *Transfer) { x.Credit = x.Debit }, "no amount": func(x *Transfer) { x.Amount = money.Amount{} },
			"an account of another form": func(x *Transfer) { x.Debit = "acquirer_receivable:North" }, "no account": func(x *Transfer) { x.Debit = "" },
			"a kind of another form": func(x *Transfer) { x.Kind = "Capture!" }, "no id": func(x *Transfer) { x.ID = "" },
			"an id without an end": func(x *Transfer) { x.ID = strings.Repeat("x", 201) },
		} {
			bad := capture
			change(&bad)
			if _, err := b.try(bad); err == nil || errors.Is(err, ErrConflict) {
				t.Errorf("%s: %v", name, err)
			}
		}
		b.wantBalances()
	})
	t.Run("rolled back with its transaction", func(t *testing.T) {
		t.Parallel()
		b := newBooks(t, db)
		lost := errors.New("lost")
		err := postgres.InTx(t.Context(), b.Pool, func(tx pgx.Tx) error {
			if _, err := Post(t.Context(), tx, b.m, capture); err != nil {
				return err
			}
			return lost
		})
		if !errors.Is(err, lost) {
			t.Fatal(err)
		}
		b.wantBalances()
		b.post(capture)
	})
	t.Run("the same movement by many at once is one", func(t *testing.T) {
		t.Parallel()
		b := newBooks(t, db)
		var all sync.WaitGroup
		var mu sync.Mutex
		count := 0
		for range 20 {
			all.Go(func() {
				posted, err := b.try(capture)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					t.Errorf("%v", err)
				}
				if posted {
					count++
				}
			})
		}
		all.Wait()
		if count != 1 {
			t.Errorf("posted %d times", count)
		}
	})
}

func TestAmountsAreExact(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	t.Run("peers case 26: 10,000 lines of 0.10, 80 yen and 1.235 dinar", func(t *testing.T) {
		t.Parallel()
		b := newBooks(t, db)
		_, err := b.Owner().Exec(t.Context(), `
			insert into ledger_transfers (merchant_id, transfer_id, kind, debit_account, credit_account, amount, currency, posted_at)
			select $1, c.currency || g, 'capture', 'acquirer_receivable:north', 'merchant_payable', c.amount, c.currency, now()
			  from generate_series(1, 10000) g, (values ('USD', 0.10), ('JPY', 80), ('KWD', 1.235)) c (currency, amount)`, b.m)
		if err != nil {
			t.Fatal(err)
		}
		b.wantBalances("acquirer_receivable:north 800000 JPY", "acquirer_receivable:north 12350.000 KWD", "acquirer_receivable:north 1000.00 USD",
			"merchant_payable -800000 JPY", "merchant_payable -12350.000 KWD", "merchant_payable -1000.00 USD")
	})
	t.Run("the smallest and the largest", func(t *testing.T) {
		t.Parallel()
		b := newBooks(t, db)
		for i, text := range []string{"0.001", "999999999999.999"} {
			b.post(Transfer{ID: fmt.Sprint(i), Kind: "capture", Debit: "a", Credit: "b", Amount: amount(text, "KWD")})
		}
		b.wantBalances("a 1000000000000.000 KWD", "b -1000000000000.000 KWD")
		transfers, more, err := Transfers(t.Context(), b.Pool, b.m, Query{Limit: 10})
		if err != nil || more || len(transfers) != 2 || transfers[0].Amount.String() != "999999999999.999" || transfers[1].Amount.String() != "0.001" {
			t.Errorf("%+v, %v", transfers, err)
		}
	})
}

func TestTransfers(t *testing.T) {
	t.Parallel()
	b := newBooks(t, pgtest.New(t))
	for i := range 9 {
		x := Capture(fmt.Sprint("ch_", i), []string{"north", "south"}[i%2], amount("1.00", "USD"))
		b.post(x)
	}
	b.post(Transfer{ID: "s", Kind: "settlement", Debit: Bank("north"), Credit: AcquirerReceivable("north"), Amount: amount("4.00", "USD")})
	ids := func(q Query) (ids []string) {
		t.Helper()
		for {
			page, more, err := Transfers(t.Context(), b.Pool, b.m, q)
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range page {
				ids = append(ids, x.ID)
			}
			if !more {
				return ids
			}
			q.StartingAfter = page[len(page)-1].ID
		}
	}
	for name, tc := range map[string]struct {
		q    Query
		want string
	}{
		"newest first, page by page": {Query{Limit: 3}, "[s ch_8:capture ch_7:capture ch_6:capture ch_5:capture ch_4:capture ch_3:capture ch_2:capture ch_1:capture ch_0:capture]"},
		"of a charge":                {Query{Limit: 3, ChargeID: "ch_4"}, "[ch_4:capture]"},
		"of an account, both sides":  {Query{Limit: 2, Account: AcquirerReceivable("north")}, "[s ch_8:capture ch_6:capture ch_4:capture ch_2:capture ch_0:capture]"},
		"of nothing":                 {Query{Limit: 3, Account: "bank:east"}, "[]"},
	} {
		if got := fmt.Sprint(ids(tc.q)); got != tc.want {
			t.Errorf("%s: %s", name, got)
		}
	}
	// Regression: a cursor that is none looked like the end of the list.
	for _, cursor := range []string{"x", "ch_9:capture"} {
		if _, _, err := Transfers(t.Context(), b.Pool, b.m, Query{Limit: 3, StartingAfter: cursor}); !errors.Is(err, ErrInvalidCursor) {
			t.Errorf("cursor %q: %v", cursor, err)
		}
	}
	if page, more, err := Transfers(t.Context(), b.Pool, b.m, Query{Limit: 3, StartingAfter: "ch_0:capture"}); err != nil || more || len(page) != 0 {
		t.Errorf("after the last: %v, %v, %v", page, more, err)
	}
	b.wantBalances("acquirer_receivable:north 1.00 USD", "acquirer_receivable:south 4.00 USD", "bank:north 4.00 USD", "merchant_payable -9.00 USD")
}

func TestRollUp(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	through := func() time.Time { return time.Now().Add(-RollupLag) }
	// Regression: no roll-up could be written at all.
	t.Run("balances stay the same, before, after and between", func(t *testing.T) {
		t.Parallel()
		b := newBooks(t, db)
		want := []string{"acquirer_receivable:north 3.00 USD", "merchant_payable -3.00 USD"}
		for i := range 3 {
			b.post(Capture(fmt.Sprint("ch_", i), "north", amount("1.00", "USD")))
			b.backdate(2 * time.Hour)
		}
		b.wantBalances(want...)
		for _, back := range []time.Duration{5 * time.Hour, 3 * time.Hour, 0, 4 * time.Hour} { // also an earlier moment after a later one
			if err := RollUp(t.Context(), b.Pool, b.m, through().Add(-back)); err != nil {
				t.Fatal(err)
			}
			b.wantBalances(want...)
		}
		b.post(Capture("ch_new", "north", amount("1.00", "USD")))
		b.wantBalances("acquirer_receivable:north 4.00 USD", "merchant_payable -4.00 USD")
	})
	// Regression: nothing kept a roll-up from a moment at which transfers were still being written.
	t.Run("a moment that is too recent is refused", func(t *testing.T) {
		t.Parallel()
		b := newBooks(t, db)
		b.post(Capture("ch_1", "north", amount("1.00", "USD")))
		for _, moment := range []time.Time{time.Now(), time.Now().Add(time.Hour), time.Now().Add(-RollupLag / 4)} {
			if err := RollUp(t.Context(), b.Pool, b.m, moment); !errors.Is(err, ErrTooRecent) {
				t.Errorf("%v", err)
			}
		}
		if err := RollUp(t.Context(), b.Pool, b.m, through().Add(time.Minute)); err != nil { // a replica's clock may be wrong by a minute
			t.Errorf("%v", err)
		}
	})
	t.Run("many at once give the same rows", func(t *testing.T) {
		t.Parallel()
		b := newBooks(t, db)
		for i := range 10 {
			b.post(Capture(fmt.Sprint("ch_", i), "north", amount("0.10", "USD")))
		}
		b.backdate(2 * time.Hour)
		moment := through()
		var all sync.WaitGroup
		for i := range 6 {
			all.Go(func() {
				if err := RollUp(t.Context(), b.Pool, b.m, moment.Add(-time.Duration(i%2)*time.Minute)); err != nil {
					t.Errorf("%v", err)
				}
			})
		}
		all.Wait()
		b.wantBalances("acquirer_receivable:north 1.00 USD", "merchant_payable -1.00 USD")
		var rows int
		if err := b.Pool.QueryRow(t.Context(), `select count(*) from ledger_rollups where merchant_id = $1`, b.m).Scan(&rows); err != nil || rows != 4 {
			t.Errorf("%d rows, %v; want two accounts at two moments", rows, err)
		}
	})
	t.Run("old ones go, the newest stays", func(t *testing.T) {
		t.Parallel()
		b := newBooks(t, db)
		b.post(Capture("ch_1", "north", amount("1.00", "USD")))
		b.backdate(30 * 24 * time.Hour)
		for _, days := range []int{20, 10, 1} {
			if err := RollUp(t.Context(), b.Pool, b.m, time.Now().AddDate(0, 0, -days)); err != nil {
				t.Fatal(err)
			}
		}
		var rows int
		if err := b.Pool.QueryRow(t.Context(), `select count(*) from ledger_rollups where merchant_id = $1`, b.m).Scan(&rows); err != nil || rows != 2 {
			t.Errorf("%d rows, %v; want the two of yesterday", rows, err)
		}
		b.wantBalances("acquirer_receivable:north 1.00 USD", "merchant_payable -1.00 USD")
	})
	t.Run("all merchants with news", func(t *testing.T) {
		t.Parallel()
		db := pgtest.New(t)
		for range 3 {
			b := newBooks(t, db)
			b.post(Capture("ch_1", "north", amount("1.00", "USD")))
			b.backdate(2 * time.Hour)
		}
		newBooks(t, db).post(Capture("ch_1", "north", amount("1.00", "USD"))) // its only transfer is too new
		if n, err := RollUpAll(t.Context(), db.Pool, time.Now().Add(-26*time.Hour), through()); err != nil || n != 3 {
			t.Errorf("%d, %v", n, err)
		}
	})
}

// TestBalancesProperty: whatever is posted and rolled up in whatever order, the roll-ups say what the
// transfers say, and what a plain sum here says.
func TestBalancesProperty(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	owner := db.Owner()
	accounts := rapid.SampledFrom([]string{"a", "b", "c:x"})
	currencies := rapid.SampledFrom([]money.Currency{"USD", "JPY", "KWD"})
	rapid.Check(t, func(rt *rapid.T) {
		b := newBooks(t, db)
		want := map[string]decimal.Decimal{}
		for i := range rapid.IntRange(1, 12).Draw(rt, "steps") {
			hours := rapid.IntRange(2, 40).Draw(rt, "hours ago")
			at := time.Now().Add(-time.Duration(hours) * time.Hour)
			if rapid.IntRange(0, 2).Draw(rt, "roll up") == 0 {
				if err := RollUp(t.Context(), b.Pool, b.m, time.Now().Add(-RollupLag)); err != nil {
					rt.Fatal(err)
				}
				continue
			}
			debit, credit := accounts.Draw(rt, "debit"), accounts.Draw(rt, "credit")
			if debit == credit {
				continue
			}
			currency := currencies.Draw(rt, "currency")
			sum := decimal.New(rapid.Int64Range(1, 1e9).Draw(rt, "minor"), -int32(currency.Exponent()))
			if rolled(rt, b) { // after a roll-up only later transfers can appear
				at = time.Now()
			}
			_, err := owner.Exec(t.Context(), `
				insert into ledger_transfers (merchant_id, transfer_id, kind, debit_account, credit_account, amount, currency, posted_at)
				values ($1, $2, 'x', $3, $4, $5, $6, $7)`, b.m, fmt.Sprint(i), debit, credit, sum, currency, at)
			if err != nil {
				rt.Fatal(err)
			}
			want[debit+" "+string(currency)] = want[debit+" "+string(currency)].Add(sum)
			want[credit+" "+string(currency)] = want[credit+" "+string(currency)].Sub(sum)
		}
		balances, err := Balances(t.Context(), b.Pool, b.m)
		if err != nil || len(balances) != len(want) {
			rt.Fatalf("%v, %v; want %v", balances, err, want)
		}
		for _, balance := range balances {
			if key := string(balance.Account) + " " + string(balance.Currency); !balance.Net().Equal(want[key]) {
				rt.Fatalf("%s: %s, want %s", key, balance.Net(), want[key])
			}
		}
	})
	sums, err := TrialBalance(t.Context(), db.Pool)
	if err != nil || len(sums) != 3 {
		t.Fatalf("%v, %v", sums, err)
	}
	for _, s := range sums {
		if !s.Net().IsZero() || !s.Debits.IsPositive() {
			t.Errorf("%+v", s)
		}
	}
}

func rolled(rt *rapid.T, b books) (is bool) {
	if err := b.Pool.QueryRow(b.t.Context(), `select exists (select 1 from ledger_rollups r where r.merchant_id = $1)`, b.m).Scan(&is); err != nil {
		rt.Fatal(err)
	}
	return is
}

func TestManyWriters(t *testing.T) {
	t.Parallel()
	t.Run("peers case 33: 32 writers on one merchant and its fee account, no deadlock, nothing lost", func(t *testing.T) {
		t.Parallel()
		b := newBooks(t, pgtest.New(t))
		const writers, each = 32, 12
		var all sync.WaitGroup
		for w := range writers {
			all.Go(func() {
				for i := range each {
					id := fmt.Sprintf("ch_%d_%d", w, i)
					// Not through InTx, which would run the loser of a deadlock again.
					err := pgx.BeginFunc(t.Context(), b.Pool, func(tx pgx.Tx) error {
						pair := []Transfer{
							Capture(id, "north", amount("1.00", "USD")),
							{ID: id + ":fee", ChargeID: id, Kind: "fee", Debit: Fees("north"), Credit: AcquirerReceivable("north"), Amount: amount("0.03", "USD")},
						}
						for j := range pair {
							if _, err := Post(t.Context(), tx, b.m, pair[(j+w)%2]); err != nil { // in either order
								return err
							}
						}
						return nil
					})
					if err != nil {
						t.Errorf("%s: %v", id, err)
					}
				}
			})
		}
		all.Wait()
		b.wantBalances("acquirer_fees:north 11.52 USD", "acquirer_receivable:north 372.48 USD", "merchant_payable -384.00 USD")
	})
}

package idempotency

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"paymentsd/internal/pgtest"
	"paymentsd/internal/postgres"
	"paymentsd/merchant"
)

func TestEverySQLConstantPrepares(t *testing.T) {
	t.Parallel()
	pgtest.PrepareAll(t, ".")
}

// keys are the keys of one merchant in a database that other tests may use, too.
type keys struct {
	*pgtest.DB
	t *testing.T
	m merchant.ID
}

func newKeys(t *testing.T, db *pgtest.DB) keys { return keys{db, t, merchant.ID(db.Merchant())} }

// claim puts a key in flight whose lease ends in so long; negative has passed.
func (k keys) claim(key string, lease time.Duration) Abandoned {
	k.t.Helper()
	a := Abandoned{Merchant: k.m, Key: key, ChargeID: "ch_" + key}
	k.exec(`insert into idempotency_keys (merchant_id, key, state, fingerprint, charge_id, fence, lease_until, created_at)
		values ($1, $2, 'in_flight', $3, $4, 1, now() + $5::interval, now())`, a.Merchant, a.Key, make([]byte, 33), a.ChargeID, lease)
	return a
}

func (k keys) exec(sql string, args ...any) {
	k.t.Helper()
	if _, err := k.Pool.Exec(k.t.Context(), sql, args...); err != nil {
		k.t.Fatalf("%s: %v", sql, err)
	}
}

func (k keys) state(key string) (Record, error) { return Lookup(k.t.Context(), k.Pool, k.m, key) }

func (k keys) takeOver(a Abandoned) (taken bool, err error) {
	err = postgres.InTx(k.t.Context(), k.Pool, func(tx pgx.Tx) error {
		taken, err = TakeOver(k.t.Context(), tx, a)
		return err
	})
	return taken, err
}

func (k keys) wantState(key string, want State, fence int64) {
	k.t.Helper()
	if r, err := k.state(key); err != nil || r.State != want || r.Fence != fence {
		k.t.Errorf("key %s is %s under fence %d, %v; want %s under %d", key, r.State, r.Fence, err, want, fence)
	}
}

func TestTakeOver(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	t.Run("a lease that has passed: unknown, and the holder is fenced off", func(t *testing.T) {
		t.Parallel()
		k := newKeys(t, db)
		a := k.claim("k", -time.Second)
		if taken, err := k.takeOver(a); err != nil || !taken {
			t.Errorf("%v, %v", taken, err)
		}
		k.wantState("k", Unknown, 2)
		if taken, err := k.takeOver(a); err != nil || taken {
			t.Errorf("taken twice: %v, %v", taken, err)
		}
	})
	t.Run("a lease that has not passed is left alone", func(t *testing.T) {
		t.Parallel()
		k := newKeys(t, db)
		if taken, err := k.takeOver(k.claim("k", time.Minute)); err != nil || taken {
			t.Errorf("%v, %v", taken, err)
		}
		k.wantState("k", InFlight, 1)
	})
	t.Run("a key that was freed and claimed anew is another's", func(t *testing.T) {
		t.Parallel()
		k := newKeys(t, db)
		old := k.claim("k", -time.Second)
		old.ChargeID = "ch_before"
		if taken, err := k.takeOver(old); err != nil || taken {
			t.Errorf("%v, %v", taken, err)
		}
	})
	t.Run("holder and sweeps at once: one of them has it", func(t *testing.T) {
		t.Parallel()
		k := newKeys(t, db)
		for i := range 50 {
			a := k.claim(fmt.Sprint("k", i), -time.Second)
			var mu sync.Mutex
			winners := 0
			count := func(won bool, err error) {
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					t.Errorf("%v", err)
				}
				if won {
					winners++
				}
			}
			var all sync.WaitGroup
			all.Go(func() { // the holder ends it under its fence
				tag, err := k.Pool.Exec(t.Context(), `delete from idempotency_keys where merchant_id = $1 and key = $2 and fence = 1 and state = 'in_flight'`, k.m, a.Key)
				count(tag.RowsAffected() == 1, err)
			})
			for range 2 {
				all.Go(func() { count(k.takeOver(a)) })
			}
			all.Wait()
			if winners != 1 {
				t.Fatalf("key %d: %d winners", i, winners)
			}
		}
	})
}

func TestListAbandonedAndPostpone(t *testing.T) {
	t.Parallel()
	k := newKeys(t, pgtest.New(t))
	k.claim("alive", time.Minute)
	for i := range 5 {
		k.claim(fmt.Sprint("poisoned", i), -time.Hour-time.Duration(i)*time.Minute)
	}
	fresh := k.claim("fresh", -time.Second)
	list := func(limit int) (names []string) {
		t.Helper()
		found, err := ListAbandoned(t.Context(), k.Pool, limit)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range found {
			names = append(names, a.Key)
		}
		return names
	}
	if got := fmt.Sprint(list(3)); got != "[poisoned4 poisoned3 poisoned2]" {
		t.Errorf("longest first: %s", got)
	}
	found, err := ListAbandoned(t.Context(), k.Pool, 3)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range found {
		if err := Postpone(t.Context(), k.Pool, a, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	if got := fmt.Sprint(list(3)); got != "[poisoned1 poisoned0 fresh]" {
		t.Errorf("after three were postponed: %s", got)
	}
	if err := Postpone(t.Context(), k.Pool, Abandoned{Merchant: k.m, Key: "alive", ChargeID: "ch_alive"}, -time.Hour); err != nil || len(list(10)) != 3 {
		t.Errorf("a live lease was changed: %v, %v", list(10), err)
	}
	if taken, err := k.takeOver(fresh); err != nil || !taken {
		t.Errorf("%v, %v", taken, err)
	}
	if got := fmt.Sprint(list(10)); got != "[poisoned1 poisoned0]" {
		t.Errorf("after fresh was taken: %s", got)
	}
}

func TestFreeze(t *testing.T) {
	t.Parallel()
	k := newKeys(t, pgtest.New(t))
	now := time.Date(2026, 3, 29, 0, 30, 0, 0, time.FixedZone("", 2*3600)) // still the day before in UTC
	answer := Response{Status: 201, ContentType: "application/json", Location: "/v1/charges/1", Body: []byte("{\x00\xff}")}
	freeze := func(charge string, answer Response) (done bool, err error) {
		err = postgres.InTx(t.Context(), k.Pool, func(tx pgx.Tx) error {
			done, err = Freeze(t.Context(), tx, k.m, "k", charge, answer, now)
			return err
		})
		return done, err
	}
	a := k.claim("k", -time.Second)
	if done, err := freeze(a.ChargeID, answer); err != nil || done {
		t.Errorf("in flight: %v, %v", done, err)
	}
	if _, err := k.takeOver(a); err != nil {
		t.Fatal(err)
	}
	if done, err := freeze("ch_other", answer); err != nil || done {
		t.Errorf("another charge's: %v, %v", done, err)
	}
	for name, bad := range map[string]Response{
		"a server error": {Status: 500}, "no status": {}, "a body over the limit": {Status: 201, Body: make([]byte, 65537)},
	} {
		if _, err := freeze(a.ChargeID, bad); !postgres.Rejected(err) {
			t.Errorf("%s is frozen: %v", name, err)
		}
		k.wantState("k", Unknown, 2)
	}
	if done, err := freeze(a.ChargeID, answer); err != nil || !done {
		t.Errorf("%v, %v", done, err)
	}
	record, err := k.state("k")
	if err != nil || record.State != Done || record.ResponseOn.Format(time.DateOnly) != "2026-03-28" {
		t.Errorf("%+v, %v", record, err)
	}
	got, err := ReadResponse(t.Context(), k.Pool, k.m, "k", record.ResponseOn)
	if err != nil || got.Status != 201 || got.ContentType != answer.ContentType || got.Location != answer.Location || string(got.Body) != string(answer.Body) {
		t.Errorf("%+v, %v", got, err)
	}
	if done, err := freeze(a.ChargeID, answer); err != nil || done {
		t.Errorf("twice: %v, %v", done, err)
	}
	if _, err := ReadResponse(t.Context(), k.Pool, k.m, "k", record.ResponseOn.AddDate(0, 0, 1)); !errors.Is(err, ErrExpired) {
		t.Errorf("%v", err)
	}
	if _, err := Lookup(t.Context(), k.Pool, k.m+1, "k"); !errors.Is(err, ErrNotFound) {
		t.Errorf("%v", err)
	}
}

func TestMaintain(t *testing.T) {
	t.Parallel()
	k := newKeys(t, pgtest.New(t))
	const day = 24 * time.Hour
	today := time.Date(2026, 5, 10, 23, 59, 0, 0, time.UTC)
	maintain := func(at time.Time, made, dropped int) {
		t.Helper()
		if m, d, err := Maintain(t.Context(), k.Pool, at, 30*day); err != nil || m != made || d != dropped {
			t.Errorf("at %s: %d made, %d dropped, %v; want %d, %d", at, m, d, err, made, dropped)
		}
	}
	store := func(key string, on time.Time) {
		k.exec(`insert into idempotency_responses (merchant_id, key, stored_on, status, content_type, location, body) values ($1, $2, $3, 201, '', '', '')`, k.m, key, on)
	}
	partition := func(key string) (name string) {
		t.Helper()
		if err := k.Pool.QueryRow(t.Context(), `select tableoid::regclass::text from idempotency_responses where merchant_id = $1 and key = $2`, k.m, key).Scan(&name); err != nil && !errors.Is(err, pgx.ErrNoRows) {
			t.Fatal(err)
		}
		return name
	}
	store("early", today.Add(2*day)) // before its partition was made
	maintain(today, 7, 0)            // today and 7 more, without the day that already has answers
	maintain(today, 0, 0)
	store("today", today)
	store("ahead", today.Add(7*day))
	if a, b, c := partition("early"), partition("today"), partition("ahead"); a != "idempotency_responses_default" || b != "idempotency_responses_20260510" || c != "idempotency_responses_20260517" {
		t.Errorf("%s, %s, %s", a, b, c)
	}
	maintain(today.Add(30*day), 8, 0)
	if partition("today") == "" {
		t.Error("an answer went before its time")
	}
	maintain(today.Add(31*day), 1, 1)
	if a, b := partition("today"), partition("early"); a != "" || b == "" {
		t.Errorf("after 31 days: %q, %q", a, b)
	}
	maintain(today.Add(33*day), 2, 1) // of the 11th and 12th; the default partition's answer goes, too
	if partition("early") != "" || partition("ahead") == "" {
		t.Error("the default partition is not cleaned, or too much is")
	}
	for name, retention := range map[string]time.Duration{"none": 0, "less than a day": day - 1, "eleven years": 11 * 365 * day} {
		if _, _, err := Maintain(t.Context(), k.Pool, today, retention); err == nil {
			t.Errorf("a retention of %s is accepted", name)
		}
	}
	if _, err := k.Pool.Exec(t.Context(), `drop table idempotency_responses_default`); postgres.SQLState(err) != "42501" {
		t.Errorf("the service may drop tables itself: %v", err)
	}
}

// Regression: the work was cut off by the limit that the pool has for the writes of charges.
func TestMaintainHasATimeLimitOfItsOwn(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for _, sql := range []string{
		`create function dawdle() returns trigger language plpgsql as $$ begin perform pg_sleep(3); return null; end $$`,
		`create trigger dawdle before delete on idempotency_responses_default for each statement execute function dawdle()`,
	} {
		if _, err := db.Owner().Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	const limit = 2 * time.Second
	pool, err := postgres.Open(t.Context(), postgres.Config{URL: db.OwnerURL(), Role: postgres.ServiceRole, MaxConns: 1, StatementTimeout: limit})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if _, _, err := Maintain(t.Context(), pool, time.Date(2026, 5, 10, 0, 0, 0, 0, time.UTC), 24*time.Hour); err != nil {
		t.Errorf("%v", err)
	}
	var after string
	if err := pool.QueryRow(t.Context(), "show statement_timeout").Scan(&after); err != nil || after != "2s" {
		t.Errorf("afterwards the limit of the pool is %q (%v)", after, err)
	}
}

// Regression: replicas that made the same partition at the same moment failed.
func TestMaintainByManyReplicasAtOnce(t *testing.T) {
	t.Parallel()
	k := newKeys(t, pgtest.New(t))
	today := time.Date(2026, 5, 10, 0, 0, 0, 0, time.UTC)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for i := range 5 {
				if _, _, err := Maintain(t.Context(), k.Pool, today.AddDate(0, 0, i), 24*time.Hour); err != nil {
					t.Errorf("%v", err)
				}
			}
		})
	}
	all.Wait()
	if _, _, err := Maintain(t.Context(), k.Pool, today.AddDate(0, 0, 5), 24*time.Hour); err != nil {
		t.Fatal(err)
	}
	var partitions int
	err := k.Pool.QueryRow(context.WithoutCancel(t.Context()), `
		select count(*) from pg_inherits where inhparent = 'idempotency_responses'::regclass`).Scan(&partitions)
	if err != nil || partitions != 1+9 { // the default, yesterday, today and 7 ahead
		t.Errorf("%d partitions, %v", partitions, err)
	}
}

func TestSchemaHoldsKeysToTheirStates(t *testing.T) {
	t.Parallel()
	k := newKeys(t, pgtest.New(t))
	k.claim("k", time.Minute)
	for _, change := range []string{
		`state = 'done'`, `state = 'unknown'`, `state = 'free'`, `lease_until = null`, `response_on = now()`, `fence = 0`, `fingerprint = '\x00'`, `key = ''`,
		`key = '` + strings.Repeat("k", 256) + `'`,
	} {
		if _, err := k.Pool.Exec(t.Context(), `update idempotency_keys set `+change+` where merchant_id = $1`, k.m); postgres.SQLState(err) != "23514" {
			t.Errorf("%s: %v", change, err)
		}
	}
}

package merchant

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"paymentsd/internal/pgtest"
)

func TestEverySQLConstantPrepares(t *testing.T) {
	t.Parallel()
	pgtest.PrepareAll(t, ".")
}

// clock is a time that tests set.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

func openStore(t *testing.T) (*Store, *clock, *pgtest.DB) {
	t.Helper()
	db := pgtest.New(t)
	c := &clock{at: time.Date(2026, 7, 1, 12, 0, 0, 123456789, time.FixedZone("", 7200))}
	return NewStore(db.Pool, c.now), c, db
}

func create(t *testing.T, s *Store, acquirers ...string) Merchant {
	t.Helper()
	m, err := s.Create(t.Context(), "Zoë's shop", acquirers)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func createKey(t *testing.T, s *Store, n NewKey) (Key, string) {
	t.Helper()
	key, presented, err := s.CreateKey(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	return key, presented
}

func TestMerchants(t *testing.T) {
	t.Parallel()
	s, c, _ := openStore(t)
	m := create(t, s, "north", "south")
	if !m.CreatedAt.Equal(c.now().Truncate(time.Microsecond)) {
		t.Errorf("created at %v", m.CreatedAt)
	}
	got, err := s.Get(t.Context(), m.ID)
	if diff := cmp.Diff(m, got); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
	c.pass(time.Second)
	other := create(t, s, "south")
	all, err := s.List(t.Context())
	if diff := cmp.Diff([]Merchant{m, other}, all); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
	if _, err := s.Get(t.Context(), m.ID+1); !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), (m.ID+1).Code()) {
		t.Errorf("%v", err)
	}
	for name, bad := range map[string]struct {
		name      string
		acquirers []string
	}{
		"no name": {"", []string{"north"}}, "a name without an end": {strings.Repeat("x", 201), []string{"north"}},
		"no acquirer": {"x", nil}, "an acquirer without a name": {"x", []string{"north", ""}},
		"nine acquirers": {"x", strings.Split("a b c d e f g h i", " ")},
		// Regression: failing over from an acquirer to itself.
		"an acquirer twice": {"x", []string{"north", "south", "north"}},
	} {
		if _, err := s.Create(t.Context(), bad.name, bad.acquirers); !errors.Is(err, ErrInvalidInput) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	s, c, db := openStore(t)
	m := create(t, s, "north")
	for role, of := range map[Role]*ID{RoleCharges: &m.ID, RoleRead: &m.ID, RoleOps: nil} {
		key, presented := createKey(t, s, NewKey{Merchant: of, Role: role, Name: "of " + string(role)})
		p, err := s.Authenticate(t.Context(), presented)
		if err != nil || p.KeyID != key.ID || p.Role != role || p.KeyName != key.Name || (p.Merchant == nil) != (of == nil) {
			t.Errorf("%s: %+v, %v", role, p, err)
		}
		if of != nil {
			if diff := cmp.Diff(m, *p.Merchant); diff != "" {
				t.Error(diff)
			}
		}
		if p.Actor() != "key "+key.ID+" (of "+string(role)+")" {
			t.Errorf("actor %q", p.Actor())
		}
	}
	keys, err := s.ListKeys(t.Context())
	if err != nil || len(keys) != 3 || slices.ContainsFunc(keys, func(k Key) bool { return k.RevokedAt != nil || !k.Role.Valid() }) {
		t.Errorf("%+v, %v", keys, err)
	}
	unknown := m.ID + 1
	for name, bad := range map[string]NewKey{
		"no role": {Merchant: &m.ID, Name: "x"}, "a role that is none": {Merchant: &m.ID, Role: "root", Name: "x"}, "no name": {Merchant: &m.ID, Role: RoleRead},
		"a name without an end": {Merchant: &m.ID, Role: RoleRead, Name: strings.Repeat("x", 201)}, "charges for nobody": {Role: RoleCharges, Name: "x"},
	} {
		if _, _, err := s.CreateKey(t.Context(), bad); !errors.Is(err, ErrInvalidInput) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := s.CreateKey(t.Context(), NewKey{Merchant: &unknown, Role: RoleRead, Name: "x"}); !errors.Is(err, ErrNotFound) {
		t.Errorf("%v", err)
	}
	t.Run("the secret is kept nowhere", func(t *testing.T) {
		_, presented := createKey(t, s, NewKey{Role: RoleOps, Name: "ops"})
		secret := presented[len(presented)-secretLength:]
		var found int
		err := db.Owner().QueryRow(t.Context(), `select count(*) from api_keys k where k::text like '%' || $1 || '%' or encode(k.secret_hash, 'escape') like '%' || $1 || '%'`, secret).Scan(&found)
		if err != nil || found != 0 {
			t.Errorf("%d rows, %v", found, err)
		}
	})
	t.Run("another secret, another key, not a key at all", func(t *testing.T) {
		_, a := createKey(t, s, NewKey{Role: RoleOps, Name: "a"})
		_, b := createKey(t, s, NewKey{Role: RoleOps, Name: "b"})
		mixed := a[:len(a)-secretLength] + b[len(b)-secretLength:]
		for range 2 { // before and after a's key is in the cache
			for _, presented := range []string{mixed, "", "pk_x_y", a + "0", strings.ToUpper(a)} {
				if p, err := s.Authenticate(t.Context(), presented); !errors.Is(err, ErrUnknownKey) {
					t.Errorf("%q is %+v, %v", presented, p, err)
				}
			}
			if _, err := s.Authenticate(t.Context(), a); err != nil {
				t.Fatal(err)
			}
		}
	})
	t.Run("revoked: at once here, after the cache's time elsewhere", func(t *testing.T) {
		key, presented := createKey(t, s, NewKey{Merchant: &m.ID, Role: RoleCharges, Name: "x"})
		replica := NewStore(db.Pool, c.now)
		if _, err := replica.Authenticate(t.Context(), presented); err != nil {
			t.Fatal(err)
		}
		if err := s.RevokeKey(t.Context(), key.ID); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Authenticate(t.Context(), presented); !errors.Is(err, ErrUnknownKey) {
			t.Errorf("here: %v", err)
		}
		c.pass(CacheTime - 1)
		if _, err := replica.Authenticate(t.Context(), presented); err != nil {
			t.Errorf("elsewhere, from its cache: %v", err)
		}
		c.pass(1)
		if _, err := replica.Authenticate(t.Context(), presented); !errors.Is(err, ErrUnknownKey) {
			t.Errorf("elsewhere, later: %v", err)
		}
		for _, id := range []string{key.ID, "000000000000", ""} {
			if err := s.RevokeKey(t.Context(), id); !errors.Is(err, ErrNoSuchKey) {
				t.Errorf("revoke %q: %v", id, err)
			}
		}
	})
	t.Run("the store is down: what is cached still serves, the rest is an error that is no refusal", func(t *testing.T) {
		_, cached := createKey(t, s, NewKey{Merchant: &m.ID, Role: RoleCharges, Name: "cached"})
		_, other := createKey(t, s, NewKey{Merchant: &m.ID, Role: RoleCharges, Name: "not cached"})
		if _, err := s.Authenticate(t.Context(), cached); err != nil {
			t.Fatal(err)
		}
		db.Pool.Close()
		if p, err := s.Authenticate(t.Context(), cached); err != nil || p.Merchant.ID != m.ID {
			t.Errorf("%+v, %v", p, err)
		}
		if _, err := s.Authenticate(t.Context(), other); err == nil || errors.Is(err, ErrUnknownKey) {
			t.Errorf("%v", err)
		}
		c.pass(CacheTime)
		if _, err := s.Authenticate(t.Context(), cached); err == nil || errors.Is(err, ErrUnknownKey) {
			t.Errorf("%v", err)
		}
	})
}

func TestCacheIsBounded(t *testing.T) {
	t.Parallel()
	cache := newAuthCache()
	now := time.Now()
	for i := range cacheMax + 5 {
		cache.put(strings.Repeat("x", i%7)+time.Duration(i).String(), cachedKey{until: now.Add(time.Second)})
		if len(cache.keys) > cacheMax {
			t.Fatalf("%d keys are cached", len(cache.keys))
		}
	}
}

func TestAuthenticateByManyAtOnce(t *testing.T) {
	t.Parallel()
	s, c, _ := openStore(t)
	m := create(t, s, "north")
	_, presented := createKey(t, s, NewKey{Merchant: &m.ID, Role: RoleCharges, Name: "x"})
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range 50 {
				if p, err := s.Authenticate(t.Context(), presented); err != nil || p.Merchant.ID != m.ID {
					t.Errorf("%+v, %v", p, err)
				}
				c.pass(CacheTime / 4)
			}
		})
	}
	all.Wait()
}

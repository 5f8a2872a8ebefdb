package merchant

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Store keeps merchants and API keys in Postgres. It is safe for concurrent use.
type Store struct {
	pool  *pgxpool.Pool
	now   func() time.Time
	cache authCache
}

// NewStore uses pool; now is the clock of created_at and of the cache.
func NewStore(pool *pgxpool.Pool, now func() time.Time) *Store {
	return &Store{pool: pool, now: now, cache: newAuthCache()}
}

const insertMerchant = `
insert into merchants (merchant_id, name, acquirers, created_at)
values (@merchant, @name, @acquirers, @now)
on conflict (merchant_id) do nothing`

// idTries bounds how often a number that is taken is drawn again.
const idTries = 10

// Create adds a merchant whose charges go to acquirers, in this order. The number is drawn.
func (s *Store) Create(ctx context.Context, name string, acquirers []string) (Merchant, error) {
	if name == "" || len(name) > 200 {
		return Merchant{}, fmt.Errorf("%w: the name must have 1 to 200 characters", ErrInvalidInput)
	}
	if len(acquirers) == 0 || len(acquirers) > 8 || slices.Contains(acquirers, "") {
		return Merchant{}, fmt.Errorf("%w: name 1 to 8 acquirers", ErrInvalidInput)
	}
	if names := slices.Sorted(slices.Values(acquirers)); len(slices.Compact(names)) < len(acquirers) {
		return Merchant{}, fmt.Errorf("%w: an acquirer is named twice", ErrInvalidInput)
	}
	m := Merchant{Name: name, Acquirers: acquirers, CreatedAt: s.now().UTC().Truncate(time.Microsecond)}
	for range idTries {
		m.ID = NewID()
		tag, err := s.pool.Exec(ctx, insertMerchant, pgx.NamedArgs{
			"merchant": m.ID, "name": m.Name, "acquirers": m.Acquirers, "now": m.CreatedAt,
		})
		if err != nil {
			return Merchant{}, fmt.Errorf("add the merchant: %w", err)
		}
		if tag.RowsAffected() == 1 {
			return m, nil
		}
	}
	return Merchant{}, errors.New("no free merchant number was drawn: try again")
}

const selectMerchant = `
select m.merchant_id, m.name, m.acquirers, m.created_at from merchants m where m.merchant_id = @merchant`

// Get reads one merchant, or ErrNotFound.
func (s *Store) Get(ctx context.Context, id ID) (Merchant, error) {
	m, err := scanMerchant(s.pool.QueryRow(ctx, selectMerchant, pgx.NamedArgs{"merchant": id}))
	if errors.Is(err, pgx.ErrNoRows) {
		return Merchant{}, fmt.Errorf("%w: %s", ErrNotFound, id.Code())
	}
	return m, err
}

// listMerchants is a report over all merchants.
const listMerchants = `
select m.merchant_id, m.name, m.acquirers, m.created_at from merchants m order by m.created_at, m.merchant_id limit 1000`

// List reads the first 1,000 merchants, oldest first.
func (s *Store) List(ctx context.Context) ([]Merchant, error) {
	rows, err := s.pool.Query(ctx, listMerchants)
	if err != nil {
		return nil, fmt.Errorf("list merchants: %w", err)
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (Merchant, error) { return scanMerchant(row) })
}

// listRouted is a report over all merchants.
const listRouted = `select distinct unnest(m.acquirers) as name from merchants m order by name limit 1000`

// Acquirers are those that any merchant is routed to, by name, at most 1,000.
func (s *Store) Acquirers(ctx context.Context) ([]string, error) {
	rows, err := s.pool.Query(ctx, listRouted)
	if err != nil {
		return nil, fmt.Errorf("list the acquirers of merchants: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

func scanMerchant(row pgx.Row) (m Merchant, err error) {
	err = row.Scan(&m.ID, &m.Name, &m.Acquirers, &m.CreatedAt)
	m.CreatedAt = m.CreatedAt.UTC()
	return m, err
}

// NewKey says what key to make.
type NewKey struct {
	Merchant *ID
	Role     Role
	Name     string
}

const insertKey = `
insert into api_keys (key_id, secret_hash, merchant_id, role, name, created_at)
values (@id, @hash, @merchant, @role, @name, @now)`

// CreateKey makes a key. The credential is returned this once and cannot be read again.
func (s *Store) CreateKey(ctx context.Context, n NewKey) (Key, string, error) {
	if !n.Role.Valid() {
		return Key{}, "", fmt.Errorf("%w: role %q is not one of charges, read, ops", ErrInvalidInput, n.Role)
	}
	if n.Name == "" || len(n.Name) > 200 {
		return Key{}, "", fmt.Errorf("%w: the key's name must have 1 to 200 characters", ErrInvalidInput)
	}
	if n.Merchant == nil && n.Role != RoleOps {
		return Key{}, "", fmt.Errorf("%w: only an ops key may have no merchant", ErrInvalidInput)
	}
	if n.Merchant != nil {
		if _, err := s.Get(ctx, *n.Merchant); err != nil {
			return Key{}, "", err
		}
	}
	id, secret, presented := newCredential()
	key := Key{ID: id, Merchant: n.Merchant, Role: n.Role, Name: n.Name, CreatedAt: s.now().UTC().Truncate(time.Microsecond)}
	_, err := s.pool.Exec(ctx, insertKey, pgx.NamedArgs{
		"id": key.ID, "hash": hashSecret(secret), "merchant": key.Merchant, "role": key.Role, "name": key.Name, "now": key.CreatedAt,
	})
	if err != nil {
		return Key{}, "", fmt.Errorf("add the API key: %w", err)
	}
	return key, presented, nil
}

const listKeys = `
select k.key_id, k.merchant_id, k.role, k.name, k.created_at, k.revoked_at
  from api_keys k order by k.created_at, k.key_id limit 1000`

// ListKeys reads the first 1,000 keys, oldest first, revoked ones too.
func (s *Store) ListKeys(ctx context.Context) ([]Key, error) {
	rows, err := s.pool.Query(ctx, listKeys)
	if err != nil {
		return nil, fmt.Errorf("list API keys: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Key])
}

const revokeKey = `update api_keys k set revoked_at = @now where k.key_id = @id and k.revoked_at is null`

// RevokeKey ends a key: within CacheTime no replica accepts it any more. ErrNoSuchKey if it is not
// there or was revoked before.
func (s *Store) RevokeKey(ctx context.Context, id string) error {
	tag, err := s.pool.Exec(ctx, revokeKey, pgx.NamedArgs{"id": id, "now": s.now().UTC()})
	if err != nil {
		return fmt.Errorf("revoke the API key: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return fmt.Errorf("%w: %q", ErrNoSuchKey, id)
	}
	s.cache.forget(id)
	return nil
}

const selectKey = `
select k.key_id, k.secret_hash, k.merchant_id, k.role, k.name
  from api_keys k where k.key_id = @id and k.revoked_at is null`

// load reads a live key and its merchant.
func (s *Store) load(ctx context.Context, id string) (cachedKey, error) {
	var key cachedKey
	var merchantID *ID
	err := s.pool.QueryRow(ctx, selectKey, pgx.NamedArgs{"id": id}).
		Scan(&key.principal.KeyID, &key.hash, &merchantID, &key.principal.Role, &key.principal.KeyName)
	if errors.Is(err, pgx.ErrNoRows) {
		return cachedKey{}, ErrUnknownKey
	}
	if err != nil {
		return cachedKey{}, fmt.Errorf("read the API key: %w", err)
	}
	if merchantID != nil {
		m, err := s.Get(ctx, *merchantID)
		if err != nil {
			return cachedKey{}, err
		}
		key.principal.Merchant = &m
	}
	return key, nil
}

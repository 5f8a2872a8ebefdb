package merchant

import (
	"context"
	"crypto/subtle"
	"sync"
	"time"
)

// CacheTime is how long a replica trusts what it read of a key, so that a charge costs no statement
// for its authentication. A revoked key, or a changed routing, takes this long to reach all.
const CacheTime = 5 * time.Second

// cacheMax bounds the cache; when it is full it starts anew.
const cacheMax = 10_000

type cachedKey struct {
	principal Principal
	hash      []byte
	until     time.Time
}

type authCache struct {
	mu   *sync.Mutex
	keys map[string]cachedKey
}

func newAuthCache() authCache {
	return authCache{mu: new(sync.Mutex), keys: make(map[string]cachedKey)}
}

func (c authCache) get(id string, now time.Time) (cachedKey, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key, ok := c.keys[id]
	return key, ok && now.Before(key.until)
}

func (c authCache) put(id string, key cachedKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.keys) >= cacheMax {
		clear(c.keys)
	}
	c.keys[id] = key
}

func (c authCache) forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.keys, id)
}

// Authenticate says whose credential was presented, or ErrUnknownKey. Any other error means that the
// store could not be asked.
func (s *Store) Authenticate(ctx context.Context, presented string) (Principal, error) {
	id, secret, ok := splitCredential(presented)
	if !ok {
		return Principal{}, ErrUnknownKey
	}
	key, ok := s.cache.get(id, s.now())
	if !ok {
		var err error
		if key, err = s.load(ctx, id); err != nil {
			return Principal{}, err
		}
		key.until = s.now().Add(CacheTime)
		s.cache.put(id, key)
	}
	if subtle.ConstantTimeCompare(key.hash, hashSecret(secret)) != 1 {
		return Principal{}, ErrUnknownKey
	}
	return key.principal, nil
}

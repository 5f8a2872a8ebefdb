package reconcile

import (
	"context"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"paymentsd/internal/postgres"
	"paymentsd/merchant"
)

// lockTimedOut is the SQLSTATE of a lock that was not got within lock_timeout.
const lockTimedOut = "55P03"

// The first half of our advisory locks' keys: which kind of thing is locked.
const (
	lockAcquirer = 0x7265636f
	lockMerchant = 0x7265636d
)

const (
	lockPatience = `select set_config('lock_timeout', $1, false), set_config('statement_timeout', '0', false)`
	lockTake     = `select pg_advisory_lock($1, $2)`
	lockFree     = `select pg_advisory_unlock($1, $2)`
	lockFreeAll  = `select pg_advisory_unlock_all()`
)

// locks are held on a connection of their own. They end with it, so a killed run blocks nobody.
type locks struct{ conn *pgxpool.Conn }

// lock waits for the lock of an acquirer: one run of it at a time.
func (r *Reconciler) lock(ctx context.Context, acquirer string) (*locks, error) {
	conn, err := r.Pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("lock acquirer %s: %w", acquirer, err)
	}
	l := &locks{conn}
	_, err = conn.Exec(ctx, lockPatience, fmt.Sprint(r.LockWait.Milliseconds()))
	if err == nil {
		_, err = conn.Exec(ctx, lockTake, lockAcquirer, lockKey(acquirer))
	}
	if err != nil {
		l.release(ctx)
		if postgres.SQLState(err) == lockTimedOut {
			return nil, fmt.Errorf("%w: %s; waited %s, try again when it has ended", ErrBusy, acquirer, r.LockWait)
		}
		return nil, fmt.Errorf("lock acquirer %s: %w", acquirer, err)
	}
	return l, nil
}

// withMerchant runs do while no other run, of whatever acquirer, examines the merchant.
func (l *locks) withMerchant(ctx context.Context, m merchant.ID, do func() error) (err error) {
	key := lockKey(m.Code())
	if _, err := l.conn.Exec(ctx, lockTake, lockMerchant, key); err != nil {
		if postgres.SQLState(err) == lockTimedOut {
			return fmt.Errorf("%w: it is at merchant %d; try again when it has ended", ErrBusy, m)
		}
		return fmt.Errorf("lock merchant %d: %w", m, err)
	}
	defer func() {
		if _, free := l.conn.Exec(ctx, lockFree, lockMerchant, key); free != nil && err == nil {
			err = fmt.Errorf("unlock merchant %d: %w", m, free)
		}
	}()
	return do()
}

// release gives all locks back. A connection that cannot be cleaned is closed, which does the same.
func (l *locks) release(ctx context.Context) {
	const patience = 5 * time.Second
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	_, err := l.conn.Exec(ctx, lockFreeAll)
	for _, setting := range []string{"reset lock_timeout", "reset statement_timeout"} {
		if err == nil {
			_, err = l.conn.Exec(ctx, setting)
		}
	}
	if err != nil {
		_ = l.conn.Conn().Close(ctx)
	}
	l.conn.Release()
}

func lockKey(name string) int32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name)) // a hash never fails
	return int32(h.Sum32())
}

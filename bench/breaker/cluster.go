package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"paymentsd/internal/postgres"
	"paymentsd/resilience/shared"
)

const replicas = 12

// joinTimeMax is how long joining is tried. A machine that is busy can miss the bounds of one try.
const joinTimeMax = time.Minute

// join opens one replica, with the rights that the service has.
func join(ctx context.Context, url, name string, acquirers ...shared.Acquirer) (s *shared.Shared, err error) {
	for began := time.Now(); ; {
		s, err = shared.Open(ctx, shared.Config{
			URL: url, Role: postgres.ServiceRole, Replica: name, Acquirers: acquirers, Log: slog.New(slog.DiscardHandler),
		})
		if err == nil || ctx.Err() != nil || time.Since(began) > joinTimeMax {
			return s, err
		}
	}
}

// cluster opens all replicas. They have to be closed by close.
func cluster(ctx context.Context, url string, acquirers ...shared.Acquirer) (all []*shared.Shared, err error) {
	for i := range replicas {
		s, err := join(ctx, url, fmt.Sprint("bench-", i), acquirers...)
		if err != nil {
			closeAll(all)
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// closeAll closes all at once: each takes its time to say goodbye.
func closeAll(all []*shared.Shared) {
	var each sync.WaitGroup
	for _, s := range all {
		each.Go(s.Close)
	}
	each.Wait()
}

// patience bounds what should take milliseconds.
const patience = 10 * time.Second

// eventually waits until a condition holds.
func eventually(ctx context.Context, what string, holds func() bool) error {
	for began := time.Now(); !holds(); time.Sleep(time.Millisecond) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if time.Since(began) > patience {
			return fmt.Errorf("not within %v: %s", patience, what)
		}
	}
	return nil
}

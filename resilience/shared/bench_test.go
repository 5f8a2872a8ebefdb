package shared

import (
	"context"
	"testing"
	"time"

	"paymentsd/resilience"
)

// alone is a breaker without a store, for what must not need one.
func alone(state resilience.State) *Breaker {
	s := &Shared{start: time.Now(), events: newEvents(), kick: make(chan struct{}, 1)}
	cfg := resilience.DefaultBreaker()
	b := &Breaker{acquirer: "north", cfg: cfg, shared: s, start: s.start}
	r := row{Acquirer: "north", Epoch: 1, State: state, Mode: resilience.Automatic, Reason: "a test"}
	if state == resilience.Open {
		r.OpenMS = time.Hour.Milliseconds()
	}
	b.apply(r)
	return b
}

func BenchmarkClosed(b *testing.B) {
	breaker, ctx := alone(resilience.Closed), context.Background()
	b.Run("sequential", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			p, _ := breaker.Acquire(ctx)
			breaker.Done(p, resilience.Success)
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				p, _ := breaker.Acquire(ctx)
				breaker.Done(p, resilience.Success)
			}
		})
	})
}

func BenchmarkReject(b *testing.B) {
	breaker, ctx := alone(resilience.Open), context.Background()
	b.ReportAllocs()
	for b.Loop() {
		if _, refused := breaker.Acquire(ctx); refused == nil {
			b.Fatal("admitted")
		}
	}
}

// BenchmarkTimeSince is the floor: a closed pass reads the clock twice.
func BenchmarkTimeSince(b *testing.B) {
	start := time.Now()
	for b.Loop() {
		_ = time.Since(start)
	}
}

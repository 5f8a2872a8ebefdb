package resilience

import (
	"context"
	"testing"
	"time"
)

// longOpen keeps a breaker open for the length of a benchmark.
func longOpen() BreakerConfig {
	cfg := DefaultBreaker()
	cfg.OpenFor, cfg.OpenMax = time.Hour, time.Hour
	return cfg
}

func BenchmarkBreakerClosed(b *testing.B) {
	ctx := context.Background()
	pass := func(breaker *LocalBreaker) {
		permit, _ := breaker.Acquire(ctx)
		breaker.Done(permit, Success)
	}
	b.Run("sequential", func(b *testing.B) {
		breaker := mustBreaker(b, DefaultBreaker())
		b.ReportAllocs()
		for b.Loop() {
			pass(breaker)
		}
	})
	b.Run("parallel", func(b *testing.B) {
		breaker := mustBreaker(b, DefaultBreaker())
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				pass(breaker)
			}
		})
	})
}

func BenchmarkReject(b *testing.B) {
	ctx := context.Background()
	b.Run("breaker", func(b *testing.B) {
		breaker := mustBreaker(b, longOpen())
		trip(b, breaker)
		b.ReportAllocs()
		for b.Loop() {
			if _, refused := breaker.Acquire(ctx); refused == nil {
				b.Fatal("admitted")
			}
		}
	})
	b.Run("chain", func(b *testing.B) {
		s := DefaultSettings()
		s.Breaker = longOpen()
		chain := mustChain(b, s)
		trip(b, chain.breaker.(*LocalBreaker))
		b.ReportAllocs()
		for b.Loop() {
			if report := chain.Do(ctx, Critical, succeed); report.Refused == nil {
				b.Fatal("admitted")
			}
		}
	})
}

func BenchmarkChainSuccess(b *testing.B) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	b.Run("sequential", func(b *testing.B) {
		chain := mustChain(b, DefaultSettings())
		b.ReportAllocs()
		for b.Loop() {
			chain.Do(ctx, Critical, succeed)
		}
	})
	b.Run("parallel", func(b *testing.B) {
		chain := mustChain(b, DefaultSettings())
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				chain.Do(ctx, Critical, succeed)
			}
		})
	})
}

// BenchmarkTimeSince is the floor: a closed pass reads the clock twice.
func BenchmarkTimeSince(b *testing.B) {
	start := time.Now()
	for b.Loop() {
		_ = time.Since(start)
	}
}

func BenchmarkShedder(b *testing.B) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	b.Run("in and out", func(b *testing.B) {
		s := fixed(b, 1000)
		var v Visit
		b.ReportAllocs()
		for b.Loop() {
			_ = s.Enter(ctx, &v, 0, Critical)
			v.Leave(true)
		}
	})
	b.Run("in and out, parallel", func(b *testing.B) {
		s := fixed(b, 1000)
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			var v Visit
			for pb.Next() {
				_ = s.Enter(ctx, &v, 0, Critical)
				v.Leave(true)
			}
		})
	})
	b.Run("refused", func(b *testing.B) {
		s := fixed(b, 10)
		crowd(s, Critical)
		var v Visit
		b.ReportAllocs()
		for b.Loop() {
			if s.Enter(ctx, &v, 0, Low) == nil {
				b.Fatal("admitted")
			}
		}
	})
}

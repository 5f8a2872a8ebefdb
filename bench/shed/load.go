package main

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"paymentsd/internal/benchkit"
)

// stream is requests of one priority, arriving at random (Poisson) at a rate of their own, whatever
// becomes of them: an open loop.
type stream struct {
	name string
	rate float64              // a second
	make func(n int64) []byte // the n-th request
}

// tally is what became of a stream.
type tally struct {
	name                             string
	offered, succeeded, shed, failed int
	gaveUp                           int             // no answer within patience, or no room to wait for one
	times                            []time.Duration // of successes, from the moment when the request should have been sent
	late                             []time.Duration // how much later than that it was sent: the generator's own fault
}

func (t tally) percent(n int) float64 { return 100 * float64(n) / float64(max(t.offered, 1)) }
func (t tally) p(percent int) float64 { return benchkit.PercentileMS(t.times, percent) }

const (
	// patience is how long a client waits for an answer, from when it should have been sent.
	patience = 3 * time.Second
	// waitingMax bounds the requests of one stream that wait for an answer.
	waitingMax = 3000
)

// play sends all streams at once for as long as said, and waits for the last answer.
func play(ctx context.Context, w *wire, length time.Duration, seed uint64, streams ...stream) []tally {
	tallies := make([]tally, len(streams))
	var all sync.WaitGroup
	begin := time.Now().Add(50 * time.Millisecond)
	for i, s := range streams {
		all.Go(func() { tallies[i] = s.play(ctx, w, begin, length, rand.New(rand.NewPCG(seed, uint64(i)))) })
	}
	all.Wait()
	return tallies
}

func (s stream) play(ctx context.Context, w *wire, begin time.Time, length time.Duration, random *rand.Rand) tally {
	t := tally{name: s.name}
	var mu sync.Mutex
	var requests sync.WaitGroup
	var waiting atomic.Int64
	for at := time.Duration(0); ctx.Err() == nil; {
		at += time.Duration(random.ExpFloat64() / s.rate * float64(time.Second))
		if at >= length {
			break
		}
		due := begin.Add(at)
		time.Sleep(time.Until(due))
		t.offered++
		t.late = append(t.late, time.Since(due))
		if waiting.Load() >= waitingMax {
			mu.Lock()
			t.gaveUp++
			mu.Unlock()
			continue
		}
		waiting.Add(1)
		request := s.make(sequence.Add(1))
		requests.Go(func() {
			defer waiting.Add(-1)
			status, err := w.send(request, due.Add(patience))
			took := time.Since(due)
			mu.Lock()
			defer mu.Unlock()
			t.add(status, err, took)
		})
	}
	requests.Wait()
	return t
}

func (t *tally) add(status int, err error, took time.Duration) {
	switch {
	case err != nil:
		t.gaveUp++
	case status >= 200 && status < 300:
		t.succeeded++
		t.times = append(t.times, took)
	case status == 503:
		t.shed++
	default:
		t.failed++
	}
}

// capacity is how many requests a second the service can do of one kind alone: clients in a closed loop.
func capacity(ctx context.Context, w *wire, length time.Duration, clients int, next func(n int64) []byte) (float64, error) {
	var done atomic.Int64
	var failure atomic.Pointer[error]
	var all sync.WaitGroup
	began := time.Now()
	for range clients {
		all.Go(func() {
			for time.Since(began) < length && ctx.Err() == nil {
				status, err := w.send(next(sequence.Add(1)), time.Now().Add(10*time.Second))
				if err == nil && (status < 200 || status >= 300) {
					err = statusError(status)
				}
				if err != nil {
					failure.Store(&err)
					return
				}
				done.Add(1)
			}
		})
	}
	all.Wait()
	if err := failure.Load(); err != nil {
		return 0, *err
	}
	return float64(done.Load()) / time.Since(began).Seconds(), ctx.Err()
}

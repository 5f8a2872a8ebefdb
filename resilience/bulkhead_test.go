package resilience

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func fill(tb testing.TB, b *Bulkhead, n int) {
	tb.Helper()
	for range n {
		if _, refused := b.Acquire(context.Background(), Normal, 100); refused != nil {
			tb.Fatal(refused)
		}
	}
}

func TestBulkhead(t *testing.T) {
	t.Parallel()
	inBubble(t, "64 pass, the next waits 50 ms and is refused", func(t *testing.T) {
		b := mustBulkhead(t, DefaultBulkhead())
		fill(t, b, 64)
		start := time.Now()
		waited, refused := b.Acquire(t.Context(), Critical, 100)
		wantRefusal(t, refused, BulkheadFull)
		if !waited || time.Since(start) != 50*time.Millisecond || refused.Detail != "all 64 slots in use, none came free in 50ms" {
			t.Errorf("waited %v (%v), refused by %v", waited, time.Since(start), refused)
		}
	})
	inBubble(t, "low priority does not wait", func(t *testing.T) {
		b := mustBulkhead(t, DefaultBulkhead())
		fill(t, b, 64)
		start := time.Now()
		_, refused := b.Acquire(t.Context(), Low, 100)
		wantRefusal(t, refused, BulkheadFull)
		if time.Since(start) != 0 {
			t.Errorf("waited %v", time.Since(start))
		}
	})
	inBubble(t, "a deadline that passes in the queue is told from a full bulkhead", func(t *testing.T) {
		b := mustBulkhead(t, DefaultBulkhead())
		fill(t, b, 64)
		_, refused := b.Acquire(within(t, 10*time.Millisecond), Critical, 100)
		wantRefusal(t, refused, DeadlineTooShort)
	})
	inBubble(t, "a slot that comes free goes to the most important, then to the first", func(t *testing.T) {
		b := mustBulkhead(t, BulkheadConfig{Slots: 1, Wait: time.Second, Queue: 10})
		fill(t, b, 1)
		var mu sync.Mutex
		var order []string
		enter := func(name string, priority Priority) {
			go func() {
				if _, refused := b.Acquire(context.Background(), priority, 100); refused != nil {
					t.Error(refused)
				}
				mu.Lock()
				order = append(order, name)
				mu.Unlock()
				b.Release()
			}()
			synctest.Wait()
		}
		enter("refund 1", Normal)
		enter("refund 2", Normal)
		enter("checkout 1", Critical)
		enter("checkout 2", Critical)
		b.Release()
		synctest.Wait()
		want := [4]string{"checkout 1", "checkout 2", "refund 1", "refund 2"}
		if len(order) != 4 || [4]string(order) != want {
			t.Errorf("order %v, want %v", order, want)
		}
	})
	inBubble(t, "the queue is bounded", func(t *testing.T) {
		b := mustBulkhead(t, BulkheadConfig{Slots: 1, Wait: time.Second, Queue: 2})
		fill(t, b, 1)
		var refused atomic.Int64
		for range 5 {
			go func() {
				if _, r := b.Acquire(context.Background(), Normal, 100); r != nil {
					refused.Add(1)
				}
			}()
		}
		synctest.Wait()
		if s := b.Snapshot(); s.Waiting != 2 || refused.Load() != 3 {
			t.Errorf("%d wait and %d were refused at once, want 2 and 3", s.Waiting, refused.Load())
		}
		time.Sleep(time.Second)
	})
	inBubble(t, "the ramp narrows it, and what is over the limit drains", func(t *testing.T) {
		b := mustBulkhead(t, BulkheadConfig{Slots: 8, Wait: 0})
		fill(t, b, 8)
		for inFlight := 8; inFlight > 2; inFlight-- {
			_, refused := b.Acquire(t.Context(), Critical, 25)
			wantRefusal(t, refused, BulkheadFull)
			if want := "all 2 slots in use (of 8, after a closing)"; refused.Detail != want {
				t.Fatalf("detail %q, want %q", refused.Detail, want)
			}
			b.Release()
		}
		b.Release()
		if _, refused := b.Acquire(t.Context(), Critical, 25); refused != nil {
			t.Error(refused)
		}
		if _, refused := b.Acquire(t.Context(), Critical, 50); refused != nil {
			t.Error(refused)
		}
	})
	inBubble(t, "resilience case 29: 10,000 cancelled waits return at once and leave nothing", func(t *testing.T) {
		b := mustBulkhead(t, BulkheadConfig{Slots: 1, Wait: time.Minute, Queue: 10_000})
		fill(t, b, 1)
		ctx, cancel := context.WithCancel(t.Context())
		start := time.Now()
		var gone atomic.Int64
		var wg sync.WaitGroup
		for range 10_000 {
			wg.Go(func() {
				if _, r := b.Acquire(ctx, Normal, 100); r != nil && r.Reason == CallerGone {
					gone.Add(1)
				}
			})
		}
		synctest.Wait()
		cancel()
		wg.Wait()
		if s := b.Snapshot(); gone.Load() != 10_000 || s.Waiting != 0 || time.Since(start) != 0 {
			t.Errorf("%d left after %v, %d still wait", gone.Load(), time.Since(start), s.Waiting)
		}
		b.Release()
		fill(t, b, 1)
	})
	t.Run("a release too many panics", func(t *testing.T) {
		t.Parallel()
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		mustBulkhead(t, DefaultBulkhead()).Release()
	})
}

// TestBulkheadNeverLosesASlot lets grants, timeouts and cancellations meet.
func TestBulkheadNeverLosesASlot(t *testing.T) {
	t.Parallel()
	const slots = 4
	b := mustBulkhead(t, BulkheadConfig{Slots: slots, Wait: 50 * time.Microsecond, Queue: 16})
	var inFlight, most atomic.Int64
	storm(24, func() {
		for i := range 300 {
			ctx, cancel := context.WithCancel(context.Background())
			if i%3 == 0 {
				go cancel()
			}
			if _, refused := b.Acquire(ctx, Priority(i%2), 25+i%76); refused == nil {
				n := inFlight.Add(1)
				for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
				}
				inFlight.Add(-1)
				b.Release()
			}
			cancel()
		}
	})
	if most.Load() > slots {
		t.Errorf("%d in flight, limit %d", most.Load(), slots)
	}
	if s := b.Snapshot(); s.InFlight != 0 || s.Waiting != 0 {
		t.Errorf("left over: %+v", s)
	}
	fill(t, b, slots)
}

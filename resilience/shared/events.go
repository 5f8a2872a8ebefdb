package shared

import (
	"sync"
	"sync/atomic"
)

// events calls listeners, in the order in which things happened, on a goroutine of its own: outside
// every lock, and never on the goroutine of a call.
type events struct {
	panics atomic.Int64

	mu      sync.Mutex
	waiting []func()
	wake    chan struct{}
}

func newEvents() *events { return &events{wake: make(chan struct{}, 1)} }

// push is called under a breaker's lock, which is what fixes the order.
func (e *events) push(call func()) {
	e.mu.Lock()
	e.waiting = append(e.waiting, call)
	e.mu.Unlock()
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// run delivers until stop is closed, and what is waiting then.
func (e *events) run(stop <-chan struct{}) {
	for {
		select {
		case <-e.wake:
			e.deliver()
		case <-stop:
			e.deliver()
			return
		}
	}
}

func (e *events) deliver() {
	e.mu.Lock()
	calls := e.waiting
	e.waiting = nil
	e.mu.Unlock()
	for _, call := range calls {
		e.call(call)
	}
}

// call keeps a listener's panic from the others.
func (e *events) call(do func()) {
	defer func() {
		if recover() != nil {
			e.panics.Add(1)
		}
	}()
	do()
}

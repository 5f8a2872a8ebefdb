package resilience

import (
	"context"
	"testing"
	"time"
)

// These tests run alone: AllocsPerRun counts the allocations of all goroutines.

func TestAllocations(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	closed, open := mustBreaker(t, DefaultBreaker()), mustBreaker(t, longOpen())
	trip(t, open)
	mixed := mustBreaker(t, DefaultBreaker())
	record(t, mixed, Success, 1000)
	chain, budget := mustChain(t, DefaultSettings()), mustBudget(t, DefaultBudget())
	door, shut := fixed(t, 1000), fixed(t, 10)
	crowd(shut, Critical)
	var visit Visit
	tests := []struct {
		name string
		most float64
		run  func()
	}{
		{"closed pass", 0, func() {
			permit, _ := closed.Acquire(ctx)
			closed.Done(permit, Success)
		}},
		{"closed pass of a failure that does not trip", 0, func() {
			permit, _ := mixed.Acquire(ctx)
			mixed.Done(permit, Failure)
		}},
		{"reject: the record", 1, func() { _, _ = open.Acquire(ctx) }},
		{"shedder, in and out", 0, func() {
			_ = door.Enter(ctx, &visit, 0, Critical)
			visit.StepOut()
			visit.StepIn()
			visit.Leave(true)
		}},
		{"shedder, refused: the record", 1, func() { _ = shut.Enter(ctx, &visit, 0, Low) }},
		{"budget success", 0, budget.Succeeded},
		{"chain on success", 2, func() { chain.Do(ctx, Critical, succeed) }},
	}
	for _, test := range tests {
		if got := testing.AllocsPerRun(500, test.run); got > test.most {
			t.Errorf("%s: %v allocations, want at most %v", test.name, got, test.most)
		}
	}
}

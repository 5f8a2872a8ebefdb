package main

import (
	"testing"
	"time"

	"paymentsd/resilience"
)

func TestJudge(t *testing.T) {
	t.Parallel()
	start := time.Unix(1_000_000, 0)
	event := func(epoch int64, from, to resilience.State, after time.Duration) resilience.Transition {
		return resilience.Transition{Epoch: epoch, From: from, To: to, At: start.Add(after)}
	}
	probe := event(5, "open", "half_open", 0)
	for _, c := range []struct {
		name            string
		fate            fate
		next            []resilience.Transition
		replaced, wrong int
	}{
		{"a probe that is reported in time may close", inTime, []resilience.Transition{event(6, "half_open", "closed", time.Millisecond)}, 0, 0},
		{"a lost probe is replaced after its lease", lost, []resilience.Transition{event(6, "half_open", "half_open", time.Second)}, 1, 0},
		{"a lost probe is replaced before its lease ends", lost, []resilience.Transition{event(6, "half_open", "half_open", time.Second-1)}, 0, 1},
		{"a late report is fenced, and the next probe closes", late, []resilience.Transition{event(6, "half_open", "half_open", 2*time.Second), event(7, "half_open", "closed", 3*time.Second)}, 1, 0},
		{"a late report closes", late, []resilience.Transition{event(6, "half_open", "closed", 2*time.Second)}, 0, 1},
		{"the run ends before the lease", lost, nil, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := judge(map[uint64]fate{5: c.fate}, append(c.next, probe), time.Second)
			if len(got.replaced) != c.replaced || len(got.wrong) != c.wrong || got.probes != 1 {
				t.Errorf("judged %+v, want %d replaced and %d wrong", got, c.replaced, c.wrong)
			}
		})
	}
}

func TestBusiest(t *testing.T) {
	t.Parallel()
	at := func(ms ...int) (out []span) {
		for _, m := range ms {
			out = append(out, span{time.Duration(m) * time.Millisecond, time.Duration(m+10) * time.Millisecond})
		}
		return out
	}
	for _, c := range []struct {
		name    string
		granted []span
		want    int
	}{
		{"nothing", nil, 0},
		{"a burst across the edge of a second", at(900, 950, 1000, 1050, 3000), 4},
		{"just a second apart", at(0, 1000), 1},
		{"answered after the second: it may have been granted then", at(0, 995), 1},
	} {
		if got := busiest(c.granted, time.Second); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

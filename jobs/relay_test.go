package jobs

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/riverqueue/river"

	"paymentsd/merchant"
	"paymentsd/payment"
)

func TestRelay(t *testing.T) {
	t.Parallel()
	t.Run("hands every event over once and marks it", func(t *testing.T) {
		t.Parallel()
		d, n := newDesk(t), &notes{}
		j := d.jobs(Extension{Consumer: n})
		var want []string
		for m := range merchant.ID(3) {
			for i := range 250 { // more than one batch
				id := fmt.Sprintf("m%d-%03d", m, i)
				d.event(m, id, "charge.captured", "ch")
				want = append(want, id)
			}
		}
		for range 2 { // the second time there is nothing
			if err := j.Relay(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if got := n.taken(); !slices.Equal(got, want) {
			t.Errorf("%d events taken, want %d once each", len(got), len(want))
		}
		if left := d.count(`select count(*) from outbox where relayed_at is null`); left != 0 {
			t.Errorf("%d events are not marked", left)
		}
	})
	t.Run("replicas share the events", func(t *testing.T) {
		t.Parallel()
		d, n := newDesk(t), &notes{}
		for i := range 300 {
			d.event(1, fmt.Sprintf("e%03d", i), "charge.captured", "ch")
		}
		ended := make(chan error)
		for range 3 {
			j := d.jobs(Extension{Consumer: n})
			go func() { ended <- j.Relay(t.Context()) }()
		}
		for range 3 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		if got := n.taken(); len(got) != 300 || len(slices.Compact(got)) != 300 {
			t.Errorf("%d events taken", len(got))
		}
	})
	t.Run("an event that one consumer cannot take delays no other, and comes again", func(t *testing.T) {
		t.Parallel()
		d, n := newDesk(t), &notes{}
		n.refuse = func(e payment.OutboxEvent) error {
			if e.ID == "sour" && e.Tries < 2 {
				return errSour
			}
			return nil
		}
		j := d.jobs(Extension{Consumer: n})
		d.event(1, "a", "charge.captured", "ch")
		d.event(1, "sour", "charge.captured", "ch")
		d.event(1, "b", "charge.captured", "ch")
		d.event(2, "c", "charge.captured", "ch")
		if err := j.Relay(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, want := n.taken(), []string{"a", "b", "c"}; !slices.Equal(got, want) {
			t.Errorf("taken %v, want %v", got, want)
		}
		d.exec(`update outbox set due_at = now() where event_id = 'sour'`)
		if err := j.Relay(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, want := n.taken(), []string{"a", "b", "c", "sour"}; !slices.Equal(got, want) {
			t.Errorf("taken %v, want %v", got, want)
		}
	})
	t.Run("a relay that is lost after its claim loses no event", func(t *testing.T) {
		t.Parallel()
		d, n := newDesk(t), &notes{}
		d.event(1, "a", "charge.captured", "ch")
		if claimed, err := d.ClaimEvents(t.Context(), 1, 10, time.Hour); err != nil || len(claimed) != 1 {
			t.Fatal(claimed, err)
		}
		j := d.jobs(Extension{Consumer: n})
		if err := j.Relay(t.Context()); err != nil || len(n.taken()) != 0 {
			t.Fatalf("%v, %v while the lease lasts", n.taken(), err)
		}
		d.exec(`update outbox set due_at = now()`) // the lease has passed
		if err := j.Relay(t.Context()); err != nil || len(n.taken()) != 1 {
			t.Fatalf("%v, %v after the lease", n.taken(), err)
		}
	})
	t.Run("a relay that is lost before its mark makes no second job", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t)
		d.event(1, "a", payment.EventQueued, "ch_a")
		j := d.jobs()
		for range 2 {
			if err := j.Relay(t.Context()); err != nil {
				t.Fatal(err)
			}
			d.exec(`update outbox set due_at = now(), relayed_at = null`)
		}
		if jobs := d.count(countJobs); jobs != 1 {
			t.Errorf("%d jobs", jobs)
		}
	})
}

// greeting is the job of another part of the program.
type greeting struct {
	Event string `json:"event"`
}

func (greeting) Kind() string { return "greeting" }

type greeter struct{}

func (greeter) Name() string { return "greeter" }
func (greeter) Take(_ context.Context, _ merchant.ID, events []payment.OutboxEvent) (jobs []river.InsertManyParams, _ error) {
	for _, e := range events {
		jobs = append(jobs, river.InsertManyParams{Args: greeting{e.ID}, InsertOpts: &river.InsertOpts{Queue: "greetings", UniqueOpts: OneAtATime()}})
	}
	return jobs, nil
}

func TestAnExtensionHasItsOwnJobs(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	greeted := make(chan string, 2)
	d.start(d.jobs(Extension{
		Consumer: greeter{},
		Queues:   map[string]river.QueueConfig{"greetings": {MaxWorkers: 1}},
		Workers: func(w *river.Workers) {
			river.AddWorker(w, river.WorkFunc(func(_ context.Context, job *river.Job[greeting]) error {
				greeted <- job.Args.Event
				return nil
			}))
		},
	}))
	d.event(1, "hello", "charge.captured", "ch")
	select {
	case got := <-greeted:
		if got != "hello" {
			t.Errorf("greeted %s", got)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("no greeting")
	}
}

func TestPurgeKeepsWhatIsNotRelayedOrRecent(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	for _, id := range []string{"old", "recent", "open"} {
		d.event(1, id, "charge.captured", "ch")
	}
	d.exec(`update outbox set relayed_at = now() - interval '31 days' where event_id = 'old'`)
	d.exec(`update outbox set relayed_at = now() where event_id = 'recent'`)
	for more := true; more; {
		var err error
		if more, err = d.PurgeEvents(t.Context(), time.Now().Add(-30*24*time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	if d.count(`select count(*) from outbox`) != 2 || d.count(`select count(*) from outbox where event_id = 'old'`) != 0 {
		t.Error("the purge took the wrong events")
	}
}

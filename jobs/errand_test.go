package jobs

import (
	"errors"
	"slices"
	"testing"
	"time"

	"paymentsd/payment"
)

func TestWake(t *testing.T) {
	t.Parallel()
	t.Run("makes one job of an errand, however often it looks", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t)
		j := d.jobs()
		d.errand(1, payment.ErrandCharge, 0)
		for range 3 {
			if err := j.Wake(t.Context()); err != nil {
				t.Fatal(err)
			}
			d.exec(`update errands set wake_at = now()`) // as if the lease had passed
		}
		if jobs := d.count(countJobs); jobs != 1 {
			t.Errorf("%d jobs", jobs)
		}
	})
	t.Run("a lost job is made again after the lease", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t)
		j := d.jobs()
		d.errand(1, payment.ErrandCharge, 0)
		if err := j.Wake(t.Context()); err != nil {
			t.Fatal(err)
		}
		d.exec(`delete from river.river_job`)
		if err := j.Wake(t.Context()); err != nil || d.count(countJobs) != 0 {
			t.Fatalf("%d jobs within the lease, %v", d.count(countJobs), err)
		}
		d.exec(`update errands set wake_at = now()`)
		if err := j.Wake(t.Context()); err != nil || d.count(countJobs) != 1 {
			t.Fatalf("%d jobs after the lease, %v", d.count(countJobs), err)
		}
	})
	t.Run("errands that are not due, or have ended, are left alone", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t)
		j := d.jobs()
		d.errand(1, payment.ErrandCharge, 0)
		d.errand(1, payment.ErrandCharge, 0)
		d.exec(`update errands set wake_at = now() + interval '1 hour' where charge_id = (select min(charge_id) from errands)`)
		d.exec(`update errands set ended_at = now() where wake_at <= now()`)
		if err := j.Wake(t.Context()); err != nil || d.count(countJobs) != 0 {
			t.Errorf("%d jobs, %v", d.count(countJobs), err)
		}
	})
	t.Run("fresh ones come first, and old inquiries have a queue of their own", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t)
		for range 600 { // more than one look takes in
			d.errand(1, payment.ErrandInquiry, 3)
		}
		d.exec(`update errands set wake_at = now() - interval '1 day'`)
		fresh := d.errand(2, payment.ErrandInquiry, 0)
		first, err := d.ErrandsToWake(t.Context(), wakeBatch)
		if err != nil || len(first) != wakeBatch || first[0].ChargeID != fresh {
			t.Fatalf("%d errands, the first is not the fresh one, %v", len(first), err)
		}
		if err := d.jobs().Wake(t.Context()); err != nil {
			t.Fatal(err)
		}
		if a, b := d.count(countJobs+` where queue = 'inquiries'`), d.count(countJobs+` where queue = 'inquiries_again'`); a != 1 || b != 600 {
			t.Errorf("%d fresh and %d old ones, want 1 and 600", a, b)
		}
	})
}

func TestWorkers(t *testing.T) {
	t.Parallel()
	t.Run("run what is woken, by event and by errand", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t)
		byErrand := d.errand(1, payment.ErrandInquiry, 0)
		byEvent := d.errand(1, payment.ErrandCharge, 0)
		d.exec(`update errands set wake_at = now() + interval '1 hour' where charge_id = $1`, byEvent)
		d.event(1, byEvent+":queued", payment.EventQueued, byEvent)
		d.start(d.jobs())
		d.await("both ran", func() bool {
			ran := d.haveRun()
			return slices.Contains(ran, byErrand) && slices.Contains(ran, byEvent)
		})
	})
	t.Run("news is heard before the next poll", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t)
		j := d.jobs()
		j.Poll = time.Hour
		d.start(j)
		d.await("the first pass is over", func() bool { return d.count(`select count(*) from river.river_queue`) >= 3 })
		time.Sleep(4 * calmly)
		id := d.errand(1, payment.ErrandInquiry, 0)
		j.News()
		d.await("it ran", func() bool { return slices.Contains(d.haveRun(), id) })
	})
	t.Run("one that fails or panics is not run in circles and keeps no other waiting", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t)
		bad, worse, good := d.errand(1, payment.ErrandInquiry, 0), d.errand(1, payment.ErrandInquiry, 0), d.errand(1, payment.ErrandInquiry, 0)
		d.run = func(id string) error {
			switch id {
			case bad:
				return errors.New("poisoned")
			case worse:
				panic("poisoned")
			}
			return nil
		}
		d.start(d.jobs())
		d.await("all ran and the failures are written down", func() bool {
			return slices.Contains(d.haveRun(), good) && d.count(countJobs+` where state = 'discarded'`) == 2
		})
		if ran := d.haveRun(); len(ran) != 3 {
			t.Errorf("%d runs: %v", len(ran), ran)
		}
	})
	t.Run("stopping lets what runs end", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t)
		inside, leave := make(chan struct{}), make(chan struct{})
		d.run = func(string) error { close(inside); <-leave; return nil }
		j := d.jobs()
		d.errand(1, payment.ErrandInquiry, 0)
		if err := j.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-inside
		stopped := make(chan error)
		go func() { stopped <- j.Stop(t.Context()) }()
		select {
		case err := <-stopped:
			t.Fatalf("stopped with a job inside: %v", err)
		case <-time.After(100 * time.Millisecond):
		}
		close(leave)
		if err := <-stopped; err != nil {
			t.Error(err)
		}
		if done := d.count(countJobs + ` where state = 'completed'`); done != 1 {
			t.Errorf("%d jobs completed", done)
		}
	})
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	if _, err := New(Config{ChargeWorkers: 1, InquiryWorkers: 0, Poll: time.Second, JobTime: time.Second}); err == nil {
		t.Error("no workers for inquiries are accepted")
	}
}

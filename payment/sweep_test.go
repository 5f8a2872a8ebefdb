package payment

import (
	"testing"

	"github.com/jackc/pgx/v5"
)

func TestSweep(t *testing.T) {
	t.Parallel()
	t.Run("many replicas at once take each charge over once", func(t *testing.T) {
		t.Parallel()
		s := openShop(t, []named{{"north", answering(), plainly()}})
		const lost = 30
		for i := range lost {
			s.abandon(string(rune('A' + i)))
		}
		reports := make(chan SweepReport, 4)
		for range 4 {
			go func() {
				report, err := s.Sweep(t.Context())
				if err != nil {
					t.Error(err)
				}
				reports <- report
			}()
		}
		taken := 0
		for range 4 {
			report := <-reports
			taken += report.Unknown
			if report.Failed != 0 {
				t.Errorf("%+v", report)
			}
		}
		if taken != lost {
			t.Errorf("%d taken over, want %d", taken, lost)
		}
		s.wantRows(lost, lost, lost, 0, lost)
		if n := s.count(`select count(*) from attempts where state <> 'unclear' or reason <> 'process_lost'`); n != 0 {
			t.Errorf("%d attempts are not ended", n)
		}
	})
	t.Run("items that cannot be swept never starve fresh ones", func(t *testing.T) {
		t.Parallel()
		s := openShop(t, []named{{"north", answering(), plainly()}})
		for i := range sweepBatch { // a whole batch of damaged rows, and longest abandoned
			s.abandon("bad" + string(rune('A'+i)))
		}
		s.exec(`update charges set status = 'declined', decline_code = 'x'`)
		s.exec(`update idempotency_keys set lease_until = now() - interval '1 hour'`)
		s.abandon("good")
		first := s.sweep()
		if first.Failed != sweepBatch || first.Unknown != 0 || !first.More {
			t.Errorf("%+v", first)
		}
		if second := s.sweep(); second.Unknown != 1 || second.Failed != 0 || second.More {
			t.Errorf("%+v", second)
		}
		if third := s.sweep(); third != (SweepReport{}) {
			t.Errorf("%+v", third)
		}
	})
	t.Run("a key that somebody holds is left alone", func(t *testing.T) {
		t.Parallel()
		s := openShop(t, []named{{"north", answering(), plainly()}})
		s.abandon("k")
		err := pgx.BeginFunc(t.Context(), s.owner, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), `select 1 from idempotency_keys for update`); err != nil {
				return err
			}
			if report := s.sweep(); report != (SweepReport{}) {
				t.Errorf("%+v", report)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if report := s.sweep(); report.Unknown != 1 {
			t.Errorf("%+v", report)
		}
	})
	t.Run("a process lost in the middle of a sweep leaves the item to the next", func(t *testing.T) {
		t.Parallel()
		b := openBooks(t)
		dying := b.shop(t, []named{{"north", answering(), plainly()}}, withFault(faultSweepKey, func() { panic("lost") }))
		dying.abandon("k")
		func() {
			defer func() { _ = recover() }()
			_, _ = dying.Sweep(t.Context())
		}()
		dying.wantRows(1, 1, 1, 0, 0)
		if n := dying.count(`select count(*) from idempotency_keys where state = 'in_flight' and fence = 1`); n != 1 {
			t.Error("half a sweep was written")
		}
		if report := dying.sweep(); report.Unknown != 1 {
			t.Errorf("%+v", report)
		}
	})
}

// abandon leaves a claimed charge behind whose lease has passed, as a lost process does.
func (s *shop) abandon(key string) Charge {
	s.t.Helper()
	req := s.request(key)
	charge := s.newCharge(req, s.merchant.Acquirers[0])
	if claimed, err := s.claim(s.t.Context(), req, &charge); err != nil || claimed.outcome != beginClaimed {
		s.t.Fatalf("%+v, %v", claimed, err)
	}
	s.letLeasePass(key)
	return charge
}

func TestPoolIsNotHeldDuringCalls(t *testing.T) {
	t.Parallel()
	t.Run("peers case 35: many more captures at once than connections", func(t *testing.T) {
		t.Parallel()
		const captures, connections = 24, 2
		b := openBooks(t)
		p, err := b.smallPool(t, connections)
		if err != nil {
			t.Fatal(err)
		}
		all := make(chan struct{})
		inside := make(chan struct{}, captures)
		north := answering()
		north.during = inAndOut(inside, all)
		s := b.shop(t, []named{{"north", north, plainly()}}, func(c *Config) { c.Pool = p })
		var ends []func() Result
		for i := range captures {
			ends = append(ends, s.chargeAside(s.request(string(rune('A'+i)))))
		}
		for range captures { // every one of them is at the acquirer, and none holds a connection
			<-inside
		}
		if held := p.Stat().AcquiredConns(); held != 0 {
			t.Errorf("%d connections are held during calls", held)
		}
		close(all)
		for _, end := range ends {
			wantStatus(t, end(), Captured)
		}
		s.wantRows(captures, captures, captures, captures, captures)
	})
}

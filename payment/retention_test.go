package payment

import (
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"paymentsd/acquirer"
	"paymentsd/idempotency"
	"paymentsd/internal/postgres"
)

// Retention drops stored answers, a day's partition at a time, and nothing else: whatever the state of a
// charge, and whether its settlement has come or not, its key, its charge and its evidence stay as they are.
// Who was unknown or in flight goes on as if nothing had happened.
func TestRetentionTouchesNothingButAnswers(t *testing.T) {
	t.Parallel()
	const retention = 30 * 24 * time.Hour
	inside, leave := make(chan struct{}), make(chan struct{})
	north := answering(of(acquirer.Captured), of(acquirer.Declined), of(acquirer.Rejected))
	s := openShop(t, []named{{"north", north, plainly()}})
	if _, _, err := idempotency.Maintain(t.Context(), s.db.Pool, time.Now(), retention); err != nil {
		t.Fatal(err)
	}
	captured := s.charge(s.request("captured")).Charge // nothing has been settled: it is unreconciled
	s.charge(s.request("declined"))
	s.charge(s.request("failed"))
	open, closed := s.unknown("unknown"), s.unknown("closed as failed")
	s.resolve(closed, decided("d", OutcomeFailed))
	north.during = inAndOut(inside, leave)
	running := s.chargeAside(s.request("in flight"))
	<-inside

	before := s.everything()
	for _, days := range []int{31, 32, 400} {
		if _, _, err := idempotency.Maintain(t.Context(), s.db.Pool, time.Now().AddDate(0, 0, days), retention); err != nil {
			t.Fatal(err)
		}
	}
	if answers := s.count(`select count(*) from idempotency_responses where merchant_id = $1`, s.merchant.ID); answers != 0 {
		t.Errorf("%d answers are left", answers)
	}
	if after := s.everything(); !slices.Equal(after, before) {
		t.Errorf("retention changed\n%v\nto\n%v", before, after)
	}

	if expired := refusal[*ExpiredKeyError](s, s.request("captured")); expired.ChargeID != captured.ID {
		t.Errorf("%+v", expired)
	}
	if again := s.charge(s.request("unknown")); again.Charge.ID != open.ID || again.Charge.Status != Unknown {
		t.Errorf("%+v", again)
	}
	s.resolve(open, decided("o", OutcomeCaptured))
	if again := s.charge(s.request("unknown")); again.Frozen == nil || again.Charge.Status != Captured {
		t.Errorf("an unknown that outlived retention has no answer: %+v", again)
	}
	close(leave)
	wantStatus(t, running(), Captured)
	s.wantBalanced()
}

// everything is each row that belongs to the merchant's charges, but for the answers.
func (s *shop) everything() []string {
	s.t.Helper()
	rows, err := s.owner.Query(s.t.Context(), `
select 'key ' || to_jsonb(k)::text from idempotency_keys k where k.merchant_id = $1
union all select 'charge ' || to_jsonb(c)::text from charges c where c.merchant_id = $1
union all select 'attempt ' || to_jsonb(a)::text from attempts a where a.merchant_id = $1
union all select 'evidence ' || to_jsonb(r)::text from resolutions r where r.merchant_id = $1
union all select 'transfer ' || to_jsonb(l)::text from ledger_transfers l where l.merchant_id = $1
order by 1`, s.merchant.ID)
	if err != nil {
		s.t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		s.t.Fatal(err)
	}
	return all
}

// A charge never goes before its key: the service may delete no charge, and nothing that hangs on one.
func TestTheServiceCannotDeleteWhatAKeyNames(t *testing.T) {
	t.Parallel()
	s := openShop(t, []named{{"north", answering(), plainly()}})
	s.charge(s.request("k"))
	for _, table := range []string{"charges", "attempts", "resolutions", "ledger_transfers"} {
		if _, err := s.db.Pool.Exec(t.Context(), `delete from `+table+` where merchant_id = $1`, s.merchant.ID); postgres.SQLState(err) != "42501" {
			t.Errorf("delete from %s: %v", table, err)
		}
	}
	s.wantRows(1, 1, 1, 1, 1)
}

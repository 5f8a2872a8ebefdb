package payment

import (
	"crypto/sha256"
	"fmt"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
)

func TestAuditChain(t *testing.T) {
	t.Parallel()
	s := openBooks(t).northShop(t)
	const writers, acts = 8, 10
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for i := range acts {
				for range 2 { // the same act again is harmless
					if err := s.AuditAppend(t.Context(), "key 1 (Zoë)", "charge.resolve", "ch_1", "captured: 10 € | 3:abc", fmt.Sprintf("%d:%d", w, i)); err != nil {
						t.Errorf("%v", err)
					}
				}
			}
		})
	}
	all.Wait()
	if n := s.count(`select count(*) from audit_log`); n != writers*acts {
		t.Errorf("%d rows", n)
	}
	s.wantChain()
	if broken, err := VerifyAudit(t.Context(), s.db.Pool); err != nil || broken != 0 {
		t.Errorf("broken at %d, %v", broken, err)
	}
	for _, damage := range []string{
		`update audit_log set detail = 'failed: 10 €' where seq = 40`,
		`update audit_log set at = at + interval '1 microsecond' where seq = 30`,
		`delete from audit_log where seq = 20`,
	} {
		s.exec(damage)
		if broken, err := VerifyAudit(t.Context(), s.db.Pool); err != nil || broken == 0 {
			t.Errorf("%s does not show: %v", damage, err)
		}
	}
}

// wantChain recomputes every hash here, independently of the schema's function.
func (s *shop) wantChain() {
	s.t.Helper()
	rows, err := s.owner.Query(s.t.Context(), `select seq, at, actor, action, subject, detail, act_id, hash from audit_log order by seq`)
	if err != nil {
		s.t.Fatal(err)
	}
	type entry struct {
		Seq                                   int64
		At                                    time.Time
		Actor, Action, Subject, Detail, ActID string
		Hash                                  []byte
	}
	entries, err := pgx.CollectRows(rows, pgx.RowToStructByPos[entry])
	if err != nil {
		s.t.Fatal(err)
	}
	before := []byte{}
	for i, e := range entries {
		text := fmt.Sprintf("%d|%d|", e.Seq, e.At.UnixMicro())
		for _, part := range []string{e.Actor, e.Action, e.Subject, e.Detail, e.ActID} {
			text += fmt.Sprintf("%d:%s", utf8.RuneCountInString(part), part)
		}
		sum := sha256.Sum256(append(before, text...))
		if e.Seq != int64(i+1) || string(sum[:]) != string(e.Hash) {
			s.t.Fatalf("row %d does not follow from the row before it", e.Seq)
		}
		before = e.Hash
	}
}

// Regression: of more decisions than were read at once, the rest never came into the audit log.
func TestCompleteAuditReadsEveryPage(t *testing.T) {
	t.Parallel()
	s := openBooks(t).northShop(t)
	charge := s.unknown("k")
	const decisions = 2*decisionsBatch + 1
	s.exec(`insert into resolutions (merchant_id, charge_id, resolution_id, evidence, outcome, applied, actor, reason, created_at)
		select $1, $2, 'r' || g, 'operator', 'failed', false, 'ops', 'because', now() from generate_series(1, $3) g`, s.merchant.ID, charge.ID, decisions)
	s.exec(`insert into resolutions (merchant_id, charge_id, resolution_id, evidence, outcome, applied, actor, reason, created_at)
		values ($1, $2, 'old', 'operator', 'failed', false, 'ops', 'because', now() - interval '2 days')`, s.merchant.ID, charge.ID)
	for range 2 {
		if err := s.CompleteAudit(t.Context(), time.Now().Add(-24*time.Hour)); err != nil {
			t.Fatal(err)
		}
		if n := s.count(`select count(*) from audit_log`); n != decisions {
			t.Errorf("%d audit rows, want %d", n, decisions)
		}
	}
}

// TestAppendOnly: the service's role may not change what was once written.
func TestAppendOnly(t *testing.T) {
	t.Parallel()
	s := openBooks(t).northShop(t)
	charge := s.unknown("k")
	s.resolve(charge, decided("d", OutcomeCaptured))
	for _, table := range []string{"ledger_transfers", "resolutions", "audit_log"} {
		for _, sql := range []string{`update ` + table + ` set ` + map[string]string{"ledger_transfers": "kind = 'x'", "resolutions": "reason = 'x'", "audit_log": "detail = 'x'"}[table],
			`delete from ` + table, `truncate ` + table, `drop table ` + table, `alter table ` + table + ` disable trigger all`} {
			_, err := s.db.Pool.Exec(t.Context(), sql)
			if state := sqlState(err); state != "42501" {
				t.Errorf("%s: %v", sql, err)
			}
		}
		if n := s.count(`select count(*) from ` + table); n != 1 {
			t.Errorf("%s has %d rows", table, n)
		}
	}
}

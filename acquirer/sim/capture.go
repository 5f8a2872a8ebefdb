package sim

import (
	"crypto/subtle"
	"errors"
	"net/http"
	"time"

	"github.com/shopspring/decimal"

	"paymentsd/money"
)

// captureView is a capture as clients see it.
type captureView struct {
	ID          string         `json:"id"`
	Reference   string         `json:"reference"`
	AmountMinor int64          `json:"amount_minor"`
	Currency    money.Currency `json:"currency"`
	Status      Status         `json:"status"`
	DeclineCode string         `json:"decline_code,omitempty"`
	CreatedAt   time.Time      `json:"created_at"`
}

func viewOf(r Record, now time.Time) captureView {
	r, at := r.asOf(now)
	return captureView{r.ID, r.Reference, r.AmountMinor, r.Currency, r.Status, r.DeclineCode, at}
}

// outcome is what processing a request came to, before a fault bends the answer.
type outcome struct {
	record   Record
	known    bool // record is set
	replayed bool
	refused  *problem
}

// capture is POST /v1/captures.
func (s *Sim) capture(w http.ResponseWriter, r *http.Request) {
	if p := s.admit(r); p != nil {
		refuse(w, p)
		return
	}
	body, p := readBody(w, r)
	if p != nil {
		refuse(w, p)
		return
	}
	o, p := readOrder(r.Header.Get("Idempotency-Key"), body, s.cfg.Exponents)
	if p != nil {
		refuse(w, p)
		return
	}
	b := s.behaviourFor(o)
	s.answer(w, r, o, b, s.process(o, b))
}

func refuse(w http.ResponseWriter, p *problem) {
	if p.status == http.StatusTooManyRequests || p.status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	writeProblem(w, *p)
}

// admit counts the request, checks the credential and the capacity.
func (s *Sim) admit(r *http.Request) *problem {
	s.mu.Lock()
	defer s.mu.Unlock()
	inThisSecond := s.stats.request(s.cfg.Now())
	if s.cfg.Secret != "" && subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), []byte("Bearer "+s.cfg.Secret)) != 1 {
		return refusal(http.StatusUnauthorized, "unauthorized", "Authorization", "send the bearer token of this account")
	}
	if s.cfg.CapacityPerSecond > 0 && inThisSecond > s.cfg.CapacityPerSecond {
		s.stats.overCapacity(s.cfg.Now())
		return refusal(http.StatusServiceUnavailable, "over_capacity", "", "more than %d requests in this second", s.cfg.CapacityPerSecond)
	}
	return nil
}

// behaviourFor lets an injected fault go before the payment method's own.
func (s *Sim) behaviourFor(o order) Behaviour {
	s.mu.Lock()
	defer s.mu.Unlock()
	if fault, hit := s.rollFault(OnCaptures); hit {
		return fault
	}
	b, once := behaviourOf(o.paymentMethod)
	if !once {
		return b
	}
	if s.onceSeen[o.key] {
		return honestly()
	}
	if len(s.onceSeen) < s.cfg.BookMax {
		s.onceSeen[o.key] = true
	}
	return b
}

// process claims the key, lets the latency pass, and moves the money or not.
func (s *Sim) process(o order, b Behaviour) outcome {
	if b.money == loses && b.reply != serverError {
		s.lose(o)
		return outcome{}
	}
	if out, settled := s.claim(o); settled {
		return out
	}
	if b.slow {
		s.wait(s.cfg.SlowLatency)
	} else {
		s.wait(s.cfg.Latency)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.cfg.Variant.NoKeys {
		delete(s.book.keys, o.key) // the claim; add remembers the outcome in its place
	}
	return s.execute(o, b)
}

// claim marks the key as running, or says what it already stands for.
func (s *Sim) claim(o order) (outcome, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cfg.Variant.NoKeys {
		return outcome{}, false
	}
	k, known := s.book.keys[o.key]
	if known && !k.running && s.expired(k) {
		known = false
	}
	if !known {
		s.book.keys[o.key] = keyState{running: true, order: o}
		return outcome{}, false
	}
	if k.running {
		if k.order != o {
			return s.reused(), true
		}
		s.stats.InProgress++
		return outcome{refused: &problem{status: http.StatusConflict, Code: "in_progress", Message: "a request under this key is still running; send the same again later"}}, true
	}
	record := s.book.records[k.record]
	if !record.sameRequest(o) {
		return s.reused(), true
	}
	s.stats.DuplicatesSuppressed++
	return outcome{record: record, known: true, replayed: true}, true
}

func (s *Sim) reused() outcome {
	s.stats.KeyReused++
	return outcome{refused: &problem{status: http.StatusUnprocessableEntity, Code: "key_reused", Field: "Idempotency-Key",
		Message: "this key was used for another request before"}}
}

func (s *Sim) expired(k keyState) bool {
	ttl := s.cfg.Variant.KeyTTL
	return ttl > 0 && s.cfg.Now().Sub(s.book.records[k.record].At) >= ttl
}

// execute writes the book. s.mu is held.
func (s *Sim) execute(o order, b Behaviour) outcome {
	record := s.recordOf(o, b)
	if b.money == loses && !record.Stored && !s.cfg.ReportsLost {
		s.stats.Lost++
		return outcome{}
	}
	added, err := s.book.add(record)
	if errors.Is(err, errBookFull) {
		return outcome{refused: refusal(http.StatusServiceUnavailable, "book_full", "", "this simulator's book is full")}
	}
	if err != nil {
		s.log.Error("a capture could not be written down", "error", err)
		return outcome{refused: &problem{status: http.StatusInternalServerError, Code: "internal_error", Message: "the book cannot be written"}}
	}
	s.tell(added)
	if b.money == captures2 {
		again := record
		again.Stored = false
		if second, err := s.book.add(again); err != nil {
			s.log.Error("the second capture could not be written down", "error", err)
		} else {
			s.tell(second)
		}
	}
	s.stats.booked(s.cfg.Now(), b.money)
	return outcome{record: added, known: b.money != loses}
}

func (s *Sim) recordOf(o order, b Behaviour) Record {
	now := s.cfg.Now().UTC().Truncate(time.Microsecond)
	amount := decimal.New(o.amountMinor, -int32(exponentOf(s.cfg.Exponents, o.currency)))
	r := Record{
		Key: o.key, Reference: o.reference, AmountMinor: o.amountMinor, Currency: o.currency,
		Amount: amount, Fee: s.cfg.fee(amount, o.currency),
		PaymentMethod: o.paymentMethod, Description: o.description,
		At: now, DeclineCode: b.code, Settles: b.settle,
		Stored: !s.cfg.Variant.NoKeys,
	}
	switch b.money {
	case captures, captures2:
		r.Status, r.DeclineCode = StatusCaptured, ""
	case declines:
		r.Status = StatusDeclined
	case pends:
		r.Status, r.Becomes, r.SettleAt = StatusPending, StatusCaptured, now.Add(s.cfg.PendingFor)
	case pendsToFail:
		r.Status, r.Becomes, r.SettleAt = StatusPending, StatusDeclined, now.Add(s.cfg.PendingFor)
	case loses:
		r.Status, r.Stored = StatusLost, false
	}
	complete := b.reply == honest && b.money != declines
	if s.cfg.Variant.ForgetsFailures && !complete {
		r.Stored = false
	}
	if s.cfg.Variant.ReplaysServerErrors && b.reply == serverError {
		r.Stored, r.StoredError = true, true
	}
	return r
}

// lose notes a request that never reached processing.
func (s *Sim) lose(o order) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Lost++
	if !s.cfg.ReportsLost {
		return
	}
	lost := s.recordOf(o, Behaviour{money: loses})
	if _, err := s.book.add(lost); err != nil {
		s.log.Error("a lost request could not be written down", "error", err)
	}
}

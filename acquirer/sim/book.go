package sim

import (
	"errors"
	"fmt"
	"time"

	"github.com/shopspring/decimal"

	"paymentsd/money"
)

// Status is what the book says of one record.
type Status string

// The states of a record. Pending turns into captured or declined by the clock alone.
const (
	StatusCaptured Status = "captured"
	StatusDeclined Status = "declined"
	StatusPending  Status = "pending"
	StatusLost     Status = "lost" // asked for, never processed: only remembered to be reported
)

// Record is one line of the book, written once and never changed.
type Record struct {
	ID            string          `json:"id"`
	Key           string          `json:"key"`
	Reference     string          `json:"reference"`
	AmountMinor   int64           `json:"amount_minor"` // as on the wire, in this acquirer's own exponent
	Currency      money.Currency  `json:"currency"`
	Amount        decimal.Decimal `json:"amount"` // in major units
	Fee           decimal.Decimal `json:"fee"`    // what is kept of it
	PaymentMethod string          `json:"payment_method"`
	Status        Status          `json:"status"`
	DeclineCode   string          `json:"decline_code,omitempty"`
	At            time.Time       `json:"at"` // when it was processed, UTC

	Becomes  Status    `json:"becomes,omitempty"`  // of a pending one
	SettleAt time.Time `json:"settle_at,omitzero"` // when it becomes that

	Settles     settling `json:"settles,omitempty"`
	Stored      bool     `json:"stored"`                 // the key remembers this outcome
	StoredError bool     `json:"stored_error,omitempty"` // ... as a 500 that is replayed
	Description string   `json:"description,omitempty"`
}

// asOf is the record as it stands at a moment, with the moment when it came to stand so.
func (r Record) asOf(now time.Time) (Record, time.Time) {
	if r.Status == StatusPending && !now.Before(r.SettleAt) {
		r.Status = r.Becomes
		if r.Status == StatusCaptured {
			r.DeclineCode = ""
		}
		return r, r.SettleAt
	}
	if r.Status == StatusPending {
		r.DeclineCode = ""
	}
	return r, r.At
}

// sameRequest reports whether o asks for what r was asked for.
func (r Record) sameRequest(o order) bool {
	return r.Reference == o.reference && r.AmountMinor == o.amountMinor && r.Currency == o.currency &&
		r.PaymentMethod == o.paymentMethod && r.Description == o.description
}

var errBookFull = errors.New("the book is full")

// keyState is what a key stands for: running, or the record that it remembers.
type keyState struct {
	running bool
	order   order
	record  int
}

// book is everything that this acquirer knows. It is guarded by Sim.mu.
type book struct {
	name        string
	records     []Record
	issues      []issue
	keys        map[string]keyState
	byReference map[string][]int
	max         int
	journal     *journal // nil in memory
	torn        int      // bytes of a torn last record that were cut off at the start
}

func openBook(cfg Config) (*book, error) {
	b := &book{
		name:        cfg.Name,
		keys:        map[string]keyState{},
		byReference: map[string][]int{},
		max:         cfg.BookMax,
	}
	if cfg.BookFile == "" {
		return b, nil
	}
	j, torn, err := openJournal(cfg.BookFile, func(e entry) error {
		switch {
		case e.Record != nil:
			b.remember(*e.Record)
		case e.Issue != nil:
			b.issues = append(b.issues, *e.Issue)
		default:
			return errors.New("neither a record nor an issue")
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	b.journal, b.torn = j, torn
	return b, nil
}

// add writes a record down, durably if there is a file, and then knows it.
func (b *book) add(r Record) (Record, error) {
	if len(b.records) >= b.max {
		return Record{}, errBookFull
	}
	r.ID = fmt.Sprintf("cap_%s_%08d", b.name, len(b.records)+1)
	if b.journal != nil {
		if err := b.journal.append(entry{Record: &r}); err != nil {
			return Record{}, err
		}
	}
	b.remember(r)
	return r, nil
}

func (b *book) remember(r Record) {
	b.records = append(b.records, r)
	n := len(b.records) - 1
	b.byReference[r.Reference] = append(b.byReference[r.Reference], n)
	if r.Stored {
		b.keys[r.Key] = keyState{record: n}
	}
}

func (b *book) addIssue(i issue) error {
	if b.journal != nil {
		if err := b.journal.append(entry{Issue: &i}); err != nil {
			return err
		}
	}
	b.issues = append(b.issues, i)
	return nil
}

func (b *book) close() error {
	if b.journal == nil {
		return nil
	}
	return b.journal.close()
}

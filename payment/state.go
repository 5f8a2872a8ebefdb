package payment

// Status is what is known of a charge.
type Status string

// The states of a charge.
const (
	Pending  Status = "pending"  // an acquirer is being asked
	Queued   Status = "queued"   // asynchronous, waits for its turn
	Captured Status = "captured" // certain
	Declined Status = "declined" // certain: the acquirer or issuer refused
	Failed   Status = "failed"   // certain: not executed
	Unknown  Status = "unknown"  // it may have happened; only evidence ends it
)

// transitions says where each state may go. A terminal state is never left: contradicting news
// opens an exception for a person instead.
var transitions = map[Status][]Status{
	Queued:   {Pending},
	Pending:  {Captured, Declined, Failed, Unknown},
	Unknown:  {Captured, Failed},
	Captured: {},
	Declined: {},
	Failed:   {},
}

// Statuses lists every state, in the order of a charge's life.
func Statuses() []Status { return []Status{Queued, Pending, Unknown, Captured, Declined, Failed} }

// Valid reports whether s is a state.
func (s Status) Valid() bool { _, ok := transitions[s]; return ok }

// CanBecome reports whether a charge in s may go to next.
func (s Status) CanBecome(next Status) bool {
	for _, to := range transitions[s] {
		if to == next {
			return true
		}
	}
	return false
}

// Terminal reports whether s is certain and final.
func (s Status) Terminal() bool { return s.Valid() && len(transitions[s]) == 0 }

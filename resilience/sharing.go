package resilience

import "time"

// Sharing is how one replica takes part in a breaker that all replicas share.
type Sharing struct {
	// Replica is this process's own name among them.
	Replica string
	// HeldBack says why this replica alone refuses calls; empty if it does not.
	HeldBack string
	// Reporting replicas had attempts in the window; of these, Seeing saw a
	// tenth of them fail or slow.
	Reporting, Seeing int
	// Heard is when the store answered last. StoreError is why it does not;
	// empty if it does.
	Heard      time.Time
	StoreError string
	// Listening is false while this replica learns by polling alone.
	Listening bool
}

// ReplicaReport is what one replica reported of one acquirer in the last minute, in
// the breaker's present epoch.
type ReplicaReport struct {
	Acquirer, Replica        string
	Epoch                    int64
	Attempts, Failures, Slow int64
	// AgeSeconds is the time since its last report, by the store's clock.
	AgeSeconds int64
}

// Transition is one stored change of a shared breaker.
type Transition struct {
	Acquirer string
	Epoch    int64 // that began with it
	From, To State
	Mode     Mode
	Reason   string
	Replica  string // which brought it about
	At       time.Time
}

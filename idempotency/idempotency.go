// Package idempotency makes one key mean one effect: the key's syntax, the fingerprint of what was
// asked under it, its states in Postgres, and the frozen answer that a replay gets.
//
// A key is in flight (somebody works on it, under a lease and a fence), done (the answer is frozen), or
// unknown (money may have moved; only evidence ends it). A certain "nothing happened" removes the
// row, which frees the key.
package idempotency

import (
	"errors"
	"time"

	"paymentsd/merchant"
)

// State is what is known of a key.
type State string

// The states of a key; no row means free.
const (
	InFlight State = "in_flight"
	Done     State = "done"
	Unknown  State = "unknown"
)

// The reasons why a key cannot be used.
var (
	ErrKeyMissing   = errors.New("the Idempotency-Key header is missing")
	ErrKeyMalformed = errors.New("the Idempotency-Key header is malformed")
	ErrMismatch     = errors.New("the key was used with another request")
	ErrExpired      = errors.New("the key is past its retention")
	ErrNotFound     = errors.New("no such key")
)

// Record is the row of one key.
type Record struct {
	Merchant    merchant.ID
	Key         string
	State       State
	Fingerprint Fingerprint
	ChargeID    string
	Fence       int64
	CreatedAt   time.Time
	ResponseOn  time.Time // the day of the frozen answer, when Done
}

// Response is a frozen answer: replays get the same status and bytes.
type Response struct {
	Status      int
	ContentType string
	Location    string
	Body        []byte
}

package payment

// Fault is called after each step of the path, named by a FaultPoint. Only tests of crashes set it.
type Fault func(step string)

// The steps after which a process can be killed on purpose.
const (
	faultGroupFormed   = "group_formed"
	faultGroupSent     = "group_sent"
	faultGroupWritten  = "group_written"
	faultClaimed       = "claimed"
	faultBeforeCall    = "before_call"
	faultAfterCall     = "after_call"
	faultFailedOver    = "failed_over"
	faultFinished      = "finished"
	faultSweepKey      = "sweep_key_taken"
	faultResolveCharge = "resolve_charge_written"
	faultResolveKey    = "resolve_key_written"
	faultResolved      = "resolved"
	faultInquired      = "inquired"
)

// FaultPoint is one step of the path, and what has happened when it is reached.
type FaultPoint struct{ Name, When string }

// FaultPoints lists every step, in the order of the path.
func FaultPoints() []FaultPoint {
	return []FaultPoint{
		{faultGroupFormed, "a group of T1 or T2 is formed; nothing of it was sent to the database"},
		{faultGroupSent, "a group with its COMMIT is sent; the database may have committed it or not"},
		{faultGroupWritten, "a group is committed; none of its requests knows yet"},
		{faultClaimed, "T1 is committed: key, charge and first attempt; nothing was sent"},
		{faultBeforeCall, "breaker and bulkhead admitted a call; nothing of it was sent"},
		{faultAfterCall, "an acquirer's answer is in hand, and written nowhere"},
		{faultFailedOver, "the next attempt is committed; nothing was sent to its acquirer"},
		{faultFinished, "T2 is committed; the client has no answer yet"},
		{faultSweepKey, "inside a sweep's transaction: the key is taken over, the charge is not written"},
		{faultResolveCharge, "inside Resolve's transaction: the charge is written, nothing else is"},
		{faultResolveKey, "inside Resolve's transaction: only the event is missing"},
		{faultResolved, "Resolve is committed; an operator's act is not in the audit log yet"},
		{faultInquired, "an acquirer's answer to an inquiry is in hand, and written nowhere"},
	}
}

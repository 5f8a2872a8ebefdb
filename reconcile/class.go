package reconcile

// Class names what differs.
type Class string

// Severity is how soon a person should look.
type Severity string

// The severities: money may have moved wrongly, money is missing or too much, something is odd.
const (
	Critical Severity = "critical"
	High     Severity = "high"
	Warning  Severity = "warning"
)

// The classes of exceptions that are found by comparing; those of files and their lines are
// settlement's classes.
const (
	MissingFile            Class = "missing_file"
	ReissuedFile           Class = "reissued_file"
	WrongAcquirer          Class = "wrong_acquirer"
	MissingWithUs          Class = "missing_with_us"
	MissingAtAcquirer      Class = "missing_at_acquirer"
	AmountMismatch         Class = "amount_mismatch"
	CurrencyMismatch       Class = "currency_mismatch"
	DuplicateCapture       Class = "duplicate_capture"
	CapturedAtBoth         Class = "captured_at_both"
	CapturedThoughFailed   Class = "captured_though_failed"
	CapturedThoughDeclined Class = "captured_though_declined"
	ReferenceConflict      Class = "reference_conflict"
	BeforeFirstAttempt     Class = "before_first_attempt"
	NoReference            Class = "no_reference"
	RefundWithoutCapture   Class = "refund_without_capture"
	RefundAboveCapture     Class = "refund_above_capture"
	ContradictedLater      Class = "contradicted_later"
	UnknownPastCutoff      Class = "unknown_past_cutoff"
	UnknownKind            Class = "unknown_kind"
	DuplicateLine          Class = "duplicate_line"
	SameKeyOtherContent    Class = "same_key_other_content"
	BadEvent               Class = "bad_event"
)

// ClassInfo is what is the same for every exception of a class.
type ClassInfo struct {
	Class    Class
	Severity Severity
	Meaning  string // what differs, for a person who sees the class for the first time
	Action   string // what ops may do
}

// Classes lists every class, gravest first within files, lines and charges.
func Classes() []ClassInfo {
	return []ClassInfo{
		{"empty_or_truncated", High, "the file is empty or cut short", "Ask the acquirer for the file again. Nothing of it was used."},
		{"count_mismatch", High, "the file has other lines than it says", "Ask the acquirer for the file again. Nothing of it was used."},
		{"sum_mismatch", High, "the sums of the file are not those of its lines", "Ask the acquirer for the file again. Nothing of it was used."},
		{"hash_mismatch", High, "the bytes are not those that the acquirer wrote", "Ask the acquirer for the file again. Nothing of it was used."},
		{"wrong_layout", High, "the file is in another format or layout", "Check the format set for this acquirer; ask whether its layout changed."},
		{MissingFile, High, "a sequence number was skipped", "Ask the acquirer for the file and import it."},
		{ReissuedFile, Warning, "the acquirer sent other content for a report that stood", "Ask the acquirer why; check the charges of the lines removed or changed."},

		{"bad_line", High, "the line cannot be read", "Look at the line in the file; ask the acquirer for a corrected file."},
		{"bad_amount", High, "an amount or currency cannot be read", "Look at the line in the file; ask the acquirer for a corrected file."},
		{"bad_date", High, "the date cannot be read", "Look at the line in the file; ask the acquirer for a corrected file."},
		{"identity_broken", High, "gross less fee is not net", "Look at the line in the file; ask the acquirer for a corrected file."},
		{UnknownKind, High, "the kind of the line is not known", "Find out what it means and have it added to the format."},
		{NoReference, High, "the line is about a charge but names none", "Find the charge at the acquirer by its capture id."},
		{SameKeyOtherContent, High, "a line id came again with other content", "Ask the acquirer which of the two holds."},
		{DuplicateLine, Warning, "the same line twice in one file", "Nothing was counted twice; tell the acquirer."},

		{BadEvent, High, "an event of the acquirer cannot be read", "Look at the event as received (acquirer_events); ask the acquirer what it means."},

		{CapturedAtBoth, Critical, "two acquirers captured one charge", "Refund one of the two captures at its acquirer."},
		{DuplicateCapture, Critical, "one charge was captured more than once", "Refund the further capture at the acquirer."},
		{CapturedThoughDeclined, Critical, "money moved although we answered declined", "Refund it, or agree with the merchant to keep it."},
		{CapturedThoughFailed, Critical, "money moved although we took it as not executed", "Refund it, or agree with the merchant to keep it."},
		{ContradictedLater, Critical, "later evidence contradicts the outcome", "Compare both pieces of evidence at the acquirer; correct by a refund or a claim."},
		{WrongAcquirer, Critical, "an acquirer settled what it was never asked for, or its file was handed in as another's", "A file: hand it in for its own acquirer. A line: ask the acquirer what it captured, and on whose request."},
		{ReferenceConflict, High, "our reference and the capture id name different captures", "Ask the acquirer which capture the line is about."},
		{MissingWithUs, High, "the acquirer settled, or tells of, what we do not know", "Find out who asked for it: another system, a damaged reference, or lost data."},
		{CurrencyMismatch, High, "the line is in another currency than the charge", "Ask the acquirer; the charge stays as it is."},
		{AmountMismatch, High, "the lines do not add up to the charge", "Wait for the rest if it is partial; otherwise claim or refund the difference."},
		{BeforeFirstAttempt, High, "the line is older than our first attempt", "Ask the acquirer what it captured then."},
		{RefundWithoutCapture, High, "money went back that never came", "Ask the acquirer; claim it back."},
		{RefundAboveCapture, High, "more went back than came", "Ask the acquirer; claim the difference back."},
		{MissingAtAcquirer, High, "captured with us, no line by the cut-off", "Ask the acquirer for the capture by our reference."},
		{UnknownPastCutoff, High, "still unknown after the cut-off", "Ask the acquirer; then resolve the charge as captured or failed, with the reason."},
	}
}

// Info describes a class; ok is false for what is none.
func (c Class) Info() (info ClassInfo, ok bool) {
	for _, info := range Classes() {
		if info.Class == c {
			return info, true
		}
	}
	return ClassInfo{Class: c, Severity: High}, false
}

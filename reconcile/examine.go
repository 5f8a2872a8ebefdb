package reconcile

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"paymentsd/merchant"
	"paymentsd/money"
	"paymentsd/payment"
	"paymentsd/settlement"
)

// clockSkew is how much earlier than our attempt an acquirer's clock may place its capture.
const clockSkew = 5 * time.Minute

// subject is one reference with everything that is known about it.
type subject struct {
	merchant merchant.ID
	ref      string
	charge   *payment.Charge // nil if there is none
	attempts []payment.Attempt
	evidence []payment.Resolution // about a charge that is unknown
	claims   []claim              // of every acquirer
}

func (s subject) scope() string { return fmt.Sprintf("charge:%d:%s", s.merchant, s.ref) }

// view is when and by which rules a subject is looked at.
type view struct {
	asOf   time.Time                 // the day of the report
	cutoff func(acquirer string) int // business days
	// absence says whether the files prove that no capture of the charge was settled, and if not, why
	// not. It is asked for unknown charges past their cut-off only.
	absence func(subject) (bool, string, error)
}

// verdict is what the comparison shows. It is a function of the subject and the view alone: the same
// state of things gives the same verdict, however often and after whatever crash.
type verdict struct {
	claims  []claim // with their new states
	found   []Exception
	resolve *payment.Resolution // what would end an unknown
	cites   int                 // the claim that resolve cites, if it is evidence of a settlement
	notes   []payment.Resolution
}

// examination is one subject being looked at.
type examination struct {
	view
	subject
	verdict verdict
	fits    map[string][]int // capture and reversal lines that may be the charge's, by acquirer
	taken   []int            // lines that belong to the charge
	settled []int            // the lines that are the charge's capture
	odd     bool             // an exception speaks about the capture already
}

// examine compares one reference's charge with its lines.
func examine(s subject, v view) (verdict, error) {
	x := &examination{view: v, subject: s, fits: map[string][]int{}}
	x.verdict.claims = slices.Clone(s.claims)
	x.claims = x.verdict.claims
	for i := range x.claims {
		if c := &x.claims[i]; s.charge != nil {
			c.ChargeID = s.charge.ID
		}
	}
	switch {
	case s.charge == nil:
		x.withoutCharge()
	case !s.charge.Status.Terminal() && s.charge.Status != payment.Unknown:
		for i := range x.live() {
			x.claims[i].State = stateWaiting
		}
	default:
		x.screen()
		if s.charge.Status == payment.Captured || s.charge.Status == payment.Unknown {
			x.settle()
		} else {
			x.paidAnyway()
		}
		x.others()
		x.take()
		if err := x.missing(); err != nil {
			return verdict{}, err
		}
	}
	return x.verdict, nil
}

// live visits the lines that no re-issue has taken back.
func (x *examination) live() func(yield func(int, claim) bool) {
	return func(yield func(int, claim) bool) {
		for i, c := range x.claims {
			if c.State != stateWithdrawn && !yield(i, c) {
				return
			}
		}
	}
}

func (x *examination) withoutCharge() {
	for i, c := range x.live() {
		x.claims[i].State = stateUnmatched
		x.add(MissingWithUs, c, c.gross(), "no charge has this reference",
			"Whoever asked for it was not this service, or its record is lost.")
	}
}

// tried reports whether the acquirer may have been asked for the charge.
func (x *examination) tried(acquirer string) bool {
	return acquirer == x.charge.Acquirer ||
		slices.ContainsFunc(x.attempts, func(a payment.Attempt) bool { return a.Acquirer == acquirer })
}

// screen sorts out lines that cannot be about the charge, whatever they add up to.
func (x *examination) screen() {
	for i, c := range x.live() {
		if c.Kind != settlement.Capture && c.Kind != settlement.PartialCaptureReversal {
			continue
		}
		class, detail := Class(""), ""
		switch {
		case !x.tried(c.Acquirer):
			class, detail = WrongAcquirer, "It was never asked for this charge."
		case c.Currency != x.charge.Amount.Currency():
			class, detail = CurrencyMismatch, "Lines in another currency are not added up."
		case c.OccurredAt.Before(x.charge.CreatedAt.Add(-clockSkew)):
			class, detail = BeforeFirstAttempt, "Our first attempt was at "+x.charge.CreatedAt.Format(time.RFC3339)+"."
		default:
			x.fits[c.Acquirer] = append(x.fits[c.Acquirer], i)
			continue
		}
		x.claims[i].State = stateUnmatched
		x.add(class, c, c.gross(), x.ours(), detail)
		x.odd = true
	}
}

// acquirers are those with lines that fit, the charge's own first.
func (x *examination) acquirers() []string {
	names := make([]string, 0, len(x.fits))
	for name := range x.fits {
		names = append(names, name)
	}
	own := func(name string) int {
		if name == x.charge.Acquirer {
			return 0
		}
		return 1
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(own(a)-own(b), cmp.Compare(a, b)) })
	return names
}

// settle finds the lines that are the charge's capture: at one acquirer, adding up exactly.
func (x *examination) settle() {
	// What we know as captured is captured there; an unknown is where the lines say.
	home := ""
	if x.charge.Status == payment.Captured {
		home = x.charge.Acquirer
	}
	for _, name := range x.acquirers() {
		lines := x.fits[name]
		if home != "" && name != home {
			x.capturedElsewhere(home, lines)
			continue
		}
		if x.foreign(lines) {
			continue
		}
		settled, spare := x.pick(lines)
		if settled == nil {
			x.mismatch(name, lines)
			continue
		}
		home, x.settled = name, settled
		x.taken = append(x.taken, settled...)
		if x.sum(spare).Sign() == 0 { // taken back by the acquirer itself
			x.taken = append(x.taken, spare...)
		} else {
			x.duplicates(spare)
		}
	}
	if x.settled != nil && x.charge.Status == payment.Unknown {
		x.resolveCaptured()
	}
}

// capturedElsewhere is about an acquirer that captured, too.
func (x *examination) capturedElsewhere(home string, lines []int) {
	x.odd = true
	for _, i := range lines {
		c := x.claims[i]
		x.claims[i].State = stateDuplicate
		if c.Kind == settlement.Capture {
			x.add(CapturedAtBoth, c, c.gross(), x.ours(), "The charge is captured at "+home+" as well.")
		}
	}
}

func (x *examination) duplicates(lines []int) {
	for _, i := range lines {
		c := x.claims[i]
		x.claims[i].State = stateDuplicate
		if c.Kind == settlement.Capture {
			x.add(DuplicateCapture, c, c.gross(), x.ours(), "Another line is the capture of this charge.")
		}
	}
}

// foreign is about a captured charge whose lines all name another capture than the acquirer's answer
// did: which of the two our reference belongs to is the acquirer's to say.
func (x *examination) foreign(lines []int) bool {
	known := x.charge.CaptureID
	if x.charge.Status != payment.Captured || known == "" ||
		slices.ContainsFunc(lines, func(i int) bool { return x.claims[i].CaptureID == "" || x.claims[i].CaptureID == known }) {
		return false
	}
	x.odd = true
	for _, i := range lines {
		c := x.claims[i]
		x.claims[i].State = stateUnmatched
		if c.Kind == settlement.Capture {
			x.add(ReferenceConflict, c, c.gross(), x.ours(), "The reference is that of one capture, the capture id that of another.")
		}
	}
	return true
}

func (x *examination) mismatch(acquirer string, lines []int) {
	x.odd = true
	total := x.sum(lines)
	difference, _ := total.Sub(x.charge.Amount) // lines in other currencies were screened out
	word := "over"
	if difference.Sign() < 0 {
		word = "under"
	}
	for _, i := range lines {
		x.claims[i].State = stateUnmatched
	}
	first := x.claims[lines[0]]
	e := x.about(AmountMismatch, first, difference, x.ours(),
		fmt.Sprintf("%s by %s %s over %d line(s); it stays open until they add up exactly.", word, abs(difference), difference.Currency(), len(lines)))
	e.Theirs = fmt.Sprintf("%s %s at %s, first line: %s", total, total.Currency(), acquirer, first)
	x.verdict.found = append(x.verdict.found, e.identify(x.scope(), acquirer))
}

// paidAnyway is about a charge that we answered as declined or failed. Its state stands.
func (x *examination) paidAnyway() {
	class, detail := CapturedThoughFailed, "We answered that nothing was executed."
	switch {
	case x.charge.Evidence != "":
		class, detail = ContradictedLater, fmt.Sprintf("It was resolved as %s by evidence: %s.", x.charge.Status, x.charge.Evidence)
	case x.charge.Status == payment.Declined:
		class, detail = CapturedThoughDeclined, "We answered that it was declined."
	}
	for _, name := range x.acquirers() {
		for _, i := range x.fits[name] {
			c := x.claims[i]
			x.claims[i].State = stateUnmatched
			x.add(class, c, c.gross(), x.ours(), detail)
			x.odd = true
			if c.Kind == settlement.Capture {
				x.verdict.notes = append(x.verdict.notes, x.contradiction(c))
			}
		}
	}
}

// contradiction is the line as evidence that came too late: kept with the charge, never applied.
func (x *examination) contradiction(c claim) payment.Resolution {
	return payment.Resolution{
		ID: "settlement:" + c.key(), Evidence: payment.Settlement, Outcome: payment.OutcomeCaptured, Acquirer: c.Acquirer,
		CaptureID: captureName(c), Actor: "reconcile", FileID: c.FileID, LineNo: c.LineNo, Reason: short("Settled all the same: "+c.String()+".", 1000),
	}
}

// ours is the charge in one line.
func (x *examination) ours() string {
	c := x.charge
	text := fmt.Sprintf("charge %s %s %s at %s", c.Status, c.Amount, c.Amount.Currency(), c.Acquirer)
	if c.CaptureID != "" {
		text += ", capture " + quoted(c.CaptureID)
	}
	return text
}

func (x *examination) sum(lines []int) money.Amount {
	total := money.Zero(x.charge.Amount.Currency())
	for _, i := range lines {
		total, _ = total.Add(x.claims[i].gross()) // one currency
	}
	return total
}

func abs(a money.Amount) money.Amount {
	if a.Sign() < 0 {
		return a.Neg()
	}
	return a
}

// about is an exception that a line is the reason of.
func (x *examination) about(class Class, c claim, risk money.Amount, ours, detail string) Exception {
	e := Exception{
		Acquirer: c.Acquirer, Class: class, Merchant: &x.merchant, AcqRef: x.ref, FileID: c.FileID, LineNo: c.LineNo,
		AtRisk: abs(risk), Ours: ours, Theirs: c.String(), Detail: detail, Since: c.OccurredAt,
	}
	if x.charge != nil {
		e.ChargeID = x.charge.ID
	}
	return e
}

// add notes an exception about one line, whichever file has it.
func (x *examination) add(class Class, c claim, risk money.Amount, ours, detail string) {
	e := x.about(class, c, risk, ours, detail).identify(x.scope(), c.Acquirer, c.Account, c.NaturalKey, strconv.Itoa(c.Revision))
	x.verdict.found = append(x.verdict.found, e)
}

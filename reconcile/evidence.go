package reconcile

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/shopspring/decimal"

	"paymentsd/money"
	"paymentsd/payment"
	"paymentsd/settlement"
)

// pick finds the lines of one acquirer that are the charge's capture, and those that are too much. It
// is nil if nothing adds up exactly: nothing is ever matched to within a tolerance.
func (x *examination) pick(lines []int) (settled, spare []int) {
	want := x.charge.Amount
	// One capture of several by their ids: that which we know, or which stood before, comes first.
	for _, group := range x.byCapture(lines) {
		if x.sum(group).Equal(want) && x.hasCapture(group) {
			return group, without(lines, group)
		}
	}
	if x.sum(lines).Equal(want) && x.hasCapture(lines) {
		return lines, nil // paid in parts
	}
	// The same capture again under another line id.
	for _, i := range x.prefer(lines) {
		if c := x.claims[i]; c.Kind == settlement.Capture && c.gross().Equal(want) {
			return []int{i}, without(lines, []int{i})
		}
	}
	return nil, nil
}

func (x *examination) hasCapture(lines []int) bool {
	return slices.ContainsFunc(lines, func(i int) bool { return x.claims[i].Kind == settlement.Capture })
}

// prefer orders lines: of the capture that we know, then what stood before, then as they come.
func (x *examination) prefer(lines []int) []int {
	rank := func(i int) int {
		switch c := x.claims[i]; {
		case x.charge.CaptureID != "" && c.CaptureID == x.charge.CaptureID:
			return 0
		case c.State == stateMatched:
			return 1
		}
		return 2
	}
	ordered := slices.Clone(lines)
	slices.SortStableFunc(ordered, func(a, b int) int { return cmp.Compare(rank(a), rank(b)) })
	return ordered
}

func (x *examination) byCapture(lines []int) (groups [][]int) {
	at := map[string]int{}
	for _, i := range x.prefer(lines) {
		id := x.claims[i].CaptureID
		n, ok := at[id]
		if !ok {
			n, at[id] = len(groups), len(groups)
			groups = append(groups, nil)
		}
		groups[n] = append(groups[n], i)
	}
	return groups
}

func without(lines, some []int) (rest []int) {
	for _, i := range lines {
		if !slices.Contains(some, i) {
			rest = append(rest, i)
		}
	}
	return rest
}

// resolveCaptured makes the settled lines the evidence that ends an unknown.
func (x *examination) resolveCaptured() {
	x.verdict.cites = x.principal(x.settled)
	c := x.claims[x.verdict.cites]
	x.verdict.resolve = &payment.Resolution{
		ID: "settlement:" + c.key(), Evidence: payment.Settlement, Outcome: payment.OutcomeCaptured, Acquirer: c.Acquirer,
		CaptureID: captureName(c), Amount: x.charge.Amount, Actor: "reconcile", FileID: c.FileID, LineNo: c.LineNo,
		Reason: short(fmt.Sprintf("Settled by %s: %s.", c.Acquirer, c), 1000),
	}
}

// captureName is the acquirer's id of the capture or, if the line has none, of the line.
func captureName(c claim) string {
	if c.CaptureID == "" {
		return c.NaturalKey
	}
	return c.CaptureID
}

// principal is the line that stands for the others: the first capture in order.
func (x *examination) principal(lines []int) int {
	for _, i := range x.prefer(lines) {
		if x.claims[i].Kind == settlement.Capture {
			return i
		}
	}
	return lines[0]
}

// others looks at the lines that are no capture: what went back, what failed, what it cost.
func (x *examination) others() {
	back, last := decimal.Zero, -1
	for i, c := range x.live() {
		switch c.Kind {
		case settlement.Refund, settlement.RefundReversal, settlement.Chargeback, settlement.ChargebackReversal:
			x.taken = append(x.taken, i)
			if c.Currency == x.charge.Amount.Currency() {
				back, last = back.Sub(c.Gross), i
			}
		case settlement.CaptureFailed:
			x.taken = append(x.taken, i)
			x.captureFailed(i)
		case settlement.Fee:
			x.taken = append(x.taken, i)
		}
	}
	if last < 0 || !back.IsPositive() {
		return
	}
	came := x.came()
	if back.LessThanOrEqual(came) {
		return
	}
	class := RefundAboveCapture
	if came.IsZero() {
		class = RefundWithoutCapture
	}
	risk, err := money.Total(back.Sub(came), x.charge.Amount.Currency())
	if err != nil {
		return
	}
	e := x.about(class, x.claims[last], risk, x.ours(), "Refunds and chargebacks are set against all captures of the charge.")
	x.verdict.found = append(x.verdict.found, e.identify(x.scope()))
}

// came is what came in for the charge: as the lines have it, or as we know it before they are here.
func (x *examination) came() decimal.Decimal {
	sum := decimal.Zero
	for _, lines := range x.fits {
		sum = sum.Add(x.sum(lines).Decimal())
	}
	if own := x.charge.Amount.Decimal(); x.charge.Status == payment.Captured && own.GreaterThan(sum) {
		return own
	}
	return sum
}

// captureFailed is an acquirer's word that it did not capture: evidence about an unknown, a
// contradiction of a capture that no line confirms.
func (x *examination) captureFailed(i int) {
	c := x.claims[i]
	switch {
	case x.charge.Status == payment.Unknown && x.settled == nil:
		x.verdict.notes = append(x.verdict.notes, payment.Resolution{
			ID: "settlement:" + c.key() + ":noted", Evidence: payment.Settlement, Outcome: payment.OutcomeNone, Acquirer: c.Acquirer,
			Actor: "reconcile", FileID: c.FileID, LineNo: c.LineNo, Reason: short(c.Acquirer+" says that the capture failed.", 1000),
		})
	case x.charge.Status == payment.Captured && x.settled == nil && c.Acquirer == x.charge.Acquirer:
		x.odd = true
		x.add(ContradictedLater, c, x.charge.Amount, x.ours(), "The acquirer says that the capture failed, and no line confirms it.")
	}
}

// take gives the lines that belong to the charge their places: one of each kind stands for it.
func (x *examination) take() {
	standing := map[settlement.Kind]int{}
	for _, i := range x.taken {
		c := x.claims[i]
		if at, ok := standing[c.Kind]; !ok || (c.State == stateMatched && x.claims[at].State != stateMatched) {
			standing[c.Kind] = i
		}
	}
	if x.settled != nil {
		standing[settlement.Capture] = x.principal(x.settled)
	}
	for _, i := range x.taken {
		if standing[x.claims[i].Kind] == i {
			x.claims[i].State = stateMatched
		} else {
			x.claims[i].State = statePart
		}
	}
	x.markProof(standing)
}

// markProof marks the line that ended the charge when it was unknown, also if the run that did so was
// killed before it could write that down.
func (x *examination) markProof(standing map[settlement.Kind]int) {
	if x.charge.Evidence != payment.Settlement || slices.ContainsFunc(x.claims, func(c claim) bool { return c.Resolved }) {
		return
	}
	proof := map[payment.Status]settlement.Kind{payment.Captured: settlement.Capture, payment.Failed: settlement.CaptureFailed}
	if i, ok := standing[proof[x.charge.Status]]; ok {
		x.claims[i].Resolved = true
	}
}

// missing is about what should have come by now.
func (x *examination) missing() error {
	c := x.charge
	if x.settled != nil {
		if c.Status == payment.Captured {
			x.refusedButPaid()
		}
		return nil
	}
	switch {
	case c.Status == payment.Captured && !x.odd && x.takenBack():
	case c.Status == payment.Captured && !x.odd && pastCutoff(c.CreatedAt, x.asOf, x.cutoff(c.Acquirer)):
		x.verdict.found = append(x.verdict.found, x.withoutLine(MissingAtAcquirer,
			fmt.Sprintf("no line within %d business days", x.cutoff(c.Acquirer)), "It was captured on "+c.CreatedAt.Format("2006-01-02")+"."))
	case c.Status == payment.Unknown && pastCutoff(x.lastAttempt(), x.asOf, x.cutoff(c.Acquirer)):
		return x.pastCutoff()
	}
	return nil
}

package reconcile

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/shopspring/decimal"

	"paymentsd/ledger"
	"paymentsd/merchant"
	"paymentsd/money"
	"paymentsd/settlement"
)

// The kinds of transfers that a settlement line is posted as, beside those named after its own kind.
const (
	kindSettlement = "settlement"
	kindFee        = "settlement_fee"
	kindConversion = "settlement_conversion"
)

// transfers are what a line moves. The net goes between the acquirer and the bank, the fee between the
// acquirer and its fees; what a refund or chargeback takes from the merchant (a reversal gives it
// back) goes over the acquirer's account, too. A capture was posted with its charge. So each line
// leaves the receivable as far as it was expected, and what is left there is named by exceptions. What was
// paid in another currency goes over an account of exchange, which holds both sides at the acquirer's rate.
//
// The IDs come from the acquirer's id of the line: whichever file has it, it posts once.
func (c claim) transfers() ([]ledger.Transfer, error) {
	receivable, base := ledger.AcquirerReceivable(c.Acquirer), "settle:"+c.key()
	var out []ledger.Transfer
	var failed error
	leg := func(suffix, kind string, sum decimal.Decimal, currency money.Currency, from, to ledger.Account) {
		if sum.IsNegative() {
			from, to = to, from
		}
		amount, err := money.New(sum.Abs(), currency)
		if err != nil {
			failed = fmt.Errorf("line %d of file %s cannot be posted: %w", c.LineNo, c.FileID, err)
		}
		if amount.IsPositive() {
			out = append(out, ledger.Transfer{ID: base + ":" + suffix, ChargeID: c.ChargeID, Kind: kind, Debit: to, Credit: from, Amount: amount})
		}
	}
	if in := c.SettledCurrency; in != "" {
		exchange := ledger.Exchange(c.Acquirer)
		leg("net", kindConversion, c.Net, c.Currency, receivable, exchange)
		leg("settled", kindSettlement, c.SettledNet, in, exchange, ledger.Bank(c.Acquirer))
		leg("settled_fee", kindFee, c.SettledFee, in, exchange, ledger.Fees(c.Acquirer))
	} else {
		leg("net", kindSettlement, c.Net, c.Currency, receivable, ledger.Bank(c.Acquirer))
		leg("fee", kindFee, c.Fee, c.Currency, receivable, ledger.Fees(c.Acquirer))
	}
	switch c.Kind {
	case settlement.Refund, settlement.RefundReversal, settlement.Chargeback, settlement.ChargebackReversal:
		leg("gross", string(c.Kind), c.Gross, c.Currency, ledger.MerchantPayable, receivable)
	}
	return out, failed
}

// reversals undo the transfers of a line that a re-issued file took back.
func (c claim) reversals() ([]ledger.Transfer, error) {
	out, err := c.transfers()
	for i := range out {
		t := &out[i]
		t.ID, t.Kind, t.Debit, t.Credit = t.ID+":withdrawn", t.Kind+"_withdrawn", t.Credit, t.Debit
	}
	return out, err
}

const updateClaims = `
update settlement_claims c
   set state = u.state, charge_id = nullif(u.charge_id, ''), resolved = u.resolved, posted = u.posted, reversed = u.reversed
  from unnest(@files::text[], @lines::int[], @states::text[], @charges::text[], @resolved::boolean[], @posted::boolean[], @reversed::boolean[])
       as u (file_id, line_no, state, charge_id, resolved, posted, reversed)
 where c.merchant_id = @merchant and c.file_id = u.file_id and c.line_no = u.line_no`

// apply posts the lines and writes their states, in tx: the books and what we think of the lines
// cannot come apart.
func apply(ctx context.Context, tx pgx.Tx, m merchant.ID, claims []claim) error {
	for i := range claims {
		c := &claims[i]
		switch {
		case c.State == stateWithdrawn && c.Posted && !c.Reversed:
			if err := postAll(ctx, tx, m, c.reversals); err != nil {
				return err
			}
			c.Reversed = true
		case c.State != stateWithdrawn && c.State != stateWaiting && c.State != stateNew && !c.Posted:
			if err := postAll(ctx, tx, m, c.transfers); err != nil {
				return err
			}
			c.Posted = true
		}
	}
	// One line of a kind stands for its charge: whoever gives the place up does so first.
	var others, matched []claim
	for _, c := range claims {
		if c.State == stateMatched {
			matched = append(matched, c)
		} else {
			others = append(others, c)
		}
	}
	if err := writeStates(ctx, tx, m, others); err != nil {
		return err
	}
	return writeStates(ctx, tx, m, matched)
}

func postAll(ctx context.Context, tx pgx.Tx, m merchant.ID, transfers func() ([]ledger.Transfer, error)) error {
	all, err := transfers()
	if err != nil {
		return err
	}
	for _, t := range all {
		if _, err := ledger.Post(ctx, tx, m, t); err != nil {
			return fmt.Errorf("post a settlement line: %w", err)
		}
	}
	return nil
}

func writeStates(ctx context.Context, tx pgx.Tx, m merchant.ID, claims []claim) error {
	if len(claims) == 0 {
		return nil
	}
	n := len(claims)
	files, lines, states, charges := make([]string, n), make([]int32, n), make([]string, n), make([]string, n)
	resolved, posted, reversed := make([]bool, n), make([]bool, n), make([]bool, n)
	for i, c := range claims {
		files[i], lines[i], states[i], charges[i] = c.FileID, int32(c.LineNo), string(c.State), c.ChargeID
		resolved[i], posted[i], reversed[i] = c.Resolved, c.Posted, c.Reversed
	}
	_, err := tx.Exec(ctx, updateClaims, pgx.NamedArgs{
		"merchant": m, "files": files, "lines": lines, "states": states, "charges": charges,
		"resolved": resolved, "posted": posted, "reversed": reversed,
	})
	if err != nil {
		return fmt.Errorf("write what became of the lines: %w", err)
	}
	return nil
}

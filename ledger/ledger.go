// Package ledger appends balanced double-entry transfers and reads balances.
//
// A transfer has one debit account, one credit account and one positive amount, so the books are
// zero-sum by construction. Transfers are never changed; a balance is the sum of transfers, with
// roll-ups so that no row is hot.
package ledger

import (
	"errors"
	"fmt"
	"time"

	"github.com/shopspring/decimal"

	"paymentsd/money"
)

var (
	// ErrConflict means that another movement was posted under the same transfer ID.
	ErrConflict = errors.New("the transfer was posted already with other content")
	// ErrInvalidCursor means that a page is to start after what is no transfer of the merchant.
	ErrInvalidCursor = errors.New("the cursor is not one of ours")
)

// Account is one account in a merchant's books.
type Account string

// MerchantPayable is what we owe the merchant.
const MerchantPayable Account = "merchant_payable"

// AcquirerReceivable is what an acquirer owes: captured and not settled yet.
func AcquirerReceivable(acquirer string) Account { return named("acquirer_receivable", acquirer) }

// Bank is what an acquirer has paid out.
func Bank(acquirer string) Account { return named("bank", acquirer) }

// Fees is what an acquirer has kept.
func Fees(acquirer string) Account { return named("acquirer_fees", acquirer) }

// Exchange is what an acquirer has changed from the currency of charges into that of payouts.
func Exchange(acquirer string) Account { return named("exchange", acquirer) }

func named(account, acquirer string) Account { return Account(account + ":" + acquirer) }

// Transfer moves Amount from Credit to Debit: the debit account grows, the credit account is what it
// comes from.
type Transfer struct {
	ID       string // derived from what moved the money: the same movement has the same ID
	ChargeID string // empty if it concerns no charge
	Kind     string // capture, settlement, fee, ...
	Debit    Account
	Credit   Account
	Amount   money.Amount // positive
	PostedAt time.Time    // by the database's clock
}

// KindCapture is the kind of a capture's transfer; its ID is the charge's and this word.
const KindCapture = "capture"

// CaptureID is the ID of the one transfer that a captured charge has.
func CaptureID(chargeID string) string { return chargeID + ":" + KindCapture }

// Capture is the transfer of a captured charge: the acquirer owes us, we owe the merchant.
func Capture(chargeID, acquirer string, amount money.Amount) Transfer {
	return Transfer{
		ID: CaptureID(chargeID), ChargeID: chargeID, Kind: KindCapture,
		Debit: AcquirerReceivable(acquirer), Credit: MerchantPayable, Amount: amount,
	}
}

// Balance is what an account holds in one currency.
type Balance struct {
	Account  Account
	Currency money.Currency
	Debits   decimal.Decimal
	Credits  decimal.Decimal
}

// Net is debits less credits: positive for what is owed to us.
func (b Balance) Net() decimal.Decimal { return b.Debits.Sub(b.Credits) }

// String prints the balance as account, net and currency.
func (b Balance) String() string {
	return fmt.Sprintf("%s %s %s", b.Account, b.Net().StringFixed(int32(b.Currency.Exponent())), b.Currency)
}

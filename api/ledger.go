package api

import (
	"net/http"

	"github.com/shopspring/decimal"

	"paymentsd/ledger"
	"paymentsd/merchant"
	"paymentsd/money"
)

type balanceView struct {
	Object   string `json:"object"`
	Account  string `json:"account"`
	Currency string `json:"currency"`
	Debits   string `json:"debits"`
	Credits  string `json:"credits"`
	Balance  string `json:"balance"` // debits less credits
}

func viewBalance(b ledger.Balance) balanceView {
	return balanceView{
		Object: "balance", Account: string(b.Account), Currency: string(b.Currency),
		Debits: fixed(b.Debits, b.Currency), Credits: fixed(b.Credits, b.Currency), Balance: fixed(b.Net(), b.Currency),
	}
}

// fixed prints a sum with exactly the currency's decimals. A sum may be larger than any amount.
func fixed(d decimal.Decimal, c money.Currency) string { return d.StringFixed(int32(c.Exponent())) }

type transferView struct {
	Object   string `json:"object"`
	ID       string `json:"id"`
	ChargeID string `json:"charge_id,omitempty"`
	Kind     string `json:"kind"`
	Debit    string `json:"debit"`
	Credit   string `json:"credit"`
	Amount   string `json:"amount"`
	Currency string `json:"currency"`
	PostedAt string `json:"posted_at"`
}

func viewTransfer(t ledger.Transfer) transferView {
	return transferView{
		Object: "transfer", ID: t.ID, ChargeID: t.ChargeID, Kind: t.Kind, Debit: string(t.Debit), Credit: string(t.Credit),
		Amount: t.Amount.String(), Currency: string(t.Amount.Currency()), PostedAt: timestamp(t.PostedAt),
	}
}

func (a *api) listBalances(w http.ResponseWriter, r *http.Request) error {
	q, err := parseQuery(r)
	if err != nil {
		return err
	}
	m := q.oneMerchant(exchangeOf(r).principal)
	if err := q.finish(); err != nil {
		return err
	}
	balances, err := a.Ledger.Balances(r.Context(), m)
	if err != nil {
		return err
	}
	return writeList(w, balances, false, viewBalance)
}

func (a *api) listTransfers(w http.ResponseWriter, r *http.Request) error {
	q, err := parseQuery(r)
	if err != nil {
		return err
	}
	m := q.oneMerchant(exchangeOf(r).principal)
	asked := ledger.Query{
		ChargeID: q.text("charge_id"), Account: ledger.Account(q.text("account")),
		StartingAfter: q.text("starting_after"), Limit: q.limit(),
	}
	if err := q.finish(); err != nil {
		return err
	}
	transfers, more, err := a.Ledger.Transfers(r.Context(), m, asked)
	if err != nil {
		return err
	}
	return writeList(w, transfers, more, viewTransfer)
}

// oneMerchant is whose books are read: books belong to one merchant, so a platform key must name it.
func (q *query) oneMerchant(p merchant.Principal) merchant.ID {
	_, given := q.values["merchant_id"]
	m := q.merchant(p)
	switch {
	case m != nil:
		return *m
	case !given:
		q.wrong("merchant_id", "required", "is missing: a platform key says whose books it reads")
	}
	return 0
}

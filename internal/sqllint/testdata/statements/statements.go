// Package statements is what the tests of sqllint look for SQL in.
package statements

const plain = `select status from charges where merchant_id = $1`

// documented is a report over all merchants.
const documented = `
-- with a comment first
select count(*) from charges`

const (
	// grouped finds candidates.
	grouped = `with x as (select 1) select x from x`
	columns = ` a, b from charges c`
	built   = `select` + columns + tail
	tail    = ` where c.merchant_id = @m`
)

const (
	prose  = "update_failed"
	prose2 = "with the same key"
	prose3 = "Select an acquirer"[:6]
	prose4 = "insert coin"
)

func f() string {
	const local = `delete from outbox where merchant_id = $1`
	return local
}

// Package builtin is the list of acquirer adapters that this build knows.
package builtin

import (
	"paymentsd/acquirer"
	"paymentsd/acquirer/rest"
)

// Factories is THE list, by the name that configuration uses. A new adapter is one line here and
// passes the conformance suite of package acquirertest.
func Factories() map[string]acquirer.Factory {
	return map[string]acquirer.Factory{
		"rest": rest.New,
	}
}

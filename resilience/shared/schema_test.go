package shared

import (
	"testing"

	"paymentsd/internal/pgtest"
)

func TestStatementsPrepare(t *testing.T) {
	t.Parallel()
	pgtest.PrepareAll(t, ".")
}

//go:build faultpoints

package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"paymentsd/payment"
)

// faultPoints kills the process, as kill -9 does, at the step that PAYMENTSD_FAULT names: when it is
// reached, or with STEP:N when it is reached for the Nth time. Only the tests of crashes are built with it.
func faultPoints(getenv func(string) string) payment.Fault {
	wanted, nth, counted := strings.Cut(getenv("PAYMENTSD_FAULT"), ":")
	if wanted == "" {
		return nil
	}
	at := int64(1)
	if counted {
		var err error
		if at, err = strconv.ParseInt(nth, 10, 64); err != nil || at < 1 {
			panic(fmt.Sprintf("PAYMENTSD_FAULT: %q is no number of times", nth))
		}
	}
	var reached atomic.Int64
	return func(step string) {
		if step == wanted && reached.Add(1) == at {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // not one instruction of ours more
		}
	}
}

//go:build faultpoints

package main

import (
	"os"
	"syscall"

	"paymentsd/payment"
)

// faultPoints kills the process, as kill -9 does, at the step that PAYMENTSD_FAULT names. Only the
// tests of crashes are built with it.
func faultPoints(getenv func(string) string) payment.Fault {
	wanted := getenv("PAYMENTSD_FAULT")
	if wanted == "" {
		return nil
	}
	return func(step string) {
		if step == wanted {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // not one instruction of ours more
		}
	}
}

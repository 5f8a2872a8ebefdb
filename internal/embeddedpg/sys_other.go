//go:build !linux

package embeddedpg

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

const diesWithParent = false

// dieWithParent does nothing here: the next Start ends what is left.
func dieWithParent(*syscall.SysProcAttr) {}

// serversOn trusts the pid file if the process it names is a Postgres on that folder.
func serversOn(data string) []server {
	pid := pidFile(data)
	if pid == 0 {
		return nil
	}
	out, err := exec.Command("ps", "-o", "command=", "-p", strconv.Itoa(pid)).Output()
	if err != nil || !strings.Contains(string(out), data) {
		return nil
	}
	return []server{{pid: pid, postmaster: true}}
}

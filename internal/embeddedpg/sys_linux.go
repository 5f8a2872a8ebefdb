package embeddedpg

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

const diesWithParent = true

// dieWithParent has the kernel ask for a fast shutdown when our thread ends, however it ends.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGINT }

// serversOn finds the Postgres processes whose working folder is data: the postmaster and all its
// children. The pid file alone would not do: its pid may by now be another program's.
func serversOn(data string) []server {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var out []server
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		// A process that has just ended, or is another user's, cannot be read and is not ours.
		if cwd, err := os.Readlink(filepath.Join("/proc", e.Name(), "cwd")); err != nil || cwd != data {
			continue
		}
		comm, err := os.ReadFile(filepath.Join("/proc", e.Name(), "comm"))
		if err != nil || strings.TrimSpace(string(comm)) != "postgres" {
			continue
		}
		out = append(out, server{pid: pid, postmaster: pid == pidFile(data)})
	}
	return out
}

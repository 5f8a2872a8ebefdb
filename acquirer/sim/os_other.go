//go:build !unix

package sim

import (
	"net"
	"os"
)

// lockFile does nothing here: run one simulator a book.
func lockFile(*os.File) error { return nil }

// reservePort cannot hold the port here: it is simply free while the acquirer is down.
func reservePort(*net.TCPAddr) (release func(), err error) { return func() {}, nil }

//go:build !unix

package acquirer

import "net"

// hungUp cannot tell here: a dead idle connection then shows only once it was written to.
func hungUp(net.Conn) bool { return false }

//go:build unix

package sim

import (
	"net"
	"os"
	"syscall"
)

// lockFile takes the file for this process; the lock dies with it, also by kill -9.
func lockFile(f *os.File) error {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}

// reservePort binds a port without listening: connections to it are refused, and nobody else can
// take it, neither a server nor the kernel for an outgoing connection (which would connect to
// itself). It returns the way to give the port back.
func reservePort(addr *net.TCPAddr) (release func(), err error) {
	var to syscall.Sockaddr
	family := syscall.AF_INET
	if ip := addr.IP.To4(); ip != nil {
		to = &syscall.SockaddrInet4{Port: addr.Port, Addr: [4]byte(ip)}
	} else {
		family = syscall.AF_INET6
		v6 := &syscall.SockaddrInet6{Port: addr.Port}
		copy(v6.Addr[:], addr.IP.To16())
		to = v6
	}
	fd, err := syscall.Socket(family, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, err
	}
	syscall.CloseOnExec(fd)
	if err = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err == nil {
		err = syscall.Bind(fd, to)
	}
	if err != nil {
		_ = syscall.Close(fd) // the first error is the one that matters
		return nil, err
	}
	return func() { _ = syscall.Close(fd) }, nil
}

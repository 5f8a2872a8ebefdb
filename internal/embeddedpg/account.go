package embeddedpg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"syscall"
)

// account is the user that Postgres runs as when we are root.
type account struct {
	name     string
	uid, gid uint32
}

// unprivileged is the user for new clusters under root.
func unprivileged() (*account, error) {
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil || uid == 0 {
			continue
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			continue
		}
		return &account{name: name, uid: uint32(uid), gid: uint32(gid)}, nil
	}
	return nil, errors.New("there is no user postgres or nobody to run Postgres as, which refuses to run as root: create one, or run as a normal user")
}

// ownerOf is the account that owns path itself (a symlink is not followed).
func ownerOf(path string) (account, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return account{}, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() {
		return account{}, fmt.Errorf("%s is not a folder", path)
	}
	a := account{name: fmt.Sprintf("uid %d", st.Uid), uid: st.Uid, gid: st.Gid}
	if u, err := user.LookupId(strconv.Itoa(int(st.Uid))); err == nil {
		a.name = u.Username
	}
	return a, nil
}

// take gives the folder to the account and proves that it can work there. Asking the kernel, as
// that user, also sees what mode bits do not show: ACLs, mount options, a parent's search bit.
func (a *account) take(ctx context.Context, path string) error {
	if err := os.Chown(path, int(a.uid), int(a.gid)); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", `cd "$1" && test -w .`, "sh", path)
	cmd.Dir = "/"
	cmd.SysProcAttr = a.attr()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s cannot work in %s: %w: %s", a.name, path, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// attr runs a command as the account; as the caller where there is none.
func (a *account) attr() *syscall.SysProcAttr {
	if a == nil {
		return &syscall.SysProcAttr{}
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: a.uid, Gid: a.gid}}
}

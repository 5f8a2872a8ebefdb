package embeddedpg

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// home is the place of one cluster: what the caller named, where Postgres really lives, and as whom.
type home struct {
	dir   string   // the caller's folder, absolute
	path  string   // the folder that Postgres' user owns; holds data/
	user  *account // nil: Postgres runs as we do
	locks []*os.File
}

func (h *home) data() string      { return filepath.Join(h.path, "data") }
func (h *home) logPath() string   { return filepath.Join(h.dir, "postgres.log") }
func (h *home) pointer() string   { return pointerOf(h.dir) }
func pointerOf(dir string) string { return filepath.Join(dir, "postgres.location") }

// openHome finds or makes the place of dir's cluster and locks it. The lock is on the place as well
// as on dir, since a copied dir points at the place of the original.
func openHome(ctx context.Context, dir string, log *slog.Logger) (_ *home, err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	// Other users must be able to pass through; what is secret in here is 0600.
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	// One folder has one name: the process table and the hash know no symlinks.
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, err
	}
	h := &home{dir: dir}
	defer func() {
		if err != nil {
			h.close()
		}
	}()
	if err := h.lock(filepath.Join(dir, "postgres.lock")); err != nil {
		return nil, err
	}
	if err := h.locate(ctx, log); err != nil {
		return nil, err
	}
	return h, h.lock(filepath.Join(h.path, "lock"))
}

func (h *home) locate(ctx context.Context, log *slog.Logger) error {
	h.path = filepath.Join(h.dir, "postgres")
	if b, err := os.ReadFile(h.pointer()); err == nil {
		h.path = strings.TrimSpace(string(b))
		if _, err := os.Stat(h.path); err != nil {
			return fmt.Errorf("the cluster of %s was in %s: %w; start over (--fresh, or delete %s)", h.dir, h.path, err, h.dir)
		}
	}
	owner, err := ownerOf(h.path)
	switch {
	case err == nil && os.Geteuid() == 0 && owner.uid != 0:
		h.user = &owner // whoever owns the data runs it, also where a normal user made it
		return nil
	case err == nil && os.Geteuid() == 0:
		// Root owns it: an earlier run was killed before it could hand it over.
	case err == nil && int(owner.uid) != os.Geteuid():
		return fmt.Errorf("%s belongs to %s: run as root or as that user, or choose another folder", h.path, owner.name)
	case err == nil:
		return nil
	case !errors.Is(err, os.ErrNotExist):
		return err
	}
	if os.Geteuid() != 0 {
		return os.Mkdir(h.path, 0o700)
	}
	if h.user, err = unprivileged(); err != nil {
		return err
	}
	return h.handOver(ctx, log)
}

// handOver makes the folder for Postgres' user: in dir, or elsewhere if that user cannot get there.
func (h *home) handOver(ctx context.Context, log *slog.Logger) error {
	if err := os.Mkdir(h.path, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if err := h.user.take(ctx, h.path); err == nil {
		return nil
	}
	if err := os.Remove(h.path); err != nil {
		return err
	}
	sum := sha256.Sum256([]byte(h.dir))
	name := "paymentsd-" + hex.EncodeToString(sum[:8])
	var errs []error
	for _, base := range []string{"/var/lib", "/var/tmp", os.TempDir()} {
		h.path = filepath.Join(base, name)
		err := h.moveTo(ctx, log)
		if err == nil {
			log.Debug("Postgres' user cannot enter the folder; its data is elsewhere", "dir", h.dir, "data", h.path)
			return nil
		}
		errs = append(errs, err)
	}
	return fmt.Errorf("the user %s cannot enter %s, and no other place will do: %w", h.user.name, h.dir, errors.Join(errs...))
}

// moveTo claims h.path, outside dir. A folder there that says it is for dir was left by a dir that
// has since been deleted (ours has no pointer to it); any other is not ours to touch.
func (h *home) moveTo(ctx context.Context, log *slog.Logger) error {
	mark := filepath.Join(h.path, "for")
	err := os.Mkdir(h.path, 0o700)
	if errors.Is(err, os.ErrExist) {
		if b, err := os.ReadFile(mark); err != nil || string(b) != h.dir {
			return fmt.Errorf("%s exists and does not say that it is for %s: delete it", h.path, h.dir)
		}
		if err := h.discard(ctx, log); err != nil {
			return err
		}
		err = os.Mkdir(h.path, 0o700)
	}
	if err != nil {
		return err
	}
	err = os.WriteFile(mark, []byte(h.dir), 0o600)
	if err == nil {
		err = h.user.take(ctx, h.path)
	}
	if err == nil {
		err = os.WriteFile(h.pointer(), []byte(h.path), 0o600)
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(h.path))
	}
	return nil
}

// dropDeadPointer forgets where the data was if it is there no more.
func dropDeadPointer(dir string) error {
	b, err := os.ReadFile(pointerOf(dir))
	if err != nil {
		return nil //nolint:nilerr // there is none, or none that we may read: locating the data will tell
	}
	if _, err := os.Stat(strings.TrimSpace(string(b))); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.Remove(pointerOf(dir))
}

func (h *home) discard(ctx context.Context, log *slog.Logger) error {
	if err := stopOrphans(ctx, h.data(), log); err != nil {
		return err
	}
	return os.RemoveAll(h.path)
}

func (h *home) remove(ctx context.Context) error {
	if err := h.discard(ctx, slog.New(slog.DiscardHandler)); err != nil {
		return err
	}
	// The lock goes last: until then nobody else can begin here.
	for _, name := range []string{"location", "password", "port", "log", "log.1", "lock"} {
		if err := os.Remove(filepath.Join(h.dir, "postgres."+name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// lock takes an advisory lock that ends with this process, however it ends.
func (h *home) lock(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("%s belongs to another user: run as that one or choose another folder: %w", h.dir, err)
	}
	if err != nil {
		return err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		holder, _ := os.ReadFile(path)
		return errors.Join(f.Close(), &InUseError{Dir: h.dir, PID: strings.TrimSpace(string(holder))})
	}
	h.locks = append(h.locks, f)
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

func (h *home) close() {
	for _, f := range h.locks {
		// Closing alone would not do while a child that is being started still holds a copy.
		_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
		_ = f.Close()
	}
	h.locks = nil
}

// InUseError says that another process runs the cluster of Dir.
type InUseError struct {
	Dir string
	PID string // empty if that process has not written it yet
}

func (e *InUseError) Error() string {
	return fmt.Sprintf("%s is in use by process %s: stop that one or choose another folder", e.Dir, e.PID)
}

// dataMajor is the major version that the data was made with, 0 if there is none yet.
func (h *home) dataMajor() int {
	b, err := os.ReadFile(filepath.Join(h.data(), "PG_VERSION"))
	if err != nil {
		return 0
	}
	major, _ := strconv.Atoi(strings.TrimSpace(string(b)))
	return major
}

// logTail is the end of Postgres' log, for an error message.
func (h *home) logTail() string {
	b, err := os.ReadFile(h.logPath())
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-10):], "\n")
}

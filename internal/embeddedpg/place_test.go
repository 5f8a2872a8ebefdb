package embeddedpg

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// openDir is a folder that every user can enter (t.TempDir is 0700).
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "embeddedpg-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestPlace(t *testing.T) {
	t.Parallel()
	root := os.Geteuid() == 0
	t.Run("under the folder where Postgres' user can be", func(t *testing.T) {
		t.Parallel()
		dir := filepath.Join(openDir(t), "pg")
		s := mustStart(t, config(dir))
		if s.home.path != filepath.Join(dir, "postgres") {
			t.Errorf("the data is in %s", s.home.path)
		}
		if owner, err := ownerOf(s.home.data()); err != nil || owner.uid == 0 || root == (int(owner.uid) == os.Geteuid()) {
			t.Errorf("the data belongs to %v, %v", owner, err)
		}
	})
	t.Run("elsewhere, closed to others, where that user cannot enter", func(t *testing.T) {
		t.Parallel()
		dir := tempDir(t) // below a 0700 folder
		s := mustStart(t, config(dir))
		if elsewhere := !strings.HasPrefix(s.home.path, dir); elsewhere != root {
			t.Errorf("the data is in %s", s.home.path)
		}
		if info, err := os.Stat(s.home.path); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("mode %v, %v", info.Mode(), err)
		}
		mustStop(t, s)
		if err := Remove(t.Context(), dir); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(s.home.path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there after Remove (%v)", s.home.path, err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
			t.Errorf("Remove left %v, %v", left, err)
		}
	})
	t.Run("a folder deleted by hand and made again begins afresh", func(t *testing.T) {
		t.Parallel()
		dir := tempDir(t)
		s := mustStart(t, config(dir))
		exec1(t, s, `create table gone ()`)
		mustStop(t, s)
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		again := mustStart(t, config(dir))
		if got := text(t, again, `select count(*)::text from pg_tables where tablename = 'gone'`); got != "0" {
			t.Error("the deleted data came back")
		}
	})
	t.Run("data that has vanished from elsewhere is missed, until Remove", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		if err := os.WriteFile(pointerOf(dir), []byte(filepath.Join(dir, "vanished")), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Start(t.Context(), config(dir)); err == nil || !strings.Contains(err.Error(), "start over") {
			t.Errorf("got %v", err)
		}
		if err := Remove(t.Context(), dir); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(pointerOf(dir)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the pointer is still there (%v)", err)
		}
	})
	t.Run("what others put in the other place is left alone", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "taken")
		if err := os.MkdirAll(filepath.Join(path, "precious"), 0o700); err != nil {
			t.Fatal(err)
		}
		h := &home{dir: t.TempDir(), path: path}
		if err := h.moveTo(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "does not say that it is for") {
			t.Errorf("got %v", err)
		}
		if _, err := os.Stat(filepath.Join(path, "precious")); err != nil {
			t.Error(err)
		}
	})
}

// TestHelperProcess is not a test: killed owners are copies of this program that run only this.
func TestHelperProcess(t *testing.T) {
	dir := os.Getenv("EMBEDDEDPG_HELPER_DIR")
	if dir == "" {
		return
	}
	s, err := Start(t.Context(), config(dir))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(s.home.data())
	_, _ = io.Copy(io.Discard, os.Stdin) // until killed
}

// program copies this test program to where every user can run it.
func program(t *testing.T, dir string) string {
	t.Helper()
	b, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "embeddedpg.test")
	if err := os.WriteFile(path, b, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestOwnerKilledHard(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	cmd := exec.Command(os.Args[0], "-test.run=^TestHelperProcess$")
	cmd.Env = append(os.Environ(), "EMBEDDEDPG_HELPER_DIR="+dir)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	data := strings.TrimSpace(line)
	if len(serversOn(data)) == 0 {
		t.Fatalf("no Postgres runs on %s", data)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // "signal: killed"
	if diesWithParent {
		deadline := time.Now().Add(30 * time.Second)
		for len(serversOn(data)) != 0 && time.Now().Before(deadline) {
			time.Sleep(20 * time.Millisecond)
		}
		if left := serversOn(data); len(left) != 0 {
			t.Errorf("Postgres outlives its killed owner: %v", left)
		}
	}
	mustStart(t, config(dir))
}

// TestAsNormalUser runs the tests that differ by user once more as nobody, if we are root. Otherwise they
// have run as a normal user already.
func TestAsNormalUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		return
	}
	nobody := lookUp(t, "nobody")
	dir := openDir(t)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program(t, dir), "-test.run=^Test(ServerKeeps|Place|OwnerKilledHard)", "-test.v")
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}
	cmd.SysProcAttr = nobody.attr()
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestServerKeepsDataOverARestart") {
		t.Errorf("as nobody: %v\n%s", err, out)
	}
}

func TestDataOfANormalUserUnderRoot(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		// The other way round: data of another user is refused with a word on what to do.
		h := &home{dir: "/", path: "/"}
		if err := h.lock("/postgres.lock"); err == nil || !strings.Contains(err.Error(), "another") {
			t.Errorf("got %v", err)
		}
		return
	}
	nobody := lookUp(t, "nobody")
	dir := openDir(t)
	place := filepath.Join(dir, "postgres")
	if err := errors.Join(os.Mkdir(place, 0o700), os.Chown(place, int(nobody.uid), int(nobody.gid))); err != nil {
		t.Fatal(err)
	}
	s := mustStart(t, config(dir))
	var st syscall.Stat_t
	if err := syscall.Stat(s.home.data(), &st); err != nil || st.Uid != nobody.uid {
		t.Errorf("the data belongs to uid %d (%v), want nobody's %d", st.Uid, err, nobody.uid)
	}
}

func lookUp(t *testing.T, name string) *account {
	t.Helper()
	u, err := user.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return &account{name: name, uid: uint32(uid), gid: uint32(gid)}
}

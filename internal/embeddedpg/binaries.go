package embeddedpg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The oldest Postgres that is still fixed by its makers, and has what the schema uses.
const oldestMajor = 13

// ErrNoPostgres means that no usable Postgres was found or could be fetched. Its wrapping says where
// was looked and what to install.
var ErrNoPostgres = errors.New("no usable Postgres")

type binaries struct {
	dir   string
	major int
}

// installFolders are where packages put initdb and postgres, most of them not on PATH.
func installFolders() []string {
	return []string{
		"/usr/lib/postgresql/*/bin",         // Debian, Ubuntu
		"/usr/pgsql-*/bin",                  // PGDG on Red Hat
		"/usr/libexec/postgresql*",          // Alpine
		"/usr/local/pgsql/bin",              // from source
		"/opt/homebrew/opt/postgresql*/bin", // Homebrew on Apple silicon
		"/usr/local/opt/postgresql*/bin",    // Homebrew on Intel
		"/home/linuxbrew/.linuxbrew/opt/postgresql*/bin",
		"/opt/local/lib/postgresql*/bin", // MacPorts
		"/Applications/Postgres.app/Contents/Versions/*/bin",
		"/usr/local/bin", // BSD ports
	}
}

// findBinaries picks initdb and postgres that as can run: of the major version `want` where data
// exists (0: any), PATH first, then pg_config's folder, then the install folders with the newest
// first; else it fetches.
func findBinaries(ctx context.Context, cfg Config, as *account, want int) (binaries, error) {
	dirs := []string{cfg.BinDir}
	if cfg.BinDir == "" {
		dirs = cfg.search(ctx)
	}
	var seen []string
	for _, dir := range dirs {
		b, err := probe(ctx, dir, as)
		switch {
		case err != nil:
			seen = append(seen, fmt.Sprintf("%s: %v", dir, err))
		case b.major < oldestMajor:
			seen = append(seen, fmt.Sprintf("%s: version %d is older than %d", dir, b.major, oldestMajor))
		case want != 0 && b.major != want:
			seen = append(seen, fmt.Sprintf("%s: version %d, but the data is of version %d", dir, b.major, want))
		default:
			return b, nil
		}
	}
	if cfg.BinDir == "" && (want == 0 || want == fetchedMajor) {
		b, err := fetch(ctx, cfg, as)
		if err == nil {
			return b, nil
		}
		seen = append(seen, fmt.Sprintf("fetching: %v", err))
	}
	wanted := fmt.Sprintf("Postgres %d or newer", oldestMajor)
	if want != 0 {
		wanted = fmt.Sprintf("Postgres %d", want)
	}
	return binaries{}, fmt.Errorf("%w: %s is needed. Install it (Debian, Ubuntu: apt-get install postgresql; Red Hat: dnf install postgresql-server; "+
		"macOS: brew install postgresql@16) or put the folder of its initdb and postgres on PATH. Looked at:\n  %s",
		ErrNoPostgres, wanted, strings.Join(seen, "\n  "))
}

func candidates(ctx context.Context) []string {
	var dirs []string
	for _, name := range []string{"postgres", "initdb"} {
		if path, err := exec.LookPath(name); err == nil {
			dirs = append(dirs, filepath.Dir(path))
		}
	}
	if out, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output(); err == nil {
		dirs = append(dirs, strings.TrimSpace(string(out)))
	}
	var installed []string
	for _, pattern := range installFolders() {
		found, _ := filepath.Glob(pattern) // the only error is a malformed pattern
		installed = append(installed, found...)
	}
	slices.SortStableFunc(installed, func(a, b string) int { return folderVersion(b) - folderVersion(a) })
	var out []string
	for _, dir := range append(dirs, installed...) {
		if _, err := os.Stat(filepath.Join(dir, "postgres")); err == nil && !slices.Contains(out, dir) {
			out = append(out, dir)
		}
	}
	return out
}

// folderVersion is the first number in a folder's name, so that 15 comes before 9.6.
func folderVersion(dir string) int {
	numbers := regexp.MustCompile(`\d+`).FindAllString(dir, -1)
	if len(numbers) == 0 {
		return 0
	}
	n, _ := strconv.Atoi(numbers[0])
	return n
}

// probe asks the binaries themselves, as the user who will run them.
func probe(ctx context.Context, dir string, as *account) (binaries, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var major int
	for _, name := range []string{"initdb", "postgres"} {
		cmd := exec.CommandContext(ctx, filepath.Join(dir, name), "--version")
		cmd.Dir, cmd.SysProcAttr = "/", as.attr()
		out, err := cmd.Output()
		if err != nil {
			return binaries{}, err
		}
		m := regexp.MustCompile(`\(PostgreSQL\) (\d+)`).FindSubmatch(out)
		if m == nil {
			return binaries{}, fmt.Errorf("%s --version says %q", name, out)
		}
		if major, err = strconv.Atoi(string(m[1])); err != nil {
			return binaries{}, err
		}
	}
	return binaries{dir: dir, major: major}, nil
}

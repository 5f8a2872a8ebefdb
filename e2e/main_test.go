package e2e

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// parallelMin is how many tests run at once, even on few cores: they mostly wait for leases and timeouts.
const parallelMin = 6

func TestMain(m *testing.M) {
	flag.Parse()
	if chosen := flag.Lookup("test.parallel"); chosen.Value.String() == chosen.DefValue {
		var n int
		if _, err := fmt.Sscan(chosen.DefValue, &n); err != nil || n < parallelMin {
			_ = chosen.Value.Set(fmt.Sprint(parallelMin)) // the flag exists and takes numbers
		}
	}
	dir, err := os.MkdirTemp("", "paymentsd-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := os.Setenv(buildDirEnv, dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// buildDirEnv names the folder for the built commands to the tests of this run.
const buildDirEnv = "PAYMENTSD_E2E_BUILD"

// paymentsd is the service, reconciler the nightly job: each is built once, when a test first needs it.
var (
	paymentsd  = sync.OnceValues(func() (string, error) { return build("paymentsd") })
	reconciler = sync.OnceValues(func() (string, error) { return build("reconcile") })
)

// build makes a command with fault points, and under the race detector if these tests run under it.
func build(name string) (string, error) {
	path := filepath.Join(os.Getenv(buildDirEnv), name)
	args := []string{"build", "-tags", "faultpoints", "-o", path}
	if raceEnabled {
		args = append(args, "-race")
	}
	output, err := exec.Command("go", append(args, "paymentsd/cmd/"+name)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", name, err, output)
	}
	return path, nil
}

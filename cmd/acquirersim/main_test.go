package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"paymentsd/acquirer"
	"paymentsd/acquirer/rest"
	"paymentsd/money"
)

// childVariable makes the test binary be the command: a process that can be killed.
const childVariable = "ACQUIRERSIM_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		main()
	}
	os.Exit(m.Run())
}

// child is the command in a process of its own.
type child struct {
	*exec.Cmd
	url string
}

func startChild(t *testing.T, args ...string) child {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), childVariable+"=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("it said nothing: %v", err)
	}
	_, url, found := strings.Cut(strings.TrimSpace(line), " at ")
	if !found {
		t.Fatalf("no address in %q", line)
	}
	return child{cmd, url}
}

func captureAt(t *testing.T, url, ref string) acquirer.Answer {
	t.Helper()
	a, err := rest.New(acquirer.Config{Name: "north", URL: url})
	if err != nil {
		t.Fatal(err)
	}
	amount, err := money.Parse("49.99", "USD")
	if err != nil {
		t.Fatal(err)
	}
	return a.Capture(context.Background(), acquirer.CaptureRequest{Ref: ref, Amount: amount, PaymentMethod: "tok_ok"})
}

// Every capture that a client was told of is in the book after a kill -9 in the middle of load,
// and none of them is charged again.
func TestKilledSimulatorKnowsWhatItAnswered(t *testing.T) {
	t.Parallel()
	book := filepath.Join(t.TempDir(), "north.book")
	c := startChild(t, "--name", "north", "--book", book)
	var mu sync.Mutex
	answered := map[string]string{} // reference to capture id
	var running sync.WaitGroup
	enough := make(chan struct{})
	for worker := range 8 {
		running.Go(func() {
			for n := 0; ; n++ {
				ref := fmt.Sprintf("W%dN%d", worker, n)
				got := captureAt(t, c.url, ref)
				if got.Class != acquirer.Captured {
					return // killed
				}
				mu.Lock()
				answered[ref] = got.CaptureID
				if len(answered) == 40 {
					close(enough)
				}
				mu.Unlock()
			}
		})
	}
	<-enough
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	running.Wait()
	_ = c.Wait() // it was killed

	c = startChild(t, "--name", "north", "--book", book)
	for ref, id := range answered {
		if got := captureAt(t, c.url, ref); got.Class != acquirer.Captured || got.CaptureID != id {
			t.Errorf("%s was answered %s before the kill, and after it: %+v", ref, id, got)
		}
	}
	resp, err := http.Get(c.url + "/admin/stats")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	stats, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf(`"captures":0,"declines":0,"pending":0,"lost":0,"duplicates_suppressed":%d`, len(answered)); !strings.Contains(string(stats), want) {
		t.Errorf("want %s in %s", want, stats)
	}
}

func TestSigtermStopsCleanly(t *testing.T) {
	t.Parallel()
	c := startChild(t)
	captureAt(t, c.url, "REF1")
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}

func TestUsedWrongly(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"unknown flag":      {[]string{"--nmae", "x"}, "--nmae"},
		"unknown variant":   {[]string{"--variant", "no-keyz"}, "no-keys"},
		"unknown currency":  {[]string{"--exponents", "XXZ=2"}, "XXZ"},
		"too many decimals": {[]string{"--exponents", "CLP=9"}, "CLP=9"},
		"negative latency":  {[]string{"--latency=-1s"}, "Latency"},
		"name with a slash": {[]string{"--name", "a/b"}, "a/b"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var stderr bytes.Buffer
			if code := run(t.Context(), c.args, nothing, io.Discard, &stderr); code != 2 {
				t.Errorf("exit code %d, want 2", code)
			}
			if !strings.Contains(stderr.String(), c.says) || !strings.Contains(stderr.String(), "--help") {
				t.Errorf("it says %q; want %q, and where to look", &stderr, c.says)
			}
		})
	}
}

func TestCannotStart(t *testing.T) {
	t.Parallel()
	taken := startChild(t)
	for name, args := range map[string][]string{
		"address taken":       {"--addr", strings.TrimPrefix(taken.url, "http://")},
		"no folder for books": {"--book", filepath.Join(t.TempDir(), "no", "book")},
	} {
		var stderr bytes.Buffer
		if code := run(t.Context(), args, nothing, io.Discard, &stderr); code != 1 || stderr.Len() == 0 {
			t.Errorf("%s: exit code %d, it says %q", name, code, &stderr)
		}
	}
}

func TestFlagsReachTheSimulator(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	out, in := io.Pipe()
	done := make(chan int, 1)
	secret := func(name string) string { return map[string]string{"ACQUIRERSIM_SECRET": "right"}[name] }
	go func() {
		done <- run(ctx, []string{"--name", "south", "--exponents", "CLP=2;KWD=2", "--variant", "no-lookup,no-keys"}, secret, in, io.Discard)
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "acquirer south at http://127.0.0.1:") {
		t.Fatalf("it says %q, %v", line, err)
	}
	url := strings.TrimSpace(line[strings.Index(line, "http"):])
	if got := captureAt(t, url, "REF1"); got.HTTPStatus != http.StatusUnauthorized {
		t.Errorf("without its secret: %+v", got)
	}
	a, err := rest.New(acquirer.Config{URL: url, Secret: "right", Timeout: 5 * time.Second, Settings: map[string]string{"exponents": "CLP=2"}})
	if err != nil {
		t.Fatal(err)
	}
	clp, err := money.Parse("1000", "CLP")
	if err != nil {
		t.Fatal(err)
	}
	req := acquirer.CaptureRequest{Ref: "REF1", Amount: clp, PaymentMethod: "tok_ok"}
	first, second := a.Capture(ctx, req), a.Capture(ctx, req)
	if first.Class != acquirer.Captured || second.Class != acquirer.Captured || first.CaptureID == second.CaptureID {
		t.Errorf("without keys: %+v, %+v; want two captures", first, second)
	}
	if got := a.Lookup(ctx, "REF1"); got.HTTPStatus != http.StatusNotFound {
		t.Errorf("without inquiries: %+v", got)
	}
	stop()
	if code := <-done; code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func nothing(string) string { return "" }

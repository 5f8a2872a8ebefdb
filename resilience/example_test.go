package resilience_test

import (
	"context"
	"fmt"
	"time"

	"paymentsd/resilience"
)

// One chain stands for one acquirer. The call keeps its own result; the chain is
// only told what it means.
func ExampleChain_Do() {
	chain, err := resilience.NewLocal(resilience.DefaultSettings())
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()

	var answer string
	report := chain.Do(ctx, resilience.Critical, func(ctx context.Context, try int) resilience.Verdict {
		if try == 1 {
			answer = "503 Service Unavailable"
			return resilience.Verdict{Outcome: resilience.Failure, Retry: true}
		}
		answer = "captured"
		return resilience.Verdict{Outcome: resilience.Success}
	})
	fmt.Println(answer, "after", report.Calls, "calls, refused:", report.Refused != nil)
	// Output: captured after 2 calls, refused: false
}

func ExampleLocalBreaker() {
	now := time.Date(2026, time.March, 1, 11, 4, 12, 0, time.UTC)
	cfg := resilience.DefaultBreaker()
	cfg.OpenJitterPercent = 0
	cfg.Now = func() time.Time { return now } // a simulator's clock
	cfg.Listeners = []func(resilience.Event){func(e resilience.Event) {
		fmt.Printf("%s epoch %d: %s to %s: %s\n", e.At.Format(time.TimeOnly), e.Epoch, e.From, e.To, e.Reason)
	}}
	breaker, err := resilience.NewLocalBreaker(cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 20 {
		permit, _ := breaker.Acquire(context.Background())
		breaker.Done(permit, resilience.Failure)
	}
	_, refused := breaker.Acquire(context.Background())
	fmt.Println(refused)

	now = now.Add(5 * time.Second)
	permit, _ := breaker.Acquire(context.Background())
	breaker.Done(permit, resilience.Success)
	// Output:
	// 11:04:12 epoch 2: closed to open: failure rate 1.00 over 20 attempts
	// circuit_open: failure rate 1.00 over 20 attempts; try again in 5s
	// 11:04:17 epoch 3: open to half_open: probe, opened by failure rate 1.00 over 20 attempts
	// 11:04:17 epoch 4: half_open to closed: 1 of 1 probes succeeded
}

func ExampleParseRetryAfter() {
	now := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	for _, header := range []string{"120", "Sun, 01 Mar 2026 12:00:30 GMT", "-5", "10000000000"} {
		wait, found := resilience.ParseRetryAfter([]string{header}, now)
		fmt.Println(wait, found)
	}
	// Output:
	// 2m0s true
	// 30s true
	// 0s false
	// 1h0m0s true
}

func ExampleBackoff_Delay() {
	backoff := resilience.Backoff{Jitter: resilience.JitterFull, Base: 250 * time.Millisecond, Cap: 5 * time.Second}
	half := func() float64 { return 0.5 }
	for _, attempt := range []int{1, 2, 3, 1025} {
		fmt.Println(backoff.Delay(attempt, 0, half))
	}
	// Output:
	// 125ms
	// 250ms
	// 500ms
	// 2.5s
}

func ExampleConfigError() {
	settings := resilience.DefaultSettings()
	settings.Bulkhead.Slots = 0
	settings.Retry.Attempts = 50
	fmt.Println(settings.Validate())
	// Output:
	// resilience: unusable settings
	// bulkhead.slots is 0: want 1 to 100000
	// retry.attempts is 50: want 1 to 10
}

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// load is what one round of requests brought.
type load struct {
	done  int
	rate  float64
	times []time.Duration // sorted, the acquirer's own time taken off
}

func (l load) percentile(p int) float64 {
	i := min(len(l.times)*p/100, len(l.times)-1)
	return float64(l.times[i].Microseconds()) / 1000
}

// load keeps clients in a closed loop: each sends its next charge when it has the answer to the last.
func (b *bed) load(ctx context.Context, clients int) (load, error) {
	transport := &http.Transport{MaxIdleConnsPerHost: clients}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: 30 * time.Second}
	b.serial++
	began := time.Now()
	end := began.Add(time.Duration(b.seconds) * time.Second)
	times, errs := make([][]time.Duration, clients), make([]error, clients)
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			for n := 0; time.Now().Before(end) && ctx.Err() == nil; n++ {
				took, err := b.charge(ctx, client, fmt.Sprintf("load-%d-%d-%d", b.serial, i, n))
				if err != nil {
					errs[i] = err
					return
				}
				times[i] = append(times[i], took)
			}
		})
	}
	all.Wait()
	took := time.Since(began)
	for _, err := range errs {
		if err != nil {
			return load{}, err
		}
	}
	l := load{times: slices.Concat(times...)}
	slices.Sort(l.times)
	l.done = len(l.times)
	l.rate = float64(l.done) / took.Seconds()
	return l, ctx.Err()
}

// charge posts one charge; anything but a capture ends the run, because it would not be the same work.
func (b *bed) charge(ctx context.Context, client *http.Client, key string) (time.Duration, error) {
	body := `{"amount":"49.99","currency":"USD","reference":"` + key + `","payment_method":"tok_ok"}`
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, b.Service.URL+"/v1/charges", strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	request.Header.Set("Authorization", "Bearer "+b.Key)
	request.Header.Set("Idempotency-Key", key)
	request.Header.Set("Content-Type", "application/json")
	began := time.Now()
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err
	}
	if response.StatusCode != http.StatusCreated {
		return 0, fmt.Errorf("charge %s: answer %d: %s", key, response.StatusCode, answer)
	}
	return time.Since(began) - b.latency, nil
}

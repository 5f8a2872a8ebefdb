package groupcommit

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var (
	errPoison = errors.New("this item cannot be written")
	errLost   = errors.New("the connection is lost")
)

// desk writes nothing and remembers every group. A group takes a second unless the test says otherwise.
type desk struct {
	mu     sync.Mutex
	groups [][]string
	before func(group []string) // called at the start of each write
	takes  time.Duration
	err    error // every write fails with it
	shut   error // it cannot be opened
	opened int
	busy   chan struct{} // if set, opening waits for it
}

func (d *desk) open(ctx context.Context) (Writer[string, string], error) {
	if d.busy != nil {
		select {
		case <-d.busy:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.shut != nil {
		return nil, d.shut
	}
	d.opened++
	return d, nil
}

func (d *desk) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.opened--
}

func (d *desk) Write(ctx context.Context, group []string, hurry bool) ([]string, error) {
	d.mu.Lock()
	d.groups = append(d.groups, slices.Clone(group))
	d.mu.Unlock()
	if d.before != nil {
		d.before(group)
	}
	select {
	case <-time.After(d.takes):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if d.err != nil {
		return nil, d.err
	}
	answers := make([]string, len(group))
	for i, item := range group {
		if strings.HasPrefix(item, "locked") {
			if hurry {
				return nil, fmt.Errorf("%w: %s", errPoison, item)
			}
			time.Sleep(10 * time.Second)
		}
		if strings.Contains(item, "poison") {
			return nil, fmt.Errorf("%w: %s", errPoison, item)
		}
		answers[i] = "re " + item
	}
	return answers, nil
}

func (d *desk) seen() [][]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.groups)
}

func (d *desk) queue(change func(*Config[string, string])) *Queue[string, string] {
	d.takes = time.Second
	c := Config[string, string]{
		Flushers: 1, GroupMax: 100, QueueMax: 100, TimeMax: time.Minute, Slow: time.Hour, SlowMax: 1,
		Open: d.open, Split: func(err error) bool { return errors.Is(err, errPoison) },
	}
	if change != nil {
		change(&c)
	}
	return New(c)
}

// reply is what one caller got.
type reply struct {
	answer string
	err    error
}

// calls hands items over, one after the other, and gives what each caller got.
func calls(ctx context.Context, q *Queue[string, string], items ...string) func() map[string]reply {
	var mu sync.Mutex
	var all sync.WaitGroup
	replies := map[string]reply{}
	for _, item := range items {
		all.Go(func() {
			answer, err := q.Do(ctx, AnyTime, item)
			mu.Lock()
			defer mu.Unlock()
			replies[item] = reply{answer, err}
		})
		synctest.Wait() // so that they stand in this order
	}
	return func() map[string]reply {
		all.Wait()
		return replies
	}
}

func wantGroups(t *testing.T, d *desk, want string) {
	t.Helper()
	if got := fmt.Sprint(d.seen()); got != want {
		t.Errorf("groups %s, want %s", got, want)
	}
}

func wantAnswered(t *testing.T, replies map[string]reply, items ...string) {
	t.Helper()
	for _, item := range items {
		if r := replies[item]; r.err != nil || r.answer != "re "+item {
			t.Errorf("%s got %+v", item, r)
		}
	}
}

func TestGroupsForm(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*Config[string, string])
		want   string
		takes  time.Duration
	}{
		"the first is written at once, the others share the next commit": {nil, "[[a] [b c d e]]", 2 * time.Second},
		"a group has a greatest size":                                    {func(c *Config[string, string]) { c.GroupMax = 2 }, "[[a] [b c] [d e]]", 3 * time.Second},
		"two flushers":                                                   {func(c *Config[string, string]) { c.Flushers = 2 }, "[[a] [b] [c d e]]", 2 * time.Second},
		"as many as there are items":                                     {func(c *Config[string, string]) { c.Flushers = 9 }, "[[a] [b] [c] [d] [e]]", time.Second},
		"scopes never share a commit": {
			func(c *Config[string, string]) { c.Scope = func(item string) int64 { return int64(item[0] % 2) } },
			"[[a] [b d] [c e]]", 3 * time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := &desk{}
				q := d.queue(tc.change)
				began := time.Now()
				replies := calls(t.Context(), q, "a", "b", "c", "d", "e")()
				if took := time.Since(began); took != tc.takes {
					t.Errorf("took %v, want %v", took, tc.takes)
				}
				wantGroups(t, d, tc.want)
				wantAnswered(t, replies, "a", "b", "c", "d", "e")
				if n := q.Waiting(); n != 0 {
					t.Errorf("%d are left", n)
				}
			})
		})
	}
}

func TestPoisonedItemFailsAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &desk{}
		q := d.queue(nil)
		replies := calls(t.Context(), q, "a", "b", "c", "poison", "d", "e")()
		wantAnswered(t, replies, "a", "b", "c", "d", "e")
		if r := replies["poison"]; !errors.Is(r.err, errPoison) || errors.Is(r.err, ErrNotWritten) {
			t.Errorf("the culprit got %+v", r)
		}
		wantGroups(t, d, "[[a] [b c poison d e] [b c] [poison d e] [poison] [d e] [poison]]")
	})
}

// TestItemsThatHaveToWait stand in one group with others: those are written first, in what the halving takes,
// and what has to wait waits side by side.
func TestItemsThatHaveToWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &desk{}
		q := d.queue(func(c *Config[string, string]) { c.Slow, c.SlowMax = 100*time.Millisecond, 4 })
		d.takes = 0
		d.busy = make(chan struct{})
		locked, others := calls(t.Context(), q, "locked 1"), calls(t.Context(), q, "a", "b", "c")
		second := calls(t.Context(), q, "locked 2")
		began := time.Now()
		close(d.busy)
		wantAnswered(t, others(), "a", "b", "c")
		if took := time.Since(began); took != 0 {
			t.Errorf("the others took %v", took)
		}
		more := calls(t.Context(), q, "d")
		wantAnswered(t, more(), "d")
		if took := time.Since(began); took != 200*time.Millisecond {
			t.Errorf("what came next took %v: two are slow after 100 ms each", took)
		}
		wantAnswered(t, locked(), "locked 1")
		wantAnswered(t, second(), "locked 2")
		if took := time.Since(began); took != 10100*time.Millisecond {
			t.Errorf("all took %v", took)
		}
		q.Close()
	})
}

func TestWholeGroupFails(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*desk){
		"the connection is lost":         func(d *desk) { d.err = errLost },
		"the write panics":               func(d *desk) { d.before = func([]string) { time.Sleep(time.Second); panic("a fault") } },
		"the write ends its goroutine":   func(d *desk) { d.before = func([]string) { time.Sleep(time.Second); runtime.Goexit() } },
		"the write does not end in time": func(d *desk) { d.takes = time.Hour },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := &desk{}
				q := d.queue(nil)
				spoil(d)
				for item, r := range calls(t.Context(), q, "a", "b", "c")() {
					if r.err == nil || errors.Is(r.err, ErrNotWritten) {
						t.Errorf("%s got %+v: it may have been written", item, r)
					}
				}
				wantGroups(t, d, "[[a] [b c]]")
				d.before, d.err, d.takes = nil, nil, time.Second
				wantAnswered(t, calls(t.Context(), q, "x", "y")(), "x", "y") // the flusher was replaced
				q.Close()
				if d.opened != 0 {
					t.Errorf("%d are not closed", d.opened)
				}
			})
		})
	}
}

func TestWaitingItems(t *testing.T) {
	t.Parallel()
	t.Run("a caller that leaves the queue is not written", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			d := &desk{}
			q := d.queue(nil)
			first := calls(t.Context(), q, "a")
			ctx, cancel := context.WithCancel(t.Context())
			leaver, stayer := calls(ctx, q, "leaver"), calls(t.Context(), q, "stayer")
			cancel()
			if r := leaver()["leaver"]; !errors.Is(r.err, ErrNotWritten) || !errors.Is(r.err, context.Canceled) {
				t.Errorf("%+v", r)
			}
			wantAnswered(t, first(), "a")
			wantAnswered(t, stayer(), "stayer")
			wantGroups(t, d, "[[a] [stayer]]")
		})
	})
	t.Run("a caller that leaves during the write is not told that nothing was written", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			d := &desk{}
			q := d.queue(nil)
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if r := calls(ctx, q, "a")()["a"]; !errors.Is(r.err, context.DeadlineExceeded) || errors.Is(r.err, ErrNotWritten) {
				t.Errorf("%+v", r)
			}
			q.Close()
			wantGroups(t, d, "[[a]]")
		})
	})
	t.Run("an item whose time is up before its turn is not written, and its caller knows at once", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			d := &desk{}
			q := d.queue(nil)
			first, began := calls(t.Context(), q, "a"), time.Now()
			if _, err := q.Do(t.Context(), 300*time.Millisecond, "hasty"); !errors.Is(err, ErrLate) || !errors.Is(err, ErrNotWritten) {
				t.Errorf("%v", err)
			}
			if took := time.Since(began); took != 300*time.Millisecond {
				t.Errorf("after %v", took)
			}
			if answer, err := q.Do(t.Context(), 1200*time.Millisecond, "b"); err != nil || answer != "re b" {
				t.Errorf("its turn came in time, though its answer did not: %q, %v", answer, err)
			}
			wantAnswered(t, first(), "a")
			if _, err := q.Do(t.Context(), -time.Second, "stale"); !errors.Is(err, ErrLate) {
				t.Errorf("%v", err)
			}
			q.Close()
			wantGroups(t, d, "[[a] [b]]")
		})
	})
	t.Run("they wait in the queue until there is something to write with", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			d := &desk{busy: make(chan struct{})}
			q := d.queue(nil)
			replies := calls(t.Context(), q, "a", "b", "c")
			if _, err := q.Do(t.Context(), time.Second, "hasty"); !errors.Is(err, ErrLate) {
				t.Errorf("%v", err)
			}
			close(d.busy)
			wantAnswered(t, replies(), "a", "b", "c")
			wantGroups(t, d, "[[a b c]]")
		})
	})
	t.Run("without anything to write with nothing was written", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			d := &desk{shut: errLost}
			q := d.queue(nil)
			for item, r := range calls(t.Context(), q, "a", "b")() {
				if !errors.Is(r.err, errLost) || !errors.Is(r.err, ErrNotWritten) {
					t.Errorf("%s got %+v", item, r)
				}
			}
			wantGroups(t, d, "[]")
		})
	})
	t.Run("beyond its length the queue refuses at once", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			d := &desk{}
			q := d.queue(func(c *Config[string, string]) { c.QueueMax = 2 })
			replies := calls(t.Context(), q, "a", "b", "c", "d")
			if n := q.Waiting(); n != 2 {
				t.Errorf("%d wait", n)
			}
			all := replies()
			if r := all["d"]; !errors.Is(r.err, ErrFull) || !errors.Is(r.err, ErrNotWritten) {
				t.Errorf("%+v", r)
			}
			wantAnswered(t, all, "a", "b", "c")
			wantGroups(t, d, "[[a] [b c]]")
		})
	})
}

func TestClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &desk{}
		q := d.queue(func(c *Config[string, string]) { c.GroupMax = 1 })
		before := calls(t.Context(), q, "a", "b", "c")
		began := time.Now()
		q.Close()
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("closed after %v: what was handed over takes 3 s", took)
		}
		wantAnswered(t, before(), "a", "b", "c")
		if r := calls(t.Context(), q, "late")()["late"]; !errors.Is(r.err, ErrClosed) || !errors.Is(r.err, ErrNotWritten) {
			t.Errorf("%+v", r)
		}
		q.Close() // again is harmless
	})
}

// TestStuckGroup has one item that is held up elsewhere: the others go on beside it.
func TestStuckGroup(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &desk{}
		stuck := make(chan struct{})
		d.before = func(group []string) {
			if strings.HasPrefix(group[0], "stuck") {
				<-stuck
			}
		}
		q := d.queue(func(c *Config[string, string]) { c.GroupMax, c.Slow, c.SlowMax = 1, 250*time.Millisecond, 2 })
		held := calls(t.Context(), q, "stuck 1", "stuck 2")
		began := time.Now()
		wantAnswered(t, calls(t.Context(), q, "a")(), "a")
		if took := time.Since(began); took != 1500*time.Millisecond {
			t.Errorf("answered after %v: two are slow after 250 ms each, the write takes 1 s", took)
		}
		more := calls(t.Context(), q, "stuck 3", "b")
		time.Sleep(10 * time.Second)
		if n := q.Waiting(); n != 1 {
			t.Errorf("%d wait: a third stuck group is not replaced", n)
		}
		close(stuck)
		wantAnswered(t, held(), "stuck 1", "stuck 2")
		wantAnswered(t, more(), "stuck 3", "b")
		q.Close()
		if q.active != 0 || q.slow != 0 || d.opened != 0 {
			t.Errorf("%d active, %d slow, %d open", q.active, q.slow, d.opened)
		}
	})
}

func TestAnswersMustBeComplete(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &desk{}
		q := d.queue(func(c *Config[string, string]) {
			c.Open = func(context.Context) (Writer[string, string], error) { return mute{d}, nil }
		})
		if r := calls(t.Context(), q, "a")()["a"]; r.err == nil || r.err.Error() != "1 items got 0 answers" {
			t.Errorf("%+v", r)
		}
	})
}

// mute answers nothing.
type mute struct{ *desk }

func (mute) Write(context.Context, []string, bool) ([]string, error) { return nil, nil }

// TestManyCallers is for the race detector: real goroutines, answers to the right callers, none lost.
func TestManyCallers(t *testing.T) {
	t.Parallel()
	d := &desk{}
	q := d.queue(func(c *Config[string, string]) { c.Flushers, c.GroupMax, c.QueueMax = 2, 7, 1000 })
	d.takes = 0
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			for n := range 40 {
				item := fmt.Sprintf("%d-%d", i, n)
				if n%10 == 9 {
					item = "poison " + item
				}
				ctx, cancel := context.WithCancel(t.Context())
				if n%7 == 3 {
					time.AfterFunc(time.Duration(n)*time.Microsecond, cancel)
				}
				answer, err := q.Do(ctx, AnyTime, item)
				cancelled := errors.Is(err, context.Canceled)
				cancel()
				switch {
				case cancelled:
				case strings.HasPrefix(item, "poison"):
					if !errors.Is(err, errPoison) {
						t.Errorf("%s: %q, %v", item, answer, err)
					}
				case err != nil || answer != "re "+item:
					t.Errorf("%s: %q, %v", item, answer, err)
				}
			}
		})
	}
	all.Wait()
	q.Close()
	if d.opened != 0 {
		t.Errorf("%d are not closed", d.opened)
	}
}

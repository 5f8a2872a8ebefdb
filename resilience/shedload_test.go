package resilience

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
)

// station is a service in virtual time: a store with a few servers and an endless queue, and an
// acquirer that takes its time.
type station struct {
	shedder  *Shedder
	servers  chan struct{}
	acquirer time.Duration
	mu       sync.Mutex
	random   *rand.Rand
}

const statementTime = 8 * time.Millisecond

// statement waits for a server and takes an exponential time of it.
func (s *station) statement() {
	s.servers <- struct{}{}
	s.mu.Lock()
	took := time.Duration(s.random.ExpFloat64() * float64(statementTime))
	s.mu.Unlock()
	time.Sleep(took)
	<-s.servers
}

// serve is one request of a kind: 0 is a charge with two statements around a call, 1 a read with one.
func (s *station) serve(ctx context.Context, kind int, p Priority) *Rejection {
	var v Visit
	if refused := s.shedder.Enter(ctx, &v, kind, p); refused != nil {
		return refused
	}
	defer v.Leave(true)
	s.statement()
	if kind == 0 {
		v.Outside(func() { time.Sleep(s.acquirer) })
		s.statement()
	}
	return nil
}

// seen is what became of one priority's requests.
type seen struct {
	offered, served int
	times           []time.Duration
}

func (o *seen) p99() time.Duration {
	slices.Sort(o.times)
	return o.times[len(o.times)*99/100]
}

func (o *seen) success() float64 { return float64(o.served) / float64(o.offered) }

// offer sends Poisson arrivals for as long as said. What takes longer than three seconds has failed.
func (s *station) offer(length time.Duration, kind int, p Priority, perSecond float64, seed uint64) *seen {
	random := rand.New(rand.NewPCG(seed, uint64(kind+10)))
	var o seen
	var mu sync.Mutex
	var all sync.WaitGroup
	for begin := time.Now(); time.Since(begin) < length; {
		time.Sleep(time.Duration(random.ExpFloat64() / perSecond * float64(time.Second)))
		o.offered++
		all.Go(func() {
			began := time.Now()
			refused := s.serve(context.Background(), kind, p)
			took := time.Since(began)
			mu.Lock()
			defer mu.Unlock()
			if refused == nil && took < 3*time.Second {
				o.served++
				o.times = append(o.times, took)
			}
		})
	}
	all.Wait()
	return &o
}

// storeRate is how many statements a second the station's store can do.
const storeRate = 4 * int64(time.Second/statementTime)

func newStation(t *testing.T, cfg ShedderConfig, acquirer time.Duration) *station {
	t.Helper()
	s, err := NewShedder(cfg, 2)
	if err != nil {
		t.Fatal(err)
	}
	return &station{shedder: s, servers: make(chan struct{}, 4), acquirer: acquirer, random: rand.New(rand.NewPCG(7, 7))}
}

// quiet is checkout alone, for a tenth of what the station can do.
func (s *station) quiet() *seen {
	return s.offer(20*time.Second, 0, Critical, .05*float64(storeRate), 1)
}

// overload is three times what the station can do: checkout for 60 %, and 120 % each of reads and batch charges.
func (s *station) overload(length time.Duration) (critical, normal, low *seen) {
	var all sync.WaitGroup
	all.Go(func() { critical = s.offer(length, 0, Critical, .3*float64(storeRate), 2) })
	all.Go(func() { normal = s.offer(length, 1, Normal, 1.2*float64(storeRate), 3) })
	all.Go(func() { low = s.offer(length, 0, Low, .6*float64(storeRate), 4) })
	all.Wait()
	return critical, normal, low
}

func TestOverloadInVirtualTime(t *testing.T) {
	t.Parallel()
	const acquirer = 50 * time.Millisecond
	inBubble(t, "three times capacity: checkout hardly notices, batch goes first", func(t *testing.T) {
		s := newStation(t, DefaultShedder(), acquirer)
		quiet := s.quiet().p99()
		critical, normal, low := s.overload(20 * time.Second)
		t.Logf("unloaded p99 %v; critical %.1f %% p99 %v, normal %.1f %% p99 %v, low %.1f %%; %+v", quiet, 100*critical.success(), critical.p99(),
			100*normal.success(), normal.p99(), 100*low.success(), s.shedder.Snapshot())
		if critical.success() < .95 || critical.p99() > 2*quiet {
			t.Errorf("critical: %.1f %% served, p99 %v, unloaded %v", 100*critical.success(), critical.p99(), quiet)
		}
		if low.success() > normal.success()/2 {
			t.Errorf("low %.1f %%, normal %.1f %%: low has to go first", 100*low.success(), 100*normal.success())
		}
		if done := (2*critical.served + normal.served + 2*low.served); done < int(storeRate)*20*8/10 {
			t.Errorf("%d statements in 20 s: what can be done is not done", done)
		}
		if n := s.shedder.Snapshot().InProgress; n != 0 {
			t.Errorf("%d are still in", n)
		}
	})
	inBubble(t, "without it, nobody is served", func(t *testing.T) {
		cfg := DefaultShedder()
		cfg.Off = true
		critical, normal, low := newStation(t, cfg, acquirer).overload(20 * time.Second)
		if critical.success() > .3 || normal.success() > .3 || low.success() > .3 {
			t.Errorf("critical %.2f, normal %.2f, low %.2f: this load is no overload", critical.success(), normal.success(), low.success())
		}
	})
	inBubble(t, "an acquirer that takes seconds is not our overload", func(t *testing.T) {
		s := newStation(t, DefaultShedder(), 20*time.Millisecond)
		s.quiet()
		s.acquirer = 2500 * time.Millisecond
		slow := s.offer(15*time.Second, 0, Critical, .25*float64(storeRate), 2)
		if slow.served != slow.offered {
			t.Errorf("%d of %d served, by %+v", slow.served, slow.offered, s.shedder.Snapshot())
		}
	})
	inBubble(t, "afterwards all come in again, batch too", func(t *testing.T) {
		s := newStation(t, DefaultShedder(), acquirer)
		s.quiet()
		s.overload(20 * time.Second)
		time.Sleep(calm)
		after := s.offer(10*time.Second, 0, Low, .05*float64(storeRate), 5)
		if after.success() < .99 {
			t.Errorf("%.1f %% of a light batch load served", 100*after.success())
		}
	})
	inBubble(t, "a long overload does not come to look normal", func(t *testing.T) {
		s := newStation(t, DefaultShedder(), acquirer)
		s.quiet()
		before := s.shedder.limiter.kinds[0].mean
		s.overload(40 * time.Second)
		if after := s.shedder.limiter.kinds[0].mean; after > before*3/2 {
			t.Errorf("a charge takes %v alone, after the overload %v", before, after)
		}
	})
	inBubble(t, "a start in the middle of it finds its limit, too", func(t *testing.T) {
		critical, _, _ := newStation(t, DefaultShedder(), acquirer).overload(20 * time.Second)
		if critical.success() < .95 {
			t.Errorf("%.1f %% of checkout served", 100*critical.success())
		}
	})
}

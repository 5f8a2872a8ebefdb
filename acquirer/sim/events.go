package sim

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Events says whom to tell of captures, and how badly. The zero value tells nobody.
type Events struct {
	URL    string // where each event is POSTed to
	Secret string // whsec_BASE64, signs as Standard Webhooks say

	Delay            time.Duration // between what happened and its event
	LossPercent      int           // of the events are never sent
	DuplicatePercent int           // are sent twice
	ReorderPercent   int           // are held back a while longer, so that later ones overtake them
}

// Bounds of telling.
const (
	eventsMax       = 10_000 // under way at a time; more are lost
	eventTries      = 12
	eventPause      = time.Second // before the second try; twice as long before each further one
	eventPauseMax   = time.Minute
	eventTime       = 10 * time.Second // of one try
	eventHoldBack   = 2 * time.Second
	secretPrefix    = "whsec_"
	secretBytesMin  = 24
	eventsDelayMax  = 24 * time.Hour
	eventAnswerMax  = 64 << 10
	eventTypePrefix = "capture."
)

func (e Events) validate() (key []byte, err error) {
	if e == (Events{}) {
		return nil, nil
	}
	var errs []error
	if u, err := url.Parse(e.URL); err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		errs = append(errs, fmt.Errorf("simulator: Events.URL %q is not http(s)://host/path", e.URL))
	}
	encoded, prefixed := strings.CutPrefix(e.Secret, secretPrefix)
	if key, err = base64.StdEncoding.DecodeString(encoded); err != nil || !prefixed || len(key) < secretBytesMin {
		errs = append(errs, fmt.Errorf("simulator: Events.Secret is not %s and the base64 of at least %d bytes", secretPrefix, secretBytesMin))
	}
	if e.Delay < 0 || e.Delay > eventsDelayMax {
		errs = append(errs, errors.New("simulator: Events.Delay is out of range"))
	}
	for name, percent := range map[string]int{"LossPercent": e.LossPercent, "DuplicatePercent": e.DuplicatePercent, "ReorderPercent": e.ReorderPercent} {
		if percent < 0 || percent > 100 {
			errs = append(errs, fmt.Errorf("simulator: Events.%s is not 0 to 100", name))
		}
	}
	return key, errors.Join(errs...)
}

// SetEvents changes whom to tell. Events that are under way go to the new address.
func (s *Sim) SetEvents(e Events) error {
	key, err := e.validate()
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cfg.Events, s.eventKey = e, key
	return nil
}

// eventBody is an event on the wire.
type eventBody struct {
	Type      string      `json:"type"`
	Timestamp time.Time   `json:"timestamp"`
	Data      captureView `json:"data"`
}

// tell sends the events of a record that was just booked: what became of it and, if that takes a while, that
// it is pending. s.mu is held.
func (s *Sim) tell(r Record) {
	if s.cfg.Events.URL == "" || r.Status == StatusLost {
		return
	}
	s.tellLater(r, r.At)
	if r.Status == StatusPending {
		s.tellLater(r, r.SettleAt)
	}
}

func (s *Sim) tellLater(r Record, at time.Time) {
	select {
	case <-s.closed:
		return
	default:
	}
	rolls := func(percent int) bool { return percent > 0 && s.dice.IntN(100) < percent }
	if rolls(s.cfg.Events.LossPercent) || s.stats.EventsUnderWay >= eventsMax {
		s.stats.EventsLost++
		return
	}
	wait := s.cfg.Events.Delay + max(at.Sub(r.At), 0)
	if rolls(s.cfg.Events.ReorderPercent) {
		wait += eventHoldBack + s.cfg.Events.Delay
	}
	copies := 1
	if rolls(s.cfg.Events.DuplicatePercent) {
		copies = 2
	}
	view := viewOf(r, at)
	body, err := json.Marshal(eventBody{Type: eventTypePrefix + string(view.Status), Timestamp: at.UTC(), Data: view})
	if err != nil {
		return // a view can always be written
	}
	for range copies {
		s.stats.EventsUnderWay++
		s.telling.Go(func() { s.deliver("evt_"+r.ID+"_"+string(view.Status), body, wait) })
	}
}

// deliver sends one event until somebody takes it, or gives up.
func (s *Sim) deliver(id string, body []byte, wait time.Duration) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-s.closed:
			cancel()
		case <-stop:
		}
	}()
	delivered := false
	for try := range eventTries {
		s.wait(wait)
		if ctx.Err() != nil {
			break
		}
		if delivered = s.send(ctx, id, body); delivered {
			break
		}
		wait = min(eventPause<<try, eventPauseMax)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.EventsUnderWay--
	if delivered {
		s.stats.EventsDelivered++
	} else {
		s.stats.EventsLost++
	}
}

// send makes one try.
func (s *Sim) send(ctx context.Context, id string, body []byte) bool {
	s.mu.Lock()
	to, key := s.cfg.Events.URL, s.eventKey
	s.mu.Unlock()
	if to == "" {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, eventTime)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return false
	}
	at := strconv.FormatInt(s.cfg.Now().Unix(), 10)
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.%s", id, at, body)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Webhook-Id", id)
	request.Header.Set("Webhook-Timestamp", at)
	request.Header.Set("Webhook-Signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	response, err := s.events.Do(request)
	if err != nil {
		s.log.Debug("an event was not delivered", "event", id, "error", err)
		return false
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, eventAnswerMax)) // so that the connection is used again
	if response.StatusCode/100 != 2 {
		s.log.Debug("an event was not taken", "event", id, "status", response.StatusCode)
		return false
	}
	return true
}

package rest

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"paymentsd/acquirer"
	"paymentsd/internal/webhook"
)

const (
	newSecret = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
	oldSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
)

func listening(t testing.TB, settings map[string]string, secrets ...acquirer.Secret) acquirer.EventSource {
	t.Helper()
	a, err := New(acquirer.Config{Name: "north", URL: "http://127.0.0.1:1", EventSecrets: secrets, Settings: settings})
	if err != nil {
		t.Fatal(err)
	}
	return a.(acquirer.EventSource)
}

func TestVerifyEventTakesEverySecretInUse(t *testing.T) {
	t.Parallel()
	body, now := []byte(`{"type":"capture.captured"}`), time.Unix(1_800_000_000, 0)
	both := listening(t, nil, newSecret, oldSecret)
	for _, secret := range []string{newSecret, oldSecret} {
		ring, err := webhook.NewRing(secret)
		if err != nil {
			t.Fatal(err)
		}
		h := http.Header{}
		if err := ring.Sign(h, "evt_1", now, body); err != nil {
			t.Fatal(err)
		}
		if receipt, err := both.VerifyEvent(h, body, now.Add(acquirer.DefaultEventTolerance)); err != nil || receipt.ID != "evt_1" || !receipt.SentAt.Equal(now) {
			t.Errorf("%+v, %v", receipt, err)
		}
		if _, err := both.VerifyEvent(h, body, now.Add(acquirer.DefaultEventTolerance+time.Second)); !errors.Is(err, acquirer.ErrEventUnverified) {
			t.Errorf("too late: %v", err)
		}
		if _, err := listening(t, nil).VerifyEvent(h, body, now); !errors.Is(err, acquirer.ErrEventUnverified) {
			t.Errorf("an acquirer without secrets: %v", err)
		}
	}
}

func TestEventSettingsThatAreRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]acquirer.Config{
		"secret 2":  {EventSecrets: []acquirer.Secret{newSecret, "hunter2-hunter2-hunter2"}},
		"tolerance": {EventTolerance: -time.Second},
	} {
		c.Name, c.URL = "north", "http://127.0.0.1:1"
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), name) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

const capturedEvent = `{"type":"capture.captured","timestamp":"2026-11-30T09:00:00Z","data":{"id":"cap_1","reference":"K7QF2ZREC0RDED000001",
  "amount_minor":4999,"currency":"USD","status":"captured","created_at":"2026-11-30T08:59:59Z"}}`

func TestReadEvent(t *testing.T) {
	t.Parallel()
	with := func(from, to string) string { return strings.Replace(capturedEvent, from, to, 1) }
	for _, c := range []struct {
		name, body string
		found      acquirer.Found
		want       string // what the error says; "" if it can be read
	}{
		{"captured", capturedEvent, acquirer.FoundCaptured, ""},
		{"declined", `{"type":"capture.declined","data":{"reference":"K7QF2ZREC0RDED000001","status":"declined","decline_code":"no_money"}}`, acquirer.FoundDeclined, ""},
		{"pending", `{"type":"capture.pending","data":{"reference":"K7QF2ZREC0RDED000001","status":"pending"}}`, acquirer.FoundPending, ""},
		{"a type that is not known", `{"type":"payout.paid","data":[1]}`, acquirer.FoundUnclear, ""},
		{"fields that are not known", with(`"type"`, `"version":2,"type"`), acquirer.FoundCaptured, ""},
		{"no type", `{"data":{}}`, "", "type"},
		{"a type that is markup", `{"type":"<b>"}`, "", "type"},
		{"not JSON", `capture.captured`, "", "not JSON"},
		{"nothing", ``, "", "not JSON"},
		{"a name twice", with(`"amount_minor":4999`, `"amount_minor":1,"amount_minor":4999`), "", "twice"},
		{"data after the object", capturedEvent + `{}`, "", "after"},
		{"no data", `{"type":"capture.captured"}`, "", "data"},
		{"data that is no object", `{"type":"capture.captured","data":"x"}`, "", "data"},
		{"a status that is not the type's", with(`"status":"captured"`, `"status":"declined"`), "", "data.status"},
		{"no reference", with("K7QF2ZREC0RDED000001", ""), "", "data.reference"},
		{"a reference of words", with("K7QF2ZREC0RDED000001", "order 7"), "", "data.reference"},
		{"an amount with a fraction", with("4999", "49.99"), "", "amount"},
		{"an amount of nothing", with("4999", "0"), "", "amount"},
		{"no currency", with("USD", ""), "", "amount"},
		{"a currency that is none", with("USD", "XXX"), "", "amount"},
		{"no capture id", with("cap_1", ""), "", "id"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e, err := listening(t, nil).ReadEvent([]byte(c.body))
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%+v, %v; want an error about %q", e, err, c.want)
				}
				return
			}
			if err != nil || e.Found != c.found {
				t.Fatalf("%+v, %v; want %s", e, err, c.found)
			}
			if c.found != acquirer.FoundUnclear && e.Ref != "K7QF2ZREC0RDED000001" {
				t.Errorf("reference %q", e.Ref)
			}
			if c.found == acquirer.FoundCaptured && (e.Amount.String() != "49.99" || e.CaptureID != "cap_1" || e.At.Hour() != 9) {
				t.Errorf("%+v", e)
			}
		})
	}
}

func TestReadEventCountsInTheAcquirersExponent(t *testing.T) {
	t.Parallel()
	e, err := listening(t, map[string]string{"exponents": "USD=3"}).ReadEvent([]byte(strings.Replace(capturedEvent, "4999", "49990", 1)))
	if err != nil || e.Amount.String() != "49.99" {
		t.Errorf("%s, %v", e.Amount, err)
	}
}

// Whatever a body holds: it is read or refused, and what is read is whole.
func FuzzReadEvent(f *testing.F) {
	f.Add([]byte(capturedEvent))
	f.Add([]byte(`{"type":"capture.declined","data":{"reference":"K7QF2ZREC0RDED000001","status":"declined"}}`))
	f.Add([]byte(`{"type":"capture.pending","data":{"reference":"K7QF2ZREC0RDED000001","status":"pending"}}`))
	f.Add([]byte(`{"type":"x"}`))
	f.Add([]byte(`{"type":null,"data":[[[[]]]]}`))
	source := listening(f, nil, newSecret)
	f.Fuzz(func(t *testing.T, body []byte) {
		e, err := source.ReadEvent(body)
		if err != nil {
			if e != (acquirer.Event{}) {
				t.Errorf("an error beside %+v", e)
			}
			return
		}
		if !json.Valid(body) {
			t.Errorf("read from what is no JSON: %+v", e)
		}
		if e.Type == "" || len(e.Type) > 100 {
			t.Errorf("type %q", e.Type)
		}
		switch e.Found {
		case acquirer.FoundCaptured:
			if e.CaptureID == "" || e.Amount.Sign() <= 0 || !validRef(e.Ref) {
				t.Errorf("half an event: %+v", e)
			}
		case acquirer.FoundDeclined, acquirer.FoundPending:
			if !validRef(e.Ref) {
				t.Errorf("half an event: %+v", e)
			}
		case acquirer.FoundUnclear:
			if e.Ref != "" || e.CaptureID != "" {
				t.Errorf("an event about nothing with parts: %+v", e)
			}
		default:
			t.Errorf("found %q", e.Found)
		}
	})
}

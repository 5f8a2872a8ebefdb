package webhook

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"
)

// The example of the specification and of its libraries.
const (
	exampleSecret    = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	exampleID        = "msg_p5jXN8AQM9LWM0D4loKWxJek"
	exampleTimestamp = "1614265330"
	exampleBody      = `{"test": 2432232314}`
	exampleSignature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
	otherSecret      = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
)

var exampleTime = time.Unix(1614265330, 0)

func ring(t *testing.T, secrets ...string) Ring {
	t.Helper()
	r, err := NewRing(secrets...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func exampleHeaders() http.Header {
	h := http.Header{}
	h.Set(HeaderID, exampleID)
	h.Set(HeaderTimestamp, exampleTimestamp)
	h.Set(HeaderSignature, exampleSignature)
	return h
}

func TestVerify(t *testing.T) {
	t.Parallel()
	const tolerance = 5 * time.Minute
	for _, c := range []struct {
		name    string
		secrets []string
		change  func(http.Header)
		body    string
		now     time.Duration // after it was sent
		want    string        // "" if it holds
	}{
		{name: "the example of the specification"},
		{name: "the secret that is being replaced", secrets: []string{otherSecret, exampleSecret}},
		{name: "one of several signatures", change: func(h http.Header) { h.Set(HeaderSignature, "v1,AAAA v1a,xxxx "+exampleSignature) }},
		{name: "as late as is tolerated", now: tolerance},
		{name: "as early as is tolerated", now: -tolerance},
		{name: "too late", now: tolerance + time.Second, want: "away from our clock"},
		{name: "too early", now: -tolerance - time.Second, want: "away from our clock"},
		{name: "another secret", secrets: []string{otherSecret}, want: "no secret in use"},
		{name: "no secret at all", secrets: []string{}, want: "no secret in use"},
		{name: "another body", body: exampleBody + " ", want: "no secret in use"},
		{name: "another id", change: func(h http.Header) { h.Set(HeaderID, "msg_other") }, want: "no secret in use"},
		{name: "another time", change: func(h http.Header) { h.Set(HeaderTimestamp, "1614265331") }, want: "no secret in use"},
		{name: "a signature of another version", change: func(h http.Header) { h.Set(HeaderSignature, "v2"+exampleSignature[2:]) }, want: "no secret in use"},
		{name: "a signature cut short", change: func(h http.Header) { h.Set(HeaderSignature, exampleSignature[:20]) }, want: "no secret in use"},
		{name: "no signature", change: func(h http.Header) { h.Del(HeaderSignature) }, want: HeaderSignature},
		{name: "an empty signature", change: func(h http.Header) { h.Set(HeaderSignature, "") }, want: "no secret in use"},
		{name: "no id", change: func(h http.Header) { h.Del(HeaderID) }, want: HeaderID},
		{name: "no time", change: func(h http.Header) { h.Del(HeaderTimestamp) }, want: HeaderTimestamp},
		{name: "two ids", change: func(h http.Header) { h.Add(HeaderID, "msg_2") }, want: HeaderID},
		{name: "an id with a dot", change: func(h http.Header) { h.Set(HeaderID, "a.b") }, want: HeaderID},
		{name: "an id too long", change: func(h http.Header) { h.Set(HeaderID, strings.Repeat("m", 101)) }, want: HeaderID},
		{name: "a time in words", change: func(h http.Header) { h.Set(HeaderTimestamp, "2021-02-25") }, want: "no number of seconds"},
		{name: "a time with a sign", change: func(h http.Header) { h.Set(HeaderTimestamp, "+1614265330") }, want: "no number of seconds"},
		{name: "a time beyond all bounds", change: func(h http.Header) { h.Set(HeaderTimestamp, "99999999999999999999") }, want: "no number of seconds"},
		{name: "too many signatures", change: func(h http.Header) { h.Set(HeaderSignature, strings.Repeat("v1,AAAA ", 16)+exampleSignature) }, want: "more than 16"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h, body, secrets := exampleHeaders(), exampleBody, []string{exampleSecret}
			if c.change != nil {
				c.change(h)
			}
			if c.body != "" {
				body = c.body
			}
			if c.secrets != nil {
				secrets = c.secrets
			}
			m, err := ring(t, secrets...).Verify(h, []byte(body), exampleTime.Add(c.now), tolerance)
			if c.want == "" {
				if err != nil || m.ID != exampleID || !m.SentAt.Equal(exampleTime) {
					t.Errorf("%+v, %v", m, err)
				}
				return
			}
			if !errors.Is(err, ErrUnverified) || !strings.Contains(err.Error(), c.want) || m != (Message{}) {
				t.Errorf("%+v, %v; want an error about %q", m, err, c.want)
			}
		})
	}
}

func TestSign(t *testing.T) {
	t.Parallel()
	h := http.Header{}
	if err := ring(t, exampleSecret).Sign(h, exampleID, exampleTime, []byte(exampleBody)); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{HeaderID: exampleID, HeaderTimestamp: exampleTimestamp, HeaderSignature: exampleSignature} {
		if got := h.Get(name); got != want {
			t.Errorf("%s is %q, the specification has %q", name, got, want)
		}
	}
	if err := ring(t, otherSecret, exampleSecret).Sign(h, exampleID, exampleTime, []byte(exampleBody)); err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{otherSecret, exampleSecret} { // while the secret changes, either side may be first
		if _, err := ring(t, secret).Verify(h, []byte(exampleBody), exampleTime, time.Minute); err != nil {
			t.Errorf("one of two secrets does not verify: %v", err)
		}
	}
}

func TestSecretsThatAreRefused(t *testing.T) {
	t.Parallel()
	for name, secret := range map[string]string{
		"none": "", "no prefix": exampleSecret[6:], "only the prefix": "whsec_", "no base64": "whsec_!" + exampleSecret[7:],
		"too short": "whsec_AAECAwQFBgcICQoL", "too long": "whsec_" + strings.Repeat("AAAA", 22),
	} {
		if _, err := NewRing(exampleSecret, secret); err == nil || !strings.Contains(err.Error(), "secret 2") || (len(secret) > 8 && strings.Contains(err.Error(), secret)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

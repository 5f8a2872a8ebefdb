package api_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"paymentsd/idempotency"
	"paymentsd/internal/pgtest"
	"paymentsd/internal/webhook"
)

var update = flag.Bool("update", false, "write what the service answers into testdata/*.txtar")

// TestTranscripts plays every transcript in testdata against the real handler, compares each answer with
// the one on record, and holds both request and answer against openapi.yaml.
//
// A transcript is a sequence of sections: "request" and "response"; "request in flight", which goes on to the
// next section once its charge is in flight, and whose answer is the last section's, "response in
// flight"; and "do", which does something to the world (see world.do). Placeholders such as
// <charge 1> stand for what differs from run to run, in the order in which it is first seen.
func TestTranscripts(t *testing.T) {
	t.Parallel()
	contract := loadContract(t)
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	t.Run("plays", func(t *testing.T) {
		for _, file := range files {
			t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
				t.Parallel()
				archive, err := txtar.ParseFile(file)
				if err != nil {
					t.Fatal(err)
				}
				p := &player{w: newSharedWorld(t), contract: contract, names: map[string]string{}, counts: map[string]int{}}
				p.play(archive)
				if *update && !t.Failed() {
					if err := os.WriteFile(file, txtar.Format(archive), 0o600); err != nil {
						t.Fatal(err)
					}
				}
			})
		}
	})
	contract.checkCoverage(t)
}

// player plays one transcript.
type player struct {
	w        *world
	contract *contract
	names    map[string]string // placeholder -> what it stands for
	counts   map[string]int
	inFlight chan *exchange
}

func (p *player) play(archive *txtar.Archive) {
	p.w.t.Helper()
	var last *exchange
	for i := range archive.Files {
		section := &archive.Files[i]
		switch section.Name {
		case "do":
			for line := range strings.Lines(string(section.Data)) {
				if err := p.w.do(strings.TrimSpace(line)); err != nil {
					p.w.t.Fatalf("do %q: %v", line, err)
				}
			}
		case "request":
			last = p.send(section.Data)
		case "request in flight":
			p.sendInFlight(section.Data)
		case "response":
			p.compare(section, last)
		case "response in flight":
			p.compare(section, <-p.inFlight)
		default:
			p.w.t.Fatalf("section %q is not known", section.Name)
		}
	}
}

func (p *player) compare(section *txtar.File, x *exchange) {
	p.w.t.Helper()
	p.contract.check(p.w.t, x)
	got := p.record(x)
	if *update {
		section.Data = []byte(got)
		return
	}
	if diff := cmp.Diff(string(section.Data), got); diff != "" {
		p.w.t.Errorf("the answer to\n%s\nis not the one on record (-want +got):\n%s", x.requestText, diff)
	}
}

// do does one thing to the world.
func (w *world) do(what string) error {
	ctx := w.t.Context()
	verb, object, _ := strings.Cut(what, " ")
	switch {
	case what == "the store goes down":
		w.wire.Set(pgtest.Cut)
	case what == "the process is stopping":
		w.stopping.Store(true)
	case what == "the books break":
		w.broken.Store(true)
	case what == "40 days pass for retention":
		_, _, err := idempotency.Maintain(ctx, w.pool, time.Now().Add(40*24*time.Hour), 30*24*time.Hour)
		return err
	case verb == "reconcile":
		return w.reconcile(ctx, object)
	case what == "the replica reports":
		w.flushes()
	case verb == "crowd":
		return w.crowdTo(object)
	case verb == "hold":
		w.hold(object)
	default:
		return fmt.Errorf("not known")
	}
	return nil
}

// exchange is one request and its answer.
type exchange struct {
	requestText string
	method      string
	target      string
	header      http.Header
	body        []byte
	response    *http.Response
	answer      []byte
}

// send writes a request byte for byte, so that broken ones can be written, and reads the answer.
func (p *player) send(text []byte) *exchange {
	p.w.t.Helper()
	x, err := p.exchange(text)
	if err != nil {
		p.w.t.Fatalf("%v\nrequest:\n%s", err, text)
	}
	return x
}

func (p *player) sendInFlight(text []byte) {
	p.w.t.Helper()
	done := make(chan *exchange, 1)
	p.inFlight = done
	go func() {
		x, err := p.exchange(text)
		if err != nil {
			p.w.t.Errorf("%v\nrequest:\n%s", err, text)
		}
		done <- x
	}()
	for range 500 {
		var n int
		err := p.w.pool.QueryRow(p.w.t.Context(), `select count(*) from idempotency_keys where state = 'in_flight'`).Scan(&n)
		if err != nil {
			p.w.t.Fatal(err)
		}
		if n > 0 {
			return
		}
		time.Sleep(2 * time.Millisecond)
	}
	p.w.t.Fatal("no key went in flight")
}

func (p *player) exchange(text []byte) (*exchange, error) {
	head, body, _ := strings.Cut(string(text), "\n\n")
	head, body = p.expand(strings.TrimRight(head, "\n")), p.expand(strings.TrimSuffix(body, "\n"))
	lines := strings.Split(head, "\n")
	method, target, ok := strings.Cut(lines[0], " ")
	if !ok {
		return nil, fmt.Errorf("no method and target in %q", lines[0])
	}
	x := &exchange{requestText: string(text), method: method, target: target, header: http.Header{}, body: []byte(body)}
	for _, line := range lines[1:] {
		name, value, _ := strings.Cut(line, ":")
		x.header.Add(name, strings.TrimSpace(value))
	}
	if err := x.sign(); err != nil {
		return nil, err
	}
	truncated := x.header.Get("Content-Length") != ""
	if !truncated && (body != "" || method == http.MethodPost) {
		x.header.Set("Content-Length", fmt.Sprint(len(body)))
	}
	conn, err := net.Dial("tcp", p.w.server.Listener.Addr().String())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return nil, err
	}
	var raw bytes.Buffer
	fmt.Fprintf(&raw, "%s %s HTTP/1.1\r\nHost: api\r\nConnection: close\r\n", method, target)
	_ = x.header.Write(&raw)
	raw.WriteString("\r\n" + body)
	_, _ = conn.Write(raw.Bytes()) // a server that has answered already may not read all
	if truncated {
		_ = conn.(*net.TCPConn).CloseWrite()
	}
	if x.response, err = http.ReadResponse(bufio.NewReader(conn), nil); err != nil {
		return nil, err
	}
	x.answer, err = io.ReadAll(x.response.Body)
	return x, err
}

// sign puts the signature of north under an event whose header Webhook-Signature says "north".
func (x *exchange) sign() error {
	if x.header.Get("Webhook-Signature") != "north" {
		return nil
	}
	ring, err := webhook.NewRing(northSecret)
	if err != nil {
		return err
	}
	return ring.Sign(x.header, x.header.Get("Webhook-Id"), time.Now(), x.body)
}

var placeholder = regexp.MustCompile(`<[^<>\n]+>`)

// expand puts what placeholders stand for into a request.
func (p *player) expand(text string) string {
	return placeholder.ReplaceAllStringFunc(text, func(name string) string {
		inner := strings.Trim(name, "<>")
		if key, ok := p.w.keys[inner]; ok {
			return key
		}
		if value, ok := p.names[name]; ok {
			return value
		}
		if acquirer, ok := strings.CutPrefix(inner, "settlement file of "); ok {
			file, err := p.w.settlementFile(p.w.t.Context(), acquirer)
			if err != nil {
				p.w.t.Errorf("the settlement file of %s: %v", acquirer, err)
			}
			return string(file)
		}
		var n int
		if _, err := fmt.Sscanf(inner, "%d bytes", &n); err == nil {
			return strings.Repeat("x", n)
		}
		switch inner {
		case "shop":
			return p.w.shop.ID.Code()
		}
		p.w.t.Errorf("placeholder %s stands for nothing yet", name)
		return name
	})
}

// varying is what differs from run to run. The order matters: a longer form stands before a part of it.
var varying = []struct {
	name    string
	pattern *regexp.Regexp
	counted bool
}{
	{"request", regexp.MustCompile(`\breq_[A-Z2-7]{26}\b`), false},
	{"charge", regexp.MustCompile(`\bch_[0-9A-Z]{26}\b`), true},
	{"reference", regexp.MustCompile(`\b[A-HJKMNP-TV-Z][0-9A-HJKMNP-TV-Z]{19}\b`), true},
	{"time", regexp.MustCompile(`\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z`), false},
	{"time", regexp.MustCompile(`\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`), false},
	{"day", regexp.MustCompile(`\b\d{4}-\d\d-\d\d\b`), false},
	{"file", regexp.MustCompile(`\bsf_[0-9a-f]{24}\b`), true},
	{"exception", regexp.MustCompile(`\bex_[0-9a-f]{24}\b`), true},
	{"note", regexp.MustCompile(`\brn_[0-9a-z]{10,40}\b`), true},
	{"run", regexp.MustCompile(`\brr_[0-9a-z]{10,40}\b`), true},
	{"sha256", regexp.MustCompile(`\b[0-9a-f]{64}\b`), false},
	{"key id", regexp.MustCompile(`\bkey [0-9a-z]{12}\b`), false},
	{"evidence", regexp.MustCompile(`\boperator:[0-9a-f]{24}\b`), true},
	{"bytes", regexp.MustCompile(`"bytes": \d+`), false},
	{"left", regexp.MustCompile(`\b[\d.]+m?s left\b`), false},
	{"replica", regexp.MustCompile(`\btest/[a-z2-7]{6}\b`), false},
	{"seconds", regexp.MustCompile(`"age_seconds": \d+`), false},
	{"port", regexp.MustCompile(`127\.0\.0\.1:\d+`), false},
}

// record writes an answer as it stands in a transcript.
func (p *player) record(x *exchange) string {
	var out strings.Builder
	fmt.Fprintln(&out, x.response.Status)
	for _, name := range slices.Sorted(maps.Keys(x.response.Header)) {
		if name == "Date" || name == "Content-Length" || name == "Connection" {
			continue
		}
		for _, value := range x.response.Header[name] {
			fmt.Fprintf(&out, "%s: %s\n", name, value)
		}
	}
	var pretty bytes.Buffer
	switch {
	case strings.HasPrefix(x.target, "/metrics"):
		out.WriteString("\n(metrics)\n")
	case json.Indent(&pretty, x.answer, "", "  ") == nil:
		out.WriteString("\n" + strings.TrimRight(pretty.String(), "\n") + "\n")
	case len(x.answer) > 0:
		out.WriteString("\n" + string(x.answer) + "\n")
	}
	text := out.String()
	for _, v := range varying {
		text = v.pattern.ReplaceAllStringFunc(text, func(found string) string { return p.nameOf(v.name, found, v.counted) })
	}
	return strings.ReplaceAll(text, `"`+p.w.shop.ID.Code()+`"`, `"<shop>"`)
}

func (p *player) nameOf(kind, found string, counted bool) string {
	switch kind {
	case "bytes":
		return `"bytes": "<bytes>"` // times are written without their last zeros
	case "seconds":
		return `"age_seconds": "<seconds>"`
	}
	if !counted {
		return "<" + kind + ">"
	}
	for name, value := range p.names {
		if value == found && strings.HasPrefix(name, "<"+kind) {
			return name
		}
	}
	p.counts[kind]++
	name := fmt.Sprintf("<%s %d>", kind, p.counts[kind])
	p.names[name] = found
	return name
}

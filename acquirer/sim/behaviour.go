package sim

import "strings"

// Behaviour is one way to treat a request: what happens to the money, what the client sees of it,
// and what the settlement file says later.
type Behaviour struct {
	Name   string // the kind of a fault; "tok_"+Name is the magic payment method
	money  movement
	reply  replying
	code   string // decline code
	slow   bool
	settle settling
	Doc    string
}

type movement string

const (
	captures    movement = "captured"
	captures2   movement = "captured twice"
	declines    movement = "declined"
	pends       movement = "pending, then captured"
	pendsToFail movement = "pending, then declined"
	loses       movement = "nothing"
)

type replying string

const (
	honest         replying = "the truth"
	hold           replying = "nothing until the client goes"
	hangUp         replying = "connection closed, no answer"
	resetMidBody   replying = "half a body, then a reset"
	truncate       replying = "half a body, then the end"
	serverError    replying = "500"
	unavailable    replying = "503, processed: false"
	rateLimit      replying = "429, processed: false, Retry-After"
	garble         replying = "201, not JSON"
	htmlPage       replying = "200, an HTML page"
	maintenance    replying = "200, a maintenance notice"
	unknownResult  replying = "200, result: UNKNOWN"
	redirect       replying = "307 to the same address"
	wrongAmount    replying = "201, another amount"
	wrongCurrency  replying = "201, another currency"
	wrongReference replying = "201, another reference"
	falseDecline   replying = "402, declined"
)

type settling string

const (
	settlesTruly  settling = ""
	settlesNever  settling = "never"
	settlesShort  settling = "one minor unit short"
	settlesFailed settling = "capture_failed"
)

// Behaviours is THE table of faults and magic tokens; docs/simulator.md repeats it. "down" is the
// one fault that is not in it: it closes the port.
func Behaviours() []Behaviour {
	return []Behaviour{
		{Name: "ok", money: captures, reply: honest, Doc: "captures"},
		{Name: "declined", money: declines, reply: honest, code: "card_declined", Doc: "declines with `card_declined`"},
		{Name: "insufficient_funds", money: declines, reply: honest, code: "insufficient_funds", Doc: "declines with `insufficient_funds`"},
		{Name: "expired_card", money: declines, reply: honest, code: "expired_card", Doc: "declines with `expired_card`"},
		{Name: "timeout_captured", money: captures, reply: hold, Doc: "captures, then holds the connection"},
		{Name: "timeout_lost", money: loses, reply: hold, Doc: "holds the connection, never captures"},
		{Name: "error_captured", money: captures, reply: serverError, Doc: "captures, then answers 500"},
		{Name: "error_lost", money: loses, reply: serverError, Doc: "answers 500, captures nothing"},
		{Name: "reset_captured", money: captures, reply: resetMidBody, Doc: "captures, then resets the connection in mid-body"},
		{Name: "reset_lost", money: loses, reply: hangUp, Doc: "hangs up unprocessed, without an answer"},
		{Name: "truncated_captured", money: captures, reply: truncate, Doc: "captures, then ends the body half way"},
		{Name: "garbled_captured", money: captures, reply: garble, Doc: "captures, then answers 201 with bytes that are no JSON"},
		{Name: "html_lost", money: loses, reply: htmlPage, Doc: "answers 200 with an HTML page, captures nothing"},
		{Name: "maintenance_lost", money: loses, reply: maintenance, Doc: "answers 200 with a maintenance notice, captures nothing"},
		{Name: "unknown_captured", money: captures, reply: unknownResult, Doc: "captures, then answers 200 with `result: UNKNOWN`"},
		{Name: "redirect_lost", money: loses, reply: redirect, Doc: "answers 307 to the same address, captures nothing"},
		{Name: "wrong_amount", money: captures, reply: wrongAmount, Doc: "captures, but echoes an amount one minor unit higher"},
		{Name: "wrong_currency", money: captures, reply: wrongCurrency, Doc: "captures, but echoes another currency"},
		{Name: "wrong_reference", money: captures, reply: wrongReference, Doc: "captures, but echoes another reference"},
		{Name: "pending", money: pends, reply: honest, Doc: "answers 202; captured a little later"},
		{Name: "pending_declined", money: pendsToFail, reply: honest, code: "card_declined", Doc: "answers 202; declined a little later"},
		{Name: "rate_limited", money: loses, reply: rateLimit, Doc: "refuses unprocessed with 429 and Retry-After"},
		{Name: "unprocessed", money: loses, reply: unavailable, Doc: "refuses unprocessed with 503"},
		{Name: "slow", money: captures, reply: honest, slow: true, Doc: "captures after the slow latency"},
		{Name: "declined_captured", money: captures, reply: falseDecline, code: "card_declined", Doc: "captures, yet answers that it declined"},
		{Name: "captured_twice", money: captures2, reply: honest, Doc: "captures twice under one reference, answers one"},
		{Name: "unsettled", money: captures, reply: honest, settle: settlesNever, Doc: "captures, but is missing from the settlement files"},
		{Name: "settled_short", money: captures, reply: honest, settle: settlesShort, Doc: "captures, but settles one minor unit less"},
		{Name: "capture_failed", money: captures, reply: honest, settle: settlesFailed, Doc: "answers captured, but settles as `capture_failed`"},
	}
}

const (
	tokenPrefix = "tok_"
	onceSuffix  = "_once"
)

// behaviourNamed finds a row of the table.
func behaviourNamed(name string) (Behaviour, bool) {
	for _, b := range Behaviours() {
		if b.Name == name {
			return b, true
		}
	}
	return Behaviour{}, false
}

// behaviourOf reads a payment method. A magic token shows its fault to every request that carries
// it, with "_once" only to the first under a key. Any other payment method just captures.
func behaviourOf(paymentMethod string) (b Behaviour, once bool) {
	name, magic := strings.CutPrefix(paymentMethod, tokenPrefix)
	if magic {
		name, once = strings.CutSuffix(name, onceSuffix)
		if b, ok := behaviourNamed(name); ok {
			return b, once
		}
	}
	return honestly(), false
}

// honestly is the behaviour of an acquirer at its best.
func honestly() Behaviour { return Behaviours()[0] }

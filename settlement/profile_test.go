package settlement

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// bank is a sound profile; tests replace parts of it.
const bank = `
name: bank
columns: {id: [Line], reference: Ref, currency: Cur, gross: Amount, occurred_at: Day}
dates: {layouts: ["2006-01-02 15:04:05"], zone: Europe/Berlin}
kinds: [{when: {Type: Sale}, kind: capture}, {when: {Type: Back}, kind: refund}, {when: {Type: "Fee*"}, kind: fee}, {when: {Type: Info}, kind: ignore}]
`

func load(t *testing.T, text string) Format {
	t.Helper()
	f, err := LoadProfile(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestAProfileThatCannotBeUsedSaysWhy(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, says string }{
		"no YAML":                       {"name: [", "cannot be read"},
		"an unknown field, with place":  {bank + "colums: {}\n", `[6:1] unknown field "colums"`},
		"nothing":                       {"", "columns.gross: is missing"},
		"a name with blanks":            {strings.Replace(bank, "name: bank", "name: My Bank", 1), "name: "},
		"a delimiter of two characters": {bank + "delimiter: '::'\n", "delimiter: "},
		"a decimal mark that separates": {bank + "thousands: '.'\n", "thousands: is the decimal mark"},
		"a kind that is none":           {strings.Replace(bank, "kind: refund", "kind: unknown", 1), `kinds[1].kind: "unknown" is not a kind`},
		"a rule without columns":        {strings.Replace(bank, "{Type: Back}", "{}", 1), "kinds[1].when: is missing"},
		"no zone":                       {strings.Replace(bank, ", zone: Europe/Berlin", "", 1), "dates.zone: is missing"},
		"this machine's zone":           {strings.Replace(bank, "Europe/Berlin", "Local", 1), "another machine"},
		"a layout without a year":       {strings.Replace(bank, "2006-01-02 15:04:05", "01-02 15:04", 1), "does not have year, month and day"},
		"a layout of another language":  {strings.Replace(bank, "2006-01-02 15:04:05", "YYYY-MM-DD", 1), "does not have year, month and day"},
		"a pattern without a group":     {bank + "reference_pattern: 'A[0-9]+'\n", "the one group is the reference"},
		"a broken pattern":              {bank + "reference_pattern: '('\n", "reference_pattern: "},
		"half of what was charged":      {strings.Replace(bank, "gross: Amount", "gross: Amount, charged_gross: Paid", 1), "go together"},
		"a rate of nothing":             {strings.Replace(bank, "gross: Amount", "gross: Amount, rate: Rate", 1), "columns.rate"},
		"payouts without a payout":      {bank + "controls: {payouts: true}\n", "needs columns.payout"},
		"a trailer that says nothing":   {bank + "controls: {trailer: {when: {Type: T}}}\n", "controls.trailer"},
		"a direction with one side":     {bank + "direction: {column: Side, in: C}\n", "direction: "},
		"a rounding of nobody":          {bank + "rounding: down\n", "rounding: "},
		"a preamble of a thousand":      {bank + "skip_lines: 1000\n", "skip_lines: "},
		"a book":                        {"# " + strings.Repeat("x", 70_000), "over 65536 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := LoadProfile(strings.NewReader(c.text)); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %q in it", err, c.says)
			}
		})
	}
}

func TestAProfileMayBeJSON(t *testing.T) {
	t.Parallel()
	f := load(t, `{"name": "j", "columns": {"id": ["L"], "reference": "R", "currency": "C", "gross": "G", "occurred_at": "D"},
		"dates": {"layouts": ["2006-01-02T15:04:05Z07:00"]}, "kinds": [{"when": {"L": "*"}, "kind": "capture"}]}`)
	r := readWith(f, "L,R,C,G,D\n1,"+firstRef+",USD,5.00,2026-01-30T10:00:00+02:00\n")
	if f.Name() != "csv:j" || len(r.lines) != 1 || r.lines[0].OccurredAt.Hour() != 8 {
		t.Errorf("%s: %v %v %v", f.Name(), r.lines, r.bad, r.file)
	}
}

// TestTheDocumentedProfileLoads: what the document shows, somebody copies.
func TestTheDocumentedProfileLoads(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../docs/settlement-formats.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(doc), "```yaml\n")
	text, _, _ := strings.Cut(after, "```")
	if f := load(t, text); f.Name() != "csv:bank" {
		t.Errorf("it is %s", f.Name())
	}
	for _, f := range Formats() {
		if !strings.Contains(string(doc), "`"+f.Name()+"`") {
			t.Errorf("the document does not have %s", f.Name())
		}
	}
}

// TestWhatProfilesRead are files that only a profile explains.
func TestWhatProfilesRead(t *testing.T) {
	t.Parallel()
	const head = "Line,Type,Ref,Cur,Amount,Day\n"
	const day = "2026-01-30 10:00:00"
	comma := strings.Replace(bank, "kinds:", "delimiter: ';'\ndecimal: ','\nthousands: '.'\nkinds:", 1)
	spanish := strings.NewReplacer("Line", "Línea", "Amount", "Importe", "Ref", "Referencia", "Day", "Fecha", "Cur", "Moneda", "Type", "Tipo").Replace(comma)
	amazon := strings.Replace(bank, "kinds:", "skip_lines: 5\nkinds:", 1)
	dlocal := strings.NewReplacer("kinds:", "rounding: half_even\nfee_sign: negative_when_kept\nkinds:", "gross: Amount", "gross: Amount, fee: [Fee], net: Net, payout: TRANSFER_ID").Replace(bank)
	const dlocalHead = "Line,Type,Ref,Cur,Amount,Fee,Net,TRANSFER_ID,Day\n"
	sides := bank + "direction: {column: Side, in: C, out: D}\n"
	trailer := bank + "controls: {trailer: {when: {Type: Total}, count: Line, gross: Amount}}\n"
	const totalRow = ",Total,,,"
	payouts := strings.Replace(bank, "occurred_at: Day", "occurred_at: Day, payout: Ref2", 1) + "controls: {payouts: true}\n"
	zero := bank + "controls: {zero_sum: true}\n"
	pattern := bank + "reference_pattern: 'ref ([A-Z0-9]{20})'\n"
	cases := []struct {
		name, profile, file string
		lines               []string
		class, bad          Class
		says                string
	}{
		{name: "settlement input 36: a byte order mark, five lines before the header, and rows that are one field shorter", profile: amazon,
			file:  "\ufeff\"SellerId=A1\"\nfrom\nto\n\n\n" + strings.TrimSuffix(head, "\n") + ",\n1,Sale," + firstRef + ",USD,5.00," + day + "\n",
			lines: []string{"capture " + firstRef + " USD 5.00-0.00=5.00"}},
		{name: "settlement input 36: the preamble is missing", profile: amazon, file: head + "1,Sale," + firstRef + ",USD,5.00," + day + "\n", class: EmptyOrTruncated},
		{name: "settlement input 38: 4.626,81 with a profile that says so", profile: comma,
			file:  strings.ReplaceAll(head, ",", ";") + "1;Sale;" + firstRef + ";EUR;4.626,81;" + day + "\n2;Back;" + firstRef + ";EUR;-1.234.567,8;" + day + "\n",
			lines: []string{"capture " + firstRef + " EUR 4626.81-0.00=4626.81", "refund " + firstRef + " EUR -1234567.80-0.00=-1234567.80"}},
		{name: "settlement input 38: headers in Spanish", profile: spanish, file: "Línea;Tipo;Referencia;Moneda;Importe;Fecha\n1;Sale;" + firstRef + ";EUR;4,5;" + day + "\n",
			lines: []string{"capture " + firstRef + " EUR 4.50-0.00=4.50"}},
		{name: "groups that are not of three", profile: comma, file: strings.ReplaceAll(head, ",", ";") + "1;Sale;R;EUR;46.26,81;" + day + "\n", bad: BadAmount, says: "line 2, Amount"},
		{name: "a point where there is a comma", profile: comma, file: strings.ReplaceAll(head, ",", ";") + "1;Sale;R;EUR;1234.50;" + day + "\n", bad: BadAmount},
		{name: "settlement input 31: two transfers on one date are two", profile: dlocal,
			file:  dlocalHead + "1,Sale,R1,USD,10.000000,-0.500000,9.500000,T-1," + day + "\n2,Sale,R2,USD,10.000000,-0.500000,9.500000,T-2," + day + "\n",
			lines: []string{"capture R1 USD 10.00-0.50=9.50", "capture R2 USD 10.00-0.50=9.50"}},
		{name: "settlement input 32: six decimals are rounded once, and the fee is the rest", profile: dlocal,
			file:  dlocalHead + "1,Sale,R1,USD,10.000000,-0.057909,9.942091,T-1," + day + "\n2,Fee,,USD,0.000000,-0.057909,-0.057909,T-1," + day + "\n",
			lines: []string{"capture R1 USD 10.00-0.06=9.94", "fee  USD 0.00-0.06=-0.06"}},
		{name: "rounding is no excuse for a fee that is not", profile: dlocal, file: dlocalHead + "1,Sale,R1,USD,10.00,-0.50,9.00,T-1," + day + "\n", bad: IdentityBroken},
		{name: "which way unsigned amounts go", profile: sides, file: "Side," + head + "C,1,Sale,R,USD,5.00," + day + "\nD,2,Back,R,USD,2.00," + day + "\n",
			lines: []string{"capture R USD 5.00-0.00=5.00", "refund R USD -2.00-0.00=-2.00"}},
		{name: "a sign all the same", profile: sides, file: "Side," + head + "C,1,Sale,R,USD,-5.00," + day + "\n", bad: BadAmount},
		{name: "neither way", profile: sides, file: "Side," + head + "X,1,Sale,R,USD,5.00," + day + "\n", bad: BadAmount, says: "line 2, Side"},
		{name: "a rule for what begins so, and a row to pass over", profile: bank,
			file:  head + "1,Fee for May,,USD,-5.00," + day + "\n2,Info,,USD,9.00," + day + "\n",
			lines: []string{"fee  USD 0.00-5.00=-5.00"}},
		{name: "a kind that no rule has", profile: bank, file: head + "1,Gift,R,USD,5.00," + day + "\n", bad: UnknownKind, says: `"Gift"`},
		{name: "a trailer that holds", profile: trailer, file: head + "1,Sale,R,USD,5.00," + day + "\n1" + totalRow + "5.00,\n",
			lines: []string{"capture R USD 5.00-0.00=5.00"}},
		{name: "a trailer that counts more", profile: trailer, file: head + "1,Sale,R,USD,5.00," + day + "\n2" + totalRow + "5.00,\n", class: CountMismatch, says: "line 3"},
		{name: "a trailer that adds up to more", profile: trailer, file: head + "1,Sale,R,USD,5.00," + day + "\n1" + totalRow + "5.01,\n", class: SumMismatch, says: "Amount 5.01"},
		{name: "a trailer that is no sum", profile: trailer, file: head + "0" + totalRow + "1e3,\n", class: WrongLayout},
		{name: "no trailer", profile: trailer, file: head + "1,Sale,R,USD,5.00," + day + "\n", class: EmptyOrTruncated},
		{name: "something after the trailer", profile: trailer, file: head + "0" + totalRow + "0.00,\n1,Sale,R,USD,5.00," + day + "\n", class: WrongLayout, says: "data_after_trailer"},
		{name: "payouts that do not come to nothing", profile: payouts, file: "Ref2," + head + "P1,1,Sale,R,USD,5.00," + day + "\nP2,2,Back,R,USD,-5.00," + day + "\n", class: SumMismatch, says: "P1"},
		{name: "sums that come to nothing", profile: zero, file: head + "1,Sale,R,USD,5.00," + day + "\n2,Back,R,USD,-5.00," + day + "\n",
			lines: []string{"capture R USD 5.00-0.00=5.00", "refund R USD -5.00-0.00=-5.00"}},
		{name: "an amount that cannot be added up refuses a file with sums", profile: zero, file: head + "1,Sale,R,USD,5e0," + day + "\n", class: BadAmount, says: "line 2, Amount"},
		{name: "a reference in other text", profile: pattern, file: head + "1,Sale,Order ref " + firstRef + " of May,USD,5.00," + day + "\n",
			lines: []string{"capture " + firstRef + " USD 5.00-0.00=5.00"}},
		{name: "two references in one text are none", profile: pattern, file: head + "1,Sale,ref " + firstRef + " ref " + secondRef + ",USD,5.00," + day + "\n",
			lines: []string{"capture ref " + firstRef + " ref " + secondRef + " USD 5.00-0.00=5.00"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := readWith(load(t, c.profile), c.file)
			said := fmt.Sprint(r.file, r.bad)
			if ClassOf(r.file) != c.class || c.bad == "" && len(r.bad) > 0 || c.bad != "" && (len(r.bad) != 1 || r.bad[0].Class != c.bad) {
				t.Fatalf("file %v, lines %v", r.file, r.bad)
			}
			if !strings.Contains(said, c.says) {
				t.Errorf("it says %s, and not %q", said, c.says)
			}
			if c.class == "" && c.bad == "" && !slices.Equal(briefs(r.lines), c.lines) {
				t.Errorf("got %q, want %q", briefs(r.lines), c.lines)
			}
		})
	}
}

// TestTheHourThatIsThereTwice: on 25 October 2026 clocks in Berlin show 02:30 twice, on 29 March never.
func TestTheHourThatIsThereTwice(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ repeated, day, want string }{
		{"refuse", "2026-10-25 02:30:00", "bad_date"},
		{"first", "2026-10-25 02:30:00", "00:30"},
		{"second", "2026-10-25 02:30:00", "01:30"},
		{"refuse", "2026-10-25 03:30:00", "02:30"},
		{"first", "2026-03-29 02:30:00", "bad_date"},
		{"first", "2026-03-29 03:30:00", "01:30"},
	} {
		f := load(t, strings.Replace(bank, "zone:", "repeated_hour: "+c.repeated+", zone:", 1))
		r := readWith(f, "Line,Type,Ref,Cur,Amount,Day\n1,Sale,R,USD,5.00,"+c.day+"\n")
		got := ""
		if len(r.bad) == 1 {
			got = string(r.bad[0].Class)
		} else if len(r.lines) == 1 {
			got = r.lines[0].OccurredAt.Format("15:04")
		}
		if got != c.want {
			t.Errorf("%s, %s: %s, want %s: %v", c.day, c.repeated, got, c.want, r.file)
		}
	}
}

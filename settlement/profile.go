package settlement

import (
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // a profile names its zone, on whatever machine it is read

	"github.com/goccy/go-yaml"
)

// profile says how an acquirer's CSV report is to be read: docs/settlement-formats.md explains every field.
// It is data. Nothing that it does not say is guessed.
type profile struct {
	Name             string          `yaml:"name"`
	About            string          `yaml:"about"`
	Delimiter        string          `yaml:"delimiter"`
	SkipLines        int             `yaml:"skip_lines"`
	Decimal          string          `yaml:"decimal"`
	Thousands        string          `yaml:"thousands"`
	Rounding         string          `yaml:"rounding"`
	Columns          profileColumns  `yaml:"columns"`
	ReferencePattern string          `yaml:"reference_pattern"`
	FeeSign          string          `yaml:"fee_sign"`
	Direction        *profileSides   `yaml:"direction"`
	Dates            profileDates    `yaml:"dates"`
	Kinds            []profileKind   `yaml:"kinds"`
	ZeroGrossIsFee   bool            `yaml:"zero_gross_is_fee"`
	Controls         profileControls `yaml:"controls"`

	zone      *time.Location
	reference *regexp.Regexp
}

type profileColumns struct {
	ID              []string `yaml:"id"`
	Reference       string   `yaml:"reference"`
	CaptureID       string   `yaml:"capture_id"`
	Currency        string   `yaml:"currency"`
	Gross           string   `yaml:"gross"`
	Fee             []string `yaml:"fee"`
	Net             string   `yaml:"net"`
	ChargedCurrency string   `yaml:"charged_currency"`
	ChargedGross    string   `yaml:"charged_gross"`
	Rate            string   `yaml:"rate"`
	OccurredAt      string   `yaml:"occurred_at"`
	Payout          string   `yaml:"payout"`
	Account         string   `yaml:"account"`
}

// profileSides is a column that says which way unsigned amounts go.
type profileSides struct {
	Column string `yaml:"column"`
	In     string `yaml:"in"`
	Out    string `yaml:"out"`
}

type profileDates struct {
	Layouts      []string `yaml:"layouts"`
	Zone         string   `yaml:"zone"`
	RepeatedHour string   `yaml:"repeated_hour"`
}

// profileKind is a rule: the first whose columns all have the value, or begin with it if it ends in *.
type profileKind struct {
	When map[string]string `yaml:"when"`
	Kind Kind              `yaml:"kind"`
}

type profileControls struct {
	ZeroSum bool            `yaml:"zero_sum"`
	Payouts bool            `yaml:"payouts"`
	Trailer *profileTrailer `yaml:"trailer"`
}

// profileTrailer is the row at the end that says what should have come before it.
type profileTrailer struct {
	When  map[string]string `yaml:"when"`
	Count string            `yaml:"count"`
	Gross string            `yaml:"gross"`
	Fee   string            `yaml:"fee"`
	Net   string            `yaml:"net"`
}

// ignoreRow is a row that moves no money and proves nothing, by the profile's own word.
const ignoreRow Kind = "ignore"

// The words of a profile.
const (
	feeWhenKept    = "positive_when_kept"
	feeWhenTaken   = "negative_when_kept"
	roundHalfUp    = "half_up"
	roundHalfEven  = "half_even"
	refuseRepeated = "refuse"
	firstRepeated  = "first"
	secondRepeated = "second"
)

// profileBytesMax bounds a profile.
const profileBytesMax = 64 << 10

// LoadProfile makes a format of a profile in YAML or JSON; its name is "csv:" and the profile's. The error
// names every field that cannot be used, or where the text is no profile.
func LoadProfile(in io.Reader) (Format, error) {
	text, err := io.ReadAll(io.LimitReader(in, profileBytesMax+1))
	if err != nil {
		return nil, fmt.Errorf("read the profile: %w", err)
	}
	if len(text) > profileBytesMax {
		return nil, fmt.Errorf("the profile is over %d bytes", profileBytesMax)
	}
	var p profile
	if err := yaml.UnmarshalWithOptions(text, &p, yaml.Strict()); err != nil {
		return nil, fmt.Errorf("the profile cannot be read: %s", strings.TrimSpace(yaml.FormatError(err, false, false)))
	}
	p.defaults()
	if problems := p.check(); len(problems) > 0 {
		return nil, fmt.Errorf("the profile cannot be used: %s", strings.Join(problems, "; "))
	}
	return csvFormat{&p}, nil
}

func (p *profile) defaults() {
	for field, value := range map[*string]string{
		&p.Delimiter: ",", &p.Decimal: ".", &p.FeeSign: feeWhenKept, &p.Dates.RepeatedHour: refuseRepeated,
	} {
		if *field == "" {
			*field = value
		}
	}
	if p.Delimiter == `\t` || p.Delimiter == "tab" {
		p.Delimiter = "\t"
	}
}

var profileName = regexp.MustCompile(`^[a-z0-9_-]{1,32}$`)

// check gives everything that is wrong, by field.
func (p *profile) check() (problems []string) {
	wrong := func(field, format string, args ...any) {
		problems = append(problems, field+": "+fmt.Sprintf(format, args...))
	}
	oneOf := func(field, value string, allowed ...string) {
		if !slices.Contains(allowed, value) {
			wrong(field, "%q is none of %q", clip(value), allowed)
		}
	}
	if !profileName.MatchString(p.Name) {
		wrong("name", "%q is not 1 to 32 of a-z, 0-9, _ and -", clip(p.Name))
	}
	oneOf("delimiter", p.Delimiter, ",", ";", "\t", "|")
	oneOf("decimal", p.Decimal, ".", ",")
	oneOf("thousands", p.Thousands, "", ",", ".", " ", "'")
	if p.Thousands == p.Decimal {
		wrong("thousands", "is the decimal mark, too")
	}
	oneOf("rounding", p.Rounding, "", roundHalfUp, roundHalfEven)
	oneOf("fee_sign", p.FeeSign, feeWhenKept, feeWhenTaken)
	const linesMax = 100
	if p.SkipLines < 0 || p.SkipLines > linesMax {
		wrong("skip_lines", "%d is not 0 to %d", p.SkipLines, linesMax)
	}
	p.checkColumns(wrong)
	p.checkDates(wrong, oneOf)
	p.checkKinds(wrong)
	if p.ReferencePattern != "" {
		var err error
		if p.reference, err = regexp.Compile(p.ReferencePattern); err != nil {
			wrong("reference_pattern", "%v", err)
		} else if p.reference.NumSubexp() != 1 {
			wrong("reference_pattern", "has %d groups; the one group is the reference", p.reference.NumSubexp())
		}
	}
	if d := p.Direction; d != nil && (d.Column == "" || d.In == "" || d.Out == "" || d.In == d.Out) {
		wrong("direction", "column, in and out must be there, and in and out differ")
	}
	if t := p.Controls.Trailer; t != nil && (len(t.When) == 0 || t.Count+t.Gross+t.Fee+t.Net == "") {
		wrong("controls.trailer", "when, and a column with a count or a sum, must be there")
	}
	return problems
}

func (p *profile) checkColumns(wrong func(field, format string, args ...any)) {
	c := p.Columns
	if len(c.ID) == 0 {
		wrong("columns.id", "is missing: name the columns that together tell one line from all others")
	}
	required := map[string]string{"reference": c.Reference, "currency": c.Currency, "gross": c.Gross, "occurred_at": c.OccurredAt}
	for _, name := range slices.Sorted(maps.Keys(required)) {
		if required[name] == "" {
			wrong("columns."+name, "is missing")
		}
	}
	if (c.ChargedCurrency == "") != (c.ChargedGross == "") {
		wrong("columns.charged_gross", "charged_currency and charged_gross go together")
	}
	if c.Rate != "" && c.ChargedGross == "" {
		wrong("columns.rate", "there is no charged_gross that it could be applied to")
	}
	if p.Controls.Payouts && c.Payout == "" {
		wrong("controls.payouts", "needs columns.payout")
	}
}

func (p *profile) checkDates(wrong func(field, format string, args ...any), oneOf func(field, value string, allowed ...string)) {
	if len(p.Dates.Layouts) == 0 {
		wrong("dates.layouts", "is missing: write how 2 January 2006, 15:04:05 is written in the file")
	}
	offset := 0
	for _, layout := range p.Dates.Layouts {
		if stated(layout) {
			offset++
		}
		if at, err := time.Parse(layout, time.Date(firstYear, 2, 3, 4, 5, 6, 0, time.UTC).Format(layout)); err != nil || at.Day() != 3 || at.Month() != 2 || at.Year() != firstYear {
			wrong("dates.layouts", "%q does not have year, month and day", clip(layout))
		}
	}
	oneOf("dates.repeated_hour", p.Dates.RepeatedHour, refuseRepeated, firstRepeated, secondRepeated)
	var err error
	switch {
	case p.Dates.Zone == "" && offset < len(p.Dates.Layouts):
		wrong("dates.zone", "is missing, and the layout has no offset: name the zone, such as Europe/Amsterdam or UTC")
	case p.Dates.Zone == "Local":
		wrong("dates.zone", "Local is another zone on another machine")
	default:
		if p.zone, err = time.LoadLocation(p.Dates.Zone); err != nil {
			wrong("dates.zone", "%v", err)
		}
	}
}

// stated reports whether a layout has the offset in it.
func stated(layout string) bool {
	return strings.Contains(layout, "-07") || strings.Contains(layout, "Z07")
}

func (p *profile) checkKinds(wrong func(field, format string, args ...any)) {
	if len(p.Kinds) == 0 {
		wrong("kinds", "is missing")
	}
	for i, k := range p.Kinds {
		field := fmt.Sprintf("kinds[%d]", i)
		if len(k.When) == 0 {
			wrong(field+".when", "is missing")
		}
		if k.Kind != ignoreRow && !k.Kind.known() {
			wrong(field+".kind", "%q is not a kind", clip(string(k.Kind)))
		}
	}
}

// used are the columns that the file must have.
func (p *profile) used() (names []string) {
	c := p.Columns
	names = append(slices.Clone(c.ID), c.Fee...)
	names = append(names, c.Reference, c.CaptureID, c.Currency, c.Gross, c.Net, c.ChargedCurrency, c.ChargedGross, c.Rate, c.OccurredAt, c.Payout, c.Account)
	for _, k := range p.Kinds {
		names = slices.AppendSeq(names, maps.Keys(k.When))
	}
	if t := p.Controls.Trailer; t != nil {
		names = append(slices.AppendSeq(names, maps.Keys(t.When)), t.Count, t.Gross, t.Fee, t.Net)
	}
	if p.Direction != nil {
		names = append(names, p.Direction.Column)
	}
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool { return name == "" })
}

// matches reports whether the row has what a rule asks for.
func (r *row) matches(when map[string]string) bool {
	for column, want := range when {
		got := r.text(column)
		if begin, open := strings.CutSuffix(want, "*"); open && strings.HasPrefix(got, begin) {
			continue
		}
		if got != want {
			return false
		}
	}
	return true
}

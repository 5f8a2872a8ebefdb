package settlement

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/shopspring/decimal"

	"paymentsd/money"
)

// csvFormat is a report that is read by a profile.
type csvFormat struct{ *profile }

// Name is "csv:" and the profile's name.
func (f csvFormat) Name() string { return "csv:" + f.profile.Name }

//go:embed profiles/*.yaml
var profileFiles embed.FS

// shippedProfiles are those in profiles, by name. That all of them load is tested.
var shippedProfiles = sync.OnceValue(func() (formats []Format) {
	names, _ := fs.Glob(profileFiles, "profiles/*.yaml") // the pattern is sound
	for _, name := range names {
		text, err := profileFiles.ReadFile(name)
		var f Format
		if err == nil {
			f, err = LoadProfile(bytes.NewReader(text))
		}
		if err != nil {
			panic(fmt.Sprintf("settlement: the profile %s, which is built in: %v", path.Base(name), err))
		}
		formats = append(formats, f)
	}
	return formats
})

// csvReport is a report being read.
type csvReport struct {
	*table
	*profile
	account string
	rows    int
	total   csvTotal
	net     map[string]decimal.Decimal // by currency and, if payouts are controlled, payout
	ended   int                        // the line of the trailer, 0 before it
}

// csvTotal is what a trailer may declare, whatever the currency.
type csvTotal struct{ gross, fee, net decimal.Decimal }

// Open reads the column names, and the first row if the account is in it.
func (f csvFormat) Open(in io.Reader) (Header, iter.Seq2[Line, error], error) {
	t, err := openTable(in, f.Delimiter[0])
	if err != nil {
		return Header{}, nil, err
	}
	for range f.SkipLines {
		if _, err := t.next(); errors.Is(err, io.EOF) {
			return Header{}, nil, t.nothing("a row of column names")
		} else if err != nil {
			return Header{}, nil, err
		}
	}
	if err := t.head(f.used(), nil); err != nil {
		return Header{}, nil, err
	}
	t.controlled = f.Controls != (profileControls{})
	c := f.Columns
	t.names = map[string]string{"id": strings.Join(c.ID, ", "), "reference": c.Reference, "capture_id": c.CaptureID, "currency": c.Currency,
		"gross": c.Gross, "fee": strings.Join(c.Fee, ", "), "net": c.Net, "occurred_at": c.OccurredAt, "payout": c.Payout}
	r := &csvReport{table: t, profile: f.profile, net: map[string]decimal.Decimal{}}
	h := Header{IgnoredColumns: t.ignored}
	if c.Account == "" {
		return h, t.lines(nil, r.line, r.end), nil
	}
	first, err := t.row()
	switch {
	case errors.Is(err, io.EOF):
		return h, t.lines(nil, r.line, r.end), nil
	case err != nil:
		return Header{}, nil, err
	}
	r.account = first.reference(c.Account)
	if r.account == "" || plainText(r.account) != nil {
		return Header{}, nil, &ParseError{Line: first.line, Field: c.Account, Class: WrongLayout, Reason: fmt.Sprintf("%q names no account", clip(r.account))}
	}
	h.Account = r.account
	return h, t.lines(first, r.line, r.end), nil
}

// errIgnored says that the profile has a row passed over.
var errIgnored = errors.New("a row that moves no money")

// line reads a row; an error is about the file.
func (r *csvReport) line(row *row) (Line, error) {
	if r.ended > 0 {
		return Line{}, &ControlError{Control: ControlAfterEnd, Line: row.line, Declared: "the end of the file", Computed: "more data", Class: WrongLayout}
	}
	if t := r.Controls.Trailer; t != nil && row.matches(t.When) {
		r.ended = row.line
		return Line{}, r.trailer(row)
	}
	c := r.Columns
	if got := row.reference(c.Account); c.Account != "" && got != r.account {
		return Line{}, &ParseError{Line: row.line, Field: c.Account, Class: WrongLayout,
			Reason: fmt.Sprintf("%q, but the file began with %q: have one report made for each account", clip(got), clip(r.account))}
	}
	r.rows++
	line := Line{Reference: r.referenceOf(row), CaptureID: row.text(c.CaptureID), Payout: row.text(c.Payout)}
	line.Kind, line.SourceKind = r.kindOf(row)
	if line.Kind == ignoreRow {
		return Line{}, errIgnored
	}
	r.amounts(row, &line)
	line.ID = r.key(row)
	line.OccurredAt = r.occurredAt(row)
	return line, nil
}

// key is what tells the line from others. An amount in it is the same however it is written.
func (r *csvReport) key(row *row) string {
	parts := make([]string, len(r.Columns.ID))
	for i, column := range r.Columns.ID {
		parts[i] = row.text(column)
		if column != r.Columns.Gross && column != r.Columns.Net {
			continue
		}
		if plain, err := r.plain(parts[i]); err == nil {
			if d, err := exact(plain); err == nil {
				parts[i] = d.String()
			}
		}
	}
	return naturalKey(parts...)
}

func (r *csvReport) referenceOf(row *row) string {
	text := row.reference(r.Columns.Reference)
	if r.reference == nil {
		return text
	}
	// Exactly one place may have it: of two, nobody can tell which is meant.
	if found := r.reference.FindAllStringSubmatch(text, 2); len(found) == 1 {
		return found[0][1]
	}
	return text
}

// kindOf is the kind by the first rule that fits, and what the file has in the columns of all rules.
func (r *csvReport) kindOf(row *row) (Kind, string) {
	columns := map[string]bool{}
	for _, k := range r.Kinds {
		for column := range k.When {
			columns[column] = true
		}
	}
	var said []string
	for _, column := range slices.Sorted(maps.Keys(columns)) {
		said = append(said, row.text(column))
	}
	source := strings.Join(said, "/")
	for _, k := range r.Kinds {
		if row.matches(k.When) {
			return k.Kind, source
		}
	}
	return Unknown, source
}

// amounts reads what the line is paid as, and what it was charged as if that is another currency.
func (r *csvReport) amounts(row *row, line *Line) {
	c := r.Columns
	currency := row.currency(c.Currency)
	gross := r.amount(row, c.Gross, currency)
	fee := money.Zero(currency)
	for _, column := range c.Fee {
		if row.text(column) != "" {
			fee, _ = fee.Add(r.amount(row, column, currency)) // of one currency: it was read in it
		}
	}
	if r.FeeSign == feeWhenTaken {
		fee = fee.Neg()
	}
	if r.Direction != nil && row.text(r.Direction.Column) == r.Direction.Out {
		gross = gross.Neg()
	}
	net := r.net3(row, gross, &fee)
	if row.unread {
		return
	}
	if r.ZeroGrossIsFee && gross.Sign() == 0 {
		line.Kind = Fee
	}
	r.add(row, line.Kind, gross, fee, net)
	if line.Kind == Fee && fee.Sign() == 0 {
		gross, fee = money.Zero(currency), gross.Neg() // a fee on its own is given as a gross
	}
	if c.ChargedGross == "" || row.text(c.ChargedCurrency) == "" {
		row.paid(line, gross, fee, net)
		return
	}
	charged := r.amount(row, c.ChargedGross, row.currency(c.ChargedCurrency))
	if r.Direction != nil && row.text(r.Direction.Column) == r.Direction.Out {
		charged = charged.Neg()
	}
	if _, aboutCharge := line.Kind.sign(); !aboutCharge || charged.Currency() == currency {
		row.paid(line, gross, fee, net)
		return
	}
	if left, _ := gross.Sub(fee); !left.Equal(net) {
		row.spoil(c.Net, IdentityBroken, fmt.Sprintf("gross %s - fee %s = %s", gross, fee, left))
	}
	row.paidAs(line, charged, fee, net, row.text(c.Rate), c.Rate)
}

// net3 is what is left of the gross: as the file has it, or without the fee. With rounding, the file's net
// counts, rounded once, and the fee is the rest.
func (r *csvReport) net3(row *row, gross money.Amount, fee *money.Amount) money.Amount {
	if r.Columns.Net == "" {
		net, _ := gross.Sub(*fee)
		return net
	}
	net := r.amount(row, r.Columns.Net, gross.Currency())
	if r.Direction != nil && row.text(r.Direction.Column) == r.Direction.Out {
		net = net.Neg()
	}
	rest, _ := gross.Sub(net)
	switch {
	case len(r.Columns.Fee) == 0:
		*fee = rest
	case r.Rounding != "" && !row.unread:
		unit := decimal.New(1, -int32(gross.Currency().Exponent()))
		if off := rest.Decimal().Sub(fee.Decimal()).Abs(); off.LessThanOrEqual(unit) {
			*fee = rest
		}
	}
	return net
}

// amount reads a number as the profile says that numbers are written.
func (r *csvReport) amount(row *row, column string, c money.Currency) money.Amount {
	text := row.text(column)
	plain, err := r.plain(text)
	if err == nil && r.Rounding != "" {
		plain, err = r.rounded(plain, c)
	}
	if err == nil && r.Direction != nil && strings.HasPrefix(plain, "-") {
		err = fmt.Errorf("a sign, though %s says which way the money goes", r.Direction.Column)
	}
	if r.Direction != nil && !slices.Contains([]string{r.Direction.In, r.Direction.Out}, row.text(r.Direction.Column)) {
		row.unreadable(r.Direction.Column, fmt.Errorf("neither %q nor %q", r.Direction.In, r.Direction.Out))
	}
	var a money.Amount
	if err == nil {
		a, err = parseMajor(plain, c)
	}
	if err != nil {
		row.unreadable(column, err)
		return money.Zero(c)
	}
	return a
}

// plain takes the separators of thousands out, where they may be, and writes the decimal mark as a point.
func (r *csvReport) plain(text string) (string, error) {
	const group = 3
	whole, fraction, marked := strings.Cut(text, r.Decimal)
	if r.Decimal != "." && strings.Contains(fraction, ".") {
		return "", fmt.Errorf("%w: %q", money.ErrSyntax, clip(text))
	}
	if r.Thousands != "" && strings.Contains(whole, r.Thousands) {
		groups := strings.Split(strings.TrimPrefix(whole, "-"), r.Thousands)
		for i, g := range groups {
			if len(g) != group && (i > 0 || g == "" || len(g) > group) {
				return "", fmt.Errorf("%w: %q is not in groups of three", money.ErrSyntax, clip(text))
			}
		}
		whole = strings.ReplaceAll(whole, r.Thousands, "")
	}
	if r.Decimal != "." && strings.Contains(whole, ".") {
		return "", fmt.Errorf("%w: %q", money.ErrSyntax, clip(text))
	}
	if marked {
		whole += "." + fraction
	}
	return whole, nil
}

// rounded brings a number with more decimals than the currency has to those, once.
func (r *csvReport) rounded(plain string, c money.Currency) (string, error) {
	if !rateText(strings.TrimPrefix(plain, "-")) {
		return "", fmt.Errorf("%w: %q", money.ErrSyntax, clip(plain))
	}
	d, err := decimal.NewFromString(plain)
	if err != nil {
		return "", fmt.Errorf("%w: %q", money.ErrSyntax, clip(plain))
	}
	if r.Rounding == roundHalfEven {
		return d.RoundBank(int32(c.Exponent())).String(), nil
	}
	return d.Round(int32(c.Exponent())).String(), nil
}

// occurredAt reads the date by the first layout that fits.
func (r *csvReport) occurredAt(row *row) time.Time {
	column := r.Columns.OccurredAt
	text := row.text(column)
	for _, layout := range r.Dates.Layouts {
		wall, err := time.Parse(layout, text)
		if err != nil {
			continue
		}
		if stated(layout) {
			return wall.UTC()
		}
		t, problem := r.local(wall)
		if problem != "" {
			row.spoil(column, BadDate, problem)
		}
		return t
	}
	row.spoil(column, BadDate, fmt.Sprintf("%q is not a time like %s", clip(text), strings.Join(r.Dates.Layouts, " or ")))
	return time.Time{}
}

// local is the time at which clocks of the profile's zone show wall. In spring an hour is never shown, in
// autumn one is shown twice.
func (r *csvReport) local(wall time.Time) (t time.Time, problem string) {
	shows := func(t time.Time) bool {
		_, offset := t.In(r.zone).Zone()
		return t.Add(time.Duration(offset) * time.Second).UTC().Equal(wall)
	}
	t = time.Date(wall.Year(), wall.Month(), wall.Day(), wall.Hour(), wall.Minute(), wall.Second(), wall.Nanosecond(), r.zone).UTC()
	if !shows(t) {
		return time.Time{}, "no clock in " + r.Dates.Zone + " showed this time: they were put forward over it"
	}
	first, second := t, t
	if before := t.Add(-time.Hour); shows(before) {
		first = before
	}
	if after := t.Add(time.Hour); shows(after) {
		second = after
	}
	switch {
	case first.Equal(second) || r.Dates.RepeatedHour == firstRepeated:
		return first, ""
	case r.Dates.RepeatedHour == secondRepeated:
		return second, ""
	}
	return time.Time{}, "clocks in " + r.Dates.Zone + " showed this time twice: set repeated_hour if it is known which one is meant"
}

package money

import (
	"errors"
	"fmt"
	"log"
	"math/big"
	"strings"
	"testing"

	"github.com/shopspring/decimal"
	"pgregory.net/rapid"
)

func mustParse(t testing.TB, s string, c Currency) Amount {
	t.Helper()
	a, err := Parse(s, c)
	if err != nil {
		t.Fatalf("Parse(%q, %s): %v", s, c, err)
	}
	return a
}

func TestParseAccepts(t *testing.T) {
	t.Parallel()
	cases := []struct {
		in       string
		currency Currency
		printed  string
		minor    int64
	}{
		{"49.99", "USD", "49.99", 4999},
		{"10", "USD", "10.00", 1000},
		{"10.0", "USD", "10.00", 1000},
		{"10.00", "USD", "10.00", 1000},
		{"0.01", "USD", "0.01", 1},
		{"0", "USD", "0.00", 0},
		{"-0.00", "USD", "0.00", 0},
		{"-25", "USD", "-25.00", -2500},
		{"80", "JPY", "80", 80}, // idempotency case 32: 80 yen are 80 units, not 8000
		{"5.124", "KWD", "5.124", 5124},
		{"5.1", "KWD", "5.100", 5100},
		{"1.2345", "CLF", "1.2345", 12345},
		{"999999999999.99", "USD", "999999999999.99", 99999999999999},
		{"-999999999999.9999", "CLF", "-999999999999.9999", -9999999999999999},
	}
	for _, c := range cases {
		t.Run(c.in+" "+string(c.currency), func(t *testing.T) {
			t.Parallel()
			a := mustParse(t, c.in, c.currency)
			if a.String() != c.printed || a.Currency() != c.currency {
				t.Errorf("got %s %s, want %s", a, a.Currency(), c.printed)
			}
			if got, err := a.Minor(c.currency.Exponent()); err != nil || got != c.minor {
				t.Errorf("Minor = %d, %v, want %d", got, err, c.minor)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name, in string
		currency Currency
		want     error
	}{
		{"idempotency case 35: exponent", "1e3", "USD", ErrSyntax},
		{"idempotency case 35: quoted number", `"1000"`, "USD", ErrSyntax},
		{"idempotency case 35: 2^63", "9223372036854775808", "USD", ErrTooLarge},
		{"idempotency case 35: 2^63 with cents", "92233720368547758.08", "USD", ErrTooLarge},
		{"13 digits", "1000000000000", "JPY", ErrTooLarge},
		{"settlement 1.3: exponent with leading zeros", "1.2302025304E+022", "USD", ErrSyntax},
		{"capital exponent", "1E3", "USD", ErrSyntax},
		{"hexadecimal", "0x10", "USD", ErrSyntax},
		{"not a number", "NaN", "USD", ErrSyntax},
		{"infinity", "Inf", "USD", ErrSyntax},
		{"minus infinity", "-Infinity", "USD", ErrSyntax},
		{"empty", "", "USD", ErrSyntax},
		{"minus alone", "-", "USD", ErrSyntax},
		{"two signs", "--1", "USD", ErrSyntax},
		{"plus", "+1", "USD", ErrSyntax},
		{"point alone", ".", "USD", ErrSyntax},
		{"nothing before the point", ".5", "USD", ErrSyntax},
		{"nothing after the point", "5.", "USD", ErrSyntax},
		{"two points", "1.2.3", "USD", ErrSyntax},
		{"thousands separator", "1,234.50", "USD", ErrSyntax},
		{"decimal comma", "4,50", "USD", ErrSyntax},
		{"underscore", "1_000", "USD", ErrSyntax},
		{"letter O", "12.5O", "USD", ErrSyntax},
		{"blank before", " 1", "USD", ErrSyntax},
		{"blank after", "1 ", "USD", ErrSyntax},
		{"line break", "1\n", "USD", ErrSyntax},
		{"leading zero", "01", "USD", ErrSyntax},
		{"two zeros", "00.10", "USD", ErrSyntax},
		{"currency sign", "$1", "USD", ErrSyntax},
		{"digits of another script", "١٢", "USD", ErrSyntax},
		{"full-width digits", "１２", "USD", ErrSyntax},
		{"endless", strings.Repeat("9", 1<<16), "USD", ErrSyntax},
		{"tenth of a cent", "10.001", "USD", ErrTooPrecise},
		{"tenth of a cent that is nothing", "10.000", "USD", ErrTooPrecise},
		{"idempotency case 32: decimals of yen", "80.0", "JPY", ErrTooPrecise},
		{"fourth decimal of dinar", "5.1240", "KWD", ErrTooPrecise},
		{"no currency", "5", "", ErrCurrency},
		{"currency in lower case", "5", "usd", ErrCurrency},
		{"currency unknown", "5", "QQQ", ErrCurrency},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a, err := Parse(c.in, c.currency)
			if !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			if a.Currency() != "" || a.Sign() != 0 {
				t.Errorf("an amount beside the error: %s %s", a, a.Currency())
			}
			if err != nil && len(err.Error()) > 200 {
				t.Errorf("the error repeats %d bytes of the input", len(err.Error()))
			}
		})
	}
}

// Idempotency case 35: int(19.99*100) is 1998, and so for 573 of the first 10,000 cent prices.
func TestFirstTenThousandCentAmountsRoundTrip(t *testing.T) {
	t.Parallel()
	for cents := range int64(10_000) {
		text := fmt.Sprintf("%d.%02d", cents/100, cents%100)
		a := mustParse(t, text, "USD")
		minor, err := a.Minor(2)
		if err != nil || minor != cents || a.String() != text {
			t.Fatalf("%s became %d, %v and %s", text, minor, err, a)
		}
		if back, err := FromMinor(minor, 2, "USD"); err != nil || !back.Equal(a) {
			t.Fatalf("%d cents became %s, %v", minor, back, err)
		}
	}
}

func TestExponentOfTheFeedMayDiffer(t *testing.T) {
	t.Parallel()
	// Settlement case 19: this feed has two implied decimals even for yen.
	yen, err := FromMinor(15000, 2, "JPY")
	if err != nil || yen.String() != "150" {
		t.Errorf("15000 at exponent 2 = %s, %v, want 150 yen", yen, err)
	}
	if _, err := FromMinor(15050, 2, "JPY"); !errors.Is(err, ErrTooPrecise) {
		t.Errorf("half a yen: got %v", err)
	}
	// Idempotency case 34: KWD 5.124 cannot be said to who has two decimals, and is not rounded.
	if _, err := mustParse(t, "5.124", "KWD").Minor(2); !errors.Is(err, ErrTooPrecise) {
		t.Errorf("5.124 in hundredths: got %v", err)
	}
	if got, err := mustParse(t, "5.120", "KWD").Minor(2); err != nil || got != 512 {
		t.Errorf("5.120 in hundredths = %d, %v", got, err)
	}
	if got, err := mustParse(t, "150", "JPY").Minor(2); err != nil || got != 15000 {
		t.Errorf("150 yen at exponent 2 = %d, %v", got, err)
	}
	if _, err := mustParse(t, "999999999999", "JPY").Minor(8); !errors.Is(err, ErrTooLarge) {
		t.Errorf("beyond int64: got %v", err)
	}
}

func TestNewRefusesRatherThanRounds(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name     string
		value    decimal.Decimal
		currency Currency
		want     error
	}{
		{"exact", decimal.New(1050, -2), "USD", nil},
		{"trailing zeros are no precision", decimal.New(10500, -3), "USD", nil},
		{"tenth of a cent", decimal.New(10501, -3), "USD", ErrTooPrecise},
		{"largest", decimal.New(999999999999, 0), "JPY", nil},
		{"one more", decimal.New(1, 12), "JPY", ErrTooLarge},
		{"one more, negative", decimal.New(-1, 12), "JPY", ErrTooLarge},
		{"no currency", decimal.New(1, 0), "", ErrCurrency},
		{"unknown currency", decimal.New(1, 0), "QQQ", ErrCurrency},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a, err := New(c.value, c.currency)
			if !errors.Is(err, c.want) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
			if err == nil && !a.Decimal().Equal(c.value) {
				t.Errorf("got %s", a.Decimal())
			}
		})
	}
}

func TestCurrenciesAreOfISO4217(t *testing.T) {
	t.Parallel()
	exponents := map[Currency]int{"USD": 2, "EUR": 2, "JPY": 0, "CLP": 0, "ISK": 0, "KWD": 3, "BHD": 3, "CLF": 4, "HUF": 2, "": 0, "QQQ": 0}
	for c, want := range exponents {
		if got := c.Exponent(); got != want {
			t.Errorf("exponent of %q = %d, want %d", c, got, want)
		}
	}
	for _, bad := range []string{"", "usd", "Usd", "US", "USDX", " USD", "QQQ", "840", strings.Repeat("U", 100)} {
		if c, err := ParseCurrency(bad); !errors.Is(err, ErrCurrency) || c != "" {
			t.Errorf("ParseCurrency(%q) = %q, %v", bad, c, err)
		}
	}
	if c, err := ParseCurrency("USD"); err != nil || c != "USD" {
		t.Errorf("got %q, %v", c, err)
	}
}

func TestAmountsOfTwoCurrenciesDoNotMeet(t *testing.T) {
	t.Parallel()
	usd, eur := mustParse(t, "1.00", "USD"), mustParse(t, "1.00", "EUR")
	if _, err := usd.Add(eur); !errors.Is(err, ErrCurrencyMismatch) {
		t.Errorf("Add: got %v", err)
	}
	if _, err := usd.Sub(eur); !errors.Is(err, ErrCurrencyMismatch) {
		t.Errorf("Sub: got %v", err)
	}
	if _, err := usd.Add(Amount{}); !errors.Is(err, ErrCurrencyMismatch) {
		t.Errorf("Add of the zero value: got %v", err)
	}
	if usd.Equal(eur) || Zero("USD").Equal(Zero("EUR")) {
		t.Error("one is not the other")
	}
}

func drawAmount(t *rapid.T, c Currency, label string) (Amount, int64) {
	most := int64(1e12)
	for range c.Exponent() {
		most *= 10
	}
	units := rapid.Int64Range(-most+1, most-1).Draw(t, label)
	a, err := FromMinor(units, c.Exponent(), c)
	if err != nil {
		t.Fatal(err)
	}
	return a, units
}

func drawCurrency(t *rapid.T) Currency {
	return rapid.SampledFrom([]Currency{"USD", "JPY", "KWD", "CLF"}).Draw(t, "currency")
}

func TestPrintedAmountsParseToThemselves(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, units := drawAmount(t, drawCurrency(t), "units")
		b, err := Parse(a.String(), a.Currency())
		if err != nil || !a.Equal(b) || a.String() != b.String() {
			t.Fatalf("%s parsed to %s, %v", a, b, err)
		}
		if got, err := b.Minor(a.Currency().Exponent()); err != nil || got != units {
			t.Fatalf("%d units became %d, %v", units, got, err)
		}
	})
}

func TestArithmeticIsThatOfIntegers(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := drawCurrency(t)
		a, x := drawAmount(t, c, "a")
		b, y := drawAmount(t, c, "b")
		sum, err := a.Add(b)
		if err != nil {
			t.Fatal(err)
		}
		difference, err := a.Sub(b)
		if err != nil {
			t.Fatal(err)
		}
		want := []int64{x + y, x - y, -x}
		for i, got := range []Amount{sum, difference, a.Neg()} {
			if units, err := got.Minor(c.Exponent()); err != nil || units != want[i] {
				t.Fatalf("%s is %d units, %v, want %d", got, units, err, want[i])
			}
		}
		if back, err := sum.Sub(b); err != nil || !back.Equal(a) {
			t.Fatalf("%s + %s - %s = %s, %v", a, b, b, back, err)
		}
		sign := big.NewInt(x).Sign()
		if a.Sign() != sign || a.IsPositive() != (x > 0) || a.Equal(b) != (x == y) {
			t.Fatalf("%s: sign %d, positive %v; equal to %s %v", a, a.Sign(), a.IsPositive(), b, a.Equal(b))
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"49.99", "-0.01", "0", "1e3", "1,000.00", "NaN", "9223372036854775808", "00", ".5", "5.", "١٢", ""} {
		f.Add(s, "USD")
		f.Add(s, "JPY")
	}
	f.Fuzz(func(t *testing.T, s, code string) {
		a, err := Parse(s, Currency(code))
		if err != nil {
			return
		}
		// What is accepted is the number that the text says, to big.Rat as well, and exact in units.
		want, ok := new(big.Rat).SetString(s)
		if !ok || strings.ContainsAny(s, "eEpPxX_/+ ,") || want.Cmp(a.Decimal().Rat()) != 0 {
			t.Fatalf("%q became %s", s, a)
		}
		units, err := a.Minor(a.Currency().Exponent())
		if err != nil {
			t.Fatalf("%q has no units: %v", s, err)
		}
		back, err := FromMinor(units, a.Currency().Exponent(), a.Currency())
		if err != nil || !back.Equal(a) || back.String() != a.String() {
			t.Fatalf("%q: %s became %s, %v", s, a, back, err)
		}
	})
}

func ExampleParse() {
	for _, s := range []string{"49.9", "49.999", "1e3", "1,000.00"} {
		a, err := Parse(s, "USD")
		if err != nil {
			fmt.Println("refused:", err)
			continue
		}
		fmt.Println(a, a.Currency())
	}
	// Output:
	// 49.90 USD
	// refused: more decimals than the currency has: USD has 2
	// refused: not a plain decimal number: "1e3"
	// refused: not a plain decimal number: "1,000.00"
}

// An acquirer that wants integers gets them at its own exponent, or nothing.
func ExampleAmount_Minor() {
	yen, err := Parse("80", "JPY")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(yen.Minor(0))
	fmt.Println(yen.Minor(2))
	// Output:
	// 80 <nil>
	// 8000 <nil>
}

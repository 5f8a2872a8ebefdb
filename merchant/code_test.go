package merchant

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestCode(t *testing.T) {
	t.Parallel()
	for id, want := range map[ID]string{0: "A00000", 31: "A0000Z", 32: "A00010", 1 << 25: "B00000", MaxID: "ZZZZZZ"} {
		if got := id.Code(); got != want {
			t.Errorf("%d is %s, want %s", id, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		id := ID(rapid.Int64Range(0, int64(MaxID)).Draw(t, "id"))
		code := id.Code()
		if back, err := ParseCode(code); err != nil || back != id || len(code) != CodeLength || strings.ToUpper(code) != code {
			t.Fatalf("%d is %q, which reads as %d, %v", id, code, back, err)
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		code := rapid.StringOfN(rapid.RuneFrom([]rune(digits+"IOLUaz-é")), 0, 8, -1).Draw(t, "code")
		id, err := ParseCode(code)
		if err == nil && id.Code() != code {
			t.Fatalf("%q reads as %d, which is %q", code, id, id.Code())
		}
		if err != nil && !errors.Is(err, ErrInvalidCode) {
			t.Fatalf("%q: %v", code, err)
		}
	})
	for _, code := range []string{"", "A0000", "A000000", "000000", "a00000", "I00000", "A0000I", "A0000U", "A0000\x00", "Ａ000"} {
		if id, err := ParseCode(code); !errors.Is(err, ErrInvalidCode) {
			t.Errorf("%q reads as %d, %v", code, id, err)
		}
	}
	for range 1000 {
		if id := NewID(); id < 0 || id > MaxID {
			t.Fatalf("%d was drawn", id)
		}
	}
}

func TestCredentials(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 1000 {
		id, secret, presented := newCredential()
		gotID, gotSecret, ok := splitCredential(presented)
		if !ok || gotID != id || gotSecret != secret || len(id) != keyIDLength || len(secret) != secretLength || seen[id] || seen[secret] {
			t.Fatalf("%q reads as %q, %q, %v", presented, gotID, gotSecret, ok)
		}
		seen[id], seen[secret] = true, true
	}
	whole := "pk_" + strings.Repeat("0", keyIDLength) + "_" + strings.Repeat("1", secretLength)
	if _, _, ok := splitCredential(whole); !ok {
		t.Error("a whole credential is refused")
	}
	for _, bad := range []string{"", "pk", "pk__", whole + "_", whole + "0", whole[1:], strings.Replace(whole, "pk", "sk", 1), strings.ReplaceAll(whole, "_", "-"),
		// Regression: bytes that Postgres refuses looked like a store in trouble.
		"pk_\x00" + whole[4:], "pk_\xff" + whole[4:], "pk_0\xff" + whole[5:],
	} {
		if id, _, ok := splitCredential(bad); ok {
			t.Errorf("%q is a credential of %q", bad, id)
		}
	}
}

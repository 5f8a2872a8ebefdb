package acquirer

import "log/slog"

const redacted = "[redacted]"

// String never shows the secret.
func (Secret) String() string { return redacted }

// GoString never shows the secret, also under %#v.
func (Secret) GoString() string { return redacted }

// LogValue never shows the secret.
func (Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText never shows the secret.
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// Reveal is the one way to read the secret: where it is sent.
func (s Secret) Reveal() string { return string(s) }

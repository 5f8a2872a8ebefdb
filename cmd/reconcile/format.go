package main

import (
	"os"

	"paymentsd/settlement"
)

// format is what the files are read as, and the format of a profile of our own, if one is named.
func (c *runCommand) format() (name string, own []settlement.Format, err error) {
	if c.Profile == "" {
		if name = c.Format; name == "" {
			name = "canonical"
		}
		if _, err := settlement.FormatNamed(name); err != nil {
			return "", nil, refuse("--format: %w", err)
		}
		return name, nil, nil
	}
	file, err := os.Open(c.Profile)
	if err != nil {
		return "", nil, refuse("--profile: %w", err)
	}
	defer file.Close()
	f, err := settlement.LoadProfile(file)
	if err != nil {
		return "", nil, refuse("--profile %s: %w", c.Profile, err)
	}
	if _, err := settlement.FormatNamed(f.Name()); err == nil {
		return "", nil, refuse("--profile %s: the name of the profile is that of one that is built in, %s: give yours another", c.Profile, f.Name())
	}
	if c.Format != "" && c.Format != f.Name() {
		return "", nil, refuse("--format %s is not that of the profile, %s: leave one of the two out", c.Format, f.Name())
	}
	return f.Name(), []settlement.Format{f}, nil
}

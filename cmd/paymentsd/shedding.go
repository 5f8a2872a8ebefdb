package main

import (
	"errors"
	"fmt"

	"paymentsd/resilience"
)

// sheddingConfig is who is let in under overload; see resilience.ShedderConfig.
type sheddingConfig struct {
	Enabled         bool `yaml:"enabled"`
	LimitMin        int  `yaml:"limit_min"`        // requests in our own hands at once
	LimitMax        int  `yaml:"limit_max"`        // the same
	NormalPercent   int  `yaml:"normal_percent"`   // of the limit
	LowPercent      int  `yaml:"low_percent"`      // of the limit
	SlowdownPercent int  `yaml:"slowdown_percent"` // of the time that a request takes alone
}

func defaultShedding() sheddingConfig {
	c := resilience.DefaultShedder()
	return sheddingConfig{
		Enabled: true, LimitMin: c.Min, LimitMax: c.Max,
		NormalPercent: c.NormalPercent, LowPercent: c.LowPercent, SlowdownPercent: c.Slowdown,
	}
}

func (c sheddingConfig) settings() resilience.ShedderConfig {
	return resilience.ShedderConfig{
		Off: !c.Enabled, Min: c.LimitMin, Max: c.LimitMax,
		NormalPercent: c.NormalPercent, LowPercent: c.LowPercent, Slowdown: c.SlowdownPercent,
	}
}

// problems are those of every setting.
func (c sheddingConfig) problems() (all []error) {
	err := c.settings().Validate()
	if unusable, ok := errors.AsType[*resilience.ConfigError](err); ok {
		for _, p := range unusable.Problems {
			all = append(all, fmt.Errorf("%s is %v: it must be %s", p.Field, p.Value, p.Want))
		}
	}
	return all
}

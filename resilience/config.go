package resilience

import (
	"fmt"
	"strings"
	"time"
)

// Problem is one setting that cannot be used.
type Problem struct {
	Field string // as "breaker.open_for"
	Value any
	Want  string
}

// ConfigError holds every problem of a configuration, found in one pass.
type ConfigError struct{ Problems []Problem }

// Error lists the problems, one a line.
func (e *ConfigError) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = fmt.Sprintf("%s is %v: want %s", p.Field, p.Value, p.Want)
	}
	return "resilience: unusable settings\n" + strings.Join(lines, "\n")
}

// checker gathers problems under a prefix.
type checker struct {
	prefix   string
	problems []Problem
}

func (c *checker) want(ok bool, field string, value any, want string) {
	if !ok {
		c.problems = append(c.problems, Problem{Field: c.prefix + field, Value: value, Want: want})
	}
}

func (c *checker) between(field string, value, low, high time.Duration) {
	c.want(low <= value && value <= high, field, value, fmt.Sprintf("%v to %v", low, high))
}

func (c *checker) count(field string, value, low, high int) {
	c.want(low <= value && value <= high, field, value, fmt.Sprintf("%d to %d", low, high))
}

func (c *checker) err() error {
	if len(c.problems) == 0 {
		return nil
	}
	return &ConfigError{Problems: c.problems}
}

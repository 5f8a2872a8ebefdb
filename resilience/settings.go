package resilience

// Settings is everything that can be set for one acquirer.
type Settings struct {
	Breaker  BreakerConfig
	Budget   BudgetConfig
	Bulkhead BulkheadConfig
	Retry    Retry
	// Rand spreads the waits between tries; nil means the runtime's own generator.
	Rand Rand
}

// DefaultSettings gives the settings for a payments acquirer.
func DefaultSettings() Settings {
	return Settings{
		Breaker:  DefaultBreaker(),
		Budget:   DefaultBudget(),
		Bulkhead: DefaultBulkhead(),
		Retry:    DefaultRetry(),
	}
}

// Validate reports every setting that cannot be used, as one *ConfigError.
func (s Settings) Validate() error {
	var k checker
	k.prefix = "breaker."
	s.Breaker.check(&k)
	k.prefix = "budget."
	s.Budget.check(&k)
	k.prefix = "bulkhead."
	s.Bulkhead.check(&k)
	k.prefix = "retry."
	s.Retry.check(&k)
	return k.err()
}

// NewLocal makes a chain whose breaker and budget know this process only, or
// gives a *ConfigError with every problem of every part.
func NewLocal(s Settings) (*Chain, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	breaker, err := NewLocalBreaker(s.Breaker)
	if err != nil {
		return nil, err
	}
	budget, err := NewLocalBudget(s.Budget)
	if err != nil {
		return nil, err
	}
	bulkhead, err := NewBulkhead(s.Bulkhead)
	if err != nil {
		return nil, err
	}
	return NewChain(ChainConfig{Breaker: breaker, Budget: budget, Bulkhead: bulkhead, Retry: s.Retry, Rand: s.Rand})
}

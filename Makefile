# Two commands to know: `make demo` and `make test`. They need Go and make, and Postgres binaries or a
# network to fetch them; no service has to be running, and none is left running.

GO ?= go

# Tools run from source at these versions; nothing is installed.
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOLANGCI = github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

# A module of its own: what it is compared with is no dependency of the service.
PEERS = bench/resilience

# The race detector needs a C compiler. Where there is none the suite runs without it, and says so.
RACE := $(if $(filter 1,$(shell $(GO) env CGO_ENABLED)),-race)

# Packages, flags and arguments to give by hand: make test PKG=./payment TESTFLAGS='-run Resolve -v'.
PKG ?= ./...
TESTFLAGS ?=
ARGS ?=
FUZZTIME ?= 20s

.DEFAULT_GOAL := help

.PHONY: help
help: ## List these targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build every command into bin/
	$(GO) build -o bin/ ./cmd/...

.PHONY: dev
dev: ## Run everything on this machine until Ctrl-C: Postgres, two acquirers, a merchant, the API
	$(GO) build -o bin/ ./cmd/paymentsd
	@exec bin/paymentsd dev $(ARGS)

.PHONY: demo
demo: ## Play the life of payments, failures included; exits 0 only if every step held
	$(GO) build -o bin/ ./cmd/paymentsd
	@exec bin/paymentsd demo $(ARGS)

.PHONY: test
test: ## Run the whole suite on a Postgres of its own, under the race detector
	@$(if $(RACE),,echo "no C compiler: the race detector is off")
	$(GO) build -o bin/ ./internal/pgtest/testdb
	@exec bin/testdb $(GO) test $(RACE) -timeout 20m $(TESTFLAGS) $(PKG)

.PHONY: race
race: ## Run the suite five times under the race detector, in another order each time
	$(GO) build -o bin/ ./internal/pgtest/testdb
	@exec bin/testdb $(GO) test -race -count 5 -shuffle on -timeout 60m $(TESTFLAGS) $(PKG)

.PHONY: fuzz
fuzz: ## Fuzz every fuzz target for FUZZTIME each (20s)
	@set -e; for pkg in $$($(GO) list $(PKG)); do \
	  for target in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
	    echo "$$pkg $$target"; $(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) $$pkg; \
	  done; \
	done

.PHONY: bench
bench: ## Load the charge path beside pgbench and print both rates; the last line is JSON
	$(GO) build -o bin/ ./bench/charge
	@exec bin/charge $(ARGS)

.PHONY: bench-shed
bench-shed: ## The service under three times what it can do, with shedding and without; last line JSON
	$(GO) build -o bin/ ./bench/shed
	@exec bin/shed $(ARGS)

.PHONY: bench-breaker
bench-breaker: ## Twelve replicas: how fast they open, probes in flight, budgets under contention; last line JSON
	$(GO) build -o bin/ ./bench/breaker
	@exec bin/breaker $(ARGS)

.PHONY: bench-resilience
bench-resilience: ## What a call costs under our policies beside gobreaker and failsafe-go; last line JSON
	$(GO) -C $(PEERS) build -o $(CURDIR)/bin/resilience .
	@exec bin/resilience $(ARGS)

.PHONY: db
db: ## Keep a Postgres for the tests running until Ctrl-C, so that plain `go test` works
	$(GO) build -o bin/ ./internal/pgtest/testdb
	@exec bin/testdb

.PHONY: check
check: lint ## What has to hold before the tests: format, vet, lint, tidy go.mod files
	$(GO) mod tidy -diff
	$(GO) -C $(PEERS) mod tidy -diff
	$(GO) mod verify

.PHONY: tidy
tidy: ## Tidy go.mod here and in the benchmark that is a module of its own
	$(GO) mod tidy
	$(GO) -C $(PEERS) mod tidy

.PHONY: lint
lint: ## gofmt, go vet and staticcheck
	@files=$$(gofmt -l $$(git ls-files '*.go' 2>/dev/null || find . -name '*.go')); \
	  if [ -n "$$files" ]; then echo "not formatted (gofmt -w):"; echo "$$files"; exit 1; fi
	$(GO) vet ./...
	$(GO) vet -tags faultpoints ./cmd/...
	$(GO) -C $(PEERS) vet ./...
	$(GO) run $(STATICCHECK) ./...
	cd $(PEERS) && $(GO) run $(STATICCHECK) ./...

.PHONY: lint-full
lint-full: ## golangci-lint with .golangci.yml (builds it first: some minutes)
	$(GO) run $(GOLANGCI) run ./...

.PHONY: clean
clean: ## Delete what was built (the data of `make dev` stays: paymentsd dev --fresh)
	rm -rf bin

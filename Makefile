# Two commands do everything on a fresh machine: `make demo` and `make test`.
# Both install what is missing (a C linker, HAProxy) and build.

CARGO ?= cargo

.PHONY: demo test check build deps bench-solver bench-pool bench-failover

demo: deps
	$(CARGO) build --locked --release -p plimsoll
	$(CARGO) run --locked --release -q -p plimsoll -- demo

test: deps check
	$(CARGO) test --locked --workspace

# Formatting and lints, as errors.
check:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings

build: deps
	$(CARGO) build --locked --release -p plimsoll

deps:
	@scripts/install-deps

# The numbers of docs/benchmarks.md; each prints what it measured.
bench-solver: deps
	$(CARGO) build --locked --release -p plimsoll-pack --examples
	python3 benches/solver/against_cbc.py

bench-pool: deps
	$(CARGO) build --locked --release -p plimsoll
	benches/pool/run

bench-failover: deps
	$(CARGO) build --locked --release -p plimsoll
	benches/failover/run

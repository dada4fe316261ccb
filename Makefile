# Two commands do everything on a fresh machine: `make demo` and `make test`.
# Both install what is missing (a C linker, HAProxy) and build.

CARGO ?= cargo

.PHONY: demo demo-l4 test check build lab deps soak bench-solver bench-pool bench-failover bench-polling bench-l4

demo: lab
	$(CARGO) run --locked --release -q -p plimsoll-lab -- demo

# Connections at layer 4 that stay while servers come and go. Needs root: `sudo make demo-l4`, or `make lab` as
# yourself and then `sudo target/release/plimsoll-lab demo-l4`.
demo-l4: lab
	$(CARGO) run --locked --release -q -p plimsoll-lab -- demo-l4 --svg $(or $(CARGO_TARGET_DIR),target)/demo-l4.svg

test: deps check
	$(CARGO) test --locked --workspace

# Formatting and lints, as errors.
check:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings

build: deps
	$(CARGO) build --locked --release -p plimsoll

# plimsoll-lab, and the plimsoll beside it that it starts. Not in one command: Cargo would then build plimsoll
# with the generators of packets that only the lab asks for.
lab: build
	$(CARGO) build --locked --release -p plimsoll-lab -p plimsoll-real

deps:
	@scripts/install-deps

# A thousand simulated days of faults, every one by its seed (docs/simulation.md). SOAK_SEEDS=FROM..TO runs
# others.
SOAK_SEEDS ?= 0..1000
soak: deps
	$(CARGO) run --locked --release -q -p plimsoll-lab -- soak --seeds $(SOAK_SEEDS) --days 1
	$(CARGO) run --locked --release -q -p plimsoll-lab -- soak --seeds $(SOAK_SEEDS) --days 0.002 --level requests

# The numbers of docs/benchmarks.md; each prints what it measured.
bench-solver: deps
	$(CARGO) build --locked --release -p plimsoll-pack --examples
	python3 benches/solver/against_cbc.py

# About six minutes each: lanes side by side, interleaved, on 30 emulated backends.
bench-pool: lab
	$(or $(CARGO_TARGET_DIR),target)/release/plimsoll-lab pool --load 0.7 --service 50ms --learn 180s --measure 40s --rounds 3 \
	    --concurrent 4 --lanes static-oracle,plimsoll-roundrobin,plimsoll-leastconn,plimsoll-roundrobin-literal
	$(or $(CARGO_TARGET_DIR),target)/release/plimsoll-lab pool --load 0.85 --service 50ms --learn 150s --measure 50s --rounds 3 \
	    --concurrent 4 --lanes static-oracle,plimsoll-roundrobin,plimsoll-leastconn,leastconn-cores

# Nanoseconds per packet of the layer-4 program, as root; about five minutes.
bench-l4: deps
	$(CARGO) build --locked --release -p plimsoll-l4 --examples
	nice -n -20 taskset -c 1 $(or $(CARGO_TARGET_DIR),target)/release/examples/ns_per_packet 7 1048576 "client to server" "server to client" "LRU table, hit"
	nice -n -20 taskset -c 1 $(or $(CARGO_TARGET_DIR),target)/release/examples/ns_per_packet 9 300000 "first packet" insert

# Processor time of the daemon by default, and of HAProxy for being read, over living backends; 45 minutes.
bench-polling: deps
	$(CARGO) bench --locked -p plimsoll --bench polling

bench-failover: deps
	$(CARGO) bench --locked -p plimsoll --bench failover

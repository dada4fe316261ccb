# Two commands do everything on a fresh machine: `make demo` and `make test`. Both install what is missing (a C
# linker, HAProxy) and build. `make help` lists the others; its text is what follows ## here.

CARGO ?= cargo
RELEASE = $(or $(CARGO_TARGET_DIR),target)/release
# Always in one command: built one after the other, they want other features of what they share, and that is built twice.
BOTH = -p plimsoll -p plimsoll-lab

.PHONY: demo demo-l4 demo-edge test quick check build dist lab deps soak help \
    bench-solver bench-pool bench-peers bench-failover bench-polling bench-l4

demo: deps ## an unequal pool behind real HAProxys, with and without Plimsoll (4 min; the default)
	$(CARGO) build --locked --release $(BOTH)
	$(RELEASE)/plimsoll-lab demo

# Needs root: `sudo make demo-l4`, or `make lab` as yourself and then `sudo target/release/plimsoll-lab demo-l4`.
demo-l4: lab ## layer-4 connections that stay while servers come and go (1 min, root)
	$(RELEASE)/plimsoll-lab demo-l4 --svg $(or $(CARGO_TARGET_DIR),target)/demo-l4.svg

# Needs root, as demo-l4.
demo-edge: lab ## an elephant among mice on two nodes: predicted and measured load of each core (1 min, root)
	$(RELEASE)/plimsoll-lab demo-edge

test: deps check ## formatting, lints and all tests; lists at the end what did not run here, and why
	CARGO='$(CARGO)' scripts/test --locked --workspace

# All tests of what decides (crates/logic), of sinks, probes and API, and the unit tests of the daemon, its configuration
# among them. Without simulated days, end-to-end tests, a real NGINX, the lab and layer 4. One command, so that all is
# built once; a test file that belongs here is named in QUICK_TESTS. No lints: `make check`.
QUICK = model queueing cookie feedback learn pack policy admission control config sink probe api
QUICK_TESTS = it registry haproxy allocation codec vectors curves menus rounding subsets model policies steering averages api \
    descriptors conformance faults l4_faults lives many properties reports several source weights
quick: deps ## tests for while you work: logic, configuration, sinks, probes, API (2 min when built)
	$(CARGO) test --locked $(QUICK:%=-p plimsoll-%) -p plimsoll --lib --bins $(QUICK_TESTS:%=--test %)

check: ## formatting and lints, as errors
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings

build: deps ## the plimsoll binary, target/release/plimsoll
	$(CARGO) build --locked --release -p plimsoll

dist: deps ## the plimsoll binary for packages, optimised across crates: target/dist/plimsoll
	$(CARGO) build --locked --profile dist -p plimsoll

lab: deps ## plimsoll-lab, beside the plimsoll that it starts
	$(CARGO) build --locked --release $(BOTH) -p plimsoll-real

deps: ## installs what a fresh Debian 12 lacks; does nothing when all is there
	@scripts/install-deps

# Every day by its seed (docs/simulation.md).
SOAK_SEEDS ?= 0..1000
soak: lab ## a thousand simulated days of faults (3 CPU hours); SOAK_SEEDS=FROM..TO for others
	$(RELEASE)/plimsoll-lab soak --seeds $(SOAK_SEEDS) --days 1
	$(RELEASE)/plimsoll-lab soak --seeds $(SOAK_SEEDS) --days 0.002 --level requests

# The figures of docs/benchmarks.md; each prints what it measured.
bench-solver: deps ## the solver against CBC
	$(CARGO) build --locked --release -p plimsoll-pack --examples
	python3 benches/solver/against_cbc.py

# Lanes side by side, interleaved, on 30 emulated backends.
bench-pool: lab ## the pool of the KnapsackLB paper behind real HAProxys (two runs of 6 min)
	$(RELEASE)/plimsoll-lab pool --load 0.7 --service 50ms --learn 180s --measure 40s --rounds 3 \
	    --concurrent 4 --lanes static-oracle,plimsoll-roundrobin,plimsoll-leastconn,knapsack-literal
	$(RELEASE)/plimsoll-lab pool --load 0.85 --service 50ms --learn 150s --measure 50s --rounds 3 \
	    --concurrent 4 --lanes static-oracle,plimsoll-roundrobin,plimsoll-leastconn,leastconn-cores

# Runs of the same commit and options go on where they were.
bench-peers: lab ## Plimsoll's proxy, HAProxy and Envoy on the pool of the KnapsackLB paper, alone and as ten (3.3 h)
	$(RELEASE)/plimsoll-lab peers --out target/peers
	$(RELEASE)/plimsoll-lab peers --peers haproxy-plimsoll,expected-delay --balancers 1 --loads 0.7,0.85 --rounds 5 \
	    --against haproxy-plimsoll --out target/peers-alone

bench-l4: deps ## nanoseconds per packet of the layer-4 program (5 min, root)
	$(CARGO) build --locked --release -p plimsoll-l4bench --examples
	nice -n -20 taskset -c 1 $(RELEASE)/examples/ns_per_packet 7 1048576 "client to server" "server to client" "LRU table, hit"
	nice -n -20 taskset -c 1 $(RELEASE)/examples/ns_per_packet 9 300000 SYN insert

bench-polling: deps ## processor time of the daemon by default, and of HAProxy for being read (45 min)
	$(CARGO) bench --locked -p plimsoll --bench polling

bench-failover: deps ## time until a dead backend has no weight, and until a killed controller steers again
	$(CARGO) bench --locked -p plimsoll --bench failover

help: ## this list
	@awk -F ':.*## ' '/^[a-z][a-z0-9-]*:.*## / { printf "make %-15s %s\n", $$1, $$2 }' Makefile

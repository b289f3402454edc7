# `make help` lists the targets.
CARGO ?= cargo
export CARGO_TERM_PROGRESS_WHEN ?= never
# Commands that people wait for show their progress.
WATCHED = CARGO_TERM_PROGRESS_WHEN=auto

# What is optional and tested nevertheless.
OPTIONAL = tidegate/capacity-etcd,tidegate/capacity-postgres,tidegate/capacity-s3,tidegate/capacity-sqlite,tidegate/client,tidegate/control,tidegate/forwarder,tidegate-client/reqwest,tidegate-client/slices,tidegate/pacer,tidegate/protection,tidegate/queue-postgres,tidegate/queue-redis,tidegate/redis,tidegate-rls/proto

# The release whose nodes a new one has to share a Redis with, and where it is checked out.
OLD ?= 8b8d2fd
OLD_TREE = $(CURDIR)/target/upgrade-tree

.PHONY: help run flood run-redis run-control run-forward demo dist test tools fmt lint docs unit features bench sim overload fuzz soak deny sdk upgrade-test upstream

help: ## Show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

run: ## Serve decisions, and the gateway in front of a small API; say what to try
	@echo 'Building Tidegate. The first time this takes two to three minutes on two cores.'
	$(WATCHED) $(CARGO) run --locked -p tidegate-app -- serve --config examples/gateway/tidegate.yaml --demo-api --welcome

flood: ## Flood the gateway of `make run` for twenty seconds, and watch who is served
	$(WATCHED) $(CARGO) run --locked -p tidegate-app -- demo flood

run-redis: ## Two servers that share their limits over a Redis, and a look at it
	$(WATCHED) $(CARGO) build --locked -p tidegate-app
	tools/run-redis

run-control: ## A control plane and two servers: a command changes a limit at both, then the control plane is killed
	$(WATCHED) $(CARGO) build --locked -p tidegate-app
	tools/run-control

run-forward: ## Import 10,000 records by a forwarder, beside a naive client; FORWARD=--kill kills it in the middle
	$(WATCHED) $(CARGO) run --locked -p tidegate-app -- demo forward $(FORWARD)

demo: ## Try the engine on the terminal, with the quickstart rules
	$(WATCHED) $(CARGO) run --locked -p tidegate-app -- demo

dist: ## Build the optimized program, and pack it with its licence, documents and examples
	@echo 'Building with link-time optimization. This takes about seven minutes on two cores.'
	$(WATCHED) $(CARGO) build --locked --release -p tidegate-app
	rm -rf target/dist && mkdir -p target/dist/tidegate
	cp $(or $(CARGO_TARGET_DIR),target)/release/tidegate LICENSE README.md CHANGELOG.md target/dist/tidegate/
	cp -r docs examples deploy target/dist/tidegate/
	tar -C target/dist -czf target/dist/tidegate.tar.gz tidegate
	@ls -l target/dist/tidegate.tar.gz

test: fmt unit docs features ## Format, lints, every test, and the API docs

tools: ## Install what the tests run beside Tidegate: Envoy, Redis, Valkey, PostgreSQL, etcd, S3 server, Chromium, nftables
	tools/install-envoy
	tools/install-redis
	tools/install-postgres
	tools/install-lease-stores
	tools/install-chromium
	tools/install-nftables

fmt: ## Check the format
	$(CARGO) fmt --all --check

lint: ## Clippy on everything, warnings are errors
	$(CARGO) clippy --locked --workspace --all-targets --features $(OPTIONAL) --quiet -- --deny warnings

# One pass compiles and lints: clippy's driver is rustc with more lints, so that dependencies and our crates are built
# once for both. CLIPPY_ARGS is how `cargo clippy` hands its arguments to the driver. Without incremental compilation the
# build takes two gigabytes less.
unit: export CARGO_INCREMENTAL = 0
unit: export RUSTC_WORKSPACE_WRAPPER = clippy-driver
unit: export CLIPPY_ARGS = --deny__CLIPPY_HACKERY__warnings
unit: tools ## Every test, built with the lints of `make lint`
	$(CARGO) test --locked --workspace --features $(OPTIONAL) --no-run --message-format=json-render-diagnostics \
		> $(or $(CARGO_TARGET_DIR),target)/tests.json
	tools/run-tests $(or $(CARGO_TARGET_DIR),target)/tests.json
	$(CARGO) test --locked --workspace --features $(OPTIONAL) --doc --quiet
	tools/run-sdk-tests

sdk: ## Test the client libraries for Python, Go and TypeScript against the program (needs all three)
	$(CARGO) build --locked --quiet -p tidegate-app
	tools/run-sdk-tests --all

docs: ## Build the API docs, warnings are errors
	RUSTDOCFLAGS="--deny warnings" $(CARGO) doc --locked --workspace --no-deps --features $(OPTIONAL) --quiet

features: ## Check the library with each of its features alone
	$(CARGO) check --locked --quiet -p tidegate --no-default-features
	for feature in layer protection pacer client control queue queue-redis capacity capacity-sqlite capacity-postgres capacity-etcd capacity-s3 forwarder redis; do \
		$(CARGO) check --locked --quiet -p tidegate --no-default-features --features $$feature || exit 1; \
	done

upstream: ## Run beside the real envoyproxy/ratelimit (needs Go): SEEDS (1000) of random rules, and a migration
	tools/install-upstream
	tools/install-redis
	$(CARGO) build --locked --quiet -p tidegate-app -p tidegate-upstream-diff
	$(or $(CARGO_TARGET_DIR),target)/debug/tidegate-upstream-diff --seeds $(or $(SEEDS),1000)
	tools/try-migration

upgrade-test: ## Run nodes of an earlier release (OLD, a commit) beside this one, on one Redis
	tools/install-redis
	-git worktree remove --force $(OLD_TREE) 2>/dev/null
	git worktree add --quiet --detach $(OLD_TREE) $(OLD)
	CARGO_TARGET_DIR=$(CURDIR)/target/upgrade $(CARGO) build --locked --quiet -p tidegate --manifest-path $(OLD_TREE)/Cargo.toml
	git worktree remove --force $(OLD_TREE)
	TIDEGATE_OLD_BINARY=$(CURDIR)/target/upgrade/debug/tidegate $(CARGO) test --locked --quiet -p tidegate-app --test rolling_upgrade

bench: ## Ourselves and our peers in one run, as ratios (BENCH="--only service" for one table)
	-tools/install-nginx
	-tools/install-haproxy
	-tools/install-goaccess
	-tools/install-envoy
	-tools/install-upstream
	$(CARGO) build --locked --release --quiet -p tidegate-app -p tidegate-bench
	$(or $(CARGO_TARGET_DIR),target)/release/tidegate-bench $(BENCH)

sim: ## Simulate the whole system on fresh seeds
	$(CARGO) run --locked --release --quiet -p tidegate-simulation -- --seeds 0..1000
	$(CARGO) run --locked --release --quiet -p tidegate-capacity --example lease_figures

overload: ## Play overload beside the shedders of others, as docs/overload.md shows it
	$(CARGO) run --locked --release --quiet -p tidegate-simulation -- overload --fleet --out docs/overload $(OVERLOAD)

fuzz: ## Damage input for every reader, from fresh seeds; FUZZ="--target rls --seconds 600"
	$(CARGO) run --locked --quiet -p tidegate-fuzz -- $(FUZZ)

soak: ## Load the service for SECONDS (180) and watch its memory; then forwarders under faults for minutes (SEED)
	$(CARGO) build --locked --release --quiet -p tidegate-app
	$(CARGO) run --locked --quiet -p tidegate-fuzz --bin soak -- $(SECONDS)
	tools/install-redis
	tools/install-postgres
	$(CARGO) run --locked --quiet -p tidegate-forward-faults -- --seed $(or $(SEED),1)

deny: ## Licences, sources and banned crates (installs cargo-deny when missing)
	command -v cargo-deny >/dev/null || $(CARGO) install --locked cargo-deny
	$(CARGO) deny check bans licenses sources

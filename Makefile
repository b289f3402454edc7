# `make help` lists the targets.
CARGO ?= cargo
export CARGO_TERM_PROGRESS_WHEN ?= never

# What is optional and tested nevertheless.
OPTIONAL = tidegate/pacer,tidegate/protection,tidegate/redis,tidegate-rls/proto,tidegate-stores/fleet

# The release whose nodes a new one has to share a Redis with, and where it is checked out.
OLD ?= 8b8d2fd
OLD_TREE = $(CURDIR)/target/upgrade-tree

.PHONY: help run run-redis demo test tools fmt lint docs unit features bench sim overload fuzz soak deny upgrade-test

help: ## Show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

run: ## Serve decisions, and the gateway in front of a small API; say what to try
	$(CARGO) run --locked --release --quiet -p tidegate-app -- serve --config examples/gateway/tidegate.yaml --demo-api --welcome

run-redis: ## Two servers that share their limits over a Redis, and a look at it
	$(CARGO) build --locked --release --quiet -p tidegate-app
	tools/run-redis

demo: ## Try the engine on the terminal, with the quickstart rules
	$(CARGO) run --locked --release --quiet -p tidegate-app -- demo

test: fmt lint docs features unit ## Format, lints, docs and every test

tools: ## Install what the tests run beside Tidegate: a real Envoy, Redis and Valkey
	tools/install-envoy
	tools/install-redis

fmt: ## Check the format
	$(CARGO) fmt --all --check

lint: ## Clippy on everything, warnings are errors
	$(CARGO) clippy --locked --workspace --all-targets --features $(OPTIONAL) --quiet -- --deny warnings

docs: ## Build the API docs, warnings are errors
	RUSTDOCFLAGS="--deny warnings" $(CARGO) doc --locked --workspace --no-deps --features $(OPTIONAL) --quiet

features: ## Build what has optional features without them, and with each alone
	$(CARGO) check --locked --quiet -p tidegate-stores
	$(CARGO) check --locked --quiet -p tidegate-stores --features redis
	$(CARGO) check --locked --quiet -p tidegate-stores --features shared
	$(CARGO) check --locked --quiet -p tidegate-stores --features fleet
	$(CARGO) check --locked --quiet -p tidegate --no-default-features
	for feature in layer protection pacer redis; do \
		$(CARGO) check --locked --quiet -p tidegate --no-default-features --features $$feature || exit 1; \
	done

unit: tools ## Every test
	$(CARGO) test --locked --workspace --features $(OPTIONAL) --quiet

upgrade-test: ## Run nodes of an earlier release (OLD, a commit) beside this one, on one Redis
	tools/install-redis
	-git worktree remove --force $(OLD_TREE) 2>/dev/null
	git worktree add --quiet --detach $(OLD_TREE) $(OLD)
	CARGO_TARGET_DIR=$(CURDIR)/target/upgrade $(CARGO) build --locked --quiet -p tidegate --manifest-path $(OLD_TREE)/Cargo.toml
	git worktree remove --force $(OLD_TREE)
	TIDEGATE_OLD_BINARY=$(CURDIR)/target/upgrade/debug/tidegate $(CARGO) test --locked --quiet -p tidegate-app --test rolling_upgrade

bench: ## Ourselves and our peers in one run, as ratios (BENCH="--only service" for one table)
	-tools/install-nginx
	-tools/install-envoy
	$(CARGO) build --locked --release --quiet -p tidegate-app -p tidegate-bench
	$(or $(CARGO_TARGET_DIR),target)/release/tidegate-bench $(BENCH)

sim: ## Simulate the whole system on fresh seeds
	$(CARGO) run --locked --release --quiet -p tidegate-simulation -- --seeds 0..1000

overload: ## Play overload beside the shedders of others, as docs/overload.md shows it
	$(CARGO) run --locked --release --quiet -p tidegate-simulation -- overload --fleet --out docs/overload $(OVERLOAD)

fuzz: ## Damage input for every reader, from fresh seeds; FUZZ="--target rls --seconds 600"
	$(CARGO) run --locked --quiet -p tidegate-fuzz -- $(FUZZ)

soak: ## Load the service for SECONDS (180), with reloads and bad input, and watch its memory
	$(CARGO) build --locked --release --quiet -p tidegate-app
	$(CARGO) run --locked --quiet -p tidegate-fuzz --bin soak -- $(SECONDS)

deny: ## Licences, sources and banned crates (installs cargo-deny when missing)
	command -v cargo-deny >/dev/null || $(CARGO) install --locked cargo-deny
	$(CARGO) deny check bans licenses sources

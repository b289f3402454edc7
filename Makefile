# `make help` lists the targets.
CARGO ?= cargo
export CARGO_TERM_PROGRESS_WHEN ?= never

.PHONY: help run demo test fmt lint docs unit features bench sim deny

help: ## Show this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

run: ## Serve decisions on the quickstart rules, and say what to try
	$(CARGO) run --locked --release --quiet -p tidegate -- serve --rules examples/rules/quickstart.yaml --welcome

demo: ## Try the engine on the terminal, with the quickstart rules
	$(CARGO) run --locked --release --quiet -p tidegate -- demo

test: fmt lint docs features unit ## Format, lints, docs and every test

fmt: ## Check the format
	$(CARGO) fmt --all --check

lint: ## Clippy on everything, warnings are errors
	$(CARGO) clippy --locked --workspace --all-targets --quiet -- --deny warnings

docs: ## Build the API docs, warnings are errors
	RUSTDOCFLAGS="--deny warnings" $(CARGO) doc --locked --workspace --no-deps --quiet

features: ## Build what has optional features without them, and with each alone
	$(CARGO) check --locked --quiet -p tidegate-doors --no-default-features
	for door in tower-layer rls http-api debug server traces; do \
		$(CARGO) check --locked --quiet -p tidegate-doors --no-default-features --features $$door || exit 1; \
	done
	$(CARGO) check --locked --quiet -p tidegate-doors --no-default-features --features debug

unit: ## Every test
	$(CARGO) test --locked --workspace --quiet

bench: ## Ourselves and our peers in one run, as ratios
	$(CARGO) run --locked --release --quiet -p tidegate-bench

sim: ## Simulate the whole system on fresh seeds
	$(CARGO) run --locked --release --quiet -p tidegate-simulation -- --seeds 0..1000

deny: ## Licences, sources and banned crates (installs cargo-deny when missing)
	command -v cargo-deny >/dev/null || $(CARGO) install --locked cargo-deny
	$(CARGO) deny check bans licenses sources

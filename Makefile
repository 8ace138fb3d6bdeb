# `make` alone lists the targets.
PYTHON ?= python3
BIN := .venv/bin
SETUP := $(PYTHON) scripts/setup.py
SEED ?= 1
STEPS ?= 80

.DEFAULT_GOAL := help
.PHONY: help setup demo quickstart check test proto bench bench-executor bench-rollouts bench-rivals accept-quickstart accept-executor accept-environments accept-inference

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 22

setup: ## build .venv and .venv-vllm from exact pins (resumes; nothing to do when up to date)
	@$(SETUP) services dev areal vllm

demo: ## scripted agents solve tasks on two nodes (small set-up, no model)
	@$(SETUP) services
	$(BIN)/practicum demo

quickstart: ## teach a tiny model to use a tool: SEED=1 STEPS=80 FRESH=1 MORE=40
	@$(SETUP) services areal vllm
	$(BIN)/practicum quickstart --seed $(SEED) --steps $(STEPS) $(if $(FRESH),--fresh) $(if $(MORE),--more $(MORE))

check: ## lint, types, contracts, unit tests
	@$(SETUP) dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/buf lint
	$(BIN)/buf breaking --against proto/released.binpb
	bash scripts/generate_bindings.sh --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -q tests/unit

test: ## everything that needs no GPU, real vLLM and AReaL included: sets up what it needs
	@$(MAKE) --no-print-directory setup check
	@bash scripts/install_postgres.sh
	$(BIN)/pytest -q tests --ignore=tests/unit

proto: ## generate the committed bindings
	@$(SETUP) dev
	$(BIN)/buf lint
	bash scripts/generate_bindings.sh

bench: accept-environments accept-inference ## measure what sessions, calls and tokens cost

bench-executor: ## what a rollout costs the executor, a deep backlog, the way back after a kill -9, idle nodes
	@$(SETUP) services
	$(BIN)/python benchmarks/executor.py

bench-rollouts: ## recorded latencies replayed: one at a time, one bounded node, many nodes
	@$(SETUP) services
	$(BIN)/python benchmarks/rollouts.py

bench-rivals: ## other brokers beside the executor, in the same run (makes an environment for each)
	@$(SETUP) services
	$(BIN)/python benchmarks/rivals.py

accept-quickstart: ## the quickstart with three seeds and its controls (half an hour)
	@$(SETUP) services areal vllm
	$(BIN)/python benchmarks/accept_quickstart.py

accept-executor: ## kill -9 of nodes, executors and PostgreSQL at random for 20 minutes; a node that is cut off
	@$(SETUP) services dev
	@bash scripts/install_postgres.sh
	$(BIN)/python benchmarks/accept_executor.py

accept-environments: ## what a session and a call of the environment gateway cost
	@$(SETUP) services
	$(BIN)/python benchmarks/env_gateway.py

accept-inference: ## the inference proxy beside vLLM alone
	@$(SETUP) services areal vllm
	$(BIN)/python benchmarks/inference_proxy.py

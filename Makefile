# `make` alone lists the targets.
PYTHON ?= python3
BIN := .venv/bin
SETUP := $(PYTHON) scripts/setup.py

.DEFAULT_GOAL := help
.PHONY: help setup check test proto

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 22

setup: ## build .venv and .venv-vllm from exact pins (resumes; nothing to do when up to date)
	@$(SETUP) services dev areal vllm

check: ## lint, types, contracts, unit tests
	@$(SETUP) dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/buf lint
	bash scripts/generate_bindings.sh --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -q tests/unit

test: check ## everything that needs no GPU: sets up what it needs
	$(BIN)/pytest -q tests --ignore=tests/unit

proto: ## generate the committed bindings
	@$(SETUP) dev
	$(BIN)/buf lint
	bash scripts/generate_bindings.sh

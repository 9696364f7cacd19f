# `make` lists the targets. Each one sets up what it needs, once.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
EXTRAS := redis,postgres,mysql,http,web,zmq,spark

# How many tests run at the same time. Many of them wait for processes that were killed or frozen.
WORKERS ?= 3
# The benchmarks that run: make bench SUITES=busmq
SUITES ?= log busmq web topics spark
# Further arguments for the program that a target runs: make test ARGS='-k doctor'
ARGS ?=

.PHONY: help setup servers node browser java peers demo chat serve test check bench clean

help: ## List the targets
	@sed -nE 's/^([a-z]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

setup: $(INSTALLED) ## Make the virtual environment in .venv

demo: $(INSTALLED) java ## Show what the bus can do, on temporary SQLite files; the end of it runs on Spark
	@$(BIN)/python examples/demo.py $(ARGS)
	@$(BIN)/python examples/pipeline.py

chat: $(INSTALLED) ## Chat in the browser, on http://127.0.0.1:8080
	@$(BIN)/python examples/chat $(ARGS)

serve: $(INSTALLED) ## Serve the bus to this machine, on http://127.0.0.1:8080
	@$(BIN)/onebus serve $(ARGS)

test: $(INSTALLED) servers node browser java ## Run all tests, against real servers
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup $(ARGS)

check: $(INSTALLED) ## Check format, style, types and layers
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(INSTALLED) servers node java peers ## Measure the log on each store, queues beside busmq, the web door, topics, Spark
	for suite in $(SUITES); do $(BIN)/python -m bench $$suite $(ARGS); done

clean: ## Remove the virtual environment and everything else that was made here
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	rm -rf bench/peers/busmq/node_modules tests/js/node_modules tests/interop/node_modules
	find src tests examples scripts -name __pycache__ -prune -exec rm -rf {} +

servers node browser java peers:
	@scripts/system-packages $@

$(INSTALLED): pyproject.toml Makefile scripts/virtual-environment
	@scripts/virtual-environment $(VENV) $(EXTRAS)
	@touch $@

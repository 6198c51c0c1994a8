# Thin: every target works alone on a fresh machine with Python 3.11 or newer, make and pip.
.DEFAULT_GOAL := help
.PHONY: help bootstrap demo test test-fast lint clean

# The first Python >= 3.11 that can make an environment.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3; do \
	"$$p" -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 \
	&& echo "$$p" && break; done)
BIN := .venv/bin
STAMP := .venv/.bootstrapped
# Two workers: torch runs on one thread per test, and examples of one page stay together.
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadfile

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

bootstrap: $(STAMP) ## make .venv with both packages (editable) and the tools

$(STAMP): pyproject.toml packages/neuraldbg-core/pyproject.toml packages/neuraldbg-engine/pyproject.toml
	@test -n "$(PYTHON)" || { echo "NeuralDBG needs Python 3.11 or newer with venv" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --group dev \
		-e packages/neuraldbg-core -e packages/neuraldbg-engine
	touch $@

demo: $(STAMP) ## train something that fails, and print why
	$(BIN)/python examples/demo.py

test: $(STAMP) ## the whole test suite, examples in README and docs included
	$(PYTEST)

test-fast: $(STAMP) ## the test suite without its slow tests
	$(PYTEST) -m "not slow"

lint: $(STAMP) ## every static gate: style, format, imports, types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports
	$(BIN)/mypy

clean: ## remove the environment and everything built
	rm -rf .venv .nox build dist packages/*/dist docs/_build .coverage .coverage.*
	rm -rf .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

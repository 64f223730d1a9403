# Every target works on a fresh machine that has Python 3.11 or newer and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Test processes; `make test JOBS=0` runs all tests in one.
JOBS ?= auto
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help demo simulate test bench golden lint clean

help:  ## what can be made (this list)
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' Makefile

demo: $(READY)  ## run a live cluster on imagined GPUs for a minute, then simulate the same
	$(BIN)/gavel demo $(ARGS)

simulate: $(READY)  ## simulate a larger cluster under two policies and look at its log
	$(BIN)/gavel demo --simulated $(ARGS)

test: $(READY)  ## run all tests (ARGS="-k log" for some)
	$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal $(ARGS)

bench: $(READY)  ## measure speed and print the figures
	$(BIN)/python -m pytest -q -s -o python_files='bench_*.py' tests/bench $(ARGS)

golden: $(READY)  ## write the log of this version that later releases must read (ARGS=--again)
	$(BIN)/python -m tests.golden.release $(ARGS)

lint: $(READY)  ## style, types and import rules
	@failed=0; \
	for check in 'ruff check' 'ruff format --check' mypy basedpyright 'lint-imports --no-logo'; do \
	  echo "$$check"; $(BIN)/$$check || failed=1; \
	done; exit $$failed

clean:  ## remove everything that was made, the environment too
	rm -rf $(VENV) build dist .bench .hypothesis .import_linter_cache
	rm -rf .mypy_cache .pytest_cache .ruff_cache
	find replay schemas services tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): pyproject.toml constraints.txt Makefile
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Gavel needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) -V 2>&1)." >&2; \
	  echo "Name another one: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	  --editable '.[replay,estimator,dev]' --constraint constraints.txt
	@touch $(READY)

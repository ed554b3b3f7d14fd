# The project's commands. `make` without a target lists them.

PYTHON  ?= python3
# One more than the two cores: tests of processes wait for the programs that they start.
WORKERS ?= 3
TIMES   ?= 1
VENV    := .venv
BIN     := $(VENV)/bin
STAMP   := $(VENV)/.installed
TOOLS   := $(VENV)/.installed-dev
# Tests start hundreds of programs, which should not compile the library each time.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help install dev demo test test-loaded sweep sweep-changed sweep-report mutations test-matrix \
        test-targets ecosystem conformance docs browser clusters lint bench bench-commits bench-drift release-check size clean

help:         ## this list
	@awk -F ':.*## *' '/^[a-z-]+:.*## /{printf "%-14s%s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(STAMP)  ## .venv with shardwise (editable) and the packages for checkpoints, but not for tests

dev: $(TOOLS)      ## the same with the packages for tests, lint and benchmarks

demo: install      ## trains a small transformer over eight virtual devices
	$(BIN)/shardwise demo

test: dev          ## the everyday tests, the same on every date and machine; WORKERS=n processes
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

test-loaded: dev   ## the same alongside four busy loops, as on a busy machine; TIMES=n repeats
	$(BIN)/python tools/loaded.py --times $(TIMES) -- -n $(WORKERS) --dist worksteal $(ARGS)

sweep: dev         ## all cases of all tests, in shards; SHARD=3/16, or ONLY=tests/saving
	$(BIN)/python -m tools.sweep run --workers $(WORKERS) \
	  $(if $(SHARD),--shard $(SHARD)) $(if $(ONLY),--only $(ONLY)) $(ARGS)

sweep-changed: dev ## cases that cover the last ten commits, for 200 seconds of CPU
	$(BIN)/python -m tools.sweep changed --workers $(WORKERS) $(ARGS)

sweep-report: dev  ## which tests have been swept at the current commit
	$(BIN)/python -m tools.sweep report

mutations: dev     ## breaks rules of the library one at a time, and checks that tests fail
	$(BIN)/python -m tools.mutations $(ARGS)

test-matrix: dev   ## smoke tests on every supported pair of Python and jaxlib found here
	$(BIN)/python tools/test_matrix.py $(ARGS)

test-targets: dev  ## tests with the compilers for GPUs and TPUs, on every pair; ARGS=--compilers=3.11
	$(BIN)/python tools/test_matrix.py $(if $(ARGS),$(ARGS),--compilers)

ecosystem: dev     ## libraries for JAX on this library; NEWEST=1: their newest releases; SUITES=1: their own tests
	$(BIN)/python tools/ecosystem.py $(if $(NEWEST),--newest) $(ARGS)
	$(if $(SUITES),$(BIN)/python tools/ecosystem_suites.py --update)

conformance: dev   ## JAX's own tests on this library; CONFORMANCE=folder of their runners
	CONFORMANCE=$(CONFORMANCE) $(BIN)/python tools/conformance.py $(ARGS)

docs: dev          ## the documentation as a site, in build/docs; ARGS=--check tests it
	$(BIN)/python -m tools.docs_site $(ARGS)

browser:           ## installs Chromium, for tests of rendered pages (on Debian, as root)
	@sh tools/browser.sh

clusters:          ## installs Slurm, Open MPI and MPICH, for tests that use them (Debian, as root)
	@sh tools/clusters.sh

lint: dev          ## ruff (rules and format), pyright, word list, size bounds; pyright and mypy on user programs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/pyright
	$(BIN)/python tools/check_types.py
	$(BIN)/python tools/check_words.py
	$(BIN)/python tools/size.py --check

bench: dev         ## benchmarks, as ratios
	$(BIN)/python -m benchmarks $(ARGS)

bench-commits: dev ## rows that became slower since a commit; COMMIT=HEAD~1
	$(BIN)/python -m benchmarks commits $(or $(COMMIT),HEAD~1) --quick --rows "jit.*,loop.*,trace.*,lower.*" $(ARGS)

bench-drift: dev   ## rows whose ratio changed since earlier runs of the benchmarks; ARGS=--by=0.2
	$(BIN)/python -m benchmarks drift $(ARGS)

release-check: dev ## builds wheel and source archive, uses both; ARGS=--draft before a release
	$(BIN)/python tools/release_check.py $(ARGS)

size:              ## lines per package
	@$(PYTHON) tools/size.py

clean:             ## remove environments and caches
	rm -rf .venv .venv-* build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check
CHECK_VERSION = import sys; sys.exit(sys.version_info < (3, 11))

$(STAMP): pyproject.toml shardwise/_version.py
	@$(PYTHON) -c '$(CHECK_VERSION)' || { \
	  echo "shardwise needs Python 3.11 or later; '$(PYTHON)' is $$($(PYTHON) --version 2>&1)." >&2; \
	  echo "Name another interpreter: make install PYTHON=python3.12" >&2; exit 1; }
	@$(BIN)/python -c 'import pip; $(CHECK_VERSION)' 2>/dev/null || $(PYTHON) -m venv --clear $(VENV)
	$(PIP) --editable '.[tensorstore]'
	@touch $@

$(TOOLS): $(STAMP)
	$(PIP) --editable '.[dev]'
	@touch $@

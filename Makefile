# Everything a contributor runs.  On a fresh machine `make demo` and `make test` need only Python
# 3.11-3.13 and the package registries; both make a virtual environment in .venv and install into it.

PYTHON ?= python3
VENV ?= .venv
PY := $(VENV)/bin/python
# Workers of pytest: one per core of the affinity mask.
JOBS ?= auto
PYTEST_ARGS ?=
# NVIDIA's checker of kernels, of the CUDA toolkit.
SANITIZER ?= compute-sanitizer

.PHONY: help demo test test-full test-poison coverage check format sanitize-gpu wheel-compiled clean-venv
.DEFAULT_GOAL := help

help:
	@echo "make demo       install, then read text from a page and train a small network"
	@echo "make test       install, then run the tests (under 40 minutes on two cores)"
	@echo "make test-full  the slow sweeps too"
	@echo "make test-poison  the tests, with memory that holds nothing filled with NaN patterns"
	@echo "make coverage   the tests, and how much of the compiler they reach"
	@echo "make check      ruff, mypy, import-linter, size limits"
	@echo "make wheel-compiled  a wheel whose hot modules are compiled ahead, in dist/"
	@echo "make format     rewrite the sources as ruff formats them"
	@echo "make sanitize-gpu  every kind of kernel under compute-sanitizer; needs an NVIDIA card"

$(PY):
	$(PYTHON) -c 'import sys; sys.exit(not ((3, 11) <= sys.version_info[:2] < (3, 14)))' \
	  || { echo "tilework needs Python 3.11, 3.12 or 3.13; set PYTHON=..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# A stamp holds one set of extras, and is renewed when pyproject.toml is newer.
$(VENV)/.installed-demo: pyproject.toml | $(PY)
	$(PY) -m pip install --quiet --disable-pip-version-check -e '.[onnx,viz]'
	@touch $@

$(VENV)/.installed-dev: pyproject.toml | $(PY)
	$(PY) -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

demo: $(VENV)/.installed-demo
	$(PY) -m tilework.tools.demo $(DEMO_ARGS)

test: $(VENV)/.installed-dev
	$(PY) -m pytest -n $(JOBS) $(PYTEST_ARGS)

test-full: $(VENV)/.installed-dev
	$(PY) -m pytest -n $(JOBS) --full $(PYTEST_ARGS)

# Memory that holds nothing is filled with NaN patterns all the time.
test-poison: $(VENV)/.installed-dev
	TILEWORK_POISON=1 $(PY) -m pytest -n $(JOBS) --poison $(PYTEST_ARGS)

# The compiler's own packages; 90 % is the floor.
coverage: $(VENV)/.installed-dev
	$(PY) -m pytest -n $(JOBS) --cov=tilework --cov-report= $(PYTEST_ARGS)
	$(VENV)/bin/coverage report --fail-under=90 \
	  --include='src/tilework/base/*,src/tilework/ir/*,src/tilework/schedule/*,src/tilework/codegen/*,src/tilework/render/*'

check: $(VENV)/.installed-dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy --strict src tests
	$(VENV)/bin/lint-imports
	$(PY) scripts/check_sizes.py
	$(PY) scripts/check_docs.py

format: $(VENV)/.installed-dev
	$(VENV)/bin/ruff check --fix-only .
	$(VENV)/bin/ruff format .

# Accesses, races in shared memory, and barriers of all kernels of the behaviour suite, on a card.
sanitize-gpu: $(VENV)/.installed-dev
	$(PY) -m benchmarks.gpu.sanitize --sanitizer $(SANITIZER) $(SANITIZE_ARGS)

# Needs a C compiler.  CC and PIP_ARGS are the environment's.
wheel-compiled: $(VENV)/.installed-dev
	TILEWORK_COMPILED=1 $(PY) -m pip wheel --no-deps --no-build-isolation -w dist . $(PIP_ARGS)

clean-venv:
	rm -rf $(VENV)

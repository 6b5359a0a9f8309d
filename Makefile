# All targets create and update the virtual environment in .venv; they need python3 (3.10 or newer, with venv).
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
# One thread per test process: more cost more in synchronization than they gain on small graphs.
PYTEST := OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 $(BIN)/python -m pytest
# One process more than cores, because many tests wait for processes that they start.
PARALLEL := -n $$(( $$(getconf _NPROCESSORS_ONLN) + 1 )) --dist loadfile --no-loadscope-reorder

.PHONY: help demo test coverage smoke test-slow test-gpu fuzz lint types docs clean-accuracy clean

help:
	@echo "make demo            train, attack and certify four models on a small generated graph; writes report.html"
	@echo "make test            lint, types and the test suite"
	@echo "make coverage        the test suite with a report of the lines it does not run"
	@echo "make smoke           the fast core of the test suite, in less than a minute"
	@echo "make test-slow       tests at the paper's scale (real datasets, many minutes)"
	@echo "make test-gpu        tests of GPU code; needs an NVIDIA GPU"
	@echo "make fuzz            random attacks, certificates, kills, damaged files and bad inputs, for ten minutes"
	@echo "make lint            formatting, lint and the layers of the packages"
	@echo "make types           mypy"
	@echo "make docs            build the documentation in site/ and check its links; open site/index.html"
	@echo "make clean-accuracy  retrain the models of docs/clean-accuracy.md and render the page"
	@echo "make clean           remove the virtual environment and all caches"

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
		{ echo "edgeproof needs Python 3.10 or newer; try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || \
		{ rm -rf $(VENV); echo "python3 cannot create virtual environments; on Debian: apt install python3-venv"; exit 1; }
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: $(INSTALLED)
	$(BIN)/edgeproof demo

test: lint types
	$(PYTEST) -m "not slow" $(PARALLEL)

coverage: $(INSTALLED)
	$(PYTEST) -m "not slow" $(PARALLEL) --cov --cov-report=term-missing:skip-covered

smoke: $(INSTALLED)
	$(PYTEST) tests --smoke -m "not slow" $(PARALLEL) -q

test-slow: $(INSTALLED)
	$(BIN)/python -m pytest -m slow

# PY may be a Python outside .venv, such as one with a CUDA build of torch.
PY ?= $(BIN)/python
test-gpu:
	@$(PY) -c 'import torch; raise SystemExit(not torch.cuda.is_available())' || { echo "$(PY) finds no CUDA GPU"; exit 1; }
	$(PY) -m pytest -m "not slow" tests/kernels tests/propagation/test_recorded_run.py \
		tests/attacks/test_recorded.py tests/certificates/test_sampling.py

# For example: make fuzz MINUTES=1 SEED=3 KINDS="attacks damage"
MINUTES ?= 10
SEED ?= 0
FUZZ_OPTIONS = --minutes $(MINUTES) --seed $(SEED) $(if $(KINDS),--kinds $(KINDS)) $(if $(OUT),--out $(OUT))
fuzz: $(INSTALLED)
	OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 PYTHONPATH=tools $(BIN)/python -m fuzz $(FUZZ_OPTIONS)

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(INSTALLED)
	$(BIN)/mypy --strict src

# MkDocs prints a notice about its version 2, which is not used.
docs: $(INSTALLED)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	$(BIN)/python tools/check_links.py site

clean-accuracy: $(INSTALLED)
	$(BIN)/python studies/clean_accuracy.py run
	$(BIN)/python studies/clean_accuracy.py

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage site

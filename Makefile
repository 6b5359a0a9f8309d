# make demo and make test do all set-up themselves, in .venv; they need python3 (3.10 or newer, with venv).
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: help demo test test-slow test-gpu lint types docs clean-accuracy clean

help:
	@echo "make demo            train, attack and certify four models on a small generated graph; writes report.html"
	@echo "make test            lint, types and the test suite"
	@echo "make test-slow       the paper-scale tests (real data, many minutes)"
	@echo "make test-gpu        the tests of what runs on an NVIDIA GPU, on one"
	@echo "make docs            the documentation site, into site/; open site/index.html"
	@echo "make clean-accuracy  retrain the models of docs/clean-accuracy.md and render the page"
	@echo "make clean           remove the virtual environment and all caches"

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
		{ echo "edgeproof needs Python 3.10 or newer; try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || \
		{ rm -rf $(VENV); echo "python3 cannot make virtual environments; on Debian: apt install python3-venv"; exit 1; }
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: $(INSTALLED)
	$(BIN)/edgeproof demo

test: lint types
	OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow" -n auto --dist loadfile --cov --cov-report=term-missing:skip-covered

test-slow: $(INSTALLED)
	$(BIN)/python -m pytest -m slow

# With a torch that knows CUDA; PY may be another Python than that of .venv.
PY ?= $(BIN)/python
test-gpu:
	@$(PY) -c 'import torch; raise SystemExit(not torch.cuda.is_available())' || { echo "there is no CUDA GPU here, or $(PY) cannot use it"; exit 1; }
	$(PY) -m pytest -m "not slow" tests/kernels tests/propagation/test_recorded_run.py \
		tests/attacks/test_recorded.py tests/certificates/test_sampling.py

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(INSTALLED)
	$(BIN)/mypy --strict src

# The notice is about another program than the one used here.
docs: $(INSTALLED)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

clean-accuracy: $(INSTALLED)
	$(BIN)/python studies/clean_accuracy.py run
	$(BIN)/python studies/clean_accuracy.py

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage site

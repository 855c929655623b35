# Every target sets up what it needs. `make help` lists them.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
OLD    := .venv-heritage
LAB    := $(BIN)/python -m lab

.PHONY: help install docs run heritage test test-all test-gpu check lint hostile torture clean-end listing-proof band oracle bench results mutants lock golden errors notebooks \
	notebooks-write jupyter samples clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(VENV)/.host  ## the host's part alone, without TensorFlow: what a box with Docker needs

run: $(VENV)/.tensorflow  ## train MNIST asynchronously on 1 ps and 3 workers, for a few epochs
	$(LAB) run async --epochs 3 --backend auto

heritage: $(OLD)/.complete  ## the Python for programs of 2017: Estimator, and Horovod (8 minutes)

test: $(VENV)/.dev  ## unit, golden, property and short end-to-end tests (10 minutes)
	$(BIN)/python -m pytest tests/unit tests/hostile --numprocesses 3 --dist worksteal
	$(BIN)/python -m pytest tests/e2e -m "not long"

test-all: test  ## all tests: also containers, programs of 2017, notebooks, long faults (50 minutes)
	$(BIN)/python -m pytest tests/e2e -m long

test-gpu: $(VENV)/.dev  ## the inventory of real GPUs against nvidia-smi; says aloud where there is none
	$(BIN)/python -m pytest tests/gpu -rs

hostile: $(VENV)/.dev  ## 100,000 odd descriptions, 10,000 command lines, 2,000 damaged runs and more (20 minutes)
	$(BIN)/python -m tests.hostile

torture: $(VENV)/.dev  ## small trainings with one fault each, into docs/evidence/torture.md (Ctrl-C ends it)
	$(BIN)/python -m tests.torture --policies fail,restart,continue

clean-end: $(VENV)/.dev  ## how 275 synchronous trainings end (three hours on two cores)
	$(BIN)/python -m tests.torture --clean-end

listing-proof: $(VENV)/.dev  ## one training of 82,500 steps as a listing, into docs/evidence/listings.md (2 to 5 minutes)
	$(BIN)/python -m benchmarks.listing_proof

check: lint test  ## what to run before a change; .ci/run is what must hold before it lands

lint: $(VENV)/.dev  ## formatting, lint, strict types, layers, vocabulary, and the site of the documents
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python tools/vocabulary.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet

golden: $(VENV)/.dev  ## write the expected outputs in tests/golden anew; read the diff before you commit
	$(BIN)/python -m pytest tests/unit/test_golden.py --update-golden

bench: $(VENV)/.dev  ## measure everything into benchmarks/RESULTS.md (three hours; nothing else may run)
	$(BIN)/python -m benchmarks

results: $(VENV)/.dev  ## train what the sources describe; write docs/results.md and the README's counts (20 minutes)
	$(BIN)/python tools/results.py

docs: $(VENV)/.dev  ## build the documents as a site into build/docs, without network access
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet
	@echo "open build/docs/index.html"

errors: $(VENV)/.dev  ## write docs/errors.md anew, with examples from the unit tests (4 minutes)
	$(BIN)/python -m pytest tests/unit --numprocesses 3 --dist worksteal --update-errors

mutants: $(VENV)/.dev  ## faults on purpose that the unit tests must find, into docs/evidence/mutants.md (10 minutes)
	$(BIN)/python -m tools.mutants

jupyter: $(VENV)/.notebooks  ## JupyterLab with the lessons in notebooks/, for this machine alone
	$(BIN)/python -m jupyterlab --ip=127.0.0.1 --ServerApp.root_dir="$(CURDIR)" \
		--ServerApp.preferred_dir="$(CURDIR)/notebooks" --LabApp.default_url=/lab/tree/notebooks/00_tour.ipynb

notebooks: $(VENV)/.dev  ## execute all notebooks from top to bottom, one after the other (3 minutes)
	$(BIN)/python tools/notebooks.py --execute

notebooks-write: $(VENV)/.dev  ## make the .ipynb files of the notebooks' .py anew, without outputs
	$(BIN)/python tools/notebooks.py

samples: $(VENV)/.dev  ## make the notebooks' sample runs anew (10 minutes; nothing else should run)
	$(BIN)/python tools/samples.py

band: $(VENV)/.dev  ## the NumPy reference of the whole chapter: where its accuracies must lie (6 minutes)
	$(BIN)/python -m benchmarks.oracle_band

oracle: $(VENV)/.dev  ## the NumPy reference of the chapter again: the bands of `lab reproduce` (10 minutes)
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks.chapter_oracle $(VENV)/oracle

lock: $(VENV)/.dev  ## resolve requirements/*.txt anew from pyproject.toml
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/python tools/lock.py

# A set of requirements is a superset of the one before it: host, then TensorFlow, then the tools.
# The requirement files carry hashes, so that what is installed is what was tested.

$(BIN)/python:
	$(PYTHON) tools/require.py
	$(PYTHON) -m venv $(VENV)

$(VENV)/.host $(VENV)/.tensorflow $(VENV)/.notebooks $(VENV)/.dev: $(VENV)/.%: requirements/%.txt pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

# A Python of its own: Horovod is compiled against the last TensorFlow that has Estimator.

$(OLD)/.complete: export HOROVOD_WITH_TENSORFLOW := 1
$(OLD)/.complete: export HOROVOD_WITH_GLOO := 1
$(OLD)/.complete: export HOROVOD_WITHOUT_MPI := 1
$(OLD)/.complete: requirements/heritage.txt requirements/horovod.txt
	$(PYTHON) tools/require.py heritage
	rm -rf $(OLD)
	$(PYTHON) -m venv $(OLD)
	$(OLD)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes \
		-r requirements/heritage.txt
	PATH="$(CURDIR)/$(OLD)/bin:$$PATH" $(OLD)/bin/python -m pip install --quiet \
		--disable-pip-version-check --no-build-isolation --no-deps --no-binary horovod \
		--require-hashes -r requirements/horovod.txt
	touch $@

clean:  ## remove what the targets above made; runs/ stays
	rm -rf $(VENV) $(OLD) .pytest_cache .ruff_cache .mypy_cache .hypothesis

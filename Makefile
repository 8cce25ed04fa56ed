# `make demo` and `make test` do everything that any machine can; `make test-all` needs more of it (tests/setup/README.md).
# Variables: PYTHON (to make .venv with), SANDBOX=local|apptainer (for demo), IMAGE and BASE (of SANDBOX=apptainer).
PYTHON ?= python3
SANDBOX ?= local
IMAGE ?= light
BASE ?=
NAMED = "base": $(if $(BASE),"$(BASE)",null)
CONTAINERS = 'containers={"agent": {"image": "$(IMAGE)", $(NAMED)}, "scorer": {$(NAMED)}}'
SNAKEMAKE = PATH="$(CURDIR)/.venv/bin:$$PATH" snakemake

ifeq ($(filter local apptainer,$(SANDBOX)),)
$(error SANDBOX=$(SANDBOX) is unknown; use SANDBOX=local or SANDBOX=apptainer)
endif

RUN_ENVS = envs/host.txt envs/light.txt envs/scorer.txt
TEST_ENVS = $(RUN_ENVS) envs/dev.txt
DEMO_OPTIONS = $(if $(filter apptainer,$(SANDBOX)),--configfile demo/config.yaml demo/apptainer.yaml --config $(CONTAINERS))

# What any machine can try in minutes: units, contracts, one workflow from end to end, one look at the page.
EVERYWHERE = tests/unit tests/contract tests/workflow/test_demo.py
LOOK = tests/browser/test_leaderboard_page.py
# `.ci/run` has checked types and style when it comes to `test-all`.
BEFORE_TESTS ?= check
# A process more than there are cores, as some tests wait; where most do, for containers, jobs and processes, two more.
CORES := $(shell nproc 2>/dev/null || echo 2)
PYTEST = .venv/bin/python -m pytest
BUSY = -n $(shell echo $$(($(CORES) + 1))) --maxprocesses 8
WAITING = -n $(shell echo $$(($(CORES) + 2))) --maxprocesses 8

.PHONY: help setup setup-dev setup-radiology setup-bench bench demo test test-all test-long check
.PHONY: format types lint images schemas pins docs unlock clean
.SUFFIXES:
.DELETE_ON_ERROR:

help:
	@echo "make demo    set up, run five scripted agents on real images, show the ranking (minutes; SANDBOX=apptainer isolates)"
	@echo "make test    set up, check style and types, run what is tested everywhere (minutes)"
	@echo "make test-all   that, then Apptainer, Slurm, attacks, browser, kills   make test-long  all there is, for hours"
	@echo "make check   style, types and workflow lint only        make images  light.sif and scorer.sif (IMAGE=research BASE=...)"
	@echo "make schemas config/schemas from the models             make pins    envs/*.txt from pyproject.toml, envs/*.in"
	@echo "make bench   measure the metrics beside other libraries, into docs/performance.md"
	@echo "make docs    docs/ as a site, build/site/docs/index.html; warnings and broken links are errors"
	@echo "make setup-radiology  torch and RadGraph for the clinical report metrics (docs/data.md)"
	@echo "make unlock  after a killed run: remove Snakemake's lock make clean   the demo's results and data"

setup: .venv/.run-ready
setup-dev: .venv/.test-ready

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 15))' || \
	  { echo "Python 3.11 to 3.14 is needed; $(PYTHON) is $$($(PYTHON) -V 2>&1). Set PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -m venv .venv >/dev/null 2>&1 || bash tests/setup/venv.sh "$(PYTHON)" .venv

.venv/.run-ready: $(RUN_ENVS) pyproject.toml | .venv/bin/python
	@echo "Installing pinned packages into .venv (a minute or two) ..."
	@.venv/bin/python -m pip install -q --disable-pip-version-check --use-pep517 $(RUN_ENVS:%=-r %)
	@.venv/bin/python -m pip install -q --disable-pip-version-check --no-deps -e .
	@touch $@

.venv/.test-ready: $(TEST_ENVS) .venv/.run-ready
	@.venv/bin/python -m pip install -q --disable-pip-version-check -r envs/dev.txt
	@touch $@

# Thousands of modules of which few are ever loaded: those are compiled when they are.
.venv/.radiology-ready: envs/radiology.txt .venv/.run-ready
	@echo "Installing torch, transformers and radgraph into .venv ..."
	@.venv/bin/python -m pip install -q --disable-pip-version-check --no-compile -r envs/radiology.txt
	@touch $@

.venv/.bench-ready: envs/bench.txt .venv/.run-ready
	@echo "Installing the libraries to measure against into .venv ..."
	@.venv/bin/python -m pip install -q --disable-pip-version-check -r envs/bench.txt
	@touch $@

.venv/.docs-ready: envs/docs.txt .venv/.run-ready
	@.venv/bin/python -m pip install -q --disable-pip-version-check -r envs/docs.txt
	@touch $@

setup-radiology: .venv/.radiology-ready
setup-bench: .venv/.bench-ready

bench: .venv/.bench-ready .venv/.test-ready
	@.venv/bin/python benchmarks/write_tables.py

demo: .venv/.run-ready
	@$(SNAKEMAKE) --profile profiles/demo $(DEMO_OPTIONS)

images: .venv/.run-ready
	@$(SNAKEMAKE) --cores 1 --config $(CONTAINERS) -- images/$(IMAGE).json images/scorer.json

check: .venv/.test-ready
	@$(MAKE) --no-print-directory --jobs=2 --output-sync types lint format

format: .venv/.test-ready
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/snakefmt --check Snakefile rules

types: .venv/.test-ready
	@.venv/bin/mypy

lint: .venv/.test-ready
	@$(SNAKEMAKE) --lint

# Types take one core for most of a minute: they are checked while the tests run, and what is wrong is told afterwards.
test: format lint
	@mkdir -p build
	@.venv/bin/mypy >build/types.log 2>&1 & types=$$!; $(PYTEST) $(BUSY) $(EVERYWHERE) $(LOOK); tests=$$?; \
	  wait $$types || { cat build/types.log; exit 2; }; exit $$tests

test-all: $(BEFORE_TESTS)
	@$(PYTEST) $(WAITING) tests

test-long: $(BEFORE_TESTS)
	@AMB_KILLS=200 AMB_STORM=500 $(PYTEST) -m "" $(BUSY) tests

schemas: .venv/.run-ready
	@.venv/bin/python tools/make_schemas.py config/schemas

docs: .venv/.docs-ready
	@.venv/bin/python docs/make_architecture.py
	@.venv/bin/sphinx-build -q -b html -n -W --keep-going -c docs -d build/site-cache . build/site
	@echo "build/site/docs/index.html"

pins: .venv/.test-ready
	@bash envs/pin.sh

unlock: .venv/.run-ready
	@$(SNAKEMAKE) --profile profiles/demo --unlock

# What the demo made, and nothing else: other results were paid for, or took days. Logs of other campaigns stay with them.
clean:
	@rm -rf results/demo data/demo
	@[ -n "$$(ls -A results 2>/dev/null)" ] || rm -rf logs
	@rmdir --ignore-fail-on-non-empty results data 2>/dev/null || true

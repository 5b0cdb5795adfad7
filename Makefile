# GProj CI. `make help` lists what there is; everything runs in .venv, which is made on first use.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
MEMBERS := kernels/suite kernels/gproj dashboards service workers
# An index with smaller builds of torch, for machines without a GPU: make TORCH_INDEX=https://download.pytorch.org/whl/cpu
TORCH_INDEX ?=
PYTEST_ARGS ?=
BENCH_ARGS ?=
PORT ?= 8000

.DEFAULT_GOAL := help
.PHONY: help demo serve test test-faults bench-load bench-pages lint format browser clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1|\2/' | column -t -s '|' 2>/dev/null \
		|| grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST)

demo: $(VENV)/ready ## Watch the whole path: three commits, three verdicts (DEMO_ONCE=1 ends with them)
	$(BIN)/gprojci demo

serve: $(VENV)/ready ## Start everything on this machine (PORT=8000), data in gprojci-data/
	$(BIN)/gprojci serve --port $(PORT)

test: $(VENV)/ready browser ## Run all tests (PYTEST_ARGS="-k name" for some)
	$(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --max-worker-restart 0 --dist loadfile \
		--no-loadscope-reorder $(PYTEST_ARGS)

test-faults: $(VENV)/ready ## Kill each process at each step of a job, and all other faults (some minutes; `make test` does a part)
	ALL_FAULTS=1 $(BIN)/python -m pytest tests/faults $(PYTEST_ARGS)

bench-load: $(VENV)/ready ## Measure webhooks, claims, long reports and growing series (ten minutes; BENCH_ARGS="--only claims" for one)
	$(BIN)/python tests/load/bench_load.py $(BENCH_ARGS)

bench-pages: $(VENV)/ready browser ## Measure every page on 10,000 commits (some minutes; BENCH_ARGS="--only lnt" for the small one)
	$(BIN)/python tests/load/bench_pages.py $(BENCH_ARGS)

lint: $(VENV)/ready ## Check style, types and import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/ready ## Format the code
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

browser: $(VENV)/ready ## Make sure that there is a Chromium for the tests of the pages
	@$(BIN)/python tests/browser/find_chromium.py --install

clean: ## Remove the environment, the demo and all caches; gprojci-data/ stays
	rm -rf $(VENV) .demo .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/ready: constraints.txt pyproject.toml $(MEMBERS:%=%/pyproject.toml)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed; name one with: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) \
		--group dev $(MEMBERS:%=--editable %)
	@touch $@

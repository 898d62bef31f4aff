# Everything below works with GNU make and Python >= 3.10 alone; each target makes what it needs in $(VENV).
# pip's own settings (proxy, index, certificates) are used as they are.

PYTHON ?= python3
VENV ?= .venv
DEMO ?= demo

PY := $(VENV)/bin/python
# How pytest is called; `make test PYTEST_ARGS='-k tar -x'` runs a part.
PYTEST_ARGS ?= -n 3
# Tests that run make themselves are not to take it for a part of this one.
CLEAN_ENV := env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL -u MAKEOVERRIDES

.PHONY: help demo test lint types docs fresh ci clean

help: ## say what the targets do
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-8s %s\n", $$1, $$2}' Makefile

demo: $(VENV)/.run ## fetch real data, repack it, verify it, show the labels of every shard before and after
	$(PY) scripts/quickstart.py "$(DEMO)"

test: $(VENV)/.test ## run the tests
	$(CLEAN_ENV) $(PY) -m pytest $(PYTEST_ARGS)

lint: $(VENV)/.lint ## ruff
	$(PY) -m ruff check

types: $(VENV)/.lint ## mypy, strict
	$(PY) -m mypy

docs: $(VENV)/.test ## write docs/cli.md again and run what the docs show
	$(PY) scripts/write_cli_docs.py
	$(CLEAN_ENV) $(PY) -m pytest -q tests/test_docs.py

fresh: $(VENV)/.test ## is docs/cli.md what the commands' help says?
	$(PY) scripts/write_cli_docs.py --check

ci: ## what .ci/run does: all of the above in an environment of its own
	.ci/run

clean: ## remove what make made
	rm -rf "$(VENV)" .venv-ci "$(DEMO)" build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# One environment; a stamp for every set of packages in it. A changed pyproject.toml installs again.
$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo '$(PYTHON) is older than Python 3.10: make PYTHON=/path/to/a/newer/python3' >&2; exit 1; }
	$(PYTHON) -m venv "$(VENV)"

$(VENV)/.run: pyproject.toml | $(VENV)/bin/python
	$(PY) -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/.test: pyproject.toml | $(VENV)/bin/python
	$(PY) -m pip install --quiet --disable-pip-version-check -e '.[test]'
	@touch $@

$(VENV)/.lint: pyproject.toml | $(VENV)/bin/python
	$(PY) -m pip install --quiet --disable-pip-version-check -e '.[test,lint]'
	@touch $@

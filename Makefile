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

# Environments of the heavy readers. A build of torch for the CPU is enough: TORCH may be a file, or options for pip
# that find one. Nothing here may pull in torchvision, which would replace it by a build of several gigabytes.
REAL ?= $(VENV)-real
TORCH ?= torch==2.13.0
TORCH_READERS ?= nvidia-dali-cuda120==2.4.0 datasets==5.2.0 lancedb==0.40.0 wids==0.1.11 webdataset==1.0.2 grain==0.2.18 pillow
TF_READERS ?= tensorflow-cpu==2.21.0 tensorflow-datasets==4.9.10
ENERGON ?= megatron-energon==7.4.1
# What Energon's loader imports, without what its tools do.
ENERGON_NEEDS ?= multi-storage-client s3fs rapidyaml pyyaml braceexpand bitstring ebmlite filetype lru-dict mfusepy pillow
# Without their own requirements, of which counting samples needs none.
BARE_READERS ?= open_clip_torch==3.3.0

.PHONY: help demo test real torch lint types docs fresh ci clean

help: ## say what the targets do
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-8s %s\n", $$1, $$2}' Makefile

demo: $(VENV)/.run ## fetch real data, repack it, verify it, show the labels of every shard before and after
	$(PY) scripts/quickstart.py "$(DEMO)"

test: $(VENV)/.test ## run the tests
	$(CLEAN_ENV) $(PY) -m pytest $(PYTEST_ARGS)

real: $(VENV)/.test $(REAL)/tf/.done $(REAL)/energon/.done torch ## run every real reader; write docs/readers.md
	SHARDTOOL_READERS=$(REAL)/default.json $(CLEAN_ENV) $(PY) -m pytest -q tests/real
	SHARDTOOL_READERS=$(REAL)/torch.json $(CLEAN_ENV) $(REAL)/torch/bin/python -m pytest -q -m real \
	  tests/real/test_dali.py tests/real/test_datasets.py tests/real/test_torch.py tests/real/test_open_clip.py \
	  tests/real/test_verify.py tests/test_docs.py tests/disk/test_exports_dali.py \
	  tests/loaders/test_real_loaders.py
	SHARDTOOL_READERS=$(REAL)/tf.json $(CLEAN_ENV) $(REAL)/tf/bin/python -m pytest -q -m real \
	  tests/real/test_tensorflow.py
	$(CLEAN_ENV) $(REAL)/tf/bin/python -m pytest -q -m real tests/real/test_verify.py tests/test_docs.py
	$(CLEAN_ENV) $(REAL)/tf/bin/python -m pytest -q -m real tests/loaders/test_real_loaders.py -k tfdata
	SHARDTOOL_READERS=$(REAL)/energon.json $(CLEAN_ENV) $(REAL)/energon/bin/python -m pytest -q -m real \
	  tests/real/test_energon.py tests/test_docs.py
	$(PY) scripts/write_reader_table.py $(REAL)/*.json

torch: $(REAL)/torch/.done ## run shardtool.torch in the real DataLoader and StatefulDataLoader (part of make real)
	$(CLEAN_ENV) $(REAL)/torch/bin/python -m pytest -q -m real tests/torch_loader tests/test_docs.py -k 'torch'

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
	rm -rf "$(VENV)" "$(REAL)" .venv-ci "$(DEMO)" build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
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

INSTALL := -m pip install --quiet --disable-pip-version-check

$(REAL)/torch/.done: pyproject.toml Makefile | $(VENV)/bin/python
	$(PYTHON) -m venv "$(REAL)/torch"
	$(REAL)/torch/bin/python $(INSTALL) $(TORCH)
	$(REAL)/torch/bin/python $(INSTALL) -e '.[test,torchdata]' $(TORCH_READERS)
	$(REAL)/torch/bin/python $(INSTALL) --no-deps $(BARE_READERS)
	@touch $@

$(REAL)/tf/.done: pyproject.toml Makefile | $(VENV)/bin/python
	$(PYTHON) -m venv "$(REAL)/tf"
	$(REAL)/tf/bin/python $(INSTALL) -e '.[test]' $(TF_READERS)
	@touch $@

$(REAL)/energon/.done: pyproject.toml Makefile | $(VENV)/bin/python
	$(PYTHON) -m venv "$(REAL)/energon"
	$(REAL)/energon/bin/python $(INSTALL) $(TORCH)
	$(REAL)/energon/bin/python $(INSTALL) --no-deps $(ENERGON)
	$(REAL)/energon/bin/python $(INSTALL) -e '.[test]' $(ENERGON_NEEDS)
	@touch $@

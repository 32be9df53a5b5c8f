# `make demo` and `make test` each work on a fresh machine that has Python 3.11 or newer and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test lint docs package pictures clean

demo: $(VENV)/installed
	@$(BIN)/gramian demo

test: $(VENV)/tested lint docs
	$(BIN)/python -m pytest --numprocesses logical --maxprocesses 4 --dist worksteal --durations 15

lint: $(VENV)/tested
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/codespell

docs: $(VENV)/documented
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "the documentation is in site/index.html"

package: $(VENV)/tested
	$(BIN)/python scripts/check_package.py
	$(BIN)/python scripts/check_image.py

pictures: $(VENV)/tested # those of README and docs, from the journals in benchmarks/results and from the examples
	$(BIN)/python benchmarks/pictures.py
	cd docs/pictures && for example in ../../examples/*.py; do ../../$(BIN)/python $$example >/dev/null || exit 1; done
	cd docs/pictures && rm -rf cosine ease edlae table.*

clean:
	rm -rf $(VENV) site dist

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) --editable .
	@touch $@

$(VENV)/documented: $(VENV)/installed
	$(PIP) --editable '.[docs]'
	@touch $@

$(VENV)/tested: $(VENV)/installed
	$(PIP) --editable '.[test]'
	@touch $@

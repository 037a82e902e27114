# Each target makes .venv itself when it is missing or older than what it is made from.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test lint bench docs clean
.DEFAULT_GOAL := help

help:
	@echo "make demo   simulate a cohort, train, compare with a linear baseline, write an HTML report"
	@echo "make test   run the tests          make lint   ruff, mypy, import-linter"
	@echo "make bench  speed and memory here  make docs   build the documentation"

$(STAMP): pyproject.toml constraints.txt
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	$(PIP) torch==2.13.0
	$(PIP) --editable ".[test]"
	touch $@

demo: $(STAMP)
	$(BIN)/python -m bnt.cli.demo demo

test: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist loadgroup $(TESTS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(STAMP)
	$(BIN)/bnt bench all

docs: $(STAMP)
	$(PIP) --editable ".[docs]"
	$(BIN)/sphinx-build -W -b html docs docs/_build/html

clean:
	rm -rf $(VENV) demo docs/_build .pytest_cache .mypy_cache .ruff_cache

# Each target makes .venv itself when it is missing or older than what it is made from.
# The Python outside .venv, also where .venv is activated: it is removed before it is made anew.
OUTSIDE := $(shell echo "$$PATH" | tr ':' '\n' | grep -vxF "$(CURDIR)/.venv/bin" | paste -sd:)
PYTHON ?= $(shell PATH="$(OUTSIDE)"; command -v python3.11 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: help demo test lint bench docs wheel clean
.DEFAULT_GOAL := help

help:
	@echo "make demo   simulate a cohort, train, compare with a linear baseline, write an HTML report"
	@echo "make test   run the tests          make lint   ruff, mypy, import-linter"
	@echo "make bench  speed and memory here  make docs   build the documentation"
	@echo "make wheel  build a wheel and use it outside the checkout"

# torch first and by its exact version: other packages ask for ranges that newer, much larger builds satisfy.
$(STAMP): pyproject.toml constraints.txt
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	$(PIP) torch==2.13.0
	$(PIP) --editable ".[test]"
	touch $@

demo: $(STAMP)
	rm -rf demo
	$(BIN)/bnt simulate demo/cohort --subjects 300 --rois 60 --sites 6 --seed 0
	$(BIN)/bnt info demo/cohort
	$(BIN)/bnt compare demo/cohort --models best bnt svm --splits 4 --out demo/study
	$(BIN)/bnt predict demo/study/runs/best--split0--seed0 demo/cohort --out demo/predictions.csv
	$(BIN)/bnt report demo/study
	@echo "Open demo/study/report.html in a browser."

# One thread per process: two processes that use both cores each are slower than two with one. Bytecode is kept even
# where the environment says otherwise: tests start dozens of processes that import the package.
test: $(STAMP)
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadgroup --durations 20 $(TESTS)

lint: $(STAMP)
	$(BIN)/ruff check --no-cache .  # a cached answer misses a module that moved to another folder
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(STAMP)
	$(BIN)/bnt bench all

docs: $(STAMP)
	$(PIP) --editable ".[docs]"
	$(BIN)/sphinx-build -E -W --keep-going -q -b html docs docs/_build/html
	@echo "Open docs/_build/html/index.html in a browser."

wheel: $(STAMP)
	.ci/wheel $(BIN)/python

clean:
	rm -rf $(VENV) demo docs/_build docs/commands docs/gallery .pytest_cache .mypy_cache .ruff_cache

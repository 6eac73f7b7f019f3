# Each target makes its own environment on a fresh machine with Python 3.11 or newer.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.ready

.PHONY: demo test test-all lint types unit coverage bench figures clean

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(STAMP): pyproject.toml $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet -e '.[test]'
	@touch $@

$(VENV)/.gpu: pyproject.toml $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet -e '.[gpu]'
	@touch $@

demo: $(VENV)/.gpu
	$(BIN)/python examples/operators.py
	@echo; echo "# A serving program"; echo; echo "$$ castq run examples/serving/chat.sq"
	@$(BIN)/castq run examples/serving/chat.sq
	@echo; echo "# The shapes that an engine runs"; echo; echo "$$ castq shapes plan --settings examples/shapes/ascend.yaml"
	@$(BIN)/castq shapes plan --settings examples/shapes/ascend.yaml

test: $(STAMP) lint types coverage

lint: $(STAMP)
	$(BIN)/ruff check src tests bench examples tools
	$(BIN)/ruff format --check src tests bench examples tools

types: $(STAMP)
	$(BIN)/mypy

unit: $(STAMP)
	$(BIN)/pytest -n 2

coverage: $(STAMP)
	$(BIN)/pytest -n 2 --cov --cov-report=term:skip-covered

# Every interpreter from 3.11 to 3.14 that this machine has; one without is named and passed over.
test-all:
	@for version in 3.11 3.12 3.13 3.14; do \
	  if ! python$$version -c '' 2>/dev/null; then echo "python$$version: not on this machine"; continue; fi; \
	  $(MAKE) unit PYTHON=python$$version VENV=.venv-$$version || exit 1; \
	done

figures: $(STAMP)
	$(BIN)/python tools/figures.py

bench: $(STAMP)
	$(BIN)/python -m pip install --quiet pyserq || echo "no pyserq for this Python: castq alone is timed"
	$(BIN)/python bench/lookup.py
	$(BIN)/python bench/load.py
	$(BIN)/python bench/cold.py
	$(BIN)/python bench/shapes.py
	$(BIN)/python bench/serving.py

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist

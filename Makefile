# Each target makes its own environment on a fresh machine with Python 3.11 or newer.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.ready

.PHONY: demo test lint types unit bench clean

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

test: $(STAMP) lint types unit

lint: $(STAMP)
	$(BIN)/ruff check src tests bench examples tools
	$(BIN)/ruff format --check src tests bench examples tools

types: $(STAMP)
	$(BIN)/mypy

unit: $(STAMP)
	$(BIN)/pytest -n 2

bench: $(STAMP)
	$(BIN)/python -m pip install --quiet pyserq || echo "no pyserq for this Python: castq alone is timed"
	$(BIN)/python bench/lookup.py
	$(BIN)/python bench/load.py
	$(BIN)/python bench/cold.py
	$(BIN)/python bench/serving.py

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist

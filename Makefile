# Every target sets up what it needs: a fresh machine with Python 3.11+, git and make is enough.
PYTHON ?= python3
BIN := .venv/bin
FUZZ_INPUTS ?= 200000
# Tests and the demo start hundreds of processes: what one has compiled, the next need not.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup demo test check fuzz bench clean

setup: .venv/ready

.venv/ready: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,spark]'
	$(BIN)/tidelog kernels warm
	touch $@

demo: setup
	$(BIN)/tidelog demo $(DEMO)

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: check
	$(BIN)/pytest --numprocesses 3 --dist worksteal

.venv/ready-to-fuzz: .venv/ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[fuzz]'
	touch $@

fuzz: .venv/ready-to-fuzz
	$(BIN)/python tests/fuzz_wire.py -runs=$(FUZZ_INPUTS)

bench: setup
	$(BIN)/python -m bench

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis .fuzz

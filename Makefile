# Everything a developer runs. `make help` lists the targets; recipes are short and the work is in tools/.
# CLUSTER=current uses the current context of your kubeconfig; DETACH=1 lets `make up` return;
# CHECK=1 makes a missed bar of a benchmark an error. PYTHON=python3.13 chooses the interpreter of
# .venv, and makes it anew where it has another one; VENV=folder keeps several.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory --no-builtin-rules

PYTHON ?= python3
CLUSTER ?= simulated
VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
VERSION = $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
# Without a wish for an interpreter the environment that is there will do.
ANY_STAMP := $(if $(filter file,$(origin PYTHON)),$(firstword $(wildcard $(VENV)/.complete-*)))
STAMP := $(or $(ANY_STAMP),$(VENV)/.complete-$(VERSION))
# Without the development environment `make demo` makes a smaller one, in half the time.
DEMO_VENV := $(if $(wildcard $(VENV)/.complete-*),$(VENV),.venv-demo)
DEMO_STAMP = $(if $(filter $(VENV),$(DEMO_VENV)),$(STAMP),$(DEMO_VENV)/.complete-$(VERSION))
# The schema for editors, which the first line of each example names.
SCHEMA := docs/schemas/duepoint.json
FILES ?= examples
PYTEST_ARGS ?=
UV := .venv-uv/bin/uv
SYNC = $(UV) sync --quiet --frozen --python "$$($(PYTHON) -c 'import sys; print(sys.executable)')"
# The supported versions; continuous integration runs the unit tests on each that is installed.
PYTHONS ?= python3.11 python3.12 python3.13
# Test processes. With servers there are thrice as many as the two cores that this was measured on:
# those tests wait for most of their time, for slots, leases and Jobs.
WORKERS ?= 6
# Nothing here tests the log records that pytest would gather for each of thousands of tests. A third
# process works while one of the others waits.
WITHOUT_SERVER = $(BIN)/pytest -n 3 --dist worksteal -p no:logging
export CHECK
# Compiled tests are kept, or half of what `make test-unit` does would be compiling them.
unexport PYTHONDONTWRITEBYTECODE

##@ Running

.PHONY: demo
demo: $(DEMO_STAMP) $(SCHEMA) ## the examples without a cluster, in seconds, with a live view (FILES=folder)
	@PYTHONPATH=operator $(DEMO_VENV)/bin/python -m duepoint run -f $(FILES) --receive 8089

# What is imported is compiled when it is, which is a tenth of everything.
.venv-demo/.complete-%: uv.lock $(UV)
	@echo "Creating .venv-demo with Python $(VERSION) (usually 10 s)" >&2
	@UV_PROJECT_ENVIRONMENT=.venv-demo $(SYNC) --no-dev --no-install-project --extra run
	@touch $@

$(SCHEMA): $(wildcard operator/duepoint/model/*) tools/jobschema/editors.py | $(DEMO_STAMP)
	@mkdir -p $(@D)
	@PYTHONPATH=operator $(DEMO_VENV)/bin/python -m tools.jobschema.editors > $@

.PHONY: up
up: $(STAMP) $(SCHEMA) ## a cluster without root or Docker, Valkey, operator, worker, receiver and examples, with a live view (DETACH=1, ONLY=cluster)
ifeq ($(ONLY),cluster)
	@$(PY) -m tools.devcluster up --cluster $(CLUSTER)
else
	@$(PY) -m tools.up --cluster $(CLUSTER) $(if $(filter-out 0,$(DETACH)),--detach)
endif

.PHONY: env
env: $(STAMP) ## print shell commands to use that cluster: eval "$(make env)"
	@$(PY) -m tools.devcluster env

.PHONY: real
real: $(STAMP) ## a node that runs containers, and on it the image, the chart and the examples (CLUSTER=current IMAGE=, BASE=python:3.11-slim)
	@$(PY) -m tools.realnode --cluster $(REAL) up

.PHONY: down
down: ## stop everything that `make up` and `make real` started; objects and Redis of the former are kept
	@test ! -x $(PY) || $(PY) -m tools.devcluster down

##@ Getting ready

.PHONY: help
help: ## show this list
	@awk 'BEGIN {FS = ":.*## "} \
	  /^##@ / {printf "\n%s\n", substr($$0, 5)} \
	  /^[a-zA-Z_%-]+:.*## / {sub("%", "NAME", $$1); printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo

.PHONY: venv
venv: $(STAMP) ## create .venv with everything that is locked, and duepoint itself from its sources

# The stamp comes last, so that an interrupted creation is repeated.
$(STAMP): uv.lock pyproject.toml $(UV)
	@echo "Creating $(VENV) with Python $(VERSION) (usually 20 s)" >&2
	@rm -f $(VENV)/.complete-*
	@UV_PROJECT_ENVIRONMENT=$(VENV) $(SYNC) --extra cli --extra login --extra kafka --extra otel
	@touch $(VENV)/.complete-$(VERSION)

# Our own, by its hash, so that every machine installs by the same one.
$(UV): tools/uv-bin.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Duepoint needs Python 3.11 or later; choose one: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -m venv --clear .venv-uv \
	  || { echo "venv is missing; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@.venv-uv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement $<
	@touch $@

##@ Checking

.PHONY: format
format: $(STAMP) ## format the code and repair what the linter can
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

.PHONY: lint
lint: $(STAMP) ## format, style, spelling, types (mypy, strict) and who may import whom, changing nothing
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/codespell $$(git ls-files | grep -v -e '\.lock$$' -e 'go\.sum$$')
	$(BIN)/mypy -p duepoint -p tools -p benchmarks
	$(BIN)/lint-imports

.PHONY: generate
generate: $(STAMP) $(UV) $(SCHEMA) ## write what is made of sources: CRDs and schemas, tables of pages, the chart's renderings (CHECK=1 compares; LOCK=1 resolves the dependencies again)
ifdef LOCK
	$(UV) lock --upgrade
else
	$(PY) -m tools.generate $(if $(CHECK),--check)
endif

##@ Testing

# Tests of real seconds (limits of time, a collector that hangs) that need no server.
WAITING_TESTS = $(addprefix tests/integration/,cli client kube/test_usersessions.py)
# The API server itself, the CRDs and the chart on it, and a firing to each kind of target.
API_SERVER_TESTS = tests/integration/test_development_cluster.py tests/integration/crds \
  tests/integration/kube tests/integration/chart tests/conformance/test_kube.py \
  $(addprefix tests/e2e/test_,$(addsuffix .py,firing jobs streams scheduleruns sets_for_people))
WITH_SERVERS = $(BIN)/pytest -n $(WORKERS) --dist loadgroup

.PHONY: test
test: $(STAMP) ## every test, on servers of its own (PYTEST_ARGS="-k name"; SERVERS=none: what needs none; KUBERNETES=1.35: on that API server; REDIS=7.0: on that server)
ifeq ($(SERVERS),none)
	@$(WITHOUT_SERVER) tests/unit tests/scenarios tests/repository tests/chaos $(WAITING_TESTS) $(PYTEST_ARGS)
else ifdef KUBERNETES
	@env -u KUBEBUILDER_ASSETS DUEPOINT_KUBERNETES=$(KUBERNETES) $(PY) -m tools.devcluster run --tool helm -- \
	  $(WITH_SERVERS) $(API_SERVER_TESTS) $(PYTEST_ARGS)
else ifdef REDIS
	@if command -v redis-server >/dev/null; then tool=; \
	elif $(PY) -m tools.devcluster tool redis-server >/dev/null; then tool="--tool redis-server"; \
	else echo "No Redis here, see above: the tests on it are left out" >&2; exit; fi; \
	$(PY) -m tools.devcluster run --tool helm $$tool -- $(WITH_SERVERS) -k redis-server $(PYTEST_ARGS)
else
	@$(PY) -m tools.devcluster run --tool helm -- $(WITH_SERVERS) $(PYTEST_ARGS)
endif

.PHONY: test-unit
test-unit: $(STAMP) ## the product's tests that need nothing but an embedded Valkey, in seconds
	@$(WITHOUT_SERVER) tests/unit $(PYTEST_ARGS)

# A node of our own where this machine can have one, or the user's cluster.
REAL = $(if $(filter current,$(CLUSTER)),current,real)

.PHONY: test-real
test-real: $(STAMP) ## image and chart on a node that runs containers, as users have them (CLUSTER=current IMAGE=, PYTEST_ARGS=)
	@$(PY) -m tools.realnode --cluster $(REAL) check \
	  || { echo "The tests on a real node are left out" >&2; exit 0; }; \
	$(PY) -m tools.realnode --cluster $(REAL) run -- $(SHELL) $(.SHELLFLAGS) \
	  '$(BIN)/pytest -n 3 -m "not alone" tests/real $(PYTEST_ARGS) && $(BIN)/pytest -m alone tests/real $(PYTEST_ARGS)'

.PHONY: simulate
simulate: $(STAMP) ## random histories of an installation in virtual time, on a real Valkey (SEEDS=1:300, SCOPE=random|storms|crowds|replacing|singles|kinds, STORY=, PART=1/4, SHOW=seed)
	@PYTHONPATH=operator:. $(PY) -m tests.simulation $(if $(SHOW),--show $(SHOW)) \
	  --seeds $(or $(SEEDS),1:300) --scope $(or $(SCOPE),random) $(if $(STORY),--story $(STORY)) \
	  $(if $(PART),--part $(PART))

.PHONY: chaos
chaos: $(STAMP) ## faults on real processes for eight minutes, and the verdict (KIND=single|cluster|sentinel, or real: an hour on a node, SMALL=1, SOAK=1: an hour of takeovers, SEED=, FAULTS=a,b, ROUNDS=, CHECK=stored history)
ifdef CHECK
	@$(PY) -m tests.chaos --check $(CHECK)
else ifeq ($(KIND),real)
	@$(PY) -m tools.realnode run -- $(PY) -m tests.chaos.realnode
else
	@$(PY) -m tools.devcluster run --tool helm -- $(PY) -m tests.chaos --kind $(or $(KIND),single) \
	  --size $(if $(SMALL),small,$(if $(SOAK),soak --faults kill-leader,usual)) \
	  $(if $(SEED),--seed $(SEED)) $(if $(FAULTS),--faults $(FAULTS)) \
	  $(if $(ROUNDS),--rounds $(ROUNDS))
endif

# What tests run on; they build it themselves if this was not done.
.PHONY: .build .pythons .redis
.build: $(STAMP)
	@$(PY) -m tools.devcluster build --tool helm
	@if $(PY) -m tools.realnode check; then $(PY) -m tools.realnode build; fi

# Every other supported Python that is installed, in environments of their own.
.pythons:
	@for python in $(filter-out python$(VERSION),$(PYTHONS)); do \
	  if $$python -c '' 2>/dev/null; \
	  then echo "Tests without a server on $$python" >&2; $(MAKE) test SERVERS=none PYTHON=$$python VENV=.venv-$$python; \
	  else echo "No $$python here: left out" >&2; fi; \
	done

.redis: lint docs .pythons
	@$(MAKE) test REDIS=7.0

# The tests on a real node wait for most of their time, so everything but `make test` runs meanwhile;
# what each says comes when it has ended.
.PHONY: ci
ci: $(STAMP) ## exactly what continuous integration runs
	@$(MAKE) --jobs=3 --output-sync=target .build .venv-docs/.complete
	@$(MAKE) --jobs=4 --output-sync=target test-real .redis
	@$(PY) -m tools.without redis-server openssl kubectl -- $(MAKE) test

##@ Documentation

.PHONY: docs
docs: .venv-docs/.complete $(SCHEMA) ## the documentation as a site in build/site; a broken link is an error (SERVE=1: on port 8000, built anew while pages are edited)
	@NO_MKDOCS_2_WARNING=1 .venv-docs/bin/python -m mkdocs \
	  $(if $(SERVE),serve --watch README.md --watch CHANGELOG.md,build --strict)

.venv-docs/.complete: uv.lock $(UV)
	@echo "Creating .venv-docs (usually 5 s)" >&2
	@UV_PROJECT_ENVIRONMENT=.venv-docs $(SYNC) --only-group docs
	@touch $@

##@ Releasing

.PHONY: release
release: $(STAMP) ## every file of a release in dist/, from the commit (IMAGE=repository PUSH=1 COSIGN_KEY=key|keyless)
	@$(PY) -m tools.release $(if $(IMAGE),--image $(IMAGE)) $(if $(PUSH),--push) \
	  $(if $(COSIGN_KEY),--cosign-key $(COSIGN_KEY)) $(RELEASE_ARGS)

##@ Measuring

# What needs no cluster, and what needs a node that runs containers.
BENCH_ALONE = members peers queue webhook
BENCH_PLACE = $(if $(filter $(BENCH_ALONE),$(NAME)),,$(if $(filter real-%,$(NAME)),$(PY) -m tools.realnode run --,\
  $(PY) -m tools.devcluster run --tool helm $(if $(filter api,$(NAME)),--tool vegeta) --))

.PHONY: bench
bench: $(STAMP) ## a benchmark of docs/reference/benchmarks.md (NAME=lateness, PARTS=, SMALL=1, COUNT=, SECONDS=, CHECK=1), or the short ones
	@$(if $(filter redis-server,$(KIND)),DUEPOINT_TEST_REDIS_SERVER="$$(command -v redis-server || $(PY) -m tools.devcluster tool redis-server)") \
	$(BENCH_PLACE) $(PY) -m benchmarks $(NAME) $(PARTS)

##@ Cleaning

.PHONY: clean
clean: down ## stop everything and remove what was made here, data included; built binaries stay in the cache
	rm -rf $(VENV) .venv-* .duepoint build dist *.egg-info operator/*.egg-info
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .grimp_cache

# The only list of entry points. `make quickstart` and `make test` need nothing else by hand.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/logfleet
VENV := .venv
PY := $(VENV)/bin/python
UV_VERSION := 0.13.8
MEMBERS := broker_image operator spark-on-k8s e2e
SOURCES := broker_image operator charts spark-on-k8s e2e conftest.py
STAMP := $(VENV)/.logfleet-setup
PREPARE := $(addprefix spark-on-k8s/,prepare_spark.py fetch_jars.py jars.lock tables.lock) $(wildcard spark-on-k8s/conf/*)
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
# FULL=1 adds the tests marked `full`: they take long, and a shorter test shows the same rule.
export FULL
CHOSEN = $(if $(FULL),,-m "not full")
# The tests start brokers by the hundred: without compiled files each of them compiles all modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help: ## this list
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: quickstart
quickstart: $(STAMP) ## one broker, one topic, real records, a Spark job, and its counts compared with those of pandas
	@$(PY) -m e2e.quickstart $(if $(LATE),--late)

.PHONY: quickstart-late
quickstart-late: $(STAMP) ## quickstart with fewer flights and a watermark of 1 h, which drops late ones (also: quickstart LATE=1)
	@$(PY) -m e2e.quickstart --late

.PHONY: quickstarts
quickstarts: $(STAMP) # both at once
	@$(MAKE) --no-print-directory -j 2 --output-sync=target quickstart quickstart-late

.PHONY: setup
setup: $(STAMP) ## .venv with everything that the other targets use
	@echo "Ready. Next: source .venv/bin/activate && logfleet broker (see README.md); or make quickstart"

$(STAMP): e2e/requirements.lock $(addsuffix /pyproject.toml,$(MEMBERS)) $(PREPARE) $(wildcard broker_image/src/logfleet/wire/table/*) $(wildcard broker_image/src/logfleet/wire/stubs.py)
	@e2e/setup.sh $(VENV) $(UV_VERSION)
	@touch $@

.PHONY: lock
lock: $(STAMP) ## resolve all requirements.lock files again
	e2e/lock.sh

.PHONY: version
version: $(STAMP) ## write the version V=0.2.0 to the package, the charts, image tags and pages
	@$(PY) -m e2e.release.version "$(V)"

.PHONY: package
package: $(STAMP) ## packages, charts, images (where Docker is), bills of materials and SHA256SUMS, in dist/; nothing is published
	@$(PY) -m e2e.release.package

.PHONY: check
check: $(STAMP) ## lint, types and unit tests (before every commit; COVERED=1: and what they cover, which costs as much again)
	@$(MAKE) --no-print-directory -j 3 lint types unit

.PHONY: lint
lint: $(STAMP)
	ruff check $(SOURCES)
	ruff format --check $(SOURCES)
	PYTHONPATH=broker_image/src:operator/src:spark-on-k8s/src lint-imports --no-logo

.PHONY: types
types: $(STAMP)
	mypy $(SOURCES)

.PHONY: unit
unit: $(STAMP)
	pytest -q $(CHOSEN) -n auto --dist loadgroup $(if $(COVERED),-p e2e.coverage) --ignore=broker_image/tests/etcd $(wildcard broker_image/tests operator/tests e2e/tests)

.PHONY: coverage
coverage: $(STAMP) ## fail if a pure package's own tests cover less than 95 % of its lines and branches (in make test the unit tests do it)
	@$(PY) -m e2e.coverage

.PHONY: etcd-tests
etcd-tests: $(STAMP) ## the metadata store against every etcd on this machine, faults included (part of test-local)
	pytest -q $(CHOSEN) -n auto broker_image/tests/etcd

.PHONY: sim
sim: $(STAMP) ## simulate replicated partitions: the next SEEDS=6000 seeds (FIRST=n: from seed n, results not stored; MUTANTS=1: check that it finds broken rules)
	@$(PY) -m broker_image.tests.sim $(if $(SEEDS),--seeds $(SEEDS)) $(if $(FIRST),--first $(FIRST)) $(if $(MUTANTS),--mutants)

.PHONY: sim-share
sim-share: $(STAMP) ## the first 2,000 seeds of the simulation (part of test-local)
	@$(PY) -m broker_image.tests.sim --first 0 --seeds 2000

.PHONY: fmt
fmt: $(STAMP) ## format the sources
	ruff format $(SOURCES)
	ruff check --fix-only $(SOURCES)

.PHONY: test
test: $(STAMP) ## test-local, then the end-to-end suite (tests marked `full` run in release)
	@$(PY) -m e2e.parts tools jars build "check COVERED=1" sim-share etcd-tests local-suites spark quickstarts apiserver e2e

.PHONY: test-local
test-local: $(STAMP) ## make test without Kubernetes
	@$(PY) -m e2e.parts tools jars "check COVERED=1" sim-share etcd-tests local-suites spark quickstarts apiserver

.PHONY: release
release: $(STAMP) ## before a release, many hours: all tests and everything that other targets run by hand; one table in e2e/results/release.json
	@FULL=1 $(PY) -m e2e.parts --into e2e/results/release.json tools jars build "check COVERED=1" "sim SEEDS=50000" "sim MUTANTS=1" etcd-tests \
		local-suites spark quickstarts apiserver e2e-full oracle failover soak fuzz \
		bench bench-kafka bench-fleet bench-spark bench-groups bench-moves bench-topics bench-lag bench-testing bench-cli bench-console

.PHONY: pages
pages: $(STAMP) ## write the pages that are made from the code, then build the site into build/site and fail on links that lead nowhere
	@$(PY) -m e2e.pages.generated
	@.venv/bin/zensical build --strict

.PHONY: tools
tools: $(STAMP) ## Kubernetes' programs and helm, built once per version in minutes, and the Python of the operator's image (first part of test and test-local)
	@$(PY) -m e2e.lab tools
	@$(PY) -m e2e.harness.image_python

.PHONY: jars
jars: $(STAMP)
	@$(PY) -m e2e.kafka

.PHONY: build
build: $(STAMP) ## packages, the nodes' programs and the images for e2e (part of test; needs root and Linux)
	@$(PY) -m e2e.lab build

.PHONY: local-suites
local-suites: $(STAMP) ## clients against brokers and fleets that run as processes (part of test-local)
	pytest -q $(CHOSEN) -n auto --dist loadgroup e2e/suites/local

.PHONY: apiserver
apiserver: tools ## CRDs, charts and the operator against a real API server without nodes (part of test-local)
	pytest -q $(CHOSEN) -n 2 --dist loadfile --no-loadscope-reorder e2e/suites/apiserver

.PHONY: spark
spark: $(STAMP) ## tests of the Spark source and jobs, on Spark itself (needs Java)
	pytest -q $(CHOSEN) -n 2 --dist loadfile --no-loadscope-reorder --timeout=600 spark-on-k8s/tests

.PHONY: bench
bench: $(STAMP) ## processor time per record and request, compared with a bare server in the same run (REALTIME=1 on a busy machine, ONLY=part of a row's name)
	@$(PY) -m e2e.bench.requests $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(ONLY),--only "$(ONLY)") $(if $(REALTIME),--realtime)

.PHONY: bench-kafka
bench-kafka: $(STAMP) ## Apache Kafka and Logfleet side by side on this machine (ROWS=words ROUNDS=n SIZE=GiB MINUTES=n QUICK=1)
	@$(PY) -m e2e.bench.kafka $(if $(ROWS),--rows "$(ROWS)") $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(SIZE),--size $(SIZE)) \
		$(if $(MINUTES),--minutes $(MINUTES)) $(if $(QUICK),--quick)

.PHONY: bench-fleet
bench-fleet: $(STAMP) ## three Apache Kafkas beside three of our brokers, records with three replicas (ROWS=words ROUNDS=n QUICK=1)
	@$(PY) -m e2e.bench.fleet $(if $(ROWS),--rows "$(ROWS)") $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(QUICK),--quick)

.PHONY: bench-spark
bench-spark: $(STAMP) ## the data source `logfleet` and Spark's own connector in turns on one broker, about 25 minutes (ROUNDS=n ONLY=part of a row's name QUICK=1)
	@$(PY) -m e2e.bench.spark $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(ONLY),--only "$(ONLY)") $(if $(QUICK),--quick)

.PHONY: bench-groups
bench-groups: $(STAMP) ## processor time and memory of a broker for 1,000 consumer groups with 10,000 members (REALTIME=1 on a busy machine)
	@$(PY) -m e2e.bench.groups $(if $(REALTIME),--realtime)

.PHONY: bench-moves
bench-moves: $(STAMP) ## move 1 GiB: effect on producers, and whether the throttle is kept; then add three brokers to three: evenness afterwards (3 minutes)
	@$(PY) -m e2e.bench.moves

.PHONY: bench-topics
bench-topics: tools ## the operator with 2,000 Topics: time until a change is Ready, and its cost when idle (5 minutes; COUNT=n)
	@$(PY) -m e2e.bench.topics $(if $(COUNT),--count $(COUNT))

.PHONY: bench-lag
bench-lag: $(STAMP) ## delay of a broker's event loop under mixed load: alone, and with compaction, a stalling disk, expiring logs, a slow write (PHASE_S=n SIZE=MiB)
	@$(PY) -m e2e.bench.lag $(if $(PHASE_S),--seconds $(PHASE_S)) $(if $(SIZE),--size $(SIZE))

.PHONY: bench-testing
bench-testing: $(STAMP) ## how long a test waits for a broker or a fleet of logfleet.testing, and their memory (REALTIME=1 on a busy machine)
	@$(PY) -m e2e.bench.testing $(if $(REALTIME),--realtime)

.PHONY: bench-cli
bench-cli: $(STAMP) ## processor time of `logfleet produce` and `consume` beside kcat's, in turns (ROUNDS=n)
	@$(PY) -m e2e.bench.command_line $(if $(ROUNDS),--rounds $(ROUNDS))

.PHONY: bench-console
bench-console: $(STAMP) ## the console with 10,000 partitions: processor time of its sampler, times of its pages, memory (2 minutes)
	@$(PY) -m e2e.bench.console

.PHONY: oracle
oracle: $(STAMP) ## send the same requests to Apache Kafka and to a broker, and compare the responses (ONLY=regular expression on CORPUS/CASE)
	@$(PY) -m e2e.compare $(if $(ONLY),--only '$(ONLY)') $(if $(EXAMPLES),--examples $(EXAMPLES))

.PHONY: soak
soak: $(STAMP) ## kill a broker KILLS=200 times under mixed load; no acknowledged record may be lost (adds up in e2e/results)
	@$(PY) -m e2e.load.disk $(if $(KILLS),--kills $(KILLS))

.PHONY: failover
failover: $(STAMP) ## kill, pause and stop brokers and etcd under load, then under transactions: nothing acknowledged may be lost, outages are timed (ONLY=part of a fault COUNT=n; adds up in e2e/results)
	@$(PY) -m e2e.load.fleet $(if $(ONLY),--only "$(ONLY)") $(if $(COUNT),--count $(COUNT))
	@$(PY) -m e2e.load.transactions $(if $(ONLY),--only "$(ONLY)") $(if $(COUNT),--count $(COUNT)) $(if $(MINUTES),--minutes $(MINUTES))

.PHONY: fuzz
fuzz: $(STAMP) ## send EXAMPLES=100000 hostile requests and batches to a broker, in this process and over TCP (adds up in e2e/results)
	@$(PY) -m e2e.fuzz $(if $(EXAMPLES),--examples $(EXAMPLES)) $(if $(SEED),--seed $(SEED))

.PHONY: e2e
e2e: $(STAMP) ## end-to-end suites on a local Kubernetes of three zones (KEEP=1 leaves it up; needs root and Linux)
	$(PY) -m e2e.lab build
	$(PY) -m pytest -v --timeout=900 --durations=0 --durations-min=1 -m "not full" e2e/suites/kubernetes

.PHONY: e2e-full
e2e-full: $(STAMP) ## as `make e2e`, with the longer suites, which add and remove brokers (ONLY=part of a name)
	$(PY) -m e2e.lab build
	$(PY) -m pytest -v --timeout=1800 --durations=0 --durations-min=1 $(if $(ONLY),-k "$(ONLY)") e2e/suites/kubernetes

.PHONY: e2e-down
e2e-down: $(STAMP) ## remove everything that `make e2e` made on this machine except its caches
	$(PY) -m e2e.lab purge

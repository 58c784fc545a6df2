# `make help` lists what there is. Everything else begins with `make setup`, which is quick when nothing changed.

PYTHONS := $(or $(PYTHON),python3 python3.13 python3.12 python3.11)
FIRST := $(firstword $(PYTHONS))
VENV := .venv
BIN := $(VENV)/bin
# Spark starts many short Python processes: compiling the same modules in each costs half a second.
export PYTHONDONTWRITEBYTECODE :=

# One process more than a small machine has cores: a test waits for a broker or a disk half of its time.
PARALLEL := -n $(or $(PROCESSES),3) --dist loadgroup --no-loadscope-reorder

JAVA := $(if $(JAVA_HOME),$(JAVA_HOME)/bin/java,java)

.DEFAULT_GOAL := help
.PHONY: help setup demo test long histories mutants faults soak fuzz conformance classes page registry cdc stores tables watch cluster versions bench bench-quick docs clean

help: ## Lists the targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

# One line and an exit code other than 0 for whatever is missing. `.venv` is made anew when its Python does not
# run or is too old, or when the folder has moved (its scripts and its link to the sources hold the folder's name).
setup: ## Makes .venv, installs keyfold into it; once, fetches Kafka and makes class archives in the user's cache.
	@python=; for each in $(PYTHONS); do \
	  if "$$each" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then python=$$each; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
	  found=$$($(FIRST) --version 2>/dev/null) || found="not there"; \
	  echo "keyfold needs Python 3.11 or newer; '$(FIRST)' is $$found. Install one, or name it: make PYTHON=…" >&2; \
	  exit 1; \
	fi; \
	java=$$("$(JAVA)" -version 2>&1 | sed -n 's/.*version "\(1\.\)\{0,1\}\([0-9][0-9]*\).*/\2/p' | head -n 1); \
	if [ "$${java:-0}" -lt 17 ]; then \
	  echo "keyfold needs Java 17 or newer; '$(JAVA)' is $${java:-not there}$${java:+ (too old)}." \
	    "Install a headless JRE, or set JAVA_HOME." >&2; \
	  exit 1; \
	fi; \
	want="$(CURDIR) $$(cat pyproject.toml constraints.txt | cksum)"; \
	if ! $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	  || [ "$$(cat $(VENV)/.installed 2>/dev/null)" != "$$want" ]; then \
	  $(MAKE) --no-print-directory _install python="$$python" want="$$want" || exit 1; \
	fi; \
	$(BIN)/python -m connectors.jvm.artifacts && $(BIN)/python -m connectors.jvm.cds_archive

.PHONY: _install
_install:
	@here=$$(cut -d ' ' -f 1 $(VENV)/.installed 2>/dev/null); \
	if [ "$$here" != "$(CURDIR)" ] || ! $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	  rm -rf $(VENV); \
	  if ! "$(python)" -c 'import ensurepip, venv' 2>/dev/null; then \
	    echo "keyfold needs Python's venv module, which $(python) lacks. Install it (Debian: apt-get install python3-venv)." >&2; \
	    exit 1; \
	  fi; \
	  "$(python)" -m venv $(VENV) || exit 1; \
	fi
	@echo "installing keyfold and its tools into $(VENV): a few minutes the first time"
	@echo "  1 of 2: pip"
	@rm -f $(VENV)/.installed
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt pip setuptools
	@echo "  2 of 2: PySpark, Arrow and what else keyfold stands on, then keyfold itself"
	@PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
	  --no-build-isolation --editable '.[bench,demo,test]'
	@echo "$(want)" > $(VENV)/.installed

demo: setup ## Sends a year of flights through a real broker and shows what came out.
	@$(BIN)/keyfold demo

test: setup ## Lints, checks types and runs every test, those that take longest first (PROCESSES=2 for less memory).
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy -n 2
	$(BIN)/pytest $(PARALLEL)

long: setup ## Runs what `make test` leaves out: further cases of what it tries, and those of half a minute or more.
	@LONG=1 $(BIN)/pytest -v $(PARALLEL) -m long

faults: setup ## Tries every fault at every step, then 100 random kills (FAULT_KILLS=10 for fewer); takes hours. FAULTS_GO_ON=1 keeps what ran at this commit.
	@$(if $(FAULTS_GO_ON),$(BIN)/python -m tests.faults.matrix --keep build/faults.jsonl,rm -f build/faults.jsonl)
	@LONG=1 FAULTS=all FAULTS_GO_ON=$(FAULTS_GO_ON) FAULTS_MATRIX=$(CURDIR)/build/faults.jsonl $(BIN)/pytest -v -n 2 --dist loadgroup tests/faults; code=$$?; \
	  $(BIN)/python -m tests.faults.matrix build/faults.jsonl docs/reliability.md && exit $$code

soak: setup ## Runs a worker under a steady load for an hour (MINUTES=60, CONNECTORS=10 for ten that share it, FAILING=1 for two more that always fail) and tells what grew: build/soak.
	@$(BIN)/python -m tests.faults.soak --minutes $(or $(MINUTES),60) --connectors $(or $(CONNECTORS),1) $(if $(FAILING),--failing) --into build/soak

histories: setup ## Holds the engine against plain dicts over histories by chance (SEEDS=0-199 STEPS=40); names the seed that fails.
	@PYTHONHASHSEED=0 $(BIN)/python -m tests.support.oracle --seeds $(or $(SEEDS),0-199) --steps $(or $(STEPS),40)

mutants: setup ## Changes the rules one by one and lists which changes no test notices (MODULES=due,log_to_clean for some): build/mutants.
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt mutmut
	@$(BIN)/python -m tests.support.mutants $(MODULES)

fuzz: setup ## Gives every converter and transform hostile records for an hour (MINUTES=60, SEED=7 to try one again): each call ends soon, with a reason.
	@$(BIN)/python -m tests.support.fuzz --minutes $(or $(MINUTES),60) $(if $(SEED),--seed $(SEED))

conformance: setup ## Compares keyfold with Kafka's own cleaner over 200 workloads (SEEDS=17 for one alone), and with Kafka's classes (make classes).
	LONG=1 CONFORMANCE_SEEDS=$(or $(SEEDS),0-199) $(BIN)/pytest -v tests/conformance

classes: setup ## The part of conformance that asks Kafka's and Debezium's transforms and converters about 2,000 new records each (RECORDS=500 SEED=1).
	CONFORMANCE_SEEDS=0 CLASSES_RECORDS=$(RECORDS) CLASSES_SEED=$(SEED) $(BIN)/pytest -v tests/conformance/test_real_classes.py

page: setup ## Tries the worker's page in Chromium (apt-get install chromium) in every way and look, and renews docs/pictures; a quarter of an hour.
	@LONG=1 PICTURES=1 $(BIN)/pytest -v tests/page && echo build/page

registry: setup ## Tries the converters with Apicurio Registry and the serializers of confluent-kafka; fetches the registry once (109 MB).
	@LONG=1 REGISTRY=1 $(BIN)/pytest -v tests/registry

cdc: setup ## Compares 28 tables of a real PostgreSQL (apt-get install postgresql postgresql-contrib), read by Debezium in Kafka Connect, with output and snapshots; fetches Debezium once (24 MB).
	@LONG=1 CDC=1 $(BIN)/pytest -v tests/cdc

stores: setup ## Tries object stores: S3Proxy, Azurite, moto, a mock of Google's; half an hour; fetches the first two once (57 MB with Maven, 186 MB with npm).
	@LONG=1 STORES=1 $(BIN)/pytest -v tests/stores; code=$$?; $(BIN)/python -m tests.stores.workers && exit $$code

tables: setup ## Tries tables in Iceberg's REST catalog and in Glue, read by DuckDB's extensions and Spark, and each recipe of the docs; fetches those once (600 MB).
	@LONG=1 TABLES=1 $(BIN)/pytest -v tests/tables tests/unit/connectors/tables tests/unit/compactor/snapshot/test_recipes.py tests/spark/test_snapshot.py

watch: setup ## Has a real Prometheus watch a worker: every panel, every alert, and the pictures of docs/metrics.md (apt-get install prometheus chromium).
	@WATCH=1 $(BIN)/pytest -v tests/watch

cluster: setup ## Tries a standalone Spark cluster of bare machines with storage on S3: executors and master die, are slow, come and go.
	@LONG=1 CLUSTER=1 $(BIN)/pytest -v tests/cluster

versions: setup ## Tries other Pythons, Javas and PySparks, as far as this machine has them (NAMES="python-3.13 java-21" for some): build/versions.
	@$(BIN)/python -m tests.support.versions $(NAMES)

bench: setup ## Measures keyfold beside its peers and prints the table (ROWS=ready,fresh for some, ROWS=all, MINUTES=30 for sustained rows): build/bench; takes some three hours.
	@$(BIN)/python -m benchmarks $(if $(ROWS),--rows "$(ROWS)") $(if $(MINUTES),--minutes $(MINUTES))

bench-quick: setup ## Whether keyfold has become slower beside its peers, by ratios; some 3 minutes.
	@$(BIN)/python -m benchmarks.quick

docs: setup ## Builds the documentation as a site, with search: build/docs/index.html; fetches what builds it once.
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt mkdocs-material
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet && LONG=1 $(BIN)/pytest -q tests/unit/test_docs_site.py tests/unit/test_site_build.py && echo build/docs/index.html

clean: ## Removes .venv, the demo's folder and what tools left behind; not ~/.cache/keyfold, which has the broker and Spark's classes.
	rm -rf $(VENV) .demo build *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

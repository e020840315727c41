# `make help` lists the targets. Python packages go into .venv, JVM jars into RATIFY_CACHE (~/.cache/ratify), and state into
# RATIFY_HOME (.ratify).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
FLINK := $(VENV)/.flink

.PHONY: help setup demo demo-streaming prove dev test test-unit test-long lint lint-types lint-imports bench clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

# A line when a phase of the set-up begins, and its seconds when it has ended. uv draws its progress on a terminal, and lists
# every package elsewhere.
QUIET := $(shell [ -t 2 ] || echo --quiet)
define phase
@echo '$(1)' >&2; began=$$(date +%s); $(2) && echo "  done in $$(($$(date +%s) - began)) s" >&2
endef

# Compiled once: where PYTHONDONTWRITEBYTECODE is set, as in many containers, each Python process would compile again.
INSTALL := $(BIN)/uv pip install $(QUIET) --python $(BIN)/python

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed, $(PYTHON) is " + sys.version.split()[0] + ": name another with make PYTHON=…")'
	$(call phase,creating the Python environment $(VENV),$(PYTHON) -m venv $(VENV))
	$(call phase,installing uv,$(BIN)/python -m pip install --quiet --disable-pip-version-check uv)
	$(call phase,installing the Python packages of requirements.lock (about a minute),$(INSTALL) --compile-bytecode -r requirements.lock)
	$(call phase,installing Ratify into it,$(INSTALL) --no-deps -e .)
	@touch $(READY)

$(FLINK): $(READY) requirements-flink.lock
	$(call phase,installing the jars of Flink (330 MB),$(INSTALL) --compile-bytecode --no-deps -r requirements-flink.lock)
	@touch $(FLINK)

setup: $(READY) ## Install everything: Python packages, JVM jars, the connector
	$(BIN)/ratify setup

demo: setup ## Run the main job on real flights and print what it did
	$(BIN)/ratify demo

demo-streaming: setup ## Run tracker events through Kafka and reconcile every one
	$(BIN)/ratify demo --streaming

prove: setup $(FLINK) ## Run the cross-engine proof: Spark, Structured Streaming, DuckDB and Flink
	$(BIN)/ratify prove -a

dev: setup ## The embedded stack and the Dagster UI on http://127.0.0.1:3000, or PORT
	$(BIN)/ratify dev $(if $(PORT),--port $(PORT))

# Three processes keep two cores busy, because a test often waits; all of them share one stack. tests/run_schedule.py says
# which file runs when. Modules are compiled once: where PYTHONDONTWRITEBYTECODE is set, as in many containers, each of the
# hundreds of processes that tests start would compile them again.
WORKERS ?= 3
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest

# Most of the tests' Java servers live for a minute or two, and their tables have a few rows: the optimizing compiler, and
# Spark's generation of Java code for each query, would take half of their time. Without the former, Java's room for compiled
# code is small. The Spark that all tests share has the compiler (tests/conftest.py). `make test-long` runs with both.
test: export JAVA_TOOL_OPTIONS ?= -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m \
  -Dspark.sql.codegen.wholeStage=false -Dspark.sql.codegen.factoryMode=NO_CODEGEN
test: setup $(FLINK) ## What must hold before anything lands: all tests but the long tier
	$(PYTEST) -n $(WORKERS) -m "not long"

test-unit: $(READY) $(FLINK) ## The tests that need no catalog, Spark, browser or other server
	$(PYTEST) -n $(WORKERS) -m "not stack and not server and not browser and not long"

SHARD ?= 1/1
test-long: setup $(FLINK) ## The long tier, or a part of it (SHARD=2/6): what has not passed on this code yet
	$(PYTEST) -n $(WORKERS) --long-shard $(SHARD)

lint: $(READY) ## ruff, pyright, import-linter, deptry, dg check defs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(MAKE) --no-print-directory -j 2 lint-types lint-imports

# The type checker takes as long as all the others, on one core.
lint-types: $(READY)
	$(BIN)/pyright

lint-imports: $(READY)
	$(BIN)/lint-imports
	$(BIN)/deptry ratify_lakehouse orchestration assets resources
# Tests and benchmarks may import what the extra `dev` declares.
	$(BIN)/deptry tests bench --exclude '\.venv' --ignore DEP002,DEP004
	$(BIN)/dg check defs

bench: setup $(FLINK) ## The benchmarks; each prints ratios
	$(BIN)/python -m bench.command_start --spark
	$(BIN)/python -m bench.orchestration
	$(BIN)/python -m bench.landing_to_gold
	$(BIN)/python -m bench.catalog
	$(BIN)/python -m bench.ingest
	$(BIN)/python -m bench.ingest --growth
	$(BIN)/python -m bench.ledger
	$(BIN)/python -m bench.discovery
	$(BIN)/python -m bench.whole_ingest
	$(BIN)/python -m bench.engines
	$(BIN)/python -m bench.spark_pages
	$(BIN)/python -m bench.incremental --rows 1000000
	$(BIN)/python -m bench.sync
	$(BIN)/python -m bench.maintenance
	$(BIN)/python -m bench.maintenance_beside
	$(BIN)/python -m bench.kafka
	$(BIN)/python -m bench.flink

clean: ## Remove the environment and all state; the jars in ~/.cache/ratify stay for other projects
	-$(BIN)/ratify down
	rm -rf $(VENV) .ratify

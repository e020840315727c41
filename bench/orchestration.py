"""What orchestration costs: the medallion's SQL through Dagster, against the same SQL as a plain script.

    python -m bench.orchestration [--days 60] [--rounds 3] [--checks | --growth | --passes]

Both run the same queries and the same MERGEs for every silver and gold table of Spark, on the same warm Spark and the same
bronze rows, and write to schemas' tables of their own, dropped before each round, so that every round writes all rows.
The script does only that; Dagster also keeps events, metadata and row counts. With `--checks` it also runs the asset checks,
which a script has no counterpart for. Rounds alternate. Prints the ratio of the medians; aim: at most 1.5.

With `--growth` it measures instead a run that loads five new files, with all checks of their table: when 355 days have
landed, against when 60 have. Aim: at most 1.2.

With `--passes` it measures a run of five new files that brings every silver and gold table up to date, each by its engine,
without checks: its seconds after 65 days (aim: at most 8 on two cores), how many times that it takes up to day 365 (aim: at
most 1.2), and how many times that a run takes that computes all rows of each table.
"""

import argparse
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.execution.api import execute_run
from pyspark.sql import DataFrame
from rich.table import Table

from bench.ratios import console, timed, within_bounds
from orchestration.definitions import defs
from orchestration.jobs import medallion_job
from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.cli.sample_flights import land_days, landed_days
from ratify_lakehouse.components.landing_order import LANDING, landed_rows
from ratify_lakehouse.components.sql_table import ValidatedQuery, split_rows
from ratify_lakehouse.components.sql_table_component import SqlTable
from ratify_lakehouse.components.table_asset import asset_key, step_name
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.definitions.project_tables import declared_tables
from ratify_lakehouse.definitions.side_by_side import side_by_side_executor
from ratify_lakehouse.embedded.embedded_stack import running
from ratify_lakehouse.embedded.stack_state import StackConfig, StackState
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.engines.spark.merge_statements import merge_sql
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.landing.landing_zone import LandingZone
from ratify_lakehouse.settings import LAYERS, Settings
from ratify_lakehouse.sql.table_query import TableName

AIM = 1.5
GROWTH_AIM = 1.2
PASS_AIM_S = 8
ALL_DAYS = 365
FEW_DAYS, MANY_DAYS, NEW_FILES = 60, 355, 5
_QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
_LANDED = [source.table for source in declared_tables().sources]
_FLIGHTS_RAW = next(table for table in _LANDED if table.table_name == "bronze.flights_raw")


def _shipped() -> Sequence[SqlTable]:
    """Return the tables that are made of landed files."""
    keys = medallion_job.selection.resolve(defs.resolve_asset_graph())
    components = [component for component in declared_tables().components.values() if isinstance(component, SqlTable)]
    return [component for component in components if asset_key(component.table.declaration) in keys]


def _queries() -> Sequence[ValidatedQuery]:
    """Return the queries of those that Spark makes, each after its inputs."""
    tables = [component.table for component in _shipped() if component.engine == "spark"]
    left, ordered = {table.declaration.table_name: table for table in tables}, list[ValidatedQuery]()
    while left:
        ready = [name for name, table in left.items() if left.keys().isdisjoint(map(str, table.query.inputs))]
        ordered += [left.pop(name) for name in ready]
    return ordered


_QUERIES = _queries()
_TABLES = [table for query in _QUERIES for table in query.written]


def script(spark: Spark) -> None:
    """The medallion as one would write it without an orchestrator."""
    session, catalog = spark.session, spark.catalog.connection.name
    landed = {table.table_name for table in _LANDED}

    def merge(declaration: TableDeclaration, frame: DataFrame) -> None:
        session.sql(declaration.ddl(catalog)).collect()
        cached = frame.persist()
        cached.createOrReplaceTempView("merge_source")
        session.sql(merge_sql(declaration, declaration.full_name(catalog), "merge_source")).collect()
        cached.unpersist()

    for table in _QUERIES:

        def relation(name: TableName, text: str = table.query.text) -> str:
            full_name = name.full_name(catalog)
            return f"({landed_rows(spark, full_name)})" if str(name) in landed and LANDING in text else full_name

        text = table.query.resolved(relation)
        if not table.expectations.all:
            merge(table.declaration, session.sql(text))
            continue
        validated = spark.sql(table.expectations.validated(text)).persist()
        for declaration, query in zip(table.written, split_rows(table, table.query.columns), strict=False):
            merge(declaration, spark.sql(query, rows=validated))
        validated.unpersist()


def _assets(tables: Sequence[TableDeclaration]) -> list[dg.AssetsDefinition]:
    keys = {asset_key(table) for table in tables}
    materialized = (asset for asset in defs.assets or () if isinstance(asset, dg.AssetsDefinition))
    return [asset for asset in materialized if asset.keys <= keys]


def through_dagster(instance: dg.DagsterInstance, resources: Mapping[str, object], *, checks: bool) -> None:
    """The same tables as assets of one run."""
    keys = [asset_key(table) for table in _TABLES]
    definitions = dg.Definitions(
        assets=_assets(_TABLES),
        asset_checks=list(defs.asset_checks or ()) if checks else (),
        resources=dict(resources),
        executor=dg.in_process_executor,
        jobs=[dg.define_asset_job("bench", selection=dg.AssetSelection.assets(*keys))],
    )
    done = definitions.resolve_job_def("bench").execute_in_process(instance=instance, run_config=_QUIET)
    if not done.success:
        raise SystemExit("the run through Dagster failed: no ratio")


def _drop(spark: Spark) -> None:
    for table in _TABLES:
        spark.sql(f"DROP TABLE IF EXISTS {table.full_name(spark.catalog.connection.name)}").collect()


@dataclass(frozen=True)
class _Stack:
    """The resources on a running stack, and an instance of Dagster."""

    spark: Spark
    landing: str
    resources: Mapping[str, object]
    instance: dg.DagsterInstance


@contextmanager
def _opened(home: Path, state: StackState) -> Generator[_Stack]:
    catalog = UnityCatalog(host=state.catalog.url, token=state.catalog.token_file.read_text().strip())
    spark = Spark(catalog=catalog, remote=state.spark.remote if state.spark else "")
    duckdb, landing = DuckDB(catalog=catalog), str(home / "landing")
    resources = {"catalog": catalog, "spark": spark, "duckdb": duckdb, "landing": LandingZone(url=landing)}
    try:
        catalog.ensure_schemas(LAYERS)
        (home / "dagster").mkdir()
        with dg.DagsterInstance.local_temp(str(home / "dagster")) as instance:
            yield _Stack(spark, landing, resources, instance)
    finally:
        # Before the server: a client whose server has stopped retries for ten minutes.
        spark.close()
        duckdb.close()


def compared(stack: _Stack, days: int, rounds: int, *, checks: bool) -> bool:
    """Measure the medallion through Dagster against a script; return whether the aim is met."""
    land_days(stack.landing, days)
    dg.materialize(_assets(_LANDED), resources=stack.resources, instance=stack.instance, run_config=_QUIET)
    by_script, by_dagster = list[float](), list[float]()
    # The first round of each warms Spark and is not counted.
    for _ in range(rounds + 1):
        _drop(stack.spark)
        by_script.append(timed(lambda: script(stack.spark)))
        _drop(stack.spark)
        by_dagster.append(timed(lambda: through_dagster(stack.instance, stack.resources, checks=checks)))
    _drop(stack.spark)
    return _shown("plain script", by_script[1:], "through Dagster", by_dagster[1:], AIM)


def grown(stack: _Stack, rounds: int) -> bool:
    """Measure a run that loads five files after few and after many days; return whether the aim is met."""
    few = _ingests(stack, FEW_DAYS, rounds)
    many = _ingests(stack, MANY_DAYS - NEW_FILES * rounds, rounds)
    return _shown(f"after {FEW_DAYS} days", few, f"after {MANY_DAYS} days", many, GROWTH_AIM)


def _ingests(stack: _Stack, days: int, rounds: int) -> list[float]:
    """The seconds of runs that load five files each, once so many days are loaded, five in each batch."""
    missing = days - len(landed_days(stack.landing))
    land_days(stack.landing, missing)
    config = {"ops": {step_name(_FLIGHTS_RAW): {"config": {"max_files": NEW_FILES}}}}
    # A run without new files warms Spark, and lets each check pass once, as every run before has.
    for _ in range(2):
        _ingest(stack, config)
    seconds = list[float]()
    for _ in range(rounds):
        land_days(stack.landing, NEW_FILES)
        seconds.append(timed(lambda: _ingest(stack, {})))
    return seconds


def passes(stack: _Stack, rounds: int) -> bool:
    """Measure a run from five new files to gold after few and after many days; return whether the aims are met."""
    declared = _shipped()
    tables = [table for component in declared for table in component.table.written]
    whole = [each.model_copy(update={"strategy": "full"}) for each in declared]
    for copied, each in zip(whole, declared, strict=True):
        copied.place(each.folder)
    by_full = [asset for each in whole for asset in each.table_defs().assets or () if isinstance(asset, dg.AssetsDefinition)]
    few = _passes(stack, FEW_DAYS, rounds, _assets(tables))
    many = _passes(stack, ALL_DAYS - NEW_FILES * (rounds + 1), rounds, _assets(tables))
    # No day is left for these: they compute the rows of all days.
    full = _passes(stack, ALL_DAYS, rounds, by_full)
    first, last = FEW_DAYS + NEW_FILES, ALL_DAYS - NEW_FILES * rounds
    met = _shown(f"after {first} days", few, f"after {last} days", many, GROWTH_AIM)
    _shown(f"after {last} days", many, "all rows computed", full, None)
    what = f"five new files to gold after {first} days: seconds"
    return within_bounds([(what, statistics.median(few), PASS_AIM_S, False)]) and met


def _passes(stack: _Stack, days: int, rounds: int, tables: Sequence[dg.AssetsDefinition]) -> list[float]:
    """The seconds of runs of five new files each, or of none where no day is left, once so many days are loaded."""
    assets = [*_assets(_LANDED), *tables]

    job = dg.Definitions(
        assets=assets, resources=dict(stack.resources), executor=side_by_side_executor
    ).resolve_implicit_global_asset_job_def()

    def run() -> None:
        began = stack.instance.create_run_for_job(job, run_config=_QUIET)
        if not execute_run(InMemoryJob(job), began, stack.instance).success:
            raise SystemExit("a run failed: no ratio")

    land_days(stack.landing, days - len(landed_days(stack.landing)))
    # The first run loads what is missing, the second one warms Spark.
    run()
    few = min(NEW_FILES, ALL_DAYS - days)
    land_days(stack.landing, few)
    run()
    seconds = list[float]()
    for _ in range(rounds):
        land_days(stack.landing, few)
        seconds.append(timed(run))
    return seconds


def _ingest(stack: _Stack, config: Mapping[str, object]) -> None:
    key = asset_key(_FLIGHTS_RAW)
    checks = (check for check in defs.asset_checks or () if isinstance(check, dg.AssetsDefinition))
    chosen = [
        *_assets([_FLIGHTS_RAW]),
        *(check for check in checks if any(each.asset_key == key for each in check.check_keys)),
    ]
    done = dg.materialize(
        chosen, resources=stack.resources, instance=stack.instance, run_config={**_QUIET, **config}, raise_on_error=True
    )
    if failed := [found.check_name for found in done.get_asset_check_evaluations() if not found.passed]:
        raise SystemExit(f"checks failed, so nothing is measured: {', '.join(failed)}")


def _shown(one: str, ones: Sequence[float], other: str, others: Sequence[float], aim: float | None) -> bool:
    table = Table("what", "median s", "all s")
    for name, seconds in ((one, ones), (other, others)):
        table.add_row(name, f"{statistics.median(seconds):.1f}", ", ".join(f"{each:.1f}" for each in seconds))
    console.print(table)
    ratio = statistics.median(others) / statistics.median(ones)
    return within_bounds([(f"{other} against {one}: time", ratio, aim, False)])


def main() -> int:
    """Print the ratio; the exit code is 1 where it is over the aim."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=int, default=60, help="days of flights (default 60)")
    parser.add_argument("--rounds", type=int, default=3, help="counted rounds (default 3)")
    measures = parser.add_mutually_exclusive_group()
    measures.add_argument("--checks", action="store_true", help="run the asset checks too")
    measures.add_argument(
        "--growth", action="store_true", help="a run that loads five files, after 60 and 355 days, instead"
    )
    measures.add_argument(
        "--passes", action="store_true", help="a run from five new files to gold, after 65 and 350 days, instead"
    )
    given = parser.parse_args()
    jars = Settings().jars
    home = Path(tempfile.mkdtemp(prefix="ratify-bench-"))
    os.environ["RATIFY_HOME"] = str(home)
    try:
        with running(StackConfig(home=home, jars_dir=jars), console.print) as state, _opened(home, state) as stack:
            if given.passes:
                return 0 if passes(stack, given.rounds) else 1
            if given.growth:
                return 0 if grown(stack, given.rounds) else 1
            return 0 if compared(stack, given.days, given.rounds, checks=given.checks) else 1
    finally:
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())

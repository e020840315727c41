"""What orchestration costs: the medallion's SQL through Dagster, against the same SQL as a plain script.

    python -m bench.orchestration [--days 60] [--rounds 3] [--checks | --growth]

Both run the same queries and the same MERGEs for every silver and gold table of Spark, on the same warm Spark and the same
bronze rows, and write to schemas' tables of their own, dropped before each round, so that every round writes all rows.
The script does only that; Dagster also keeps events, metadata and row counts. With `--checks` it also runs the asset checks,
which a script has no counterpart for. Rounds alternate. Prints the ratio of the medians; aim: at most 1.5.

With `--growth` it measures instead a run that loads five new files, with all checks of their table: when 355 days have
landed, against when 60 have. Aim: at most 1.2.
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
from pyspark.sql import DataFrame
from rich.table import Table

from assets.bronze.landed_sources import AIRLINES, FLIGHTS_RAW, WEATHER
from assets.bronze.landed_sources import AIRPORTS as LANDED_AIRPORTS
from assets.bronze.landed_tables import bronze_assets
from assets.gold.gold_flights import AIRPORT_HOURLY, CARRIER_DAILY, ROUTE_DELAY, gold_assets
from assets.silver.silver_airports import AIRPORTS, AIRPORTS_QUARANTINE, AIRPORTS_VALIDATED
from assets.silver.silver_flights import FLIGHTS, FLIGHTS_QUARANTINE, FLIGHTS_VALIDATED, FLIGHTS_WEATHER, silver_assets
from assets.table_checks import FROM_FILES, all_checks
from bench.ratios import console, timed, within_bounds
from components.landing_order import read_input
from components.table_asset import asset_key, step_name
from embedded.embedded_stack import running
from embedded.stack_state import StackConfig, StackState
from orchestration.cli.sample_flights import land_days, landed_days
from orchestration.definitions import defs
from resources.catalog.unity_catalog import UnityCatalog
from resources.declarations import Engine, TableDeclaration
from resources.duckdb.duckdb_engine import DuckDB
from resources.landing.landing_zone import LandingZone
from resources.settings import LAYERS, Settings
from resources.spark.spark_engine import Spark, merge_sql

AIM = 1.5
GROWTH_AIM = 1.2
FEW_DAYS, MANY_DAYS, NEW_FILES = 60, 355, 5
_ASSETS = Path(__file__).parents[1] / "assets"
_QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
_TABLES = tuple(table for table in FROM_FILES if table.writer is Engine.SPARK)


def script(spark: Spark) -> None:
    """The medallion as one would write it without an orchestrator."""
    session, catalog = spark.session, spark.catalog.connection.name

    def query(path: str, **tables: TableDeclaration) -> DataFrame:
        frames = {name: read_input(spark, table) for name, table in tables.items()}
        return spark.sql((_ASSETS / path).read_text(), **frames)

    def merge(declaration: TableDeclaration, frame: DataFrame) -> None:
        session.sql(declaration.ddl(catalog)).collect()
        cached = frame.persist()
        cached.createOrReplaceTempView("ratify_merge_source")
        session.sql(merge_sql(declaration, declaration.full_name(catalog))).collect()
        cached.unpersist()

    for tables, text, raw in (
        ((AIRPORTS, AIRPORTS_QUARANTINE), AIRPORTS_VALIDATED, {"airports": LANDED_AIRPORTS.table}),
        ((FLIGHTS, FLIGHTS_QUARANTINE), FLIGHTS_VALIDATED, {"flights_raw": FLIGHTS_RAW.table, "airports": AIRPORTS}),
    ):
        validated = spark.sql(text, **{name: read_input(spark, table) for name, table in raw.items()}).persist()
        for declaration in tables:
            merge(declaration, session.sql((_ASSETS / f"silver/{declaration.name}.sql").read_text(), validated=validated))
        validated.unpersist()
    queries = {
        "silver/flights_weather.sql": (FLIGHTS_WEATHER, {"flights": FLIGHTS, "weather": WEATHER.table}),
        "gold/carrier_daily.sql": (CARRIER_DAILY, {"flights": FLIGHTS, "airlines": AIRLINES.table}),
        "gold/route_delay.sql": (ROUTE_DELAY, {"flights": FLIGHTS, "airports": AIRPORTS}),
        "gold/airport_hourly.sql": (AIRPORT_HOURLY, {"flights": FLIGHTS, "flights_weather": FLIGHTS_WEATHER}),
    }
    for path, (declaration, tables) in queries.items():
        merge(declaration, query(path, **tables))


def through_dagster(instance: dg.DagsterInstance, resources: Mapping[str, object], *, checks: bool) -> None:
    """The same tables as assets of one run."""
    keys = {asset_key(table) for table in _TABLES}
    definitions = dg.Definitions(
        assets=[asset for asset in (*silver_assets, *gold_assets) if asset.keys <= keys],
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
    dg.materialize(bronze_assets, resources=stack.resources, instance=stack.instance, run_config=_QUIET)
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
    config = {"ops": {step_name(FLIGHTS_RAW.table): {"config": {"max_files": NEW_FILES}}}}
    # A run without new files warms Spark, and lets each check pass once, as every run before has.
    for _ in range(2):
        _ingest(stack, config)
    seconds = list[float]()
    for _ in range(rounds):
        land_days(stack.landing, NEW_FILES)
        seconds.append(timed(lambda: _ingest(stack, {})))
    return seconds


def _ingest(stack: _Stack, config: Mapping[str, object]) -> None:
    key = asset_key(FLIGHTS_RAW.table)
    chosen = [
        *(asset for asset in bronze_assets if key in asset.keys),
        *(check for check in all_checks if any(each.asset_key == key for each in check.check_keys)),
    ]
    done = dg.materialize(
        chosen, resources=stack.resources, instance=stack.instance, run_config={**_QUIET, **config}, raise_on_error=True
    )
    if failed := [found.check_name for found in done.get_asset_check_evaluations() if not found.passed]:
        raise SystemExit(f"checks failed, so nothing is measured: {', '.join(failed)}")


def _shown(one: str, ones: Sequence[float], other: str, others: Sequence[float], aim: float) -> bool:
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
    given = parser.parse_args()
    jars = Settings().home / "jars"
    home = Path(tempfile.mkdtemp(prefix="ratify-bench-"))
    os.environ["RATIFY_HOME"] = str(home)
    try:
        with running(StackConfig(home=home, jars_dir=jars), console.print) as state, _opened(home, state) as stack:
            if given.growth:
                return 0 if grown(stack, given.rounds) else 1
            return 0 if compared(stack, given.days, given.rounds, checks=given.checks) else 1
    finally:
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())

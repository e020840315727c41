"""What orchestration costs: the medallion's SQL through Dagster, against the same SQL as a plain script.

    python -m bench.orchestration [--days 60] [--rounds 3]

Both run the same queries and the same MERGEs for every silver and gold table of Spark, on the same warm Spark and the same
bronze rows, and write to schemas' tables of their own, dropped before each round, so that every round writes all rows.
The script does only that; Dagster also keeps events, metadata and row counts. With `--checks` it also runs the asset checks,
which a script has no counterpart for. Rounds alternate. Prints the ratio of the medians; aim: at most 1.5.
"""

import argparse
import shutil
import statistics
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import dagster as dg
from pyspark.sql import DataFrame
from rich.console import Console
from rich.table import Table

from assets.bronze.landed_sources import AIRLINES, AIRPORTS, FLIGHTS_RAW, WEATHER
from assets.bronze.landed_tables import bronze_assets
from assets.gold.gold_flights import AIRPORT_HOURLY, CARRIER_DAILY, ROUTE_DELAY, gold_assets
from assets.silver.silver_flights import FLIGHTS, FLIGHTS_QUARANTINE, FLIGHTS_VALIDATED, FLIGHTS_WEATHER, silver_assets
from bench.ratios import timed
from components.table_asset import asset_key
from embedded.embedded_stack import running
from embedded.stack_state import StackConfig, StackState
from orchestration.cli.sample_flights import land_days
from orchestration.definitions import defs
from resources.catalog.unity_catalog import UnityCatalog
from resources.declarations import TableDeclaration
from resources.duckdb.duckdb_engine import DuckDB
from resources.landing.landing_zone import LandingZone
from resources.settings import LAYERS, Settings
from resources.spark.spark_engine import Spark, merge_sql

AIM = 1.5
_ASSETS = Path(__file__).parents[1] / "assets"
_QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
_TABLES = (FLIGHTS, FLIGHTS_QUARANTINE, FLIGHTS_WEATHER, CARRIER_DAILY, ROUTE_DELAY, AIRPORT_HOURLY)


def script(spark: Spark) -> None:
    """The medallion as one would write it without an orchestrator."""
    session, catalog = spark.session, spark.catalog.connection.name

    def query(path: str, **tables: TableDeclaration) -> DataFrame:
        frames = {name: session.table(table.full_name(catalog)) for name, table in tables.items()}
        return spark.sql((_ASSETS / path).read_text(), **frames)

    def merge(declaration: TableDeclaration, frame: DataFrame) -> None:
        session.sql(declaration.ddl(catalog)).collect()
        cached = frame.persist()
        cached.createOrReplaceTempView("ratify_merge_source")
        session.sql(merge_sql(declaration, declaration.full_name(catalog))).collect()
        cached.unpersist()

    inputs = {"flights_raw": FLIGHTS_RAW.table, "airports": AIRPORTS.table}
    frames = {name: session.table(table.full_name(catalog)) for name, table in inputs.items()}
    within_bounds = spark.sql(FLIGHTS_VALIDATED, **frames).persist()
    for declaration in (FLIGHTS, FLIGHTS_QUARANTINE):
        merge(
            declaration, session.sql((_ASSETS / f"silver/{declaration.name}.sql").read_text(), within_bounds=within_bounds)
        )
    within_bounds.unpersist()
    queries = {
        "silver/flights_weather.sql": (FLIGHTS_WEATHER, {"flights": FLIGHTS, "weather": WEATHER.table}),
        "gold/carrier_daily.sql": (CARRIER_DAILY, {"flights": FLIGHTS, "airlines": AIRLINES.table}),
        "gold/route_delay.sql": (ROUTE_DELAY, {"flights": FLIGHTS, "airports": AIRPORTS.table}),
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


def _measure(days: int, rounds: int, home: Path, state: StackState, *, checks: bool) -> tuple[list[float], list[float]]:
    catalog = UnityCatalog(host=state.catalog.url, token=state.catalog.token_file.read_text().strip())
    spark = Spark(catalog=catalog, remote=state.spark.remote if state.spark else "")
    duckdb = DuckDB(catalog=catalog)
    resources = {"catalog": catalog, "spark": spark, "duckdb": duckdb, "landing": LandingZone(url=str(home / "landing"))}
    try:
        catalog.ensure_schemas(LAYERS)
        land_days(str(home / "landing"), days)
        (home / "dagster").mkdir()
        with dg.DagsterInstance.local_temp(str(home / "dagster")) as instance:
            dg.materialize(bronze_assets, resources=resources, instance=instance, run_config=_QUIET)
            by_script, by_dagster = list[float](), list[float]()
            # The first round of each warms Spark and is not counted.
            for _ in range(rounds + 1):
                _drop(spark)
                by_script.append(timed(lambda: script(spark)))
                _drop(spark)
                by_dagster.append(timed(lambda: through_dagster(instance, resources, checks=checks)))
            _drop(spark)
    finally:
        # Before the server: a client whose server has stopped retries for ten minutes.
        spark.close()
        duckdb.close()
    return by_script[1:], by_dagster[1:]


def main() -> int:
    """Print the ratio; the exit code is 1 where it is over the aim."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=int, default=60, help="days of flights (default 60)")
    parser.add_argument("--rounds", type=int, default=3, help="counted rounds (default 3)")
    parser.add_argument("--checks", action="store_true", help="run the asset checks too")
    given = parser.parse_args()
    jars = Settings().home / "jars"
    console = Console()
    home = Path(tempfile.mkdtemp(prefix="ratify-bench-"))
    try:
        with running(StackConfig(home=home, jars_dir=jars), console.print) as state:
            by_script, by_dagster = _measure(given.days, given.rounds, home, state, checks=given.checks)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    ratio = statistics.median(by_dagster) / statistics.median(by_script)
    table = Table("what", "median s", "all s")
    table.add_row("plain script", f"{statistics.median(by_script):.1f}", ", ".join(f"{s:.1f}" for s in by_script))
    table.add_row("through Dagster", f"{statistics.median(by_dagster):.1f}", ", ".join(f"{s:.1f}" for s in by_dagster))
    console.print(table)
    console.print(f"ratio Dagster / script: {ratio:.2f} (aim: at most {AIM})")
    return 0 if ratio <= AIM else 1


if __name__ == "__main__":
    sys.exit(main())

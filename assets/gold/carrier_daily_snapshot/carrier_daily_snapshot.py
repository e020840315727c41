"""The days of every carrier as they were first known: a table that no kind makes, as an asset in Python.

DuckDB appends each day once, and its commits are as safe as those of every other table.
"""

import datetime as dt
import time
from pathlib import Path
from typing import Any

import dagster as dg

from components.checks.check_definitions import files_check, history_checks
from components.table_asset import TableChange, result, step_name, table_spec
from components.table_policies import with_policies
from components.table_preview import preview_by_duckdb
from ingest.file_source import APPEND
from resources.catalog.unity_catalog import UnityCatalog
from resources.declarations import Column, Engine, TableDeclaration
from resources.duckdb.duckdb_engine import ALIAS, DuckDB, DuckDBSession
from resources.duckdb.group_commit import Ratified
from resources.errors import AlreadyLoaded
from resources.settings import catalog_name
from resources.spark.spark_engine import Spark
from resources.sql.duckdb_sql import literal


def _flights(*columns: str) -> tuple[str, ...]:
    return tuple(f"silver.flights.{column}" for column in columns)


CARRIER_DAILY_SNAPSHOT = TableDeclaration(
    layer="gold",
    name="carrier_daily_snapshot",
    columns=(
        Column("snapshot_date", "date", sources=_flights("flight_date")),
        Column("carrier", "string", "IATA code", _flights("carrier")),
        Column("flights", "bigint", "Scheduled", _flights("flight_id")),
        Column("cancelled", "bigint", sources=_flights("cancelled")),
        Column("mean_departure_delay_min", "double", "Minutes", _flights("departure_delay_min")),
        Column("mean_arrival_delay_min", "double", "Minutes", _flights("arrival_delay_min")),
        Column("taken_at", "timestamp", "When the day was first seen (UTC)"),
    ),
    comment="Each day of every carrier as it was first known, appended once and never changed",
    writer=Engine.DUCKDB,
    operations=APPEND,
)


@dg.multi_asset(
    name=step_name(CARRIER_DAILY_SNAPSHOT),
    specs=[with_policies(table_spec(CARRIER_DAILY_SNAPSHOT, [dg.AssetKey([catalog_name(), "silver", "flights"])]))],
)
def carrier_daily_snapshot(spark: Spark, duckdb: DuckDB, catalog: UnityCatalog) -> dg.MaterializeResult[Any]:
    """Append each missing day, one day a commit."""
    began = time.monotonic()
    created = spark.ensure_table(CARRIER_DAILY_SNAPSHOT)
    with duckdb.session() as session:
        appended = [append for day in missing_days(session) if (append := append_day(session, day))]
        preview = preview_by_duckdb(session, CARRIER_DAILY_SNAPSHOT)
    version = catalog.version(CARRIER_DAILY_SNAPSHOT.full_name(catalog.connection.name))
    written = TableChange(
        version=version,
        rows=spark.count(CARRIER_DAILY_SNAPSHOT, version),
        added=sum(append.rows for append in appended),
        versions=[*([0] if created else []), *(append.version for append in appended)],
        last=spark.history(spark.full_name(CARRIER_DAILY_SNAPSHOT), 1)[0],
        seconds=time.monotonic() - began,
        preview=preview,
        more={"days added": len(appended)},
    )
    return result(CARRIER_DAILY_SNAPSHOT, written)


carrier_daily_snapshot_checks = [files_check(CARRIER_DAILY_SNAPSHOT), history_checks(CARRIER_DAILY_SNAPSHOT)]


def missing_days(session: DuckDBSession) -> list[dt.date]:
    """Return the days of silver that the snapshot lacks, in order. Leaves silver staged as `flights`."""
    session.rows(f"CREATE OR REPLACE TEMP TABLE flights AS SELECT * FROM {ALIAS}.silver.flights")
    days = session.rows(
        "SELECT DISTINCT flight_date FROM flights WHERE flight_date NOT IN "
        f"(SELECT snapshot_date FROM {ALIAS}.gold.{CARRIER_DAILY_SNAPSHOT.name}) ORDER BY 1"
    )
    return [day for (day,) in days]


def append_day(session: DuckDBSession, day: dt.date) -> Ratified | None:
    """Compute one day and append it, exactly once; None where another run appended it meanwhile."""
    query = Path(__file__).with_suffix(".sql").read_text().replace("$day", f"DATE {literal(day.isoformat())}")
    session.rows(f"CREATE OR REPLACE TEMP TABLE snapshot_day AS {query}")
    try:
        return session.append(CARRIER_DAILY_SNAPSHOT, "SELECT * FROM snapshot_day", [f"day:{day.isoformat()}"])
    except AlreadyLoaded:
        return None

"""The gold tables: what carriers, routes and airports did, by Spark, and a snapshot a day, by DuckDB."""

import datetime as dt
import time
from pathlib import Path
from typing import Any

import dagster as dg

from assets.bronze.landed_sources import AIRLINES
from assets.silver.silver_airports import AIRPORTS
from assets.silver.silver_flights import FLIGHTS, FLIGHTS_WEATHER, MERGE
from components.table_asset import TableChange, asset_key, result, spark_table, step_name, table_spec
from components.table_preview import preview_by_duckdb
from ingest.file_source import APPEND
from resources.catalog.unity_catalog import UnityCatalog
from resources.declarations import Column, Engine, TableDeclaration
from resources.duckdb.duckdb_engine import ALIAS, DuckDB, DuckDBSession
from resources.duckdb.group_commit import Ratified
from resources.errors import AlreadyLoaded
from resources.spark.spark_engine import Spark
from resources.sql.duckdb_sql import literal

_SQL = Path(__file__).parent


def _flights(*columns: str) -> tuple[str, ...]:
    return tuple(f"silver.flights.{column}" for column in columns)


def _weather(column: str) -> tuple[str, ...]:
    return (f"silver.flights_weather.{column}",)


CARRIER_DAILY = TableDeclaration(
    layer="gold",
    name="carrier_daily",
    columns=(
        Column("flight_date", "date", sources=_flights("flight_date")),
        Column("carrier", "string", "IATA code", _flights("carrier")),
        Column("carrier_name", "string", sources=("bronze.airlines.name",)),
        Column("flights", "bigint", "Scheduled", _flights("flight_id")),
        Column("cancelled", "bigint", sources=_flights("cancelled")),
        Column("diverted", "bigint", sources=_flights("diverted")),
        Column("mean_departure_delay_min", "double", "Minutes", _flights("departure_delay_min")),
        Column("mean_arrival_delay_min", "double", "Minutes", _flights("arrival_delay_min")),
        Column("on_time_share", "double", "Arrived < 15 min late, of those that arrived", _flights("arrival_delay_min")),
        Column("miles_flown", "bigint", "Miles", _flights("distance_miles", "cancelled")),
    ),
    comment="A carrier's day: how much it flew and how late it was",
    writer=Engine.SPARK,
    operations=MERGE,
    keys=("flight_date", "carrier"),
)

ROUTE_DELAY = TableDeclaration(
    layer="gold",
    name="route_delay",
    columns=(
        Column("origin", "string", "FAA code", _flights("origin")),
        Column("dest", "string", "FAA code", _flights("dest")),
        Column("dest_name", "string", sources=("silver.airports.name",)),
        Column("flights", "bigint", "Scheduled", _flights("flight_id")),
        Column("carriers", "bigint", "Different carriers", _flights("carrier")),
        Column("distance_miles", "int", "Miles", _flights("distance_miles")),
        Column("mean_arrival_delay_min", "double", "Minutes", _flights("arrival_delay_min")),
        Column("median_arrival_delay_min", "double", "Minutes", _flights("arrival_delay_min")),
        Column("p90_arrival_delay_min", "double", "Minutes", _flights("arrival_delay_min")),
        Column("cancelled_share", "double", "0 to 1", _flights("cancelled")),
    ),
    comment="How late a route is, over all its days",
    writer=Engine.SPARK,
    operations=MERGE,
    keys=("origin", "dest"),
)

AIRPORT_HOURLY = TableDeclaration(
    layer="gold",
    name="airport_hourly",
    columns=(
        Column("airport", "string", "FAA code", _flights("origin")),
        Column("hour_utc", "timestamp", sources=_flights("scheduled_departure_utc")),
        Column("departures", "bigint", "Scheduled", _flights("flight_id")),
        Column("cancelled", "bigint", sources=_flights("cancelled")),
        Column("mean_departure_delay_min", "double", "Minutes", _flights("departure_delay_min")),
        Column("max_departure_delay_min", "int", "Minutes", _flights("departure_delay_min")),
        Column("temperature_f", "double", "Degrees Fahrenheit", _weather("temperature_f")),
        Column("wind_speed_mph", "double", "Miles an hour", _weather("wind_speed_mph")),
        Column("precipitation_in", "double", "Inches", _weather("precipitation_in")),
        Column("visibility_mi", "double", "Miles", _weather("visibility_mi")),
    ),
    comment="An airport's hour of scheduled departures beside its weather",
    writer=Engine.SPARK,
    operations=MERGE,
    keys=("airport", "hour_utc"),
)

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


@dg.multi_asset(name=step_name(CARRIER_DAILY_SNAPSHOT), specs=[table_spec(CARRIER_DAILY_SNAPSHOT, [asset_key(FLIGHTS)])])
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
    query = (_SQL / "carrier_daily_snapshot.sql").read_text().replace("$day", f"DATE {literal(day.isoformat())}")
    session.rows(f"CREATE OR REPLACE TEMP TABLE snapshot_day AS {query}")
    try:
        return session.append(CARRIER_DAILY_SNAPSHOT, "SELECT * FROM snapshot_day", [f"day:{day.isoformat()}"])
    except AlreadyLoaded:
        return None


gold_assets = [
    spark_table(CARRIER_DAILY, _SQL / "carrier_daily.sql", {"flights": FLIGHTS, "airlines": AIRLINES.table}),
    spark_table(ROUTE_DELAY, _SQL / "route_delay.sql", {"flights": FLIGHTS, "airports": AIRPORTS}),
    spark_table(AIRPORT_HOURLY, _SQL / "airport_hourly.sql", {"flights": FLIGHTS, "flights_weather": FLIGHTS_WEATHER}),
    carrier_daily_snapshot,
]
